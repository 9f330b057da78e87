"""Frozen users, and the parts of a freeze. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverState, CutoverStep


class FrozenUser(Struct, frozen=True, kw_only=True):
    """A user who cannot work now."""

    tree: UserTree
    state: CutoverState
    """State of the cutover or rollback."""
    since_s: float
    """When the freeze began."""
    at_work: bool
    """A command holds the tree, and ends the freeze."""
    hint: str
    """The command that ends the freeze."""
    reason: str = ""


class FreezePart(StrEnum):
    """A part of a freeze. `close`: hooks before the freeze, closing the top, and waiting for client caches. `search`: searches
    for writers, and looks at both sides between steps. `scan` and `copy`: the final pass up to its lists, and the rest of
    it. `interrupted`: a step that was killed, and the time until the next command.
    """

    CLOSE = "close"
    SEARCH = "search"
    SCAN = "scan"
    COPY = "copy"
    VERIFY = "verify"
    SWITCH = "switch"
    THAW = "thaw"
    INTERRUPTED = "interrupted"


FREEZE_PARTS = {
    CutoverStep.FREEZE: FreezePart.CLOSE,
    CutoverStep.FINAL_PASS: FreezePart.COPY,
    CutoverStep.VERIFY: FreezePart.VERIFY,
    CutoverStep.SWITCH: FreezePart.SWITCH,
    CutoverStep.THAW: FreezePart.THAW,
    CutoverStep.REVERT: FreezePart.THAW,
}


class FreezeSpent(Struct, frozen=True, kw_only=True):
    """One freeze that has ended."""

    tree: UserTree
    plan: str
    batch: int
    freeze_s: float
    """Its duration."""
    predicted_freeze_s: float | None
    """The predicted duration."""
    parts_s: Mapping[FreezePart, float]
    """Its parts, which add up to it."""
