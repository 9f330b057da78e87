"""The site, runs and events."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, insert, select, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.codec import (
    decode,
    encode,
)
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import expect_one
from migrator.domain.errors import UsageError
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.site import MountIdentity, TargetCapabilities
from migrator.ports.site import RunRecord, SiteRecord


class SqliteSite:
    """The one row about the site."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> SiteRecord | None:
        """The site; None before `init`."""
        with self._database.read() as connection:
            row = connection.execute(select(tables.site)).one_or_none()
        return None if row is None else _site(row)

    def create(self, record: SiteRecord) -> None:
        """Record the site. Raises UsageError where the ledger is another site's already."""
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
        """Record what is mounted now as what has to be."""
        with self._database.write() as connection:
            done = connection.execute(update(tables.site).values(source=encode(source), target=encode(target)))
            expect_one(done.rowcount, "site")

    def record_capabilities(self, capabilities: TargetCapabilities, at_s: float) -> None:
        """Record what the target keeps of a file."""
        with self._database.write() as connection:
            done = connection.execute(
                update(tables.site).values(capabilities=encode(capabilities), capabilities_probed_at_s=at_s)
            )
            expect_one(done.rowcount, "site")


def _site(row: Row[Any]) -> SiteRecord:
    return SiteRecord(
        site_id=row.site_id,
        name=row.name,
        created_at_s=row.created_at_s,
        source=decode(row.source, MountIdentity),
        target=decode(row.target, MountIdentity),
        capabilities=None if row.capabilities is None else decode(row.capabilities, TargetCapabilities),
        capabilities_probed_at_s=row.capabilities_probed_at_s,
    )


class SqliteRuns:
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
        """The run lives."""
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
    return RunRecord(
        id=row.id,
        verb=row.verb,
        pid=row.pid,
        started_at_s=row.started_at_s,
        heartbeat_at_s=row.heartbeat_at_s,
        finished_at_s=row.finished_at_s,
        exit_code=row.exit_code,
        directory=row.directory,
    )


class SqliteEvents:
    """The migration's log. An event that is added twice is there twice."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, event: Event, run_id: int | None = None) -> None:
        """Keep an event."""
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
    return Event(
        at_s=row.at_s,
        kind=EventKind(row.kind),
        severity=Severity(row.severity),
        subject=row.subject,
        message=row.message,
    )
