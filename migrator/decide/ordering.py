"""How each order of the user trees would empty the source over time."""

from collections.abc import Sequence

from migrator.decide.forecast import copy_s
from migrator.decide.ranking import rank
from migrator.domain.plan import EmptyingCurve, EmptyingPoint, Order, TransferCost, TreeUsage

MAX_POINTS = 50


def emptying_curve(usages: Sequence[TreeUsage], order: Order, cost: TransferCost) -> EmptyingCurve:
    """Tree after tree with all streams; a tree's bytes leave the source when all of it has been copied.

    Starts at (0, 0, 0) and ends with everything; at most `MAX_POINTS` points, so a curve of many trees is thinned
    evenly. `half_s` is exact nevertheless.
    """
    points = [EmptyingPoint(elapsed_s=0.0, freed_bytes=0, users_done=0)]
    for done, usage in enumerate(rank(usages, order), start=1):
        last = points[-1]
        points.append(
            EmptyingPoint(
                elapsed_s=last.elapsed_s + copy_s(usage.files + usage.directories, usage.size_bytes, cost),
                freed_bytes=last.freed_bytes + usage.size_bytes,
                users_done=done,
            )
        )
    total = points[-1]
    half_s = next(point.elapsed_s for point in points if point.freed_bytes * 2 >= total.freed_bytes)
    return EmptyingCurve(order=order, half_s=half_s, total_s=total.elapsed_s, points=_thinned(points))


def emptying_curves(usages: Sequence[TreeUsage], cost: TransferCost) -> tuple[EmptyingCurve, ...]:
    """One curve for every order there is."""
    return tuple(emptying_curve(usages, order, cost) for order in Order)


def _thinned(points: Sequence[EmptyingPoint]) -> tuple[EmptyingPoint, ...]:
    if len(points) <= MAX_POINTS:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[index * last // (MAX_POINTS - 1)] for index in range(MAX_POINTS))
