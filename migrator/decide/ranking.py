"""In which order user trees go."""

from collections.abc import Iterable, Sequence
from typing import assert_never

from migrator.domain.plan import Order, TreeUsage


def _key(order: Order, usage: TreeUsage) -> tuple[float, int, int, bytes]:
    path = usage.tree.path
    match order:
        case Order.HEAVIEST:
            return (0.0, -usage.size_bytes, -usage.files, path)
        case Order.SMALLEST:
            return (0.0, usage.size_bytes, usage.files, path)
        case Order.COLDEST:
            # A tree without files has no age; it goes last, not first.
            return (-usage.median_age_s if usage.files else float("inf"), -usage.size_bytes, -usage.files, path)
        case Order.MOST_FILES:
            return (0.0, -usage.files, -usage.size_bytes, path)
        case _ as never:
            assert_never(never)


def rank(usages: Iterable[TreeUsage], order: Order) -> Sequence[TreeUsage]:
    """The usages in this order. Ties go by the other measure and then by path, so that the ranking is one and the same
    every time.

    `coldest` goes by the median time since a file was last changed (mtime).
    """
    return sorted(usages, key=lambda usage: _key(order, usage))
