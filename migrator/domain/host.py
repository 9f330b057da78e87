"""What a host that runs streams shows of the two file systems."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoots:
    """The sentinel in the target's root there and the volume that a brick belongs to (32 hexadecimal digits); None with
    the reason where it cannot be read.
    """

    sentinel: str | None = None
    target_error: str | None = None
    volume_id: str | None = None
    brick_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoom:
    """The file system at a path, as a host sees it: its type, and what statvfs says."""

    filesystem: str
    total_bytes: int
    free_bytes: int
    read_only: bool
