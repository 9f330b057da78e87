"""Retiring the source volume: it is stopped for good when its whole content is proven to be on the target. Times in
seconds since the epoch.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

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
    """One attempt to retire the volume."""

    NO_KEYS: ClassVar = frozenset({"notes"})

    volume: str
    volume_id: str
    """Gluster's id of the volume."""
    catalog: str
    """The catalog that was checked before the intent."""
    files: int
    """Paths that it proved, except directories."""
    size_bytes: int
    """Bytes that it proved."""
    notes: None = None

    def subject(self) -> str:
        """The retirement for people."""
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
    """A path that no manifest covers."""

    path: bytes
    kind: UncoveredKind
    """Why it is not covered."""
    size_bytes: int
    """Size of the file."""
    words: str
    """The reason in words, to follow the path."""


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
    """Number of names; each name of a hard-linked file counts."""
    size_bytes: int = 0
    """Bytes of the regular files."""


class CoverFound(Struct, frozen=True, kw_only=True):
    """The result for every path of a catalog that is not a directory."""

    catalog: str
    """The compared catalog."""
    catalog_at_s: float
    """When it was scanned."""
    proven: PathSum = PathSum()
    """Paths that manifests prove."""
    own: PathSum = PathSum()
    """Files of the program itself."""
    read: PathSum = PathSum()
    """Those of `proven` whose content was read again for this."""
    uncovered: Mapping[UncoveredKind, PathSum] = {}
    """Paths that nothing covers, by reason."""
    examples: tuple[Uncovered, ...] = ()
    """The first uncovered paths of each kind."""
    list_file: str | None = None
    """A file with all of them; None if there are none, and in a dry run."""


class RetireRequest(Struct, frozen=True, kw_only=True):
    """The options of a call. `confirm` must be the name of the volume, except in a dry run."""

    pid: int
    confirm: str | None = None
    dry_run: bool = False
    poll_s: float = 30.0
    workers: int = 8


class RetirementSummary(CallSummary, frozen=True, kw_only=True):
    """The result of `brick retire`."""

    cover: CoverFound | None = None
    """How manifests cover the paths; None if another check had failed before."""
    retirement: Retirement | None = None
    """The newest attempt."""
