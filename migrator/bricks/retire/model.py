"""Retiring the source volume: it is stopped for good when its whole content is proven to be on the target. Times in
seconds since the epoch.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from migrator.bricks.model import CallSummary
from migrator.operations.model import Operation, OperationKind
from migrator.purge.model import PathFacts


class RetirementState(StrEnum):
    """The state of an attempt to retire a volume. `retiring` is the intent, written before the hooks and the last
    check. `stopping`: the last check is complete, and the command to stop the volume follows. `given-up`: this attempt
    did not stop the volume.
    """

    RETIRING = "retiring"
    STOPPING = "stopping"
    RETIRED = "retired"
    GIVEN_UP = "given-up"


RETIREMENT_TRANSITIONS: Mapping[RetirementState, frozenset[RetirementState]] = {
    RetirementState.RETIRING: frozenset({RetirementState.STOPPING, RetirementState.GIVEN_UP}),
    RetirementState.STOPPING: frozenset({RetirementState.RETIRING, RetirementState.RETIRED, RetirementState.GIVEN_UP}),
    RetirementState.RETIRED: frozenset(),
    RetirementState.GIVEN_UP: frozenset(),
}

UNDER_WAY = frozenset({RetirementState.RETIRING, RetirementState.STOPPING})
"""States of an attempt that neither stopped the volume nor was aborted."""


def subject_of(volume: str) -> str:
    """Return the subject of the events of a retirement."""
    return f"retirement of {volume}"


class Retirement(Operation[RetirementState, None], frozen=True, kw_only=True):
    """One attempt. `catalog` is the catalog checked before the intent. `files` and `size_bytes` are what it proved,
    counting names of everything except directories. `failure` is the reason why the attempt was aborted.
    """

    volume: str
    volume_id: str
    catalog: str
    files: int
    size_bytes: int
    notes: None = None

    @property
    def subject(self) -> str:
        """Return the subject of its events."""
        return subject_of(self.volume)

    def hook_facts(self) -> dict[str, Any]:
        """Return the facts for its hooks."""
        return {"files": self.files, "size_bytes": self.size_bytes}


class RetireStep(StrEnum):
    """The step of a retirement."""

    STOP = "stop"
    """Repeats all checks, and stops the volume."""


RETIREMENTS: OperationKind[Retirement, RetirementState, RetireStep, None] = OperationKind(
    name="retirement",
    record=Retirement,
    states=RetirementState,
    steps=RetireStep,
    transitions=RETIREMENT_TRANSITIONS,
    under_way=UNDER_WAY,
)


class CatalogedPath(PathFacts, frozen=True, kw_only=True):
    """A path of the newest catalog of the source, not a directory. `tree` is None outside every user tree."""

    tree: bytes | None
    ino: int


class UncoveredKind(StrEnum):
    """The reason why no manifest covers a path. `outside`: it is in no user tree. `not-moved`: its tree was not moved.
    `unproven`: the manifest of its tree does not count. `new`: it was created after its tree was verified. `changed`:
    it changed since then. `content`: its content is not proven.
    """

    OUTSIDE = "outside"
    NOT_MOVED = "not-moved"
    UNPROVEN = "unproven"
    NEW = "new"
    CHANGED = "changed"
    CONTENT = "content"


class Uncovered(Struct, frozen=True, kw_only=True):
    """A path that no manifest covers. `words` follow the path in messages."""

    path: bytes
    kind: UncoveredKind
    size_bytes: int
    words: str


class Cover(StrEnum):
    """How a path is covered. `proven`: a manifest has it unchanged. `read`: it is proven if its content is read and
    equal. `own`: it is one of this program's files.
    """

    PROVEN = "proven"
    READ = "read"
    OWN = "own"


class PathSum(Struct, frozen=True, kw_only=True):
    """A number of names, and the bytes of regular files. Each name of a hard-linked file counts."""

    paths: int = 0
    size_bytes: int = 0


class CoverFound(Struct, frozen=True, kw_only=True):
    """The result for every path of a catalog that is not a directory. `read` are those of `proven` whose content was
    read again. `uncovered` has the sums by kind, and `examples` the first paths of each kind. `list_file` lists all of
    them; it is None if there are none, and in a dry run.
    """

    catalog: str
    catalog_at_s: float
    proven: PathSum = PathSum()
    own: PathSum = PathSum()
    read: PathSum = PathSum()
    uncovered: Mapping[UncoveredKind, PathSum] = {}
    examples: tuple[Uncovered, ...] = ()
    list_file: str | None = None


class RetireRequest(Struct, frozen=True, kw_only=True):
    """The options of a call. `confirm` must be the name of the volume, except in a dry run."""

    pid: int
    confirm: str | None = None
    dry_run: bool = False
    poll_s: float = 30.0
    workers: int = 8


class RetirementSummary(CallSummary, frozen=True, kw_only=True):
    """The result of a call. `cover` is None if another check had failed before the paths were checked."""

    cover: CoverFound | None = None
    retirement: Retirement | None = None
