"""The tree of errors and the table of exit codes."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """The exit codes of the program. The README has the same table; a test compares them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    ATTENTION = 3
    REFUSED = 4
    LOCKED = 5
    INTERRUPTED = 130


EXIT_CODE_MEANINGS: dict[ExitCode, str] = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "usage or configuration",
    ExitCode.ATTENTION: "finished, but some files need attention (listed)",
    ExitCode.REFUSED: "refused by a guard",
    ExitCode.LOCKED: "another command is at work on the same",
    ExitCode.INTERRUPTED: "interrupted, resumable",
}


class MigratorError(Exception):
    """An error for people: `message` states what happened, `cause` the usual reason, `hint` the next step.

    `cause` and `hint` may be empty.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init__(self, message: str, *, cause: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.hint = hint

    @classmethod
    @contextmanager
    def of_files(cls, message: str, *, cause: str = "", hint: str = "") -> Iterator[None]:
        """An OSError in the block becomes this error, with its reason behind the message."""
        try:
            yield
        except OSError as error:
            raise cls(f"{message}: {error.strerror or error}", cause=cause, hint=hint) from error


class UsageError(MigratorError):
    """The command line or site.toml is wrong."""

    exit_code = ExitCode.USAGE


class Refused(MigratorError):
    """A guard tripped. A guard that cannot be evaluated counts as tripped."""

    exit_code = ExitCode.REFUSED


class LockHeld(MigratorError):
    """Another process of this site holds the lock."""

    exit_code = ExitCode.LOCKED


class Interrupted(MigratorError):
    """Stopped by the user; the same command resumes."""

    exit_code = ExitCode.INTERRUPTED


class ToolFailed(MigratorError):
    """An external program could not be started, failed, or printed something that cannot be parsed."""


class LedgerCorrupt(MigratorError):
    """The ledger cannot be read, or a row in it or for it breaks its rules."""
