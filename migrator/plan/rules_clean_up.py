"""How much earlier a user tree moves when its user cleans up first. Pure."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec.structs import replace

from migrator.core.units import YEAR_S
from migrator.plan.model import CleanUp, CleanUpKind, Order, TransferCost, TreeUsage
from migrator.plan.rules import order_key
from migrator.plan.rules_forecast import copy_s
from migrator.reap.model import PlanReap, ReapedTree
from migrator.site.model import ReapAction

WORTH_PACKING = 10_000
"""Fewer tiny files of a tree are not worth the trouble: by the assumed cost, copying them takes one stream ten seconds."""


def clean_ups(
    ranking: Sequence[TreeUsage], order: Order, cost: TransferCost, reap: PlanReap | None
) -> Iterator[CleanUp]:
    """The possible clean-ups of each tree, in the plan's order of trees (`ranking`).

    Trees are copied one after the other in that order. A clean-up shortens the copying of the tree itself, and in an order
    in which less data means an earlier place (`smallest`) it also moves the tree forward. It never moves one back: the
    batches of a plan stay as they are, and `heaviest` must not punish. Files that are archived or skipped anyway are not
    counted; as which of the old and tiny files they are is unknown, all of them are taken to be of either kind.
    """
    reaped = {} if reap is None else {one.tree.path: one for one in reap.trees}
    left = [_left(usage, reaped.get(usage.tree.path)) for usage in ranking]
    keys = [order_key(order, usage) for usage in ranking]
    starts_s = list(accumulate((_copy_s(usage, cost) for usage in left), initial=0.0))
    for place, (usage, rest) in enumerate(zip(ranking, left, strict=True)):
        for kind, files, size_bytes in _offers(usage, rest, reaped.get(usage.tree.path)):
            fewer = {"files": max(rest.files - files, 0), "size_bytes": max(rest.size_bytes - size_bytes, 0)}
            cleaned = replace(usage, files=usage.files - files, size_bytes=max(usage.size_bytes - size_bytes, 0))
            new_place = min(place, bisect_left(keys, order_key(order, cleaned)))
            done_s = starts_s[new_place] + _copy_s(replace(rest, **fewer), cost)
            earlier_s = max(starts_s[place + 1] - done_s, 0.0)
            yield CleanUp(
                tree=usage.tree.path, kind=kind, files=files, size_bytes=size_bytes, earlier_s=round(earlier_s, 3)
            )


def _left(usage: TreeUsage, reaped: ReapedTree | None) -> TreeUsage:
    """A tree without what the plan does not copy."""
    if reaped is None or reaped.action is ReapAction.LIST:
        return usage
    return replace(
        usage, files=max(usage.files - reaped.files, 0), size_bytes=max(usage.size_bytes - reaped.size_bytes, 0)
    )


def _copy_s(usage: TreeUsage, cost: TransferCost) -> float:
    return copy_s(usage.files + usage.directories, usage.size_bytes, cost)


def _offers(usage: TreeUsage, rest: TreeUsage, reaped: ReapedTree | None) -> Iterator[tuple[CleanUpKind, int, int]]:
    """The kinds of files that are there, with their number and the bytes that cleaning them up frees."""
    if reaped is not None and reaped.action is ReapAction.LIST and reaped.files:
        yield CleanUpKind.LISTED, reaped.files, reaped.size_bytes
    kept_back = usage.files - rest.files, usage.size_bytes - rest.size_bytes
    old = [bucket for bucket in usage.by_mtime if _is_old(bucket.max_age_s)]
    files = sum(bucket.files for bucket in old) - kept_back[0]
    size_bytes = sum(bucket.size_bytes for bucket in old) - kept_back[1]
    if files > 0 and size_bytes > 0:
        yield CleanUpKind.OLD, files, size_bytes
    tiny = usage.tiny_files - kept_back[0]
    if tiny >= WORTH_PACKING:
        yield CleanUpKind.TINY, tiny, 0


def _is_old(max_age_s: int | None) -> bool:
    """True if a bucket of ages has only files that were not changed for a year."""
    return max_age_s is None or max_age_s > YEAR_S
