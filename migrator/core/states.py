"""The state machines of passes, chunks, attempts and batches, with their tables of transitions."""

from collections.abc import Mapping
from enum import StrEnum


class PassKind(StrEnum):
    """The kinds of passes."""

    SEED = "seed"
    DELTA = "delta"
    FINAL = "final"


class PassState(StrEnum):
    """The state of a pass. The next run resumes a `stopped` pass, and a `done` one only to retry failed chunks."""

    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"


class ChunkKind(StrEnum):
    """The content of a chunk's list."""

    DIRECTORIES = "directories"
    RANGES = "ranges"
    FILES = "files"
    RANGED_FILES = "ranged_files"
    """Big files whose content `ranges` chunks copied: they get their attributes and their final names."""
    LINKS = "links"
    DIRECTORY_TIMES = "directory_times"
    TREE = "tree"
    """A whole user tree for a driver, without a list. The other chunks of the pass cover the tree again."""


CHUNK_STEPS = (
    (ChunkKind.DIRECTORIES,),
    (ChunkKind.RANGES, ChunkKind.FILES),
    (ChunkKind.RANGED_FILES,),
    (ChunkKind.LINKS,),
    (ChunkKind.DIRECTORY_TIMES,),
)
"""The steps of a pass, in order; the kinds of one step run at the same time."""
CHUNK_ORDER = tuple(kind for step in CHUNK_STEPS for kind in step)
CONTENT_KINDS = (ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES, ChunkKind.LINKS)
"""The kinds that count in sums of files and bytes. Directory chunks do not: they list the same paths twice in a pass. A
big file counts its bytes with its ranges, and its name with RANGED_FILES."""


class ChunkState(StrEnum):
    """The state of a chunk. A `split` chunk is replaced by its halves; a `failed` one is listed in reports."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    SPLIT = "split"
    FAILED = "failed"


class AttemptState(StrEnum):
    """The state of an attempt. `intended` is written before the process starts."""

    INTENDED = "intended"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class BatchState(StrEnum):
    """The state of a batch. `converging`: delta passes have followed the seed."""

    PLANNED = "planned"
    SEEDING = "seeding"
    SEEDED = "seeded"
    CONVERGING = "converging"
    VERIFIED = "verified"


PASS_TRANSITIONS: Mapping[PassState, frozenset[PassState]] = {
    PassState.RUNNING: frozenset({PassState.STOPPED, PassState.DONE}),
    PassState.STOPPED: frozenset({PassState.RUNNING}),
    PassState.DONE: frozenset({PassState.RUNNING}),
}
CHUNK_TRANSITIONS: Mapping[ChunkState, frozenset[ChunkState]] = {
    ChunkState.PENDING: frozenset({ChunkState.RUNNING, ChunkState.SPLIT}),
    ChunkState.RUNNING: frozenset({ChunkState.PENDING, ChunkState.DONE, ChunkState.SPLIT, ChunkState.FAILED}),
    ChunkState.DONE: frozenset(),
    ChunkState.SPLIT: frozenset(),
    ChunkState.FAILED: frozenset({ChunkState.PENDING}),
}
ATTEMPT_TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.INTENDED: frozenset({AttemptState.RUNNING, AttemptState.FAILED, AttemptState.INTERRUPTED}),
    AttemptState.RUNNING: frozenset({AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.INTERRUPTED}),
    AttemptState.SUCCEEDED: frozenset(),
    AttemptState.FAILED: frozenset(),
    AttemptState.INTERRUPTED: frozenset(),
}
BATCH_TRANSITIONS: Mapping[BatchState, frozenset[BatchState]] = {
    BatchState.PLANNED: frozenset({BatchState.SEEDING}),
    BatchState.SEEDING: frozenset({BatchState.SEEDED}),
    BatchState.SEEDED: frozenset({BatchState.CONVERGING, BatchState.VERIFIED}),
    BatchState.CONVERGING: frozenset({BatchState.VERIFIED}),
    BatchState.VERIFIED: frozenset({BatchState.SEEDED, BatchState.CONVERGING}),
}
