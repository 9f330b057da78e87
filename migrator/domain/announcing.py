"""Telling users ahead when they will be moved."""

from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.errors import ExitCode
from migrator.domain.tree import UserTree


class Announced(StrEnum):
    """What became of one announcement: `would-tell` in a dry run, `before` by an earlier command with the same time.
    `skipped`: a `pre` hook said so; `not-due`: nothing is ahead of the user; `failed`: a hook that tells him did.
    """

    TOLD = "told"
    WOULD_TELL = "would-tell"
    BEFORE = "before"
    SKIPPED = "skipped"
    NOT_DUE = "not-due"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What the user of one tree is told. `freeze_s` is predicted, None where nothing is; `text` None where it was not made.
    `reason` says why he was not told; empty where he was.
    """

    tree: UserTree
    batch: int
    outcome: Announced
    freeze_s: float | None
    text: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceSummary:
    """One call of `announce`: every tree that was asked for, in the plan's order. `begins_at_s` is when the move begins."""

    plan: str
    begins_at_s: float
    dry_run: bool
    announcements: tuple[Announcement, ...]

    @property
    def exit_code(self) -> ExitCode:
        """What the shell sees."""
        failed = any(one.outcome is Announced.FAILED for one in self.announcements)
        return ExitCode.FAILED if failed else ExitCode.DONE
