"""The part of the ledger that operations on bricks read and write."""

from migrator.bricks.add.records import AdditionRecords
from migrator.bricks.drain.records import DrainRecords
from migrator.bricks.retire.records import RetirementRecords
from migrator.cutover.records import CutoverLedger


class BrickLedger(CutoverLedger):
    """The ledger with the records of drains, additions and retirements."""

    drains: DrainRecords
    additions: AdditionRecords
    retirements: RetirementRecords
