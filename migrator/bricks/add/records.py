"""The records of additions."""

from collections.abc import Sequence

from migrator.bricks.add import model as addition
from migrator.bricks.add.model import AdditionNotes, AdditionRecord, AdditionSide, AdditionState, AdditionStep
from migrator.bricks.samples import BrickOperationStore, bricks_subject
from migrator.ledger.database import Database
from migrator.operations.records import begun_already


class AdditionRecords(BrickOperationStore[AdditionRecord, AdditionState, AdditionStep, AdditionNotes]):
    """Attempts to add bricks."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, addition.ADDITIONS)

    def plan(self, record: AdditionRecord, *, anew: bool = False) -> AdditionRecord:
        """Begin this attempt, or return the one of the same bricks."""
        volume_id, bricks = record.volume_id, record.bricks
        subject = bricks_subject(volume_id, bricks, record.side.value)
        with self._database.write() as connection:
            newest = self._newest(connection, subject)
            over = addition.ADDITION_ENDED_STATES | addition.UNTOUCHED_STATES
            for one in self.every(connection):
                same = one.side is record.side and set(one.bricks) == set(bricks)
                others = not same and one.volume_id == volume_id and one.state not in over
                if others and set(one.bricks) & set(bricks):
                    raise begun_already(f"the addition of {one.shown_bricks}", "give that command again first")
            if newest is not None and not (anew and newest.state in addition.ADDITION_ENDED_STATES):
                given_up = newest.state in addition.UNTOUCHED_STATES and newest.instead_of != record.instead_of
                if not given_up:
                    return newest
            return self._begin(connection, subject, record, newest)

    def latest(self, volume_id: str, bricks: Sequence[str], side: AdditionSide) -> AdditionRecord | None:
        """The newest attempt at exactly these bricks, in any order."""
        with self._database.read() as connection:
            return self._newest(connection, bricks_subject(volume_id, bricks, side.value))
