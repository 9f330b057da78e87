"""The ledger as the stages need it. Synchronous, one writer, short transactions; times in seconds since the epoch.

Every method that records may be called again after a crash with the same facts unless it says otherwise. State changes
go through the transition tables of `migrator.domain.states`; a change that they do not allow raises LedgerCorrupt.
"""

from typing import Protocol

from migrator.ports.additions import AdditionRecords
from migrator.ports.archives import ArchiveRecords
from migrator.ports.capacity import CapacityRecords
from migrator.ports.cutovers import CutoverRecords
from migrator.ports.drains import DrainRecords
from migrator.ports.governing import ControlRecords, GovernorRecords
from migrator.ports.hooks import HookRecords
from migrator.ports.passes import PassRecords
from migrator.ports.plans import PlanRecords
from migrator.ports.predictions import PredictionRecords
from migrator.ports.probing import ProbeRecords
from migrator.ports.reap import ReleaseRecords
from migrator.ports.retirements import RetirementRecords
from migrator.ports.samples import SampleRecords
from migrator.ports.scans import ScanRecords
from migrator.ports.site import EventRecords, RunRecords, SiteRecords
from migrator.ports.target_backups import BackupRecords
from migrator.ports.verifications import VerificationRecords


class Ledger(Protocol):
    """The whole ledger, table group by table group; a stage asks for the groups that it needs."""

    @property
    def site(self) -> SiteRecords: ...

    @property
    def runs(self) -> RunRecords: ...

    @property
    def scans(self) -> ScanRecords: ...

    @property
    def plans(self) -> PlanRecords: ...

    @property
    def passes(self) -> PassRecords: ...

    @property
    def samples(self) -> SampleRecords: ...

    @property
    def probes(self) -> ProbeRecords: ...

    @property
    def controls(self) -> ControlRecords: ...

    @property
    def governor(self) -> GovernorRecords: ...

    @property
    def capacity(self) -> CapacityRecords: ...

    @property
    def events(self) -> EventRecords: ...

    @property
    def verifications(self) -> VerificationRecords: ...

    @property
    def predictions(self) -> PredictionRecords: ...

    @property
    def hooks(self) -> HookRecords: ...

    @property
    def cutovers(self) -> CutoverRecords: ...

    @property
    def drains(self) -> DrainRecords: ...

    @property
    def additions(self) -> AdditionRecords: ...

    @property
    def retirements(self) -> RetirementRecords: ...

    @property
    def target_backups(self) -> BackupRecords: ...

    @property
    def archives(self) -> ArchiveRecords: ...

    @property
    def releases(self) -> ReleaseRecords: ...
