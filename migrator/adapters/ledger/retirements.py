"""Attempts to retire volumes."""

from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import check, missing
from migrator.domain.retirement import RETIREMENT_TRANSITIONS, RetirementRecord, RetirementState

_retirements = tables.retirements
_UNDER_WAY = (RetirementState.RETIRING.value, RetirementState.STOPPING.value)


class SqliteRetirements:
    """The `RetirementRecords` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def intend(
        self, *, volume: str, volume_id: str, catalog: str, files: int, size_bytes: int, at_s: float
    ) -> RetirementRecord:
        """Write down that the volume is about to be stopped."""
        facts = {"catalog": catalog, "files": files, "size_bytes": size_bytes, "intended_at_s": at_s}
        with self._database.write() as connection:
            known = connection.execute(
                select(_retirements.c.id).where(
                    _retirements.c.volume_id == volume_id,
                    _retirements.c.state.in_(_UNDER_WAY),
                )
            ).scalar_one_or_none()
            if known is None:
                made = insert(_retirements).values(
                    volume=volume, volume_id=volume_id, state=RetirementState.RETIRING.value, failure="", **facts
                )
                known = connection.execute(made.returning(_retirements.c.id)).scalar_one()
            else:
                facts |= {"state": RetirementState.RETIRING.value}
                connection.execute(update(_retirements).where(_retirements.c.id == known).values(facts))
            return _record(_row(connection, known))

    def last_look(self, retirement_id: int) -> RetirementRecord:
        """Write down that the command to stop the volume is next. Raises LedgerCorrupt where an attempt has ended."""
        return self._move(retirement_id, RetirementState.STOPPING, {})

    def finish(self, retirement_id: int, state: RetirementState, *, at_s: float, failure: str = "") -> RetirementRecord:
        """What became of it. Raises LedgerCorrupt for a state that may not follow."""
        return self._move(retirement_id, state, {"ended_at_s": at_s, "failure": failure})

    def _move(self, retirement_id: int, state: RetirementState, facts: dict[str, Any]) -> RetirementRecord:
        with self._database.write() as connection:
            row = _row(connection, retirement_id)
            if check(RETIREMENT_TRANSITIONS, RetirementState(row.state), state, f"retirement {retirement_id}"):
                connection.execute(
                    update(_retirements).where(_retirements.c.id == retirement_id).values(state=state.value, **facts)
                )
            return _record(_row(connection, retirement_id))

    def newest(self) -> RetirementRecord | None:
        """The newest attempt at any volume."""
        query = select(_retirements).order_by(_retirements.c.id.desc()).limit(1)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _record(row)


def _row(connection: Connection, retirement_id: int) -> Row[Any]:
    row = connection.execute(select(_retirements).where(_retirements.c.id == retirement_id)).one_or_none()
    if row is None:
        raise missing(f"retirement {retirement_id}")
    return row


def _record(row: Row[Any]) -> RetirementRecord:
    return RetirementRecord(
        id=row.id,
        volume=row.volume,
        volume_id=row.volume_id,
        state=RetirementState(row.state),
        intended_at_s=row.intended_at_s,
        ended_at_s=row.ended_at_s,
        catalog=row.catalog,
        files=row.files,
        size_bytes=row.size_bytes,
        failure=row.failure,
    )
