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

    def read(self) -> SiteRecord | None: ...

    def create(self, record: SiteRecord) -> None: ...

    def update_identities(self, source: MountIdentity, target: MountIdentity) -> None: ...

    def record_capabilities(self, capabilities: TargetCapabilities, at_s: float) -> None: ...


class RunRecords(Protocol):
    """Invocations of verbs that write."""

    def start(self, *, verb: str, pid: int, at_s: float, directory: str) -> int: ...

    def heartbeat(self, run_id: int, at_s: float) -> None: ...

    def finish(self, run_id: int, at_s: float, exit_code: int) -> None: ...

    def latest(self, verb: str | None = None) -> RunRecord | None: ...


class EventRecords(Protocol):
    """The migration's log."""

    def add(self, event: Event, run_id: int | None = None) -> None: ...

    def latest(self, limit: int) -> Sequence[Event]: ...
