"""How full both file systems were, over time."""

from dataclasses import dataclass
from enum import StrEnum


class Side(StrEnum):
    """Which of the two file systems."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySample:
    """What one side showed at one time (seconds since the epoch). Inodes are None where the file system tells none."""

    side: Side
    at_s: float
    total_bytes: int
    free_bytes: int
    total_inodes: int | None
    free_inodes: int | None

    @property
    def used_bytes(self) -> int:
        """Bytes that are taken."""
        return self.total_bytes - self.free_bytes

    @property
    def used_inodes(self) -> int | None:
        """Inodes that are taken; None where the file system tells none."""
        if self.total_inodes is None or self.free_inodes is None:
            return None
        return self.total_inodes - self.free_inodes


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOutlook:
    """How full one side will be when everything that is planned is copied, and nobody frees anything: `full` where it has not
    the room. What users add is not in it.
    """

    side: Side
    at_s: float
    used_bytes: int
    total_bytes: int
    used_inodes: int | None
    total_inodes: int | None

    @property
    def full(self) -> bool:
        """Whether it has not the room."""
        too_many = (
            self.used_inodes is not None and self.total_inodes is not None and self.used_inodes > self.total_inodes
        )
        return self.used_bytes > self.total_bytes or too_many
