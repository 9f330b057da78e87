"""Values of `brick list`, and what drains, additions and retirements have in common. Times in seconds since the epoch."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from migrator.catalog.model import BrickUse
from migrator.core.errors import ExitCode
from migrator.gluster.model import BrickRoom, ChangedOption, GlusterFault, VolumeTask
from migrator.operations.model import Notes, Operation, State

# What drains, additions and retirements have in common.


class BrickOperation(Operation[State, Notes], frozen=True, kw_only=True):
    """One attempt to drain or add bricks, which are named as in the volume. `kind` names it for people."""

    kind: ClassVar[str]

    volume: str
    volume_id: str
    bricks: tuple[str, ...]

    @property
    def shown_bricks(self) -> str:
        """Return the bricks as text."""
        return ", ".join(self.bricks)

    @property
    def subject(self) -> str:
        """Return the subject of its events."""
        return f"{self.kind} of {self.shown_bricks}"


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
    """The progress of one attempt to drain or add bricks. None means not known.

    `moved_files` and `moved_bytes` are Gluster's counts over all its tasks; `failures` and `skipped` are those of the
    last task. The rates are those of the last sampled half hour, and `left_s` is the time left at these rates.
    `looked_at_s` is the time of the last poll.
    """

    id: int
    volume: str
    bricks: tuple[str, ...]
    attempt: int
    since_s: float
    files: int | None
    size_bytes: int | None
    moved_files: int
    moved_bytes: int
    failures: int
    skipped: int
    files_per_s: float | None
    bytes_per_s: float | None
    left_s: float | None
    looked_at_s: float | None
    failure: str


class BrickRequest(Struct, frozen=True, kw_only=True):
    """The bricks of a call. Gluster is polled every `poll_s`; it is stalled when nothing has changed for `stall_s`."""

    bricks: tuple[str, ...]
    pid: int
    dry_run: bool = False
    poll_s: float = 30.0
    stall_s: float = 6 * 3600.0


class Ending(StrEnum):
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
    Ending.HALTED: ExitCode.REFUSED,
    Ending.STUCK: ExitCode.FAILED,
    Ending.DOUBTED: ExitCode.ATTENTION,
}


class CallSummary(Struct, frozen=True, kw_only=True):
    """The result of a call. `reasons` are the failed checks, or the findings of an audit."""

    volume: str
    dry_run: bool
    ending: Ending
    words: str
    hint: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code. A dry run that finds reasons is refused like the operation itself."""
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
    """One brick. `subvolume` counts from 1: the bricks of one subvolume hold the same files. `draining` is set while a
    remove-brick is not committed. `uses` are sorted by bytes, most first, and None if the catalog does not have them.
    """

    name: str
    host: str
    path: bytes
    subvolume: int
    arbiter: bool
    state: BrickState
    draining: bool
    room: BrickRoom
    uses: tuple[BrickUse, ...] | None

    @property
    def files(self) -> int | None:
        """Files of all users."""
        return None if self.uses is None else sum(use.files for use in self.uses)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of all users."""
        return None if self.uses is None else sum(use.size_bytes for use in self.uses)


class BrickListing(Struct, frozen=True, kw_only=True):
    """The volume with its bricks. `gluster_version` is that of the queried host; if it is None, every fault is listed.
    `versions` has the version of each host with bricks, None if a host does not report it; it is empty if this program
    cannot reach the hosts. `faults` are those of all these versions. `catalog` is the source of the uses, scanned at
    `catalog_at_s`; `notes` say what it lacks.
    """

    volume: str
    volume_type: str
    started: bool
    gluster_version: str | None
    versions: Mapping[str, str | None]
    faults: tuple[GlusterFault, ...]
    bricks: tuple[BrickFacts, ...]
    tasks: tuple[VolumeTask, ...]
    peers_down: tuple[str, ...] | None
    catalog: str | None
    catalog_at_s: float | None
    user: str | None
    notes: tuple[str, ...]
