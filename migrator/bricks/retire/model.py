"""Retiring the source volume: it is stopped for good when everything that it holds is proven to be on the target. Times in
seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.core.entry import EntryType
from migrator.core.errors import ExitCode
from migrator.operations.model import Kind, Operation


class RetirementState(StrEnum):
    """One attempt to retire a volume. `retiring` is the intent: it is written before the hooks and the last look. `stopping`: everything
    was looked at for the last time, and the command to stop the volume follows. `given-up`: it was not stopped by this attempt.
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
"""States of an attempt that neither stopped the volume nor was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetirementRecord:
    """One attempt. `catalog` is that of the look before the intent, `files` and `size_bytes` what it found there and proven:
    names of everything that is no directory. `failure` says why it was given up.
    """

    id: int
    volume: str
    volume_id: str
    state: RetirementState
    intended_at_s: float
    ended_at_s: float | None
    catalog: str
    files: int
    size_bytes: int
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement(Operation[RetirementState, None]):
    """One attempt, as a tracked operation: see `RetirementRecord`, which is what people are shown."""

    volume: str
    volume_id: str
    catalog: str
    files: int
    size_bytes: int
    notes: None = None

    @property
    def shown(self) -> RetirementRecord:
        """Without what every operation has."""
        return RetirementRecord(
            id=self.id,
            volume=self.volume,
            volume_id=self.volume_id,
            state=self.state,
            intended_at_s=self.times[RetirementState.RETIRING],
            ended_at_s=None if self.state in UNDER_WAY else self.since_s,
            catalog=self.catalog,
            files=self.files,
            size_bytes=self.size_bytes,
            failure=self.failure,
        )


class RetireStep(StrEnum):
    """The step of a retirement."""

    STOP = "stop"
    """Repeats all checks, and stops the volume."""


RETIREMENTS: Kind[Retirement, RetirementState, RetireStep, None] = Kind(
    name="retirement",
    record=Retirement,
    states=RetirementState,
    steps=RetireStep,
    transitions=RETIREMENT_TRANSITIONS,
    under_way=UNDER_WAY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogedPath:
    """A path of the newest catalog of the source that is no directory, with the fields that are compared with a manifest. `tree` is
    None outside every user tree.
    """

    path: bytes
    tree: bytes | None
    type: EntryType
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    uid: int
    gid: int
    mode: int
    symlink_target: bytes | None
    rdev: int
    xattr_digest: bytes | None
    ino: int


class UncoveredKind(StrEnum):
    """Why no manifest covers a path: `outside` every user tree, in a tree that was `not-moved` or whose manifest does not
    count (`unproven`), created after its tree was verified (`new`), changed since then (`changed`), or without a proof of its
    content (`content`).
    """

    OUTSIDE = "outside"
    NOT_MOVED = "not-moved"
    UNPROVEN = "unproven"
    NEW = "new"
    CHANGED = "changed"
    CONTENT = "content"


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncovered:
    """A path that no manifest covers. `words` follow the path in messages."""

    path: bytes
    kind: UncoveredKind
    size_bytes: int
    words: str


class Cover(StrEnum):
    """What is known of a path that is covered: a manifest has it unchanged (`proven`), or will have when its
    content is read and equal (`read`); or it is one of this program's own files (`own`).
    """

    PROVEN = "proven"
    READ = "read"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSum:
    """Names, and the bytes of regular files; each name of a hard-linked one counts."""

    paths: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverFound:
    """What became of every path of a catalog that is no directory. `read` are those of `proven` whose content was read again.
    `uncovered` has the sums by kind, `examples` the first paths of each kind, `list_file` all of them (None where there are
    none, and of a dry run).
    """

    catalog: str
    catalog_at_s: float
    proven: PathSum = PathSum()
    own: PathSum = PathSum()
    read: PathSum = PathSum()
    uncovered: Mapping[UncoveredKind, PathSum] = field(default_factory=dict)
    examples: tuple[Uncovered, ...] = ()
    list_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSeen:
    """A client that is connected to a brick: `address` is `IP:PORT` as the brick sees it."""

    brick: str
    address: str


class RetireEnding(StrEnum):
    """What became of it. `halted`: nothing was touched, a check failed."""

    PLANNED = "planned"
    DONE = "done"
    DONE_BEFORE = "done-before"
    HALTED = "halted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireRequest:
    """What is asked. `confirm` has to be the name of the volume, unless nothing is changed."""

    pid: int
    confirm: str | None = None
    dry_run: bool = False
    workers: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RetirementSummary:
    """The result. `reasons` are the failed checks. `cover` is None where it was not asked for, because another check had failed
    against it before.
    """

    volume: str
    dry_run: bool
    ending: RetireEnding
    words: str
    hint: str = ""
    reasons: tuple[str, ...] = ()
    cover: CoverFound | None = None
    retirement: RetirementRecord | None = None

    @property
    def exit_code(self) -> ExitCode:
        """What the shell sees. A dry run that finds reasons is refused as the retirement would be."""
        return ExitCode.REFUSED if self.ending is RetireEnding.HALTED else ExitCode.DONE
