"""The site, runs of verbs, events, and hooks."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row, insert, select, update

from migrator.core.errors import UsageError
from migrator.core.events import Event
from migrator.fs.model import MountIdentity, TargetCapabilities
from migrator.hooks.model import Hook, HookOutcome, HookStep
from migrator.ledger import tables
from migrator.ledger.database import Database, decode, encode, expect_one
from migrator.ledger.model import HookCallRecord, HookStepRecord, RunRecord, SiteRecord
from migrator.ledger.rows import record_of

# The site, runs and events.


class SiteRecords:
    """The one row about the site."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> SiteRecord | None:
        """The site; None before `init`."""
        with self._database.read() as connection:
            row = connection.execute(select(tables.site)).one_or_none()
        return None if row is None else _site(row)

    def create(self, record: SiteRecord) -> None:
        """Record the site. Raises UsageError if the ledger belongs to another site."""
        with self._database.write() as connection:
            there = connection.execute(select(tables.site)).one_or_none()
            if there is not None:
                if there.site_id != record.site_id:
                    raise UsageError(
                        f"the ledger belongs to the site {there.name} already",
                        hint="give the new site a state_dir of its own in site.toml",
                    )
                return
            connection.execute(
                insert(tables.site).values(
                    id=1,
                    site_id=record.site_id,
                    name=record.name,
                    created_at_s=record.created_at_s,
                    source=encode(record.source),
                    target=encode(record.target),
                    capabilities=None if record.capabilities is None else encode(record.capabilities),
                    capabilities_probed_at_s=record.capabilities_probed_at_s,
                )
            )

    def update_identities(self, source: MountIdentity, target: MountIdentity) -> None:
        """Record the current mounts as the expected ones."""
        with self._database.write() as connection:
            done = connection.execute(update(tables.site).values(source=encode(source), target=encode(target)))
            expect_one(done.rowcount, "site")

    def record_capabilities(self, capabilities: TargetCapabilities, at_s: float) -> None:
        """Record which attributes of a file the target keeps."""
        with self._database.write() as connection:
            done = connection.execute(
                update(tables.site).values(capabilities=encode(capabilities), capabilities_probed_at_s=at_s)
            )
            expect_one(done.rowcount, "site")


def _site(row: Row[Any]) -> SiteRecord:
    return record_of(
        row,
        SiteRecord,
        source=decode(row.source, MountIdentity),
        target=decode(row.target, MountIdentity),
        capabilities=None if row.capabilities is None else decode(row.capabilities, TargetCapabilities),
    )


class RunRecords:
    """Invocations of verbs that write."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, *, verb: str, pid: int, at_s: float, directory: str) -> int:
        """Record a new run; returns its id. Every call is a run of its own."""
        with self._database.write() as connection:
            row = connection.execute(
                insert(tables.runs)
                .values(verb=verb, pid=pid, started_at_s=at_s, heartbeat_at_s=at_s, directory=directory)
                .returning(tables.runs.c.id)
            ).one()
        return int(row.id)

    def heartbeat(self, run_id: int, at_s: float) -> None:
        """The run is alive."""
        with self._database.write() as connection:
            done = connection.execute(update(tables.runs).where(tables.runs.c.id == run_id).values(heartbeat_at_s=at_s))
            expect_one(done.rowcount, f"run {run_id}")

    def finish(self, run_id: int, at_s: float, exit_code: int) -> None:
        """The run has ended."""
        with self._database.write() as connection:
            done = connection.execute(
                update(tables.runs)
                .where(tables.runs.c.id == run_id)
                .values(finished_at_s=at_s, heartbeat_at_s=at_s, exit_code=exit_code)
            )
            expect_one(done.rowcount, f"run {run_id}")

    def latest(self, verb: str | None = None) -> RunRecord | None:
        """The newest run, of one verb or of any."""
        query = select(tables.runs).order_by(tables.runs.c.id.desc()).limit(1)
        if verb is not None:
            query = query.where(tables.runs.c.verb == verb)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else run_record(row)


def run_record(row: Row[Any]) -> RunRecord:
    """A run, from its row."""
    return record_of(row, RunRecord)


class EventRecords:
    """Events of the migration."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, event: Event, run_id: int | None = None) -> None:
        with self._database.write() as connection:
            connection.execute(
                insert(tables.events).values(
                    run_id=run_id,
                    at_s=event.at_s,
                    kind=event.kind.value,
                    severity=event.severity.value,
                    subject=event.subject,
                    message=event.message,
                )
            )

    def latest(self, limit: int) -> Sequence[Event]:
        """The newest events, newest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(tables.events).order_by(tables.events.c.id.desc()).limit(limit)).all()
        return [event_record(row) for row in rows]


def event_record(row: Row[Any]) -> Event:
    """An event, from its row."""
    return record_of(row, Event)


# Steps with hooks, and calls of hooks.


_BEGUN_ANEW = "begun-anew"

_steps, _calls = tables.hook_steps, tables.hook_calls


class HookRecords:
    """Steps with hooks around them, and every call. `subject` says which batch, pass or brick a step is about."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open_step(self, *, run_id: int, step: HookStep, subject: str, at_s: float) -> HookStepRecord:
        """Record that a step begins, and close an earlier one that was left open."""
        with self._database.write() as connection:
            connection.execute(
                update(_steps)
                .where(_steps.c.step == step.value, _steps.c.subject == subject, _steps.c.closed_at_s.is_(None))
                .values(closed_at_s=at_s, state=_BEGUN_ANEW)
            )
            row = connection.execute(
                insert(_steps)
                .values(run_id=run_id, step=step.value, subject=subject, opened_at_s=at_s)
                .returning(_steps)
            ).one()
        return _step(row)

    def open_since(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The step that an earlier run left open."""
        query = select(_steps).where(
            _steps.c.step == step.value, _steps.c.subject == subject, _steps.c.closed_at_s.is_(None)
        )
        with self._database.read() as connection:
            row = connection.execute(query.order_by(_steps.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else _step(row)

    def latest(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The newest such step, open or closed."""
        query = select(_steps).where(_steps.c.step == step.value, _steps.c.subject == subject)
        with self._database.read() as connection:
            row = connection.execute(query.order_by(_steps.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else _step(row)

    def close_step(self, step_id: int, *, state: str, at_s: float) -> None:
        """The `post` hooks of the step were called. May be called again."""
        with self._database.write() as connection:
            done = connection.execute(
                update(_steps).where(_steps.c.id == step_id).values(closed_at_s=at_s, state=state)
            )
            expect_one(done.rowcount, f"step {step_id} with hooks")

    def intend(self, *, step_id: int, hook: Hook, token: str, at_s: float) -> int:
        """Record a call before the hook starts; return its id."""
        with self._database.write() as connection:
            row = connection.execute(
                insert(_calls)
                .values(
                    step_id=step_id,
                    stage=hook.stage.name,
                    name=hook.name,
                    token=token,
                    started_at_s=at_s,
                    output=b"",
                )
                .returning(_calls.c.id)
            ).one()
        return int(row.id)

    def finish(self, call_id: int, *, at_s: float, exit_code: int | None, outcome: HookOutcome, output: bytes) -> None:
        """Record the result of a call. The first result counts."""
        with self._database.write() as connection:
            there = connection.execute(select(_calls.c.finished_at_s).where(_calls.c.id == call_id)).one_or_none()
            expect_one(int(there is not None), f"call {call_id} of a hook")
            connection.execute(
                update(_calls)
                .where(_calls.c.id == call_id, _calls.c.finished_at_s.is_(None))
                .values(finished_at_s=at_s, exit_code=exit_code, outcome=outcome.value, output=output)
            )

    def unfinished(self, steps: Collection[HookStep]) -> Sequence[HookCallRecord]:
        """Calls around these steps that a crash left without a result."""
        query = (
            select(_calls)
            .join(_steps, _steps.c.id == _calls.c.step_id)
            .where(_calls.c.finished_at_s.is_(None), _steps.c.step.in_([step.value for step in steps]))
            .order_by(_calls.c.id)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [record_of(row, HookCallRecord) for row in rows]

    def of_step(self, step_id: int) -> Sequence[HookCallRecord]:
        """The calls of a step, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(_calls).where(_calls.c.step_id == step_id).order_by(_calls.c.id)).all()
        return [record_of(row, HookCallRecord) for row in rows]


def _step(row: Row[Any]) -> HookStepRecord:
    return record_of(row, HookStepRecord, state=row.state or "")
