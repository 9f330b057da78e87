"""The ledger with the records of all features."""

from migrator.bench.records import BenchmarkRecords
from migrator.bricks.add.records import AdditionRecords
from migrator.bricks.drain.records import DrainRecords
from migrator.bricks.retire.records import RetirementRecords
from migrator.catalog.records import ScanRecords, VerificationRecords
from migrator.cutover.records import AnnouncementRecords, BackupRecords, CutoverRecords, SpeedUpRecords
from migrator.hooks.records import HookRecords
from migrator.ledger.database import Database
from migrator.plan.records import CapacityRecords, LimitRecords, PlanRecords
from migrator.purge.records import SecondCopyRecords
from migrator.reap.records import ArchiveRecords, ReleaseRecords
from migrator.report.records import LedgerFacts, ReportLedger
from migrator.report.records_live import MetricRecords, WatchRecords
from migrator.transfer.records import PassRecords
from migrator.transfer.records_measures import ControlRecords, GovernorRecords, ProbeRecords, SampleRecords
from migrator.transfer.records_passes import PredictionRecords


class MigrationLedger(ReportLedger):
    """The ledger of a migration."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.hooks = HookRecords(database)
        self.scans = ScanRecords(database)
        self.verifications = VerificationRecords(database)
        self.plans = PlanRecords(database)
        self.limits = LimitRecords(database)
        self.capacity = CapacityRecords(database)
        self.archives = ArchiveRecords(database)
        self.releases = ReleaseRecords(database)
        self.passes = PassRecords(database)
        self.predictions = PredictionRecords(database)
        self.samples = SampleRecords(database)
        self.probes = ProbeRecords(database)
        self.controls = ControlRecords(database)
        self.governor = GovernorRecords(database)
        self.cutovers = CutoverRecords(database)
        self.backups = BackupRecords(database)
        self.announcements = AnnouncementRecords(database)
        self.speed_ups = SpeedUpRecords(database)
        self.second_copies = SecondCopyRecords(database)
        self.drains = DrainRecords(database)
        self.additions = AdditionRecords(database)
        self.retirements = RetirementRecords(database)
        self.benchmarks = BenchmarkRecords(database)
        self.facts = LedgerFacts(database)
        self.live = WatchRecords(database)
        self.metrics = MetricRecords(database)
