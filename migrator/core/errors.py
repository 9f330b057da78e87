"""The one tree of errors, and the one table of exit codes."""

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What the shell sees. The README prints this table; a test keeps both the same."""

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
    ExitCode.LOCKED: "another run holds the lock",
    ExitCode.INTERRUPTED: "interrupted, resumable",
}


class MigratorError(Exception):
    """An error for people: what happened, the usual cause, and what to do next.

    `message` says what happened; `cause` the usual reason, `hint` the next step (both may be empty).
    """

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init__(self, message: str, *, cause: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.hint = hint


class UsageError(MigratorError):
    """The command line or site.toml asks for something that cannot be."""

    exit_code = ExitCode.USAGE


class Refused(MigratorError):
    """A guard tripped, or could not be evaluated, which counts as tripped."""

    exit_code = ExitCode.REFUSED


class LockHeld(MigratorError):
    """Another process of this site works on the same thing."""

    exit_code = ExitCode.LOCKED


class Interrupted(MigratorError):
    """Stopped by the user; the same command goes on where it was."""

    exit_code = ExitCode.INTERRUPTED


class ToolFailed(MigratorError):
    """An external program could not be started, failed, or gave an answer that cannot be read."""


class LedgerCorrupt(MigratorError):
    """The ledger cannot be read, or holds (or was asked to hold) what its rules do not allow."""
