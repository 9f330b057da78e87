"""Values of `brick list`, and what drains, additions and retirements have in common. Times in seconds since the epoch."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct

from migrator.catalog.model import BrickUse
from migrator.core.errors import ExitCode
from migrator.gluster.model import BrickRoom, ChangedOption, GlusterFault, VolumeTask
from migrator.hooks.model import HookStep
from migrator.operations.model import Act, Halt, Notes, Operation, State

# What drains, additions and retirements have in common.


FAILED_STATE, GIVE_UP_STEP = "failed", "give-up"
"""The state of an operation that waits for an admin, and the step that leads there, of drains and additions."""


class BrickOperation(Operation[State, Notes], frozen=True, kw_only=True):
    """One attempt to drain or add bricks, which are named as in the volume. `kind` names it for people. Each kind implements
    the questions about its states.
    """

    kind: ClassVar[str]

    volume: str
    volume_id: str
    bricks: tuple[str, ...]

    @property
    def shown_bricks(self) -> str:
        """Return the bricks as text."""
        return ", ".join(self.bricks)

    def subject(self) -> str:
        """Return the subject of its events."""
        return f"{self.kind} of {self.shown_bricks}"

    def hook_facts(self) -> dict[str, Any]:
        """Return the facts for its hooks."""
        raise NotImplementedError

    def failed_hook_step(self) -> HookStep:
        """Return the step that hooks are called with as the one that failed."""
        raise NotImplementedError

    def can_fail(self) -> bool:
        """Return whether more was begun than checks before the start."""
        raise NotImplementedError

    def is_reverted(self) -> bool:
        """Return whether it is being reverted, or was."""
        raise NotImplementedError

    def is_unfinished(self) -> bool:
        """Return whether it was begun and has not ended."""
        raise NotImplementedError

    def moves_files(self) -> bool:
        """Return whether Gluster may be moving files for it."""
        raise NotImplementedError

    def moved_at_s(self, bricks: Sequence[str]) -> Sequence[float]:
        """Return times at which it may have moved files to or from these bricks."""
        raise NotImplementedError

    def needs_no_options(self) -> bool:
        """Return whether the options that it changed have to be restored."""
        raise NotImplementedError


def merged_options(
    known: Iterable[ChangedOption] | None, added: Iterable[ChangedOption] | None
) -> tuple[ChangedOption, ...] | None:
    """Merge the options that a step adds into the recorded ones. The value before the first change stays. An empty tuple:
    all are restored.
    """
    if not known or not added:
        found = known if added is None else added
        return None if found is None else tuple(found)
    by_name = {option.name: option for option in known}
    for option in added:
        first = by_name.get(option.name, option)
        given = tuple(dict.fromkeys((*first.given, *option.given)))
        by_name[option.name] = ChangedOption(name=option.name, before=first.before, given=given)
    return tuple(by_name.values())


class BrickStanding(Struct, frozen=True, kw_only=True):
    """The progress of one attempt to drain or add bricks. None means unknown."""

    id: int
    volume: str
    bricks: tuple[str, ...]
    attempt: int
    since_s: float
    files: int | None
    """Of a drain: names to move, by the catalog. Of an addition: files that a rebalance inspects, those of a replica
    set once for each copy.
    """
    size_bytes: int | None
    """Of a drain: bytes to move, by the catalog. Of an addition: size of all new bricks."""
    moved_files: int
    """Files that Gluster has moved, over all its tasks."""
    moved_bytes: int
    """Bytes that Gluster has moved, over all its tasks."""
    failures: int
    """Files that the last task could not move."""
    skipped: int
    """Files that the last task left in place."""
    files_per_s: float | None
    """Pace of the last half hour."""
    bytes_per_s: float | None
    """Pace of the last half hour."""
    left_s: float | None
    """Time left at this pace."""
    looked_at_s: float | None
    """When Gluster was asked last."""
    failure: str


class BrickRequest(Struct, frozen=True, kw_only=True):
    """The bricks of a call. Gluster is polled every `poll_s`; it is stalled when nothing has changed for `stall_s`."""

    bricks: tuple[str, ...]
    pid: int
    dry_run: bool = False
    poll_s: float = 30.0
    stall_s: float = 6 * 3600.0


class CallEnding(StrEnum):
    """The end of a call. `waits`: it has done all that was requested. `halted`: a check failed, and the last step
    changed nothing. `stuck`: a step failed. `doubted`: it is done, and the audit of the rebalance found paths that an
    admin must check.
    """

    PLANNED = "planned"
    DONE = "done"
    DONE_BEFORE = "done-before"
    WAITS = "waits"
    TAKEN_BACK = "taken-back"
    HALTED = "halted"
    STUCK = "stuck"
    DOUBTED = "doubted"


_EXIT_CODES = {
    CallEnding.HALTED: ExitCode.REFUSED,
    CallEnding.STUCK: ExitCode.FAILED,
    CallEnding.DOUBTED: ExitCode.ATTENTION,
}


class CallEnd(Struct, frozen=True, kw_only=True):
    """How a call ended, in the words of its summary."""

    ending: CallEnding
    words: str
    hint: str = ""
    reasons: tuple[str, ...] = ()


def planned(act: Act[Any, Any]) -> CallEnd:
    """The end of a dry run in which this would be the first step."""
    reason = f" ({act.reason})" if act.reason else ""
    return CallEnd(ending=CallEnding.PLANNED, words=f"it would begin with: {act.step.value}{reason}")


def halted(halt: Halt) -> CallEnd:
    """The end of a call that cannot continue."""
    return CallEnd(ending=CallEnding.HALTED, words=halt.words, hint=halt.hint, reasons=halt.reasons)


def stuck(record: BrickOperation[Any, Any], remedy: str) -> CallEnd:
    """The end of a call whose step failed, and would fail again before the remedy."""
    words = f"{record.shown_bricks} is {record.state.value}: {record.failure}"
    hint = f"{remedy}, then run the same command again: it resumes"
    return CallEnd(ending=CallEnding.STUCK, words=words, hint=hint)


class CallSummary(Struct, frozen=True, kw_only=True):
    """The result of a call."""

    volume: str
    dry_run: bool
    ending: CallEnding
    """How the call ended."""
    words: str
    hint: str = ""
    reasons: tuple[str, ...] = ()
    """Failed checks, or findings of an audit."""

    @property
    def exit_code(self) -> ExitCode:
        """A dry run that finds reasons is refused like the operation itself."""
        return _EXIT_CODES.get(self.ending, ExitCode.DONE)


# `brick list`: bricks with room, users and state, and the running rebalance tasks.


class BrickState(StrEnum):
    """Whether a brick's process is up; `unknown`: the status leaves it out, as it does when its host's glusterd is
    down.
    """

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


NO_ROOM_TOLD = BrickRoom()


class BrickFacts(Struct, frozen=True, kw_only=True):
    """One brick."""

    name: str
    """The brick, as `host:/path`."""
    host: str
    path: bytes
    """Its directory on the host."""
    subvolume: int
    """Number of its subvolume, from 1. Bricks of one subvolume hold the same files."""
    arbiter: bool
    """It holds names and attributes only."""
    state: BrickState
    """Whether its process is up."""
    draining: bool
    """A remove-brick of it is not committed."""
    room: BrickRoom
    """Its file system."""
    uses: tuple[BrickUse, ...] | None
    """Its use by each user, most bytes first; None if the catalog does not have it."""

    @property
    def files(self) -> int | None:
        """Number of files of all users on it."""
        return None if self.uses is None else sum(use.files for use in self.uses)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of all users on it."""
        return None if self.uses is None else sum(use.size_bytes for use in self.uses)


class BrickListing(Struct, frozen=True, kw_only=True):
    """The volume with its bricks: `brick list`."""

    volume: str
    volume_type: str
    """Type of the volume, in Gluster's words."""
    started: bool
    """The volume is started."""
    gluster_version: str | None
    """The version of the queried host; if it is None, every fault is listed."""
    versions: Mapping[str, str | None]
    """The version of each host with bricks; None if the host does not report it. Empty if this machine cannot reach the
    hosts.
    """
    faults: tuple[GlusterFault, ...]
    """Known faults of these versions."""
    bricks: tuple[BrickFacts, ...]
    """All bricks."""
    tasks: tuple[VolumeTask, ...]
    """Running or uncommitted tasks of the volume."""
    peers_down: tuple[str, ...] | None
    """Hosts that are disconnected."""
    catalog: str | None
    """Name of the catalog that the use by users comes from."""
    catalog_at_s: float | None
    """When that was scanned."""
    user: str | None
    """The user that the call asked for."""
    notes: tuple[str, ...]
    """What the catalog lacks."""
