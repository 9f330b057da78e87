"""The parts of a report that the status does not have. Times in seconds since the epoch."""

from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.forecast import ConePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierReport:
    """What an earlier report said; the forecast's parts are None, and `cone` is empty, where it had none."""

    at_s: float
    plan: str | None
    total_bytes: int
    done_bytes: int
    total_files: int
    done_files: int
    likely_at_s: float | None
    earliest_at_s: float | None
    latest_at_s: float | None
    cone: tuple[ConePoint, ...] = ()


class Standing(StrEnum):
    """How the expected end has moved since an earlier report."""

    AHEAD = "ahead"
    AS_EXPECTED = "as-expected"
    BEHIND = "behind"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinceReport:
    """What has come since an earlier report. `expected_bytes` is what that one let expect to be copied by now; `end_moved_s` is
    by how much the likely end is later than it said (below 0: earlier). `reasons` are sentences.
    """

    earlier: EarlierReport
    standing: Standing
    done_bytes: int
    done_files: int
    expected_bytes: float | None
    planned_more_bytes: int
    end_moved_s: float | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickOutlook:
    """One brick of the source: its state in words, what a drain has left to move (None: not known), and when it is free, by the
    drain's own pace or by the schedule; `basis` says which.
    """

    brick: str
    state: str
    left_files: int | None
    left_bytes: int | None
    free_at_s: float | None
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOutlook:
    """A server of the source: how many bricks it has or had, how many of them are free, and when all are (None: it is not
    known). `basis` is that of the brick that is free last.
    """

    server: str
    bricks: int
    free_bricks: int
    free_at_s: float | None
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapedFacts:
    """What a plan does not move as it is. `archived_` is what proven archives hold, in `archives` files of `archive_bytes`;
    `released` counts the skipped paths and globs that were given up for deletion.
    """

    to_archive_bytes: int
    to_archive_inodes: int
    skipped_bytes: int
    skipped_inodes: int
    archives: int
    archived_files: int
    archived_bytes: int
    archive_bytes: int
    released: int
