"""Records of the ledger: the site, runs, hooks, plans and passes."""

from collections.abc import Collection, Mapping

import xxhash
from msgspec import Struct

from migrator.core.states import BatchState, ChunkState, PassKind, PassState
from migrator.core.units import format_time
from migrator.fs.model import MountIdentity, TargetCapabilities
from migrator.hooks.model import HookOutcome, HookStep


class HookStepRecord(Struct, frozen=True, kw_only=True):
    """A step with hooks around it. It is open from before its `pre` hooks until after its `post` hooks; `state` is
    empty until then.
    """

    id: int
    step: HookStep
    subject: str
    opened_at_s: float
    state: str = ""


class HookCallRecord(Struct, frozen=True, kw_only=True):
    """One call of a hook. Its result is unknown while `finished_at_s` is None. `stage` is, for example, `pre-batch`."""

    id: int
    step_id: int
    stage: str
    name: bytes
    token: str
    started_at_s: float
    finished_at_s: float | None
    exit_code: int | None
    outcome: HookOutcome | None
    output: bytes


class SiteRecord(Struct, frozen=True, kw_only=True):
    """The record of `init`. `site_id` is a random UUID; a plan of another site has a different one."""

    site_id: str
    name: str
    created_at_s: float
    source: MountIdentity
    target: MountIdentity
    capabilities: TargetCapabilities | None
    capabilities_probed_at_s: float | None

    @property
    def name_seed(self) -> int:
        """A random number of this site, below 2^63. Every name that the program uses inside user trees depends on it, so
        no user has a file of such a name.
        """
        return xxhash.xxh3_64_intdigest(self.site_id.encode("ascii")) >> 1


class RunRecord(Struct, frozen=True, kw_only=True):
    """One invocation of a verb that writes. It renews `heartbeat_at_s` every few seconds while it is alive."""

    id: int
    verb: str
    pid: int
    started_at_s: float
    heartbeat_at_s: float
    finished_at_s: float | None
    exit_code: int | None
    directory: str


class PlanRecord(Struct, frozen=True, kw_only=True):
    """A recorded plan: the `path` and checksum of its document, and the state of every batch."""

    name: str
    path: str
    checksum: str
    created_at_s: float
    scan_id: int
    batches: Mapping[int, BatchState]


class PassTotals(Struct, frozen=True, kw_only=True):
    """Sums over the chunks of a pass. A split chunk does not count; its halves do."""

    chunks: Mapping[ChunkState, int]
    done_files: int
    done_bytes: int
    files: int
    size_bytes: int


class PassRecord(Struct, frozen=True, kw_only=True):
    """One pass over a batch, with the totals of its list. `number` is 0 for the seed; deltas and finals count from 1.

    The list was made from `catalog`. A pass that sends only changes compared it with `base_catalog`; the scan and the
    comparison took `scan_s`. `chunk_list` and `move_list` name its lists. At `moved_at_s` its renames and deletions had
    reached the target's disks.
    """

    id: int
    plan: str
    batch: int
    kind: PassKind
    number: int
    state: PassState
    catalog: str
    base_catalog: str | None
    chunk_list: str
    move_list: str | None
    move_list_digest: str | None
    moved_at_s: float | None
    scan_s: float | None
    started_at_s: float
    finished_at_s: float | None
    total_files: int
    total_bytes: int


# Who is at work.


TREE, CALL = "tree ", "call "
"""What the names of locks begin with: those of user trees, and of recorded calls."""


class Holder(Struct, frozen=True):
    """A process at work. `names` it holds alone, `shared` together with others."""

    pid: int
    purpose: str
    since_s: float
    names: tuple[str, ...]
    shared: tuple[str, ...] = ()

    @property
    def trees(self) -> int:
        return sum(name.startswith(TREE) for name in self.names)

    def conflict(self, names: Collection[str], shared: Collection[str]) -> str | None:
        """The first lock that this holder does not let somebody else hold."""
        taken = {*names} & {*self.names, *self.shared} | {*shared} & {*self.names}
        return min(taken, default=None)

    def __str__(self) -> str:
        at = format_time(self.since_s, "%Y-%m-%d %H:%M:%S %Z")
        return f"process {self.pid} ({self.purpose}), since {at}"
