"""Freezes: the users in one, its parts, its limit. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import UserTree
from migrator.core.units import format_duration, several
from migrator.cutover import model
from migrator.cutover.model import CutoverState, CutoverStep
from migrator.operations.model import StepRecord, StepResult


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


_HELD = 1.1
"""A freeze no longer than this many times its prediction counts as no longer than predicted."""


def describe_freeze(record: model.CutoverRecord) -> str:
    """How long a user was frozen, and the prediction; empty before the thaw."""
    if record.freeze_s is None:
        return ""
    predicted_s = record.predicted_freeze_s
    predicted = "unknown" if predicted_s is None else format_duration(predicted_s)
    return f"{record.tree.user} was frozen for {format_duration(record.freeze_s)}; predicted: {predicted}."


_PART_WORDS = {
    FreezePart.CLOSE: "closing the top",
    FreezePart.SEARCH: "searches for writers",
    FreezePart.SCAN: "scan of the final pass",
    FreezePart.COPY: "rest of the final pass",
    FreezePart.VERIFY: "verification",
    FreezePart.SWITCH: "switch",
    FreezePart.THAW: "thaw",
    FreezePart.INTERRUPTED: "an interrupted step",
}


def describe_part(part: FreezePart) -> str:
    """A description of a part of a freeze."""
    return _PART_WORDS[part]


def freeze_parts(
    record: model.CutoverRecord,
    steps: Iterable[StepRecord[model.CutoverStep]],
    *,
    scan_s: float | None,
    until_s: float,
) -> Mapping[FreezePart, float]:
    """The parts of a freeze in seconds, until the thaw or `until_s`; empty before a freeze. `scan_s` is how long the
    scans of the final passes took, None if the first has not ended.
    """
    if record.frozen_at_s is None:
        return {}
    end_s = until_s if record.thawed_at_s is None else record.thawed_at_s
    found: defaultdict[FreezePart, float] = defaultdict(float)
    at_s = record.frozen_at_s
    for step in steps:
        part = FREEZE_PARTS.get(step.step)
        if part is None or not record.frozen_at_s <= step.intended_at_s < end_s:
            continue
        ended_s = end_s if step.ended_at_s is None else min(step.ended_at_s, end_s)
        part = FreezePart.INTERRUPTED if step.result is StepResult.INTERRUPTED else part
        found[FreezePart.SEARCH] += step.intended_at_s - at_s
        found[part] += ended_s - step.intended_at_s
        at_s = ended_s
    found[FreezePart.SEARCH] += end_s - at_s
    copied_s = found[FreezePart.COPY]
    found[FreezePart.SCAN] = copied_s if scan_s is None else min(scan_s, copied_s)
    found[FreezePart.COPY] -= found[FreezePart.SCAN]
    return {part: found[part] for part in FreezePart if found[part] > 0}


def limit_problem(parts_s: Mapping[FreezePart, float], *, limit_s: float) -> str:
    """Why a freeze that has reached its limit must end, with its parts, the longest first."""
    longest = sorted(parts_s.items(), key=lambda one: -one[1])
    spent = ", ".join(f"{describe_part(part)} {format_duration(seconds)}" for part, seconds in longest)
    return f"the freeze reached [cutover] max_freeze ({format_duration(limit_s)}): {spent}"


def describe_freezes(cutovers: Sequence[model.CutoverRecord]) -> str:
    """How long users were frozen, and how many freezes kept to the prediction, as one sentence; empty if no user was
    frozen.
    """
    frozen = [(one.freeze_s, one.predicted_freeze_s) for one in cutovers if one.freeze_s is not None]
    if not frozen:
        return ""
    longest = format_duration(max(real_s for real_s, _ in frozen))
    held = sum(predicted_s is not None and real_s <= _HELD * predicted_s for real_s, predicted_s in frozen)
    users = several(len(frozen), "user")
    return f"{users} frozen, for at most {longest}; {several(held, 'freeze')} lasted no longer than predicted."
