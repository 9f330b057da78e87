"""Passes, attempts, and what became of every file of a chunk."""

from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.states import AttemptState, ChunkKind, ChunkState


class FileProblemKind(StrEnum):
    """Why a listed file did not arrive, or not as listed. `vanished` is confirmed by a look and normal; `bad` needs
    attention. `moved`: it is not on its brick any more, or a link-to file is in its place: it is read through the mount
    instead. `changed`: it arrived, and was being written to all the time: the next pass sends it again.
    """

    VANISHED = "vanished"
    BAD = "bad"
    MOVED = "moved"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """One file that did not arrive whole. `path` is relative to the source root."""

    path: bytes
    kind: FileProblemKind
    errno: int | None
    reason: str


class StopReason(StrEnum):
    """Why the whole pool of streams stops: no chunk is to blame, and splitting would not help."""

    TARGET_FULL = "target-full"
    TARGET_QUOTA = "target-quota"
    TARGET_READ_ONLY = "target-read-only"
    IO_ERROR = "io-error"
    DISCONNECTED = "disconnected"
    TARGET_STUCK = "target-stuck"
    TARGET_MOVES = "target-moves"
    SOURCE_UNHEALTHY = "source-unhealthy"
    MOUNT_CHANGED = "mount-changed"
    TOOL_MISSING = "tool-missing"
    HOST_LOST = "host-lost"
    BRICKS_UNFIT = "bricks-unfit"


class Verdict(StrEnum):
    """What to do after one attempt."""

    DONE = "done"
    RETRY = "retry"
    STOP = "stop"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCounters:
    """How far one stream is: files and bytes written to the target."""

    files: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one attempt came to. `suspects` did not arrive by the engine's word and want a look before judgement."""

    verdict: Verdict
    counters: StreamCounters
    suspects: tuple[FileProblem, ...] = ()
    stop: StopReason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process that is known to be the one that was started: pids are used again, start times are not."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRecord:
    """A chunk as the ledger has it. `list_path` is set for the halves of a split chunk."""

    id: int
    pass_id: int
    number: int
    kind: ChunkKind
    tree: bytes
    files: int
    size_bytes: int
    state: ChunkState
    tries: int
    list_path: str | None = None
    brick: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedChunk:
    """Where the paths of a chunk are listed."""

    chunk_list: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotArrived:
    """What of a batch is not known to have arrived, as it was called when it was listed. In order, each but once.

    `paths` were bad, changed while they were copied, or were not found although listed: that is proven by a look, but
    what was renamed and renamed back is as it was, and has to be sent all the same. `chunks` failed or were never done:
    all of their paths count. Of `trees` nothing is known: their pass has not gone through, or the whole tree was not
    found; the chunks of such a pass are not in `chunks`.
    """

    paths: tuple[bytes, ...] = ()
    chunks: tuple[ListedChunk, ...] = ()
    trees: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """An attempt as the ledger has it. `token` is in the environment of every process of the attempt."""

    id: int
    chunk_id: int
    number: int
    token: str
    host: str
    engine: str
    state: AttemptState
    process: ProcessIdentity | None
    argv: tuple[str, ...]
    started_at_s: float
    finished_at_s: float | None
    exit_code: int | None
    counters: StreamCounters
    stderr_tail: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Throughput over one interval; `attempt_id` is None for all streams together."""

    at_s: float
    interval_s: float
    attempt_id: int | None
    streams: int
    files: int
    size_bytes: int
