"""Which trees share a batch."""

from hypothesis import given
from hypothesis import strategies as st

from migrator.plan.model import TreeUsage
from migrator.plan.rules import BatchLimits, LinkSpan, SpanMember, batch_trees
from tests.support.usages import usage


def span(*trees: bytes | None, size_bytes: int = 1, groups: int = 1) -> LinkSpan:
    members = tuple(SpanMember(tree=tree, names=groups, examples=()) for tree in trees)
    return LinkSpan(members=members, groups=groups, size_bytes=size_bytes)


def names(batches: object) -> list[list[bytes]]:
    assert isinstance(batches, tuple)
    return [[member.tree.path for member in batch] for batch in batches]


usages = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30), st.integers(0, 30)), min_size=0, max_size=12).map(
    lambda rows: [
        usage(b"t%02d" % number, size_bytes=size, files=files, directories=directories)
        for number, (size, files, directories) in enumerate(rows)
    ]
)
bounds = st.builds(
    BatchLimits, max_bytes=st.integers(1, 200), max_files=st.integers(1, 80), max_users=st.integers(1, 5)
)
spans_of = st.lists(
    st.tuples(st.sets(st.integers(0, 13), min_size=2, max_size=4), st.integers(0, 100)).map(
        lambda found: span(*(b"t%02d" % number for number in sorted(found[0])), size_bytes=found[1])
    ),
    max_size=5,
)


@given(usages, spans_of, bounds)
def test_every_tree_is_in_one_batch_within_the_limits(
    ranking: list[TreeUsage], spans: list[LinkSpan], bound: BatchLimits
) -> None:
    batches = batch_trees(ranking, spans, bound)
    assert sorted(path for batch in names(batches) for path in batch) == [one.tree.path for one in ranking]
    for batch in batches:
        within = (
            sum(one.size_bytes for one in batch) <= bound.max_bytes
            and sum(one.files + one.directories for one in batch) <= bound.max_files
            and len(batch) <= bound.max_users
        )
        assert len(batch) == 1 or (within and batch)
    assert batch_trees(ranking, spans[::-1], bound) == batches, "the order of the spans does not matter"
    # Without shared links the ranking is kept.
    flat = [path for batch in names(batch_trees(ranking, [], bound)) for path in batch]
    assert flat == [one.tree.path for one in ranking]


def test_chains_of_shared_links_are_one_cluster() -> None:
    ranking = [usage(name, size_bytes=200) for name in (b"a", b"x", b"y", b"b", b"c")]
    spans = [span(b"a", b"b"), span(b"b", b"c", None)]
    limits = BatchLimits(max_bytes=600, max_files=10, max_users=3)
    assert names(batch_trees(ranking, spans, limits)) == [[b"a", b"b", b"c"], [b"x", b"y"]]
