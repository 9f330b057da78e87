"""Ages, ranking, order, batches, batch states, and trees that are not copied. Pure."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, Entry, EntryType, UserTree
from migrator.core.paths import show
from migrator.core.states import BatchState, PassKind
from migrator.core.units import DAY_S, YEAR_S
from migrator.operations.ports import TreeMove
from migrator.plan.model import EMPTYING_PERCENT, EmptyingCurve, Order, TransferCost, TreeUsage
from migrator.plan.rules_forecast import copy_s

# --- Age buckets


AGE_BOUNDS: tuple[tuple[str, int | None], ...] = (
    ("in the future", 0),
    ("< 30 days", 30 * DAY_S),
    ("< 90 days", 90 * DAY_S),
    ("< 180 days", 180 * DAY_S),
    ("< 1 year", YEAR_S),
    ("< 2 years", 2 * YEAR_S),
    ("< 5 years", 5 * YEAR_S),
    ("older", None),
)
"""Label and upper bound of every bucket, the youngest first. A file belongs to the first whose bound is above its age."""


# --- Order of user trees


def order_key(order: Order, usage: TreeUsage) -> tuple[float, int, int, bytes]:
    """The place of a tree in an order: the smallest key goes first."""
    path = usage.tree.path
    match order:
        case Order.HEAVIEST:
            return (0.0, -usage.size_bytes, -usage.files, path)
        case Order.SMALLEST:
            return (0.0, usage.size_bytes, usage.files, path)
        case Order.COLDEST:
            # A tree without files has no age; it is sorted last, not first.
            return (-usage.median_age_s if usage.files else float("inf"), -usage.size_bytes, -usage.files, path)
        case Order.MOST_FILES:
            return (0.0, -usage.files, -usage.size_bytes, path)
        case _ as never:
            assert_never(never)


def rank(usages: Iterable[TreeUsage], order: Order) -> Sequence[TreeUsage]:
    """Sort the usages. Ties are broken by the other measure, then by path, so the ranking is deterministic.

    `coldest` sorts by the median time since a file was last changed (mtime).
    """
    return sorted(usages, key=lambda usage: order_key(order, usage))


# --- Emptying curves


def emptying_curve(usages: Sequence[TreeUsage], order: Order, cost: TransferCost) -> EmptyingCurve:
    """Copy tree after tree with all streams; the bytes of a tree leave the source when all of it is copied."""
    ranking = rank(usages, order)
    costs_s = (copy_s(usage.files + usage.directories, usage.size_bytes, cost) for usage in ranking)
    elapsed_s = list(accumulate(costs_s, initial=0.0))
    freed_bytes = list(accumulate((usage.size_bytes for usage in ranking), initial=0))
    wanted_bytes = (-(-percent * freed_bytes[-1] // 100) for percent in EMPTYING_PERCENT)
    return EmptyingCurve(
        order=order, reached_s=tuple(elapsed_s[bisect_left(freed_bytes, wanted)] for wanted in wanted_bytes)
    )


def emptying_curves(usages: Sequence[TreeUsage], cost: TransferCost) -> tuple[EmptyingCurve, ...]:
    """One curve for each order."""
    return tuple(emptying_curve(usages, order, cost) for order in Order)


# --- Batches


class BatchLimits(Struct, frozen=True, kw_only=True):
    """Limits of one batch. A tree that exceeds them is a batch of its own. `max_files` counts directories too: each
    one costs an inode and a look-up.
    """

    max_bytes: int
    max_files: int
    max_users: int


class SpanMember(Struct, frozen=True, kw_only=True):
    """Names in one tree (None: outside every tree) of link groups that span several trees."""

    tree: bytes | None
    names: int
    examples: tuple[bytes, ...]


class LinkSpan(Struct, frozen=True, kw_only=True):
    """All link groups that span exactly these trees; bytes count each group once."""

    members: tuple[SpanMember, ...]
    groups: int
    size_bytes: int

    @property
    def trees(self) -> frozenset[bytes | None]:
        return frozenset(member.tree for member in self.members)


def without_trees(spans: Iterable[LinkSpan], trees: Collection[bytes]) -> Sequence[LinkSpan]:
    """Spans for a plan without some trees: names in those count as outside every tree."""
    found = [
        replace(
            span,
            members=tuple(replace(member, tree=None) if member.tree in trees else member for member in span.members),
        )
        for span in spans
    ]
    return [span for span in found if span.trees != {None}]


@dataclass(slots=True)
class _Cluster:
    """Trees that stay in one batch, by their place in the ranking."""

    places: list[int]
    size_bytes: int
    files: int

    def with_other(self, other: "_Cluster") -> "_Cluster":
        return _Cluster(
            places=sorted(self.places + other.places),
            size_bytes=self.size_bytes + other.size_bytes,
            files=self.files + other.files,
        )

    def within(self, limits: BatchLimits) -> bool:
        return (
            self.size_bytes <= limits.max_bytes
            and self.files <= limits.max_files
            and len(self.places) <= limits.max_users
        )


def batch_trees(
    ranking: Sequence[TreeUsage], spans: Iterable[LinkSpan], limits: BatchLimits
) -> tuple[tuple[TreeUsage, ...], ...]:
    """The trees of each batch, in order; every tree is in exactly one batch.

    Trees keep the order of the ranking, but trees that share link groups are joined at the place of the first of them,
    if all of them fit into one batch. Trees with the most bytes in common are joined first. A batch exceeds the limits
    only if it is a single tree.
    """
    clusters = _cluster(ranking, spans, limits)
    batches: list[tuple[TreeUsage, ...]] = []
    current = _Cluster([], 0, 0)
    for cluster in clusters:
        joined = current.with_other(cluster)
        if current.places and not joined.within(limits):
            batches.append(tuple(ranking[place] for place in current.places))
            joined = cluster
        current = joined
    if current.places:
        batches.append(tuple(ranking[place] for place in current.places))
    return tuple(batches)


def _cluster(ranking: Sequence[TreeUsage], spans: Iterable[LinkSpan], limits: BatchLimits) -> list[_Cluster]:
    of_tree = {
        usage.tree.path: _Cluster([place], usage.size_bytes, usage.files + usage.directories)
        for place, usage in enumerate(ranking)
    }
    for span in sorted(spans, key=_heaviest_first):
        trees = sorted(tree for tree in span.trees if tree is not None and tree in of_tree)
        joined = _joined([of_tree[tree] for tree in trees])
        if joined is not None and joined.within(limits):
            for place in joined.places:
                of_tree[ranking[place].tree.path] = joined
    distinct = {id(cluster): cluster for cluster in of_tree.values()}
    return sorted(distinct.values(), key=lambda cluster: cluster.places[0])


def _heaviest_first(span: LinkSpan) -> tuple[int, int, list[bytes]]:
    return (-span.size_bytes, -span.groups, sorted(tree or b"" for tree in span.trees))


def _joined(clusters: Sequence[_Cluster]) -> _Cluster | None:
    joined: _Cluster | None = None
    for cluster in {id(cluster): cluster for cluster in clusters}.values():
        joined = cluster if joined is None else joined.with_other(cluster)
    return joined


# --- Batch states


def unverified(passes: Iterable[PassKind]) -> BatchState:
    """The state of a copied batch without a valid verification, by the kinds of its passes."""
    return BatchState.CONVERGING if any(kind is not PassKind.SEED for kind in passes) else BatchState.SEEDED


def after_delta(now: BatchState, *, sent: bool) -> BatchState:
    """The state of a batch with a new pass after its seed. `sent`: the pass sends, renames or removes something, so an
    earlier verification does not cover it.
    """
    if now is BatchState.SEEDED or (now is BatchState.VERIFIED and sent):
        return BatchState.CONVERGING
    return now


def after_verification(now: BatchState, passes: Iterable[PassKind], *, proven: bool) -> BatchState:
    """The state of a batch with a new verification. A batch whose seed pass is incomplete stays as it is."""
    if now not in (BatchState.SEEDED, BatchState.CONVERGING, BatchState.VERIFIED):
        return now
    if proven:
        return BatchState.VERIFIED
    return unverified(passes) if now is BatchState.VERIFIED else now


# --- Trees that are not copied: the user has moved to the target, or a cutover is in flight


FROZEN_UID = 0
"""The owner of the top of a frozen tree."""

_OTHERS = 0o077
_OWNER_WRITES = 0o200


def moved_trees(newest: Mapping[bytes, TreeMove]) -> frozenset[bytes]:
    """The trees that may not be copied again, by the newest cutover attempt of each (of any plan)."""
    return frozenset(tree for tree, record in newest.items() if record.is_settled() or record.under_way)


def settled_trees(newest: Mapping[bytes, TreeMove]) -> frozenset[bytes]:
    """The trees whose users work on the target for good, which are not planned any more."""
    return frozenset(tree for tree, record in newest.items() if record.is_settled())


def movable_trees(
    trees: Sequence[UserTree], newest: Mapping[bytes, TreeMove]
) -> tuple[tuple[UserTree, ...], tuple[UserTree, ...]]:
    """Split trees into those that may be copied and those that may not, each in the given order."""
    alone = moved_trees(newest)
    return tuple(tree for tree in trees if tree.path not in alone), tuple(tree for tree in trees if tree.path in alone)


def moved_unknown(tree: UserTree, source: Entry | None, target: Entry | None) -> str | None:
    """The reason why a tree may not be copied although the ledger has no cutover of it: its root is frozen on the
    source and open on the target (None as entry: missing). None for any other tree.
    """
    if source is None or target is None or {source.type, target.type} != {EntryType.DIRECTORY}:
        return None
    if not _is_shut(source) or source.mode & _OWNER_WRITES or _is_shut(target):
        return None
    return (
        f"{show(tree.path)} is frozen on the source and open on the target, so {tree.user} works on the target, and the ledger knows "
        "nothing of it: find out whether the ledger is the latest one, and bring back the newest of its backups; if nobody was "
        "moved, give the tree on the source its owner and mode again"
    )


def _is_shut(top: Entry) -> bool:
    return top.uid == FROZEN_UID and not top.mode & _OTHERS and ACL_ACCESS not in top.xattrs
