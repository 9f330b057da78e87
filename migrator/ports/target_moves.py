"""Renaming on the target, and its trash."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.entry import EntryType


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What stands under a name of the target."""

    type: EntryType
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What was removed from the trash: whole places, and the names in them. `problems` are sentences about what stays
    there although it should go; it is tried again the next time.
    """

    places: int = 0
    names: int = 0
    problems: tuple[str, ...] = ()


class TargetMoves(Protocol):
    """Names on the target, below its root. Nothing is ever overwritten, no symlink is ever followed.

    Paths are relative to the root; those in the trash begin with its name. Blocking and thread-safe; nothing is
    durable before a sync of the target. All raise OSError.
    """

    def open_place(self, place: str) -> None:
        """Make a place in the trash, where it is missing, and make sure of the trash. May be called again.

        Raises Refused where the trash is not a directory of this user's alone on the target's own file system.
        """

    def look(self, path: bytes) -> Standing | None:
        """What stands under a name; None for nothing, also where what should be a directory above it is none."""

    def move(self, old: bytes, new: bytes) -> None:
        """Rename, a directory with all that is in it. Missing directories above `new` are made, root's with mode 0700.

        Raises FileExistsError where `new` is taken, FileNotFoundError where `old` is not there.
        """

    def make_directory(self, path: bytes) -> None:
        """Make a directory (root's, mode 0700) and those above it, as far as they are missing. May be called again."""

    def trash(self, path: bytes, place: str, *, name: bytes | None = None) -> bytes | None:
        """Move a path, with all that is in it, into a place of the trash, under its own path there, or under `name`; with
        a suffix where that is taken. Returns where it went; None where nothing stands under the path.
        """

    def expire(self, before_s: float, *, keep: Collection[str] = ()) -> Expired:
        """Remove the places that were begun before a time, except for those of passes that are under way (`keep`).
        Names that are none of places stay. May be called again. Raises Refused as `open_place` does.
        """
