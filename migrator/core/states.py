"""Every state machine of the ledger, with its table of transitions."""

from collections.abc import Mapping
from enum import StrEnum


class PassKind(StrEnum):
    """Which round of copying."""

    SEED = "seed"
    DELTA = "delta"
    FINAL = "final"


class PassState(StrEnum):
    """A pass: `stopped` ones go on with the next run, `done` ones only to try failed chunks again."""

    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"


class ChunkKind(StrEnum):
    """What a chunk's list holds. CHUNK_STEPS has the order in which the kinds run."""

    DIRECTORIES = "directories"
    RANGES = "ranges"
    FILES = "files"
    RANGED_FILES = "ranged_files"
    """Big files whose content chunks of ranges bring: they are put in place, and get their attributes."""
    LINKS = "links"
    DIRECTORY_TIMES = "directory_times"
    TREE = "tree"
    """A whole user tree for a driver: it has no list. What matters are the other chunks, which go over it again."""


CHUNK_STEPS = (
    (ChunkKind.DIRECTORIES,),
    (ChunkKind.RANGES, ChunkKind.FILES),
    (ChunkKind.RANGED_FILES,),
    (ChunkKind.LINKS,),
    (ChunkKind.DIRECTORY_TIMES,),
)
"""The steps of a pass, one after the other; kinds of one step run side by side."""
CHUNK_ORDER = tuple(kind for step in CHUNK_STEPS for kind in step)
CONTENT_KINDS = (ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES, ChunkKind.LINKS)
"""What counts in sums of files and bytes. Chunks of directories list paths too, the same ones twice in a pass: in the
sums they would count as files. A big file counts its bytes with its ranges, and its name when it is put in place."""


class ChunkState(StrEnum):
    """A chunk: `split` ones are replaced by their halves; `failed` ones stand alone and are listed."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    SPLIT = "split"
    FAILED = "failed"


class AttemptState(StrEnum):
    """An attempt: `intended` is written before the process starts."""

    INTENDED = "intended"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class BatchState(StrEnum):
    """A batch, as far as it is. `converging`: passes after the seed have brought over what changed since."""

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
    ChunkState.PENDING: frozenset({ChunkState.RUNNING}),
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
