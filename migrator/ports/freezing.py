"""Freezing user trees on the source, and finding who still writes to them."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.errors import Refused
from migrator.domain.freezing import FrozenTop, TopLook, Writers


class TopChanged(Refused):
    """The top of a tree is neither what was written down nor what freezing makes of it: nothing was changed."""


class Freezer(Protocol):
    """The tops of user trees on the source. Tree paths are relative to its root; no symlink is ever followed.

    Blocking and thread-safe. All raise OSError: ENOENT where the tree is gone, ENOTDIR or ELOOP where something else
    stands in its place.
    """

    def read_top(self, tree: bytes) -> FrozenTop:
        """What the top is now, to be kept before `freeze`. Only ever of a tree that is not frozen."""

    def look(self, tree: bytes, top: FrozenTop) -> TopLook:
        """What the top is, against what was kept. Changes nothing."""

    def freeze(self, tree: bytes, top: FrozenTop) -> None:
        """Close the top to everybody but root: nobody enters by path any more. Who is inside already stays inside.

        May be called again, also after a crash anywhere in it. Raises TopChanged.
        """

    def thaw(self, tree: bytes, top: FrozenTop) -> None:
        """Put owner, group, mode and both ACLs back, byte for byte. May be called again, also after a crash anywhere in it
        or in `freeze`. Raises TopChanged.
        """


class WriterSearch(Protocol):
    """Who has something below user trees open."""

    async def find_writers(self, trees: Sequence[bytes]) -> Writers:
        """One look at all of them. Changes nothing, and never raises for what cannot be looked at: that is `unseen`.

        It says what was open at some time between its begin and its end: begin it after `freeze`, when nobody comes in any
        more. Working directories of other machines are seen by nobody; what is made from one shows in the next scan.
        """
