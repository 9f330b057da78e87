"""The records of retirements of volumes."""

from msgspec.structs import replace

from migrator.bricks.retire import model as retirement
from migrator.bricks.retire.model import Retirement, RetirementState, RetireStep
from migrator.ledger.database import Database
from migrator.operations.records import OperationStore


class RetirementRecords(OperationStore[Retirement, RetirementState, RetireStep, None]):
    """Attempts to retire volumes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, retirement.RETIREMENTS)

    def begin(
        self, *, volume: str, volume_id: str, catalog: str, files: int, size_bytes: int, at_s: float
    ) -> Retirement:
        """Record that the volume is about to be stopped."""
        subject, state = volume_id.encode("utf-8", "surrogateescape"), RetirementState.RETIRING
        with self._database.write() as connection:
            newest = self._newest(connection, subject)
            if newest is not None and newest.state in retirement.UNDER_WAY:
                facts = replace(newest, catalog=catalog, files=files, size_bytes=size_bytes)
                times = {one: s for one, s in newest.times.items() if one not in retirement.UNDER_WAY}
                return self._write(connection, newest, replace(facts, state=state, times={**times, state: at_s}))
            record = Retirement(
                id=0,
                volume=volume,
                volume_id=volume_id,
                catalog=catalog,
                files=files,
                size_bytes=size_bytes,
                state=state,
                times={state: at_s},
            )
            return self._begin(connection, subject, record, newest)

    def newest(self) -> Retirement | None:
        """The newest attempt at any volume."""
        found = self.all()
        return found[-1] if found else None

    def enter(self, operation_id: int, state: RetirementState, *, at_s: float, failure: str = "") -> Retirement:
        """Record a state. Raises LedgerCorrupt if it may not follow."""
        with self._database.write() as connection:
            before = self._one(connection, operation_id)
            if before.state is state:
                return before
            return self._write(connection, before, self._changed(before, state, at_s, None, failure=failure))
