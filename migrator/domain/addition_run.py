"""A call of `brick add`: what is asked, and what it came to."""

from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.addition import AdditionSide, AdditionState
from migrator.domain.addition_seen import NewPlace, Wish
from migrator.domain.directory_owners import ListedDirectory
from migrator.domain.errors import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionRequest:
    """Which bricks, to which side, and how. `seen_within_s` is how long the target may take to show its new capacity. `once_more`:
    a brick whose disk was exchanged already gets another one.
    """

    bricks: tuple[str, ...]
    side: AdditionSide
    pid: int
    instead_of: str | None = None
    wish: Wish
    once_more: bool = False
    dry_run: bool = False
    poll_s: float = 30.0
    stall_s: float = 6 * 3600.0
    seen_within_s: float = 900.0
    heartbeat_interval_s: float = 5.0


class AdditionEnding(StrEnum):
    """What became of it. `halted`: nothing was touched by the last step, a guard or a look speaks against going on. `stuck`:
    a step failed. `doubted`: it is done, and the audit of the rebalance found what people have to look at.
    """

    PLANNED = "planned"
    DONE = "done"
    HALTED = "halted"
    STUCK = "stuck"
    DOUBTED = "doubted"


_EXIT_CODES = {
    AdditionEnding.HALTED: ExitCode.REFUSED,
    AdditionEnding.STUCK: ExitCode.FAILED,
    AdditionEnding.DOUBTED: ExitCode.ATTENTION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionSummary:
    """The result. `reasons` speak against going on, or are what the audit found. `state` is how far it is by the record. `places` are what lies where the
    bricks are to be, where that was looked at. `moved_files`, `moved_bytes`, `failures` and `skipped` are those of the last
    task that moved files, `size_bytes` what the new bricks have together, where that is known. `directories` have lost owner or mode
    on the way to the new bricks and wait for people.
    """

    side: AdditionSide
    volume: str
    bricks: tuple[str, ...]
    instead_of: str | None
    dry_run: bool
    ending: AdditionEnding
    state: AdditionState
    words: str
    hint: str = ""
    reasons: tuple[str, ...] = ()
    places: tuple[NewPlace, ...] = ()
    size_bytes: int | None = None
    moved_files: int = 0
    moved_bytes: int = 0
    failures: int = 0
    skipped: int = 0
    directories: tuple[ListedDirectory, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """What the shell sees. A dry run that finds reasons is refused as the addition would be."""
        return _EXIT_CODES.get(self.ending, ExitCode.DONE)
