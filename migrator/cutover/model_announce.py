"""Announcements of cutovers, and recorded backups of the target. Pure."""

from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode


class Announced(StrEnum):
    """The result of one announcement. `would-notify`: a dry run. `before`: an earlier command announced the same time.
    `skipped`: a `pre` hook skipped it. `not-due`: the user has been moved already or is being moved. `failed`: a hook
    failed.
    """

    NOTIFIED = "notified"
    WOULD_NOTIFY = "would-notify"
    BEFORE = "before"
    SKIPPED = "skipped"
    NOT_DUE = "not-due"
    FAILED = "failed"


class Announcement(Struct, frozen=True, kw_only=True):
    """The announcement to the user of one tree."""

    tree: UserTree
    batch: int
    outcome: Announced
    """Whether the user was notified."""
    freeze_s: float | None
    """The predicted freeze."""
    reason: str = ""
    """Why the user was not notified; empty if they were."""


class AnnounceSummary(Struct, frozen=True, kw_only=True):
    """The result of `announce`."""

    plan: str
    begins_at_s: float
    """When the move begins."""
    dry_run: bool
    announcements: tuple[Announcement, ...]
    """One for each tree, in the plan's order."""

    @property
    def exit_code(self) -> ExitCode:
        failed = any(one.outcome is Announced.FAILED for one in self.announcements)
        return ExitCode.FAILED if failed else ExitCode.DONE


class AnnouncementRecord(Struct, frozen=True, kw_only=True):
    """A user was notified at `at_s` that the cutover of their tree begins at `begins_at_s`."""

    plan: str
    tree: bytes
    begins_at_s: float
    at_s: float


# Backups of the target.


class RecordedBackup(Struct, frozen=True, kw_only=True):
    """A recorded backup: `backup`."""

    trees: tuple[UserTree, ...]
    """The user trees in it."""
    began_at_s: float
    """When it began."""
    note: str
    """Name or place of the backup."""
