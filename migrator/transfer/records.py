"""The part of the ledger that passes read and write."""

from migrator.hooks.records import HookLedger
from migrator.plan.records import PlanLedger
from migrator.transfer.ports import BrickDrains
from migrator.transfer.records_chunks import AttemptTable, ChunkTable
from migrator.transfer.records_measures import ControlRecords, GovernorRecords, ProbeRecords, SampleRecords
from migrator.transfer.records_passes import ArrivalTable, PassTable, PredictionRecords


class PassRecords(PassTable, ArrivalTable, ChunkTable, AttemptTable):
    """Passes, chunks and attempts."""


class TransferLedger(PlanLedger, HookLedger):
    """The ledger with the records of passes."""

    passes: PassRecords
    predictions: PredictionRecords
    samples: SampleRecords
    probes: ProbeRecords
    controls: ControlRecords
    governor: GovernorRecords
    drains: BrickDrains
