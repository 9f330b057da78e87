"""Measuring a user's own tree around his cutover, and what the ledger keeps of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from migrator.domain.capacity import Side
from migrator.domain.speed_up import MeasuredTree, TreeMeasurement


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


class SpeedUpRecords(Protocol):
    """Measurements in the ledger."""

    def add(self, cutover_id: int, measurements: Sequence[TreeMeasurement]) -> None:
        """Keep them. The same side, run and test of a cutover again replaces the one before."""

    def forget(self, cutover_id: int, side: Side) -> None:
        """What was measured on a side before is not what is wanted: it is measured anew."""

    def of(self, cutover_id: int) -> Sequence[TreeMeasurement]:
        """Those of one cutover, the source's first, in the order of their runs."""

    def settled(self) -> Sequence[MeasuredTree]:
        """Those of the newest cutover of every tree whose user works on the target, in order of path."""
