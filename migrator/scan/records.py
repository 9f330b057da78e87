"""The part of the ledger that scans read and write."""

from migrator.catalog.records import CatalogLedger
from migrator.operations.ports import TreeMoves


class ScanLedger(CatalogLedger):
    """The ledger with the records of scans, and of users who were moved."""

    cutovers: TreeMoves
