"""Probes over time."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Integer, Row, cast, delete, func, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.domain.probe import Probe, ProbeSide, ProbeTimes
from migrator.domain.units import DAY_S, HOUR_S

_probes = tables.probes

ALL_KEPT_S = 2 * DAY_S
"""So long every probe is kept, and then one of each hour."""
KEPT_S = 90 * DAY_S

_THIN_EVERY = 64
"""Old ones are looked for whenever so many were added."""
_TIMES = ("create_s", "write_s", "sync_s", "stat_s", "unlink_s", "readdir_s")


class SqliteProbes:
    """The `ProbeRecords` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, probe: Probe) -> None:
        """Keep one. Some calls also remove what is old."""
        times: dict[str, Any] = dict.fromkeys(_TIMES) if probe.times is None else asdict(probe.times)
        row = {"side": probe.side.value, "at_s": probe.at_s, "waited_s": probe.waited_s, "failure": probe.failure}
        with self._database.write() as connection:
            added = connection.execute(insert(_probes).values(**row, **times))
            if added.inserted_primary_key is not None and added.inserted_primary_key[0] % _THIN_EVERY == 0:
                _thin(connection, probe.at_s)

    def since(self, side: ProbeSide, at_s: float) -> Sequence[Probe]:
        """Those of a side that were begun after that time, oldest first."""
        query = (
            select(_probes)
            .where(_probes.c.side == side.value, _probes.c.at_s > at_s)
            .order_by(_probes.c.at_s, _probes.c.id)
        )
        with self._database.read() as connection:
            return [_probe(row) for row in connection.execute(query)]

    def after(self, number: int) -> Sequence[tuple[int, Probe]]:
        """Those of both sides that were kept after the one of that number, with their numbers, in order."""
        query = select(_probes).where(_probes.c.id > number).order_by(_probes.c.id)
        with self._database.read() as connection:
            return [(row.id, _probe(row)) for row in connection.execute(query)]

    def last(self) -> int:
        """The number of the one that was kept last; 0 where there is none."""
        with self._database.read() as connection:
            return int(connection.execute(select(func.coalesce(func.max(_probes.c.id), 0))).scalar_one())

    def newest(self) -> Sequence[Probe]:
        """The newest of each side that has any, in the order of `ProbeSide`."""
        found: list[Probe] = []
        with self._database.read() as connection:
            for side in ProbeSide:
                query = select(_probes).where(_probes.c.side == side.value)
                row = connection.execute(
                    query.order_by(_probes.c.at_s.desc(), _probes.c.id.desc()).limit(1)
                ).one_or_none()
                if row is not None:
                    found.append(_probe(row))
        return found


def _thin(connection: Connection, now_s: float) -> None:
    old = _probes.c.at_s < now_s - ALL_KEPT_S
    kept = select(func.min(_probes.c.id)).where(old).group_by(_probes.c.side, cast(_probes.c.at_s / HOUR_S, Integer))
    connection.execute(delete(_probes).where(old, _probes.c.id.not_in(kept)))
    connection.execute(delete(_probes).where(_probes.c.at_s < now_s - KEPT_S))


def _probe(row: Row[Any]) -> Probe:
    return Probe(
        side=ProbeSide(row.side),
        at_s=row.at_s,
        times=None if row.create_s is None else ProbeTimes(**{name: getattr(row, name) for name in _TIMES}),
        waited_s=row.waited_s,
        failure=row.failure,
    )
