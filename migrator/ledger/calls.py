"""The site, runs of verbs, events, and hooks."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import ColumnElement, or_, select, update

from migrator.core.documents import encode
from migrator.core.errors import UsageError
from migrator.core.events import Event, EventKind, Severity
from migrator.fs.model import MountIdentity, TargetCapabilities
from migrator.hooks.model import Hook, HookOutcome, HookStage, HookStep
from migrator.ledger import tables
from migrator.ledger.database import expect_one
from migrator.ledger.model import HookCallRecord, HookStepRecord, RunRecord, SiteRecord
from migrator.ledger.rows import Records, add, columns_of, record_of

# The site, runs and events.


_ONLY_SITE = 1


class SiteRecords(Records):
    """The one row about the site."""

    def read(self) -> SiteRecord | None:
        """The site; None before `init`."""
        return self._first(SiteRecord, select(tables.SiteRow))

    def required(self) -> SiteRecord:
        """The site. Raises UsageError before `init`."""
        if (site := self.read()) is None:
            raise UsageError("this site has no ledger entry yet", hint="run `migrator init`")
        return site

    def create(self, record: SiteRecord) -> None:
        """Record the site. Raises UsageError if the ledger belongs to another site."""
        with self._database.write() as connection:
            there = connection.execute(select(tables.SiteRow)).one_or_none()
            if there is None:
                add(connection, tables.SiteRow, **columns_of(tables.SiteRow, record, id=_ONLY_SITE))
            elif there.site_id != record.site_id:
                raise UsageError(
                    f"the ledger belongs to the site {there.name} already",
                    hint="give the new site a state_dir of its own in site.toml",
                )

    def update_identities(self, source: MountIdentity, target: MountIdentity) -> None:
        """Record the current mounts as the expected ones."""
        self._change(tables.SiteRow, _ONLY_SITE, "site", source=encode(source), target=encode(target))

    def record_capabilities(self, capabilities: TargetCapabilities, at_s: float) -> None:
        """Record which attributes of a file the target keeps."""
        found = {"capabilities": encode(capabilities), "capabilities_probed_at_s": at_s}
        self._change(tables.SiteRow, _ONLY_SITE, "site", **found)


class RunRecords(Records):
    """Invocations of verbs that write."""

    def start(self, *, verb: str, pid: int, at_s: float, directory: str) -> int:
        """Record a new run; returns its id. Every call is a run of its own."""
        times = {"started_at_s": at_s, "heartbeat_at_s": at_s}
        return self._add(tables.RunRow, verb=verb, pid=pid, directory=directory, **times)

    def heartbeat(self, run_id: int, at_s: float) -> None:
        """The run is alive."""
        self._change(tables.RunRow, run_id, f"run {run_id}", heartbeat_at_s=at_s)

    def finish(self, run_id: int, at_s: float, exit_code: int) -> None:
        """The run has ended."""
        ended = {"finished_at_s": at_s, "heartbeat_at_s": at_s, "exit_code": exit_code}
        self._change(tables.RunRow, run_id, f"run {run_id}", **ended)

    def latest(self) -> RunRecord | None:
        """The newest run."""
        return self._first(RunRecord, select(tables.RunRow).order_by(tables.RunRow.id.desc()))

    def newest(self, limit: int, directories: Collection[str]) -> Sequence[RunRecord]:
        """The newest runs, and those with these directories, newest first."""
        run = tables.RunRow
        newest = select(run.id).order_by(run.id.desc()).limit(limit)
        query = select(tables.RunRow).where(or_(run.id.in_(newest), run.directory.in_(directories)))
        return self._all(RunRecord, query.order_by(run.id.desc()))


class JournalRecords(Records):
    """What the site's commands have begun, each entry with a random token that is in the journal on the target too."""

    def add(self, *, token: str, at_s: float, what: str) -> int:
        """Record an entry; returns its number, which is higher than those of all before."""
        return self._add(tables.JournalRow, token=token, at_s=at_s, what=what)

    def tokens(self, first: int) -> Mapping[int, str]:
        """The tokens of the entries from a number on."""
        query = select(tables.JournalRow.id, tables.JournalRow.token).where(tables.JournalRow.id >= first)
        return {row.id: row.token for row in self._rows(query)}


class EventRecords(Records):
    """Events of the migration."""

    def add(self, event: Event, run_id: int | None = None) -> None:
        self._add(tables.EventRow, **columns_of(tables.EventRow, event, run_id=run_id))

    def note(self, at_s: float, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """Add an event that is not shown, and that belongs to no run."""
        self.add(Event(at_s=at_s, kind=kind, severity=severity, subject=subject, message=message))

    def latest(self, limit: int) -> Sequence[Event]:
        """The newest events, newest first."""
        return self._all(Event, select(tables.EventRow).order_by(tables.EventRow.id.desc()).limit(limit))


# Steps with hooks, and calls of hooks.


_BEGUN_ANEW = "begun-anew"

_steps, _calls = tables.HookStepRow, tables.HookCallRow


class HookRecords(Records):
    """Steps with hooks around them, and every call. `subject` is the batch, pass or brick of a step."""

    def open_step(self, *, run_id: int, step: HookStep, subject: str, at_s: float) -> HookStepRecord:
        """Record that a step begins, and close an earlier one that was left open."""
        left_open = (*_same(step, subject), _steps.closed_at_s.is_(None))
        closed = {"closed_at_s": at_s, "state": _BEGUN_ANEW}
        new = {"run_id": run_id, "step": step.value, "subject": subject, "opened_at_s": at_s}
        with self._database.write() as connection:
            connection.execute(update(tables.HookStepRow).where(*left_open).values(closed))
            number = add(connection, tables.HookStepRow, **new)
            row = connection.execute(select(tables.HookStepRow).where(_steps.id == number)).one()
        return record_of(row, HookStepRecord, state="")

    def open_since(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The step that an earlier run left open."""
        return self._newest(*_same(step, subject), _steps.closed_at_s.is_(None))

    def latest(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The newest such step, open or closed."""
        return self._newest(*_same(step, subject))

    def may_have_worked(self, step: HookStep, subject: str, stage: HookStage) -> bool:
        """Whether a hook of this stage was called for such a step, and did not skip or refuse it by its exit code."""
        said_no = _calls.outcome.in_((HookOutcome.SKIP.value, HookOutcome.REFUSE.value))
        by_itself = _calls.exit_code.is_(None) | (_calls.exit_code >= 0)
        worked = _calls.outcome.is_(None) | ~(said_no & by_itself)
        query = select(_calls.id).join(tables.HookStepRow, _steps.id == _calls.step_id)
        return bool(self._rows(query.where(*_same(step, subject), _calls.stage == stage.name, worked).limit(1)))

    def _newest(self, *these: ColumnElement[bool]) -> HookStepRecord | None:
        rows = self._rows(select(tables.HookStepRow).where(*these).order_by(_steps.id.desc()).limit(1))
        return next((record_of(row, HookStepRecord, state=row.state or "") for row in rows), None)

    def close_step(self, step_id: int, *, state: str, at_s: float) -> None:
        """The `post` hooks of the step were called. May be called again."""
        self._change(tables.HookStepRow, step_id, f"step {step_id} with hooks", closed_at_s=at_s, state=state)

    def intend(self, *, step_id: int, hook: Hook, token: str, at_s: float) -> int:
        """Record a call before the hook starts; return its id."""
        called = {"stage": hook.stage.name, "name": hook.name, "token": token, "started_at_s": at_s}
        return self._add(tables.HookCallRow, step_id=step_id, **called, output=b"")

    def finish(self, call_id: int, *, at_s: float, exit_code: int | None, outcome: HookOutcome, output: bytes) -> None:
        """Record the result of a call. The first result counts."""
        result = {"finished_at_s": at_s, "exit_code": exit_code, "outcome": outcome.value, "output": output}
        with self._database.write() as connection:
            there = connection.execute(select(_calls.finished_at_s).where(_calls.id == call_id)).one_or_none()
            expect_one(int(there is not None), f"call {call_id} of a hook")
            unfinished = (_calls.id == call_id, _calls.finished_at_s.is_(None))
            connection.execute(update(tables.HookCallRow).where(*unfinished).values(result))

    def unfinished(self, steps: Collection[HookStep]) -> Sequence[tuple[str, HookCallRecord]]:
        """Calls around these steps without a result, each with the directory of its run: of runs at work, and of those
        that were killed.
        """
        query = (
            select(tables.HookCallRow, tables.RunRow.directory)
            .join(tables.HookStepRow, _steps.id == _calls.step_id)
            .join(tables.RunRow, tables.RunRow.id == _steps.run_id)
            .where(_calls.finished_at_s.is_(None), _steps.step.in_([step.value for step in steps]))
            .order_by(_calls.id)
        )
        return [(row.directory, record_of(row, HookCallRecord)) for row in self._rows(query)]

    def of_step(self, step_id: int) -> Sequence[HookCallRecord]:
        """The calls of a step, oldest first."""
        query = select(tables.HookCallRow).where(_calls.step_id == step_id).order_by(_calls.id)
        return self._all(HookCallRecord, query)


def _same(step: HookStep, subject: str) -> tuple[ColumnElement[bool], ...]:
    return _steps.step == step.value, _steps.subject == subject
