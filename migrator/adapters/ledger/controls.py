"""What people have set while the migration goes on, and what runs were allowed."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.domain.governing import Bound, Controls, Gate, GovernorRecord, Hold, HostLoad, Limits, Tuned

_controls = tables.controls
_records = tables.governor_records

_HOLD, _TUNE = "hold", "tune"

KEPT_RECORDS = 5000
"""At a change every few minutes that is a fortnight of runs."""
_THIN_EVERY = 64
"""Old ones are looked for whenever so many were added."""


class SqliteControls:
    """The `ControlRecords` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> Controls:
        """What is set."""
        with self._database.read() as connection:
            hold, tuned = _newest(connection, _HOLD), _newest(connection, _TUNE)
        limits = Limits() if tuned is None else _limits(tuned)
        return Controls(
            hold=Hold(since_s=hold.at_s, by=hold.by, reason=hold.reason) if hold is not None and hold.paused else None,
            tuned=None if tuned is None or limits.nothing else Tuned(limits=limits, since_s=tuned.at_s, by=tuned.by),
        )

    def hold(self, *, by: str, reason: str, at_s: float) -> None:
        """Pause. One that is paused already stays paused since then, and by whom it was."""
        self._set_paused(paused=True, by=by, reason=reason, at_s=at_s)

    def resume(self, *, by: str, at_s: float) -> None:
        """Pause no more. May be called where nothing is paused."""
        self._set_paused(paused=False, by=by, reason="", at_s=at_s)

    def tune(self, limits: Limits, *, by: str, at_s: float, instead_of: Limits | None = None) -> bool:
        """From now on these limits are set, and no others, unless others are set than `instead_of`; `Limits()` sets none."""
        with self._database.write() as connection:
            newest = _newest(connection, _TUNE)
            before = Limits() if newest is None else _limits(newest)
            if instead_of not in (None, before):
                return False
            if before == limits:
                return True
            connection.execute(
                insert(_controls).values(
                    kind=_TUNE,
                    at_s=at_s,
                    by=by,
                    paused=0,
                    reason="",
                    jobs=limits.jobs,
                    bwlimit_bytes_per_s=limits.bwlimit_bytes_per_s,
                    max_latency_s=limits.max_latency_s,
                    max_load=limits.max_load,
                )
            )
        return True

    def _set_paused(self, *, paused: bool, by: str, reason: str, at_s: float) -> None:
        with self._database.write() as connection:
            newest = _newest(connection, _HOLD)
            if (newest is not None and bool(newest.paused)) is paused:
                return
            connection.execute(
                insert(_controls).values(kind=_HOLD, at_s=at_s, by=by, paused=int(paused), reason=reason)
            )


class SqliteGovernor:
    """The `GovernorRecords` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: GovernorRecord) -> None:
        """Keep one. Some calls also remove what is old."""
        with self._database.write() as connection:
            added = connection.execute(
                insert(_records).values(
                    run_id=record.run_id,
                    at_s=record.at_s,
                    gate=record.gate.value,
                    bound=record.bound.value,
                    streams=record.streams,
                    most=record.most,
                    hosts=json.dumps(record.hosts),
                    bwlimit_bytes_per_s=record.bwlimit_bytes_per_s,
                    reason=record.reason,
                    until_s=record.until_s,
                    max_latency_s=record.max_latency_s,
                    max_load=record.max_load,
                )
            )
            number = added.inserted_primary_key[0] if added.inserted_primary_key is not None else 0
            if number % _THIN_EVERY == 0:
                connection.execute(delete(_records).where(_records.c.id <= number - KEPT_RECORDS))

    def newest(self) -> GovernorRecord | None:
        """The newest of any run."""
        with self._database.read() as connection:
            row = connection.execute(select(_records).order_by(_records.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else _record(row)

    def of_run(self, run_id: int) -> Sequence[GovernorRecord]:
        """Those of a run, oldest first."""
        query = select(_records).where(_records.c.run_id == run_id).order_by(_records.c.id)
        with self._database.read() as connection:
            return [_record(row) for row in connection.execute(query)]

    def keep_loads(self, loads: Sequence[HostLoad]) -> None:
        """What hosts have to do now, in the place of all that was kept before."""
        with self._database.write() as connection:
            connection.execute(delete(tables.host_loads))
            if loads:
                connection.execute(insert(tables.host_loads), [asdict(one) for one in loads])

    def loads(self) -> Sequence[HostLoad]:
        """What was kept last, in order of host."""
        query = select(tables.host_loads).order_by(tables.host_loads.c.host)
        with self._database.read() as connection:
            return [HostLoad(host=row.host, at_s=row.at_s, load=row.load) for row in connection.execute(query)]


def _newest(connection: Connection, kind: str) -> Row[Any] | None:
    query = select(_controls).where(_controls.c.kind == kind).order_by(_controls.c.id.desc()).limit(1)
    return connection.execute(query).one_or_none()


def _limits(row: Row[Any]) -> Limits:
    return Limits(
        jobs=row.jobs,
        bwlimit_bytes_per_s=row.bwlimit_bytes_per_s,
        max_latency_s=row.max_latency_s,
        max_load=row.max_load,
    )


def _record(row: Row[Any]) -> GovernorRecord:
    return GovernorRecord(
        at_s=row.at_s,
        run_id=row.run_id,
        gate=Gate(row.gate),
        bound=Bound(row.bound),
        streams=row.streams,
        most=row.most,
        hosts=tuple((host, streams) for host, streams in json.loads(row.hosts)),
        bwlimit_bytes_per_s=row.bwlimit_bytes_per_s,
        reason=row.reason,
        until_s=row.until_s,
        max_latency_s=row.max_latency_s,
        max_load=row.max_load,
    )
