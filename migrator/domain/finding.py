"""What a preflight check found."""

from dataclasses import dataclass
from enum import StrEnum


class FindingStatus(StrEnum):
    """How bad it is: a warning lets a migration begin, a failure does not."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One answer of one check; `fix` is what to do about it, empty where there is nothing to do."""

    check: str
    status: FindingStatus
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """A check that is content."""
    return Finding(check=check, status=FindingStatus.OK, message=message)


def warning(check: str, message: str, fix: str) -> Finding:
    """A check that found something to know before beginning."""
    return Finding(check=check, status=FindingStatus.WARNING, message=message, fix=fix)


def failure(check: str, message: str, fix: str) -> Finding:
    """A check that found something to mend before beginning."""
    return Finding(check=check, status=FindingStatus.FAILURE, message=message, fix=fix)
