"""What the ledger keeps of the site, of the invocations of verbs on it, and of what happened. Synchronous, short transactions; times in seconds since the epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.events import Event
from migrator.domain.site import MountIdentity, TargetCapabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRecord:
    """What `init` recorded. `site_id` is a random UUID: a plan of another site is told by it."""

    site_id: str
    name: str
    created_at_s: float
    source: MountIdentity
    target: MountIdentity
    capabilities: TargetCapabilities | None
    capabilities_probed_at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One invocation of a verb that writes; `heartbeat_at_s` is renewed every few seconds while it lives."""

    id: int
    verb: str
    pid: int
    started_at_s: float
    heartbeat_at_s: float
    finished_at_s: float | None
    exit_code: int | None
    directory: str


class SiteRecords(Protocol):
    """The one row about the site."""

    def read(self) -> SiteRecord | None:
        """The site; None before `init`."""

    def create(self, record: SiteRecord) -> None:
        """Record the site. The same one may be recorded again, which changes nothing. Raises UsageError where the ledger is
        another site's already.
        """

    def update_identities(self, source: MountIdentity, target: MountIdentity) -> None:
        """What is mounted now is what has to be from now on. Raises LedgerCorrupt before `init`."""

    def record_capabilities(self, capabilities: TargetCapabilities, at_s: float) -> None:
        """What the target was found to keep of a file. Raises LedgerCorrupt before `init`."""


class RunRecords(Protocol):
    """Invocations of verbs that write."""

    def start(self, *, verb: str, pid: int, at_s: float, directory: str) -> int:
        """A run begins; returns its id. Every call is a run of its own."""

    def heartbeat(self, run_id: int, at_s: float) -> None:
        """The run lives. Raises LedgerCorrupt where there is none of this id."""

    def finish(self, run_id: int, at_s: float, exit_code: int) -> None:
        """The run has ended. Raises LedgerCorrupt where there is none of this id."""

    def latest(self, verb: str | None = None) -> RunRecord | None:
        """The newest run, of one verb or of any; None where there was none."""


class EventRecords(Protocol):
    """The migration's log."""

    def add(self, event: Event, run_id: int | None = None) -> None:
        """Keep an event, of a run or of none. One that is added twice is there twice."""

    def latest(self, limit: int) -> Sequence[Event]:
        """So many of the newest events, newest first."""
