"""What a call of `report` has written and sent."""

from dataclasses import dataclass

from migrator.domain.errors import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSent:
    """A report that hooks were called for. `sent` is False where one of them failed, or skipped it: `reason` says so."""

    directory: bytes
    sent: bool
    reason: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """Failed where it was not sent."""
        return ExitCode.DONE if self.sent else ExitCode.FAILED
