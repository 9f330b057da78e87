"""What `cutover` and `rollback` are asked, and what they came to."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.errors import ExitCode
from migrator.domain.freezing import FreezeWay
from migrator.domain.report import CutoverFacts
from migrator.domain.run import RunRequest
from migrator.domain.speed_up import SpeedUp
from migrator.domain.tree import UserTree


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverRequest:
    """Which trees of a plan, by batch. `run` says how passes are made.

    `accept_freeze`: also where the freeze is predicted to last longer than `max_freeze_s`, or is not predicted.
    `settle_s`: how long clients on other machines may pass a closed top by what they remember of it. `wants_backup`: a backup of the target has to be recorded before the switch.
    `overwrite_source`: a rollback overwrites what somebody changed on the retained source.
    """

    plan: str
    trees: Mapping[int, tuple[UserTree, ...]]
    run: RunRequest
    freeze: FreezeWay
    max_freeze_s: float
    settle_s: float = 0.0
    accept_freeze: bool = False
    wants_backup: bool = False
    overwrite_source: bool = False
    dry_run: bool = False


class Ending(StrEnum):
    """How it ended for one user.

    `moved`: he is where the command wanted him. `given-up`: something failed before the switch, and he was thawed where he
    was. `refused`: a guard spoke against beginning. `halted`: nothing was touched, because the world is not what the ledger
    explains. `stuck`: a step failed, and the next call tries it again; he may be frozen. `planned`: of a dry run, nothing speaks against it.
    """

    PLANNED = "planned"
    MOVED = "moved"
    GIVEN_UP = "given-up"
    REFUSED = "refused"
    HALTED = "halted"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOutcome:
    """What became of one tree. `cutover` is the newest attempt, None where there is none; `words` say why it did not come further, `hint` what to
    do about it. `predicted_freeze_s` is what a freeze would take now. `speed_ups` are those that this call has measured.
    """

    tree: UserTree
    batch: int
    ending: Ending
    cutover: CutoverFacts | None = None
    words: str = ""
    hint: str = ""
    problems: tuple[str, ...] = ()
    predicted_freeze_s: float | None = None
    speed_ups: tuple[SpeedUp, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverSummary:
    """What a call of `cutover` or (`back`) `rollback` came to."""

    plan: str
    back: bool
    dry_run: bool
    outcomes: tuple[TreeOutcome, ...]

    @property
    def exit_code(self) -> ExitCode:
        """What the shell sees: failed where somebody may be frozen, refused where nobody was moved, attention where some
        were not.
        """
        endings = [one.ending for one in self.outcomes]
        if Ending.STUCK in endings or Ending.HALTED in endings:
            return ExitCode.FAILED
        good = [ending in (Ending.MOVED, Ending.PLANNED) for ending in endings]
        if all(good):
            return ExitCode.DONE
        return ExitCode.ATTENTION if any(good) else ExitCode.REFUSED
