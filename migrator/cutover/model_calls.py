"""Requests and results of `cutover` and `rollback`. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode
from migrator.core.windows import ALWAYS, OpenTimes
from migrator.cutover.model import CutoverRecord
from migrator.cutover.rules_freezes import FreezePart
from migrator.cutover.rules_speed import SpeedUp
from migrator.transfer.model_runs import RunRequest


class CutoverRequest(Struct, frozen=True, kw_only=True):
    """The trees to move, by batch; `back`: by a rollback. `run` has the plan and the options of passes.

    `vouched`: the site's freeze hook guarantees that no process writes where this program cannot search. `accept_freeze`:
    move users even if the freeze is predicted or found to exceed `max_freeze_s`, or there is no prediction. `settle_s`: how long
    clients on other machines may pass a closed top by their caches. `wants_backup`: a backup of the target must be
    recorded before the switch. `require_rollback`: move only users who could be moved back. `require_acl_inheritance`:
    move users with default ACLs only if new files on the target inherit them. `overwrite_source`: a rollback overwrites
    changes on the retained source. `switch_by_hook`: the site leaves the switch to its hooks. `times`: when freezes may begin.
    """

    trees: Mapping[int, tuple[UserTree, ...]]
    run: RunRequest
    back: bool = False
    vouched: bool
    switch_by_hook: bool = False
    times: OpenTimes = ALWAYS
    max_freeze_s: float
    settle_s: float = 0.0
    accept_freeze: bool = False
    wants_backup: bool = False
    require_rollback: bool = True
    require_acl_inheritance: bool = True
    overwrite_source: bool = False

    @property
    def verb(self) -> str:
        return "rollback" if self.back else "cutover"


class CutoverEnding(StrEnum):
    """The result for one user.

    `moved`: the user is on the side that the command asks for. `given-up`: something failed before the switch, and the
    user was thawed without being moved. `refused`: a preflight check failed. `halted`: nothing was changed, because the
    snapshot does not agree with the ledger. `stuck`: a step failed, and the next call retries it; the user may be
    frozen. `planned`: a dry run without problems.
    """

    PLANNED = "planned"
    MOVED = "moved"
    GIVEN_UP = "given-up"
    REFUSED = "refused"
    HALTED = "halted"
    STUCK = "stuck"


class CutoverOutcome(Struct, frozen=True, kw_only=True):
    """The result for one tree."""

    tree: UserTree
    batch: int
    ending: CutoverEnding
    """How it ended."""
    cutover: CutoverRecord | None = None
    """The newest attempt."""
    words: str = ""
    hint: str = ""
    problems: tuple[str, ...] = ()
    """Failed preflight checks."""
    predicted_freeze_s: float | None = None
    """The freeze that is predicted now."""
    freeze_parts_s: Mapping[FreezePart, float] = {}
    """The parts of the freeze; empty without one."""
    speed_ups: tuple[SpeedUp, ...] = ()
    """What this call has measured."""


class CutoverSummary(Struct, frozen=True, kw_only=True):
    """The result of `cutover` or `rollback`."""

    plan: str
    back: bool
    """It was `rollback`."""
    dry_run: bool
    outcomes: tuple[CutoverOutcome, ...]
    """The result for each tree."""

    @property
    def exit_code(self) -> ExitCode:
        """1 (failed) if a user may be frozen, 4 (refused) if no user was moved, 3 (attention) if some were not."""
        endings = [one.ending for one in self.outcomes]
        if CutoverEnding.STUCK in endings or CutoverEnding.HALTED in endings:
            return ExitCode.FAILED
        good = [ending in (CutoverEnding.MOVED, CutoverEnding.PLANNED) for ending in endings]
        lates = [one.cutover.notes.late for one in self.outcomes if one.cutover and not self.back]
        if all(good) and not any(late is not None and late.left for late in lates):
            return ExitCode.DONE
        return ExitCode.ATTENTION if any(good) else ExitCode.REFUSED
