"""What a look at bricks that are drained says, and what is to be done with them. Times in seconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.brick import VolumeState
from migrator.domain.drain import DrainState, DrainStep
from migrator.domain.volume_tasks import TaskProgress, VolumeTask


class PlaceSeen(StrEnum):
    """What lies where a brick was, on its host, once it is out of the volume. `brick`: what the brick left; `empty`: a file
    system is mounted there and holds nothing; `unmounted`: no file system of its own is mounted there; `other`: something
    that is neither; `unknown`: the look failed.
    """

    BRICK = "brick"
    EMPTY = "empty"
    UNMOUNTED = "unmounted"
    OTHER = "other"
    UNKNOWN = "unknown"


class LeftKind(StrEnum):
    """What an audit found on a brick."""

    FILE = "file"
    MAY_BE_DATA = "may-be-data"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSeen:
    """The newest audit that the asking process itself has made: every brick of the drain, walked on its host.

    `left` counts what is neither a directory nor a link-to file nor Gluster's own; `unsure` what could not be told apart.
    `whole`: nothing was unreadable, and every brick was walked. `examples` and `reasons` are for people. `explained` counts names
    that are left too, and were proven to be in the volume with the same content by the same call. `list_file` names all that was found.
    """

    started_at_s: float
    whole: bool
    left: int
    unsure: int
    examples: tuple[bytes, ...] = ()
    reasons: tuple[str, ...] = ()
    explained: int = 0
    list_file: str | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing is left that anybody could miss."""
        return self.whole and not self.left and not self.unsure


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSeen:
    """What a look at the world says, after the record was read. None everywhere: that look failed, or was not made.

    `state` is the volume with its peers and bricks, `tasks` every task that its status lists, `progress` the counters of
    the drain, where there is one. `layout` are the counters of the newest rebalance or fix-layout. `options` are those of
    the volume that are set (from `state`). `preflight` are the sentences that speak against a start. `stalled` says why a
    drain that is in progress does not go on (empty: it does), `lost` that a process that moves files has ended without a word,
    `silent` why no counters of it are to be waited for any longer
    (empty: they are told, or may be yet). `causes` are sentences on what may have made a drain fail that
    Gluster has ended (room, bricks, hosts). `places` tells by brick what lies where it was.
    `may_recover`: what is left may be brought back, which this call was asked for and has not done yet.
    """

    state: VolumeState | None
    tasks: tuple[VolumeTask, ...] | None
    progress: TaskProgress | None = None
    layout: TaskProgress | None = None
    preflight: tuple[str, ...] | None = None
    stalled: str = ""
    lost: str = ""
    silent: str = ""
    causes: tuple[str, ...] = ()
    audit: AuditSeen | None = None
    places: Mapping[str, PlaceSeen] | None = None
    may_recover: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Write `intent`, carry the step out, write `result`. `seen_done`: the world shows it done already, only hooks may be
    owed. `reason` says why it is given up or stopped; it is empty on the way forward.

    `task_id` is the task of Gluster that the record takes for its own, `task_before` the one that a start ends first: the
    ledger notes both with the intent.
    """

    step: DrainStep
    intent: DrainState
    result: DrainState
    seen_done: bool = False
    reason: str = ""
    task_id: str | None = None
    task_before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Nothing is touched. `words` say what was found, `reasons` each thing that speaks against going on, `hint` what people
    do about it. `look_again`: a look failed, and the next one may not.
    """

    words: str
    hint: str
    reasons: tuple[str, ...] = ()
    look_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """There is nothing left to do."""

    state: DrainState
    words: str


Step = Act | Halt | Finished
