"""Where on the target a renamed or vanished path lies while renames are carried out. Pure.

All renamed paths are first taken out of their trees, each to a place of its own, and only then put under their new
names: no rename stands in another's way, whatever cycles they form, and nothing has to be remembered but how far the
whole list has come. What lies in a renamed directory moves along with it, so its path has to be followed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from migrator.domain.changes import Rename


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where a path lies when everything before it in order was taken out: in the directory of the rename `within`, or
    (None) still in its tree; `path` is relative to that. `before` is its name before all renames.
    """

    within: int | None
    path: bytes
    before: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGone:
    """As `Found`, of a path that vanished when all renames were taken out; `after`: what it would be called now."""

    within: int | None
    path: bytes
    after: bytes


class RenameOrder:
    """The renamed directories of one move list, in order and numbered as in the list."""

    def __init__(self, directories: Iterable[tuple[int, Rename]]) -> None:
        self._news: dict[bytes, int] = {}
        self._last_olds: dict[bytes, int] = {}
        self._new_names: dict[int, bytes] = {}
        self._befores: dict[bytes, int] = {}
        self._before_names: dict[int, bytes] = {}
        for number, rename in directories:
            before = self.find(number, rename.old).before
            self._before_names[number] = before
            self._befores[before] = number
            self._last_olds[rename.old] = number
            self._news[rename.new] = number
            self._new_names[number] = rename.new

    def find(self, number: int, old: bytes) -> Found:
        """Where the old name of a rename lies, when those before it were taken out."""
        for above in _above(old) if self._news else ():
            within = self._news.get(above)
            if within is not None and within < number:
                below = old[len(above) + 1 :]
                return Found(within=within, path=below, before=self._before_names[within] + b"/" + below)
        return Found(within=None, path=old, before=old)

    def find_gone(self, path: bytes) -> FoundGone:
        """Where a path that vanished lies, when all renames were taken out."""
        for above in _above(path) if self._befores else ():
            within = self._befores.get(above)
            if within is not None:
                below = path[len(above) + 1 :]
                return FoundGone(within=within, path=below, after=self._new_names[within] + b"/" + below)
        return FoundGone(within=None, path=path, after=path)

    def is_out_of_order(self, number: int, new: bytes) -> bool:
        """Whether a directory above a new name gets or loses that name by a later rename, so that `new` is not where the
        path belongs in the end. No list should have such a rename; it is not carried out.
        """
        for above in _above(new) if self._news else ():
            if (named := self._news.get(above)) is not None:
                if named > number:
                    return True
            elif self._last_olds.get(above, -1) > number:
                return True
        return False


def _above(path: bytes) -> Iterator[bytes]:
    """The directories above a path, the nearest first."""
    end = path.rfind(b"/")
    while end > 0:
        yield path[:end]
        end = path.rfind(b"/", 0, end)
