"""Interfaces to file systems and to other features that a cutover needs."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from migrator.core.entry import EntryType
from migrator.core.errors import Refused
from migrator.cutover.model import (
    TreeMeasurement,
)
from migrator.fs.model import Side

# Freezing trees, and finding open files.


class TopChanged(Refused):
    """The top of a tree is neither what was written down nor what freezing makes of it: nothing was changed."""


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


# Carrying back.


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
