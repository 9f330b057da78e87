"""Which user trees move together."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from migrator.domain.plan import TreeUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What one batch may hold. A tree that is larger than them stands alone. `max_files` counts directories too,
    for each costs an inode and a look.
    """

    max_bytes: int
    max_files: int
    max_users: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanMember:
    """The names that one tree (None: outside every tree) has of link groups that lie in several trees."""

    tree: bytes | None
    names: int
    examples: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpan:
    """All link groups that lie in exactly these trees; bytes count each group once."""

    members: tuple[SpanMember, ...]
    groups: int
    size_bytes: int

    @property
    def trees(self) -> frozenset[bytes | None]:
        """The trees that share the groups."""
        return frozenset(member.tree for member in self.members)


def without_trees(spans: Iterable[LinkSpan], trees: Collection[bytes]) -> Sequence[LinkSpan]:
    """Spans for a plan that leaves some trees out: what lies in them counts as outside every tree."""
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
    """Trees that belong together, by their place in the ranking."""

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
    """The trees of every batch, the first batch first; every tree is in exactly one.

    Trees keep the order of the ranking, except that trees that share link groups come together, at the place of the
    first of them, as long as all of them fit into one batch: those with the most bytes in common are joined first.
    A batch is within the limits unless it is one tree that is larger than they are.
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
