"""Quotas of the target: what a user takes up there, and may."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuota:
    """Of one user, by his number. `limit_` None: there is none. BeeGFS counts *chunk files*: a file with content has at least
    one, and one on each of the storage targets that it is spread over; directories and empty files have none. `used_chunk_files`
    None: nobody counts them.
    """

    uid: int
    used_bytes: int = 0
    used_chunk_files: int | None = None
    limit_bytes: int | None = None
    limit_chunk_files: int | None = None

    @property
    def limited(self) -> bool:
        """Whether he has a limit at all."""
        return self.limit_bytes is not None or self.limit_chunk_files is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOwner:
    """What one user owns in one user tree of the source. Only files with content count, each inode once; bytes are those that
    are surely taken up: of a file with holes, what is allocated.
    """

    tree: bytes
    uid: int
    size_bytes: int
    files: int
