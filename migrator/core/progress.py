"""Snapshots of progress, which a stage publishes and a view shows."""

from typing import Protocol

from msgspec import Struct

from migrator.core.events import Event


class BrickProgress(Struct, frozen=True, kw_only=True):
    """The walk of one brick: `rows` counts entries of every kind; `ended` is true also after a failure."""

    brick: str
    rows: int
    elapsed_s: float
    ended: bool


class ScanProgress(Struct, frozen=True, kw_only=True):
    """A scan in progress. A scan through the mount has no `bricks`; a scan of bricks does not know how many directories
    wait.
    """

    elapsed_s: float
    rows: int
    directories_waiting: int
    problems: int
    bricks: tuple[BrickProgress, ...] = ()


class StreamProgress(Struct, frozen=True, kw_only=True):
    """One stream in progress."""

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


class RunProgress(Struct, frozen=True, kw_only=True):
    """A run in progress, over all its chunks; `eta_s` is None until it can be estimated."""

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


class VerifyProgress(Struct, frozen=True, kw_only=True):
    """A verification in progress. The totals are the plan's and grow with newer files; a file with several names counts
    once in the bytes. `digested_bytes` counts equal files whose content was read on both sides, `carried_bytes` those
    whose content was read earlier and has not changed since.
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


class PurgeProgress(Struct, frozen=True, kw_only=True):
    """The purge of one user's tree. `kept` counts names that are not proven to be on the target."""

    user: str
    step: str
    elapsed_s: float
    names: int
    total_names: int
    kept: int


class DrainProgress(Struct, frozen=True, kw_only=True):
    """A drain in progress, by Gluster's own counters. `step` is the current wait. The totals are None if the amount is
    unknown, the rates and `left_s` until they can be estimated.
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


class Progress(Protocol):
    """Receives snapshots and events from a stage. Never raises; cheap to call often."""

    def show(self, snapshot: Snapshot) -> None:
        """Replace the previous snapshot."""

    def event(self, event: Event) -> None:
        """Show an event, which stays on the screen."""
