"""Snapshots of progress that a stage publishes and a view shows."""

from dataclasses import dataclass
from typing import Protocol

from migrator.core.events import Event

# ---
# Snapshots that a stage hands out while it works, and that an output shows.


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickProgress:
    """How far the walk of one brick is: entries of every kind; `ended` also where it failed."""

    brick: str
    rows: int
    elapsed_s: float
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProgress:
    """How far a scan is. `by_user` holds rows and bytes per user so far; `bricks` is empty where the mount is read, and
    where bricks are, nobody knows how many directories wait.
    """

    elapsed_s: float
    rows: int
    directories_waiting: int
    problems: int
    by_user: tuple[tuple[str, int, int], ...]
    bricks: tuple[BrickProgress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """One stream at work."""

    stream: int
    host: str
    chunk: int
    tree: bytes
    files: int
    size_bytes: int
    total_files: int
    total_bytes: int
    rate_bytes_per_s: float
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How far a run is, over all its chunks; `eta_s` is None before there is a basis."""

    batch: int
    step: str
    elapsed_s: float
    files: int
    size_bytes: int
    total_files: int
    total_bytes: int
    rate_bytes_per_s: float
    rate_files_per_s: float
    eta_s: float | None
    bad_files: int
    streams: tuple[StreamProgress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyProgress:
    """How far a verification is. The totals are the plan's, and grow with what came since; a file with several names
    counts once in the bytes. `digested_bytes` are those of equal files whose content was read on both sides,
    `carried_bytes` those whose content had been read before and has not changed since.
    """

    batch: int
    elapsed_s: float
    paths: int
    total_paths: int
    size_bytes: int
    total_bytes: int
    differences: int
    digested_bytes: int = 0
    carried_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeProgress:
    """How far the purge of one user's tree is: `step` is what is done with its names. `kept` are not known to be on the
    target.
    """

    user: str
    step: str
    elapsed_s: float
    names: int
    total_names: int
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """How far the drain of bricks is, by Gluster's own counters. `step` is what is waited for; the totals are None where
    nobody knows what was to be moved, the rates and `left_s` where there is no basis yet.
    """

    bricks: tuple[str, ...]
    step: str
    elapsed_s: float
    files: int
    size_bytes: int
    total_files: int | None
    total_bytes: int | None
    failures: int
    skipped: int
    files_per_s: float | None
    bytes_per_s: float | None
    left_s: float | None


Snapshot = ScanProgress | RunProgress | VerifyProgress | PurgeProgress | DrainProgress
"""What any stage shows."""


# ---
# Where a stage says how far it is.


class Progress(Protocol):
    """Shows snapshots and events as they come. Never raises; cheap to call often."""

    def show(self, snapshot: Snapshot) -> None:
        """The latest snapshot replaces the one before."""

    def event(self, event: Event) -> None:
        """An event stays on the screen."""
