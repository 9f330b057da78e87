"""Values of passes: chunks, attempts, problems of files, sums of streams."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from migrator.core.states import AttemptState, ChunkKind, ChunkState, PassKind, PassState
from migrator.hosts.model import ProcessIdentity


class FileProblemKind(StrEnum):
    """Why a listed file did not arrive, or not as listed. `vanished` is confirmed by a look-up, and normal; `bad` needs
    attention. `moved`: the file is no longer on its brick, or a link-to file is in its place; the mount is read
    instead. `changed`: the file arrived while a user wrote to it, or its name was in use again when it was to be removed
    from the target; the next pass sends or removes it.
    """

    VANISHED = "vanished"
    BAD = "bad"
    MOVED = "moved"
    CHANGED = "changed"


class FileProblem(Struct, frozen=True, kw_only=True):
    """One file that did not arrive complete."""

    path: bytes
    kind: FileProblemKind
    """What is wrong."""
    errno: int | None
    """Number of the system's error."""
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


class AttemptVerdict(StrEnum):
    """The action after one attempt."""

    DONE = "done"
    RETRY = "retry"
    STOP = "stop"
    INTERRUPTED = "interrupted"


class StreamCounters(Struct, frozen=True, kw_only=True):
    """The progress of one stream: files and bytes written to the target."""

    files: int = 0
    size_bytes: int = 0

    def __add__(self, other: "StreamCounters") -> "StreamCounters":
        return StreamCounters(files=self.files + other.files, size_bytes=self.size_bytes + other.size_bytes)


class StreamOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one attempt. According to the engine, `suspects` did not arrive; a look-up has to confirm that."""

    verdict: AttemptVerdict
    counters: StreamCounters
    suspects: tuple[FileProblem, ...] = ()
    stop: StopReason | None = None
    message: str = ""


class StreamView(Struct, frozen=True, kw_only=True):
    """The locations of the tree as a stream sees it: absolute paths of the tree itself on both sides, inside the
    confinement.
    """

    source_tree: bytes
    target_tree: bytes


class ChunkRecord(Struct, frozen=True, kw_only=True):
    """A chunk in the ledger. `list_path` and `parent_id` are set for the halves of a split chunk."""

    id: int
    pass_id: int
    number: int
    kind: ChunkKind
    tree: bytes
    files: int
    size_bytes: int
    state: ChunkState
    list_path: str | None = None
    brick: str | None = None
    parent_id: int | None = None


class CopiedChunk(Struct, frozen=True, kw_only=True):
    """A chunk with the token of the attempt that copied it. None: no attempt has."""

    chunk: ChunkRecord
    token: str | None


class ListedChunk(Struct, frozen=True, kw_only=True):
    """The location of a chunk's path list."""

    chunk_list: str
    number: int


class NotArrived(Struct, frozen=True, kw_only=True):
    """The parts of a batch that are not known to have arrived, under their listed names. In order, without duplicates.

    `paths` were bad, changed during their copy, or were listed and not found. (A look-up proves that, but a path that
    was renamed and renamed back looks unchanged and has to be sent.) `chunks` failed or were never done: all of their
    paths count. Nothing is known of `trees`: their pass is unfinished, or the whole tree was not found; `chunks` omits
    the chunks of such a pass.
    """

    paths: tuple[bytes, ...] = ()
    chunks: tuple[ListedChunk, ...] = ()
    trees: tuple[bytes, ...] = ()


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """An attempt in the ledger. `token` is in the environment of every process of the attempt."""

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


class Sample(Struct, frozen=True, kw_only=True):
    """Throughput over one interval; `attempt_id` is None for all streams together."""

    at_s: float
    interval_s: float
    attempt_id: int | None
    streams: int
    files: int
    size_bytes: int


class SizeClass(StrEnum):
    """The mean file size of a chunk. Ranges are parts of big files."""

    TINY = "below 16 KiB"
    SMALL = "16 KiB to 1 MiB"
    MEDIUM = "1 MiB to 64 MiB"
    LARGE = "64 MiB and more"
    RANGES = "ranges of big files"


class StreamSum(Struct, frozen=True, kw_only=True):
    """Successful attempts of one kind."""

    host: str
    brick: str | None
    """The brick that they read; None: the mount."""
    engine: str
    """The engine."""
    size_class: SizeClass
    """Mean file size of the chunks."""
    attempts: int
    """Number of attempts."""
    files: int
    """Files that they copied."""
    size_bytes: int
    """Bytes that they copied."""
    stream_s: float
    """Time of all streams, added up."""

    @property
    def bytes_per_s(self) -> float:
        """Rate of one stream."""
        return self.size_bytes / self.stream_s if self.stream_s > 0 else 0.0

    @property
    def files_per_s(self) -> float:
        """Rate of one stream."""
        return self.files / self.stream_s if self.stream_s > 0 else 0.0


class PassTotals(Struct, frozen=True, kw_only=True):
    """Sums over the chunks of a pass. A split chunk does not count; its halves do."""

    chunks: Mapping[ChunkState, int]
    done_files: int
    done_bytes: int
    files: int
    size_bytes: int


class PassRecord(Struct, frozen=True, kw_only=True):
    """One pass over a batch."""

    id: int
    plan: str
    batch: int
    kind: PassKind
    """Its kind."""
    number: int
    """0 for the seed pass; delta and final passes count from 1."""
    state: PassState
    """Its state."""
    catalog: str
    """The catalog that its list was made from."""
    base_catalog: str | None
    """The earlier catalog that this was compared with, in a pass that sends only changes."""
    chunk_list: str
    """The file with its chunks."""
    move_list: str | None
    """The file with its renames and deletions."""
    move_list_digest: str | None
    """Digest of that file."""
    moved_at_s: float | None
    """When its renames and deletions had reached the target's disks."""
    scan_s: float | None
    """Duration of scan and comparison."""
    started_at_s: float
    finished_at_s: float | None
    total_files: int
    """Files of its list."""
    total_bytes: int
    """Bytes of its list."""
