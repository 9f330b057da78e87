"""Telling users ahead when they will be moved."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from migrator.domain.errors import ExitCode
from migrator.domain.tree import UserTree


def begins_words(at_s: float) -> str:
    """When a move begins, for people: `2026-01-01 19:00 UTC`."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


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
    """Whether the user of one tree was told. `freeze_s` is predicted, None where nothing is. `reason` says why the user was
    not told; empty where they were.
    """

    tree: UserTree
    batch: int
    outcome: Announced
    freeze_s: float | None
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
