"""Interfaces to file systems and to other features that a cutover needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from migrator.core.entry import EntryType
from migrator.core.errors import Refused
from migrator.cutover.model import (
    FrozenTop,
    LinkLook,
    PassSeen,
    SwitchOutcome,
    TargetChanges,
    TopLook,
    TreeMeasurement,
    Writers,
)
from migrator.fs.model import Side

# Freezing trees, and finding open files.


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


# Users' links.


class Links(Protocol):
    """The users' links. Blocking: a link may lead to a mount that does not answer. Thread-safe for different users; of one
    user no two calls may be under way (the cutover's lock sees to that).

    What is trusted: root, and every directory on the way to a link that is root's alone to write to. A symlink on the way
    is followed where it is root's. Anything else on the way is refused before the link is looked at.
    """

    def read_link(self, user: str) -> LinkLook:
        """What stands there now. Changes nothing; may be called at any time. Raises Refused for a name of a user that
        cannot be part of a path. What cannot be read is said in the look.
        """

    def switch(self, user: str, *, expected_old: bytes, new: bytes) -> SwitchOutcome:
        """Exchange a link that leads to `expected_old` for one that says `new`, in one step: whoever opens the path finds
        the one or the other. Both are absolute paths of directories; what a link leads to is compared, not what it says.
        The owner of the link is kept. On return it is on the disk.

        May be called again, also after a kill at any instant: what leads to `new` is left, and what the call before left
        beside is cleared away. The same call the other way round switches back.

        Raises Refused, with nothing changed, where the link is no symlink, leads elsewhere, or the way to it can be
        changed by others; if somebody else replaced it at the same time, that replacement stays. Raises OSError where
        the file system fails: then call again.
        """


# Measuring trees.


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeVisit:
    """What is measured in one tree on one side, for `limit_s` at most. `files` are names relative to the tree: on the source all
    that may be drawn, in the order in which they are to be taken; on the target those that were read on the source.
    """

    side: Side
    tree: bytes
    directory: Path
    files: tuple[bytes, ...]
    limit_s: float
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeVisited:
    """What was measured, in order; `files` are those that were read. `problem` says what did not work; what was measured before
    it counts all the same.
    """

    measurements: tuple[TreeMeasurement, ...]
    files: tuple[bytes, ...]
    problem: str = ""


class TreeTiming(Protocol):
    """Runs the real commands in a tree, confined to it."""

    async def visit(self, visit: TreeVisit, *, now_s: Callable[[], float]) -> TreeVisited:
        """Measure. On cancellation everything is ended first. `directory` is made where it is missing. Raises OSError, ToolFailed."""


class FileSamples(Protocol):
    """Files out of catalogs."""

    def draw(self, catalog: str, tree: bytes, *, count: int, seed: int) -> Sequence[bytes]:
        """Up to `count` regular files of a tree that are not empty, as paths relative to it: as many of each class of size as
        there are, in the order of their drawing. The same seed draws the same ones. Raises UsageError, Refused.
        """


# Carrying back.


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedBack:
    """What one pass from the target to the source brought."""

    seen: PassSeen
    changes: TargetChanges


class SourceChangeKind(StrEnum):
    """What somebody did to a path of a source that is kept. A directory in the place of something else was `made`."""

    MADE = "made"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """One path of a retained source that is not what the final pass saw there, and what was not carried back. `stands`: what
    is there now; None where nothing is.
    """

    path: bytes
    kind: SourceChangeKind
    stands: EntryType | None
