"""What the conversion schedule is computed from. Times are days from the creation of the plan."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOnBrick:
    """What one user tree (None: what lies outside all of them) has on one brick (None: it is not known on which).

    `files` counts names of what is no directory; `allocated_bytes` counts a hard-linked file once.
    """

    brick: str | None
    tree: bytes | None
    files: int
    allocated_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubvolumeFacts:
    """Bricks that hold the same files, and leave together. Room is that of the copy that has least of it; `free_inodes` is
    None where it is not told. `added_bytes` is what the target gains when all of its bricks are re-formatted for it.
    """

    number: int
    bricks: tuple[str, ...]
    hosts: tuple[str, ...]
    total_bytes: int
    free_bytes: int
    free_inodes: int | None
    added_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Allocated bytes and files by subvolume, in their order; `unplaced_` is what is not known where it lies."""

    size_bytes: tuple[int, ...]
    files: tuple[int, ...]
    unplaced_bytes: int = 0
    unplaced_files: int = 0

    @property
    def all_bytes(self) -> int:
        """Of all subvolumes."""
        return sum(self.size_bytes) + self.unplaced_bytes

    @property
    def all_files(self) -> int:
        """Of all subvolumes."""
        return sum(self.files) + self.unplaced_files


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFiles:
    """What one user has that was not changed for a year: it need not be copied where it is reaped."""

    user: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """A batch. `target_bytes` and `target_inodes` are what it takes of the target beyond what is there of it already;
    `copy_days` is how long it takes to copy as it is now, with all streams, `copy_days_in_drain` how long while a drain moves
    files all the time (None: as long).
    """

    number: int
    placed: Placed
    target_bytes: int
    target_inodes: int
    copy_days: float
    copy_days_in_drain: float | None = None
    old: tuple[OldFiles, ...] = ()

    @property
    def share_in_drain(self) -> float:
        """How much is copied in a day while a drain moves files, as a share of what is copied in one without."""
        slower = self.copy_days if self.copy_days_in_drain is None else max(self.copy_days_in_drain, self.copy_days)
        return self.copy_days / slower if slower else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFacts:
    """Sources of users who work on the target already; `freed_day` is when they are purged."""

    placed: Placed
    freed_day: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPart:
    """The room of one storage target, or of the whole target where single ones are not known. `takes_new`: new files are put
    there now; what BeeGFS passes over has room only by name.
    """

    total_bytes: int
    free_bytes: int
    takes_new: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageParts:
    """The storage targets that user trees get theirs from. One with no more than `low_bytes` free is passed over as long as
    others have more (0: that is not known).
    """

    parts: tuple[TargetPart, ...]
    low_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFacts:
    """Everything. `growth_bytes_per_day` is what all users together add, wherever they work; `target_inodes_free` None is
    not known. `target_low_bytes` is as in StorageParts; None: the parts of the target are not its storage targets, and count
    as one. `reserve_bytes` stay free on the target whatever `max_fill` says.

    A drain costs `drain_days_per_byte` and `drain_days_per_file`, a purge `purge_days_per_file`. With `bricks_join` cleared
    bricks become room of the target `handover_days` after they are cleared.
    """

    subvolumes: tuple[SubvolumeFacts, ...]
    batches: tuple[BatchFacts, ...]
    kept: tuple[KeptFacts, ...]
    outside: Placed
    target: tuple[TargetPart, ...]
    target_inodes_free: int | None
    max_fill: float
    reserve_bytes: int
    growth_bytes_per_day: float
    retain_days: float
    trash_keep_days: float
    purge_days_per_file: float
    drain_days_per_byte: float
    drain_days_per_file: float
    handover_days: float
    bricks_join: bool = True
    target_low_bytes: int | None = None

    @property
    def growth_share(self) -> float:
        """What users add in a day, as a share of what they have now: everybody grows alike."""
        every = sum(batch.placed.all_bytes for batch in self.batches) + sum(kept.placed.all_bytes for kept in self.kept)
        return self.growth_bytes_per_day / every if every else 0.0
