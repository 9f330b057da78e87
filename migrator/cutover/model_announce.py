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
    """The announcement to the user of one tree. `freeze_s` is the prediction, None if there is none. `reason` is why the
    user was not notified; empty if they were.
    """

    tree: UserTree
    batch: int
    outcome: Announced
    freeze_s: float | None
    reason: str = ""


class AnnounceSummary(Struct, frozen=True, kw_only=True):
    """The result of one call of `announce`, in the plan's order of trees. `begins_at_s` is when the move begins."""

    plan: str
    begins_at_s: float
    dry_run: bool
    announcements: tuple[Announcement, ...]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
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
    """A recorded backup: the user trees in it, and when it began, in seconds since the epoch."""

    trees: tuple[UserTree, ...]
    began_at_s: float
    note: str
