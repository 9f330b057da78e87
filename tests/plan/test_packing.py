"""Batches and the packer: partition exact, limits hold, link groups whole, directories together, big files in ranges."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog import rules_packing as packing
from migrator.catalog.model import ListedPath
from migrator.core.paths import parent
from migrator.core.states import ChunkKind
from migrator.plan.model import TreeUsage
from migrator.plan.rules import BatchLimits, LinkSpan, batch_trees
from tests.support.plans import span, usage

Row = tuple[bytes, int, int | None]


def listing(
    rows: Sequence[Row],
    *,
    batch: int = 1,
    kind: ChunkKind = ChunkKind.FILES,
    tree: bytes = b"t",
    grouped: bool = False,
    brick: str | None = None,
) -> packing.PathSequence:
    return packing.PathSequence(
        batch=batch,
        kind=kind,
        tree=tree,
        grouped=grouped,
        paths=[path for path, _, _ in rows],
        sizes_bytes=[size for _, size, _ in rows],
        link_groups=[group for _, _, group in rows],
        links_to=[None] * len(rows),
        mtimes_ns=[len(path) * 7 for path, _, _ in rows],
        brick=brick,
    )


@st.composite
def trees(draw: st.DrawFn) -> list[packing.PathSequence]:
    """Listings as a catalog gives them: per batch and tree its directories, files in scan order,
    link groups, links; cut anywhere."""
    result: list[packing.PathSequence] = []
    size = st.one_of(st.integers(0, 60), st.integers(0, 300))
    for batch in range(1, draw(st.integers(1, 3)) + 1):
        names = [b"home/%d-%d" % (batch, number) for number in range(draw(st.integers(0, 2)))]
        for tree in names:
            for kind, grouped, brick in (
                (ChunkKind.DIRECTORIES, False, None),
                *(
                    (ChunkKind.FILES, grouped, brick)
                    for brick in (None, "one:/b", "two:/b")
                    for grouped in (False, True)
                ),
                (ChunkKind.LINKS, False, None),
            ):
                place = b"%s-%s" % (tree, (brick or "mount").partition(":")[0].encode())
                rows: list[Row] = []
                if grouped:
                    found = draw(st.lists(st.tuples(st.integers(1, 7), size), max_size=6))
                    for group, (count, weight) in enumerate(found):
                        # A group has all its names on one brick: its number is told by the brick too.
                        number = group + 100 * place[-1]
                        rows += [(b"%s/g%d/%d" % (place, name, group), weight, number) for name in range(count)]
                else:
                    for directory, sizes in enumerate(draw(st.lists(st.lists(size, max_size=8), max_size=6))):
                        weights = sizes if kind is ChunkKind.FILES else [0] * len(sizes)
                        rows += [
                            (b"%s/d%d/%s%d" % (place, directory, kind.value.encode(), number), weight, None)
                            for number, weight in enumerate(weights)
                        ]
                cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
                for start, end in pairwise([0, *cuts, len(rows)]):
                    result.append(
                        listing(rows[start:end], batch=batch, kind=kind, tree=tree, grouped=grouped, brick=brick)
                    )
    return result


limits = st.builds(packing.ChunkLimits, max_bytes=st.integers(1, 200), max_files=st.integers(1, 6))
with_ranges = st.builds(
    packing.ChunkLimits, max_bytes=st.integers(1, 200), max_files=st.integers(1, 6), range_size_bytes=st.integers(1, 90)
)


@given(trees(), limits | with_ranges)
def test_every_path_and_byte_is_in_one_chunk(listings: list[packing.PathSequence], bound: packing.ChunkLimits) -> None:
    chunks = list(packing.pack(listings, bound))
    wanted = Counter((one.batch, one.kind, one.tree, one.brick, path) for one in listings for path in one.paths)
    found: Counter[tuple[int, ChunkKind, bytes, str | None, bytes]] = Counter()
    size_bytes: Counter[tuple[int, bytes]] = Counter()
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    for chunk in chunks:
        numbers[chunk.batch].append(chunk.number)
        columns = (chunk.paths, chunk.sizes_bytes, chunk.link_groups, chunk.links_to, chunk.mtimes_ns)
        assert {len(column) for column in columns} == {len(chunk.paths)} != {0}
        assert chunk.mtimes_ns == [len(path) * 7 for path in chunk.paths]
        if chunk.files > bound.max_files or chunk.size_bytes > bound.max_bytes:
            groups = set(chunk.link_groups)
            assert len(chunk.paths) == 1 or (len(groups) == 1 and None not in groups)
        if chunk.kind in (ChunkKind.FILES, ChunkKind.RANGES, ChunkKind.RANGED_FILES):
            alone = zip(chunk.sizes_bytes, chunk.link_groups, strict=True)
            size_bytes[chunk.batch, chunk.tree] += sum(size for size, group in alone if group is None)
        if chunk.kind not in (ChunkKind.DIRECTORY_TIMES, ChunkKind.RANGES):
            kind = ChunkKind.FILES if chunk.kind is ChunkKind.RANGED_FILES else chunk.kind
            found.update((chunk.batch, kind, chunk.tree, chunk.brick, path) for path in chunk.paths)
    assert found == wanted
    assert all(ones == list(range(1, len(ones) + 1)) for ones in numbers.values())
    listed: Counter[tuple[int, bytes]] = Counter()
    for one in listings:
        if one.kind is ChunkKind.FILES and not one.grouped:
            listed[one.batch, one.tree] += sum(one.sizes_bytes)
    assert +size_bytes == +listed


@given(trees(), limits)
def test_link_groups_and_directories_stay_whole(
    listings: list[packing.PathSequence], bound: packing.ChunkLimits
) -> None:
    homes: defaultdict[object, set[tuple[int, int]]] = defaultdict(set)
    weights = {
        (one.tree, group): size
        for one in listings
        for group, size in zip(one.link_groups, one.sizes_bytes, strict=True)
    }
    content: defaultdict[bytes, list[int]] = defaultdict(list)
    for one in listings:
        if one.kind is ChunkKind.FILES and not one.grouped:
            for path, size in zip(one.paths, one.sizes_bytes, strict=True):
                content[parent(path)].append(size)
    for chunk in packing.pack(listings, bound):
        sums: Counter[int] = Counter()
        for path, group, size in zip(chunk.paths, chunk.link_groups, chunk.sizes_bytes, strict=True):
            if group is not None:
                homes[chunk.tree, group].add((chunk.batch, chunk.number))
                sums[group] += size
            elif chunk.kind is ChunkKind.FILES:
                homes[parent(path)].add((chunk.batch, chunk.number))
        # The bytes of a group count once.
        assert all(total == weights[chunk.tree, group] for group, total in sums.items())
    for unit, found in homes.items():
        sizes = content[unit] if isinstance(unit, bytes) else []
        if len(sizes) <= bound.max_files and sum(sizes) <= bound.max_bytes:
            assert len(found) == 1


@given(trees(), limits | with_ranges)
def test_the_cuts_of_the_listings_do_not_matter(
    listings: list[packing.PathSequence], bound: packing.ChunkLimits
) -> None:
    merged: list[packing.PathSequence] = []
    for one in listings:
        single = zip(one.paths, one.sizes_bytes, one.link_groups, strict=True)
        merged += [
            listing([row], batch=one.batch, kind=one.kind, tree=one.tree, grouped=one.grouped, brick=one.brick)
            for row in single
        ]
    assert list(packing.pack(listings, bound)) == list(packing.pack(merged, bound))


def test_a_group_larger_than_the_limits_is_alone_and_names_that_disagree_count_as_the_largest() -> None:
    rows: list[Row] = [(b"t/a", 1, 1), (b"t/b", 1, 1)]
    rows += [(b"t/c%d" % number, 90, 2) for number in range(6)]
    rows += [(b"t/d", 1, 3), (b"t/e", 1, 3)]
    bound = packing.ChunkLimits(max_bytes=100, max_files=4)
    assert [len(chunk.paths) for chunk in packing.pack([listing(rows, grouped=True)], bound)] == [2, 6, 2]
    disagreeing = listing([(b"t/a", 10, 1), (b"t/b", 30, 1), (b"t/c", 20, 1)], grouped=True)
    (chunk,) = packing.pack([disagreeing], bound)
    assert chunk.sizes_bytes == [10, 20, 0]


# Big files in ranges.


@given(st.integers(0, 10**6), st.integers(10**3, 10**5))
def test_ranges_lie_end_to_end(size_bytes: int, range_size_bytes: int) -> None:
    ranges = packing.ranges_of(size_bytes, range_size_bytes)
    assert ranges[0][0] == 0
    assert [offset + length for offset, length in ranges] == [*(offset for offset, _ in ranges[1:]), size_bytes]
    assert all(offset % range_size_bytes == 0 for offset, _ in ranges)
    assert all(length == range_size_bytes for _, length in ranges[:-1])
    if len(ranges) > 1:
        assert range_size_bytes <= 2 * ranges[-1][1] < 3 * range_size_bytes


@given(trees(), with_ranges)
def test_only_big_files_with_one_name_are_in_ranges(
    listings: list[packing.PathSequence], bound: packing.ChunkLimits
) -> None:
    assert bound.range_size_bytes is not None
    big = {
        (one.batch, one.brick, path): size
        for one in listings
        if one.kind is ChunkKind.FILES and not one.grouped
        for path, size in zip(one.paths, one.sizes_bytes, strict=True)
        if size > 2 * bound.range_size_bytes
    }
    ranges: defaultdict[tuple[int, str | None, bytes], list[tuple[int, int]]] = defaultdict(list)
    completed: list[tuple[int, str | None, bytes]] = []
    for chunk in packing.pack(listings, bound):
        keys = [(chunk.batch, chunk.brick, path) for path in chunk.paths]
        if chunk.kind is ChunkKind.RANGES:
            assert chunk.range_offset_bytes is not None
            ranges[keys[0]].append((chunk.range_offset_bytes, chunk.size_bytes))
            assert chunk.file_sizes_bytes == (big[keys[0]],)
        elif chunk.kind is ChunkKind.RANGED_FILES:
            assert chunk.size_bytes == 0
            # The ranges come first, so that a list in order of number can be worked off.
            assert set(keys) <= set(ranges)
            assert chunk.file_sizes_bytes == tuple(big[key] for key in keys)
            assert len(keys) == 1 or sum(big[key] for key in keys) <= bound.max_bytes
            completed += keys
        elif chunk.kind is ChunkKind.FILES:
            assert not set(keys) & set(big)
    assert Counter(completed) == Counter(big.keys())
    assert {key: list(packing.ranges_of(size, bound.range_size_bytes)) for key, size in big.items()} == ranges


def test_sparse_files_are_not_copied_in_ranges() -> None:
    rows: list[Row] = [(b"t/image", 100, None), (b"t/whole", 100, None)]
    one = replace(listing(rows), sparse=frozenset({b"t/image"}))
    chunks = list(packing.pack([one], packing.ChunkLimits(max_bytes=50, max_files=9, range_size_bytes=20)))
    by_kind = {kind: [chunk.paths for chunk in chunks if chunk.kind is kind] for kind in ChunkKind}
    assert by_kind[ChunkKind.FILES] == [[b"t/image"]]
    assert by_kind[ChunkKind.RANGED_FILES] == [[b"t/whole"]]


def names(batches: object) -> list[list[bytes]]:
    assert isinstance(batches, tuple)
    return [[member.tree.path for member in batch] for batch in batches]


usages = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30), st.integers(0, 30)), min_size=0, max_size=12).map(
    lambda rows: [
        usage(b"t%02d" % number, size_bytes=size, files=files, directories=directories)
        for number, (size, files, directories) in enumerate(rows)
    ]
)
ints = st.integers
bounds = st.builds(BatchLimits, max_bytes=ints(1, 200), max_files=ints(1, 80), max_users=ints(1, 5))
spans_of = st.lists(
    st.tuples(st.sets(st.integers(0, 13), min_size=2, max_size=4), st.integers(0, 100)).map(
        lambda found: span(*(b"t%02d" % number for number in sorted(found[0])), size_bytes=found[1])
    ),
    max_size=5,
)


@given(usages, spans_of, bounds)
def test_every_tree_is_in_one_batch(ranking: list[TreeUsage], spans: list[LinkSpan], bound: BatchLimits) -> None:
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


LISTS = st.lists(st.none() | st.integers(min_value=1, max_value=4), max_size=30).map(
    lambda groups: [ListedPath(path=b"p%d" % at, size_bytes=at, link_group=group) for at, group in enumerate(groups)]
)


def group_is_whole(part: tuple[ListedPath, ...], rest: tuple[ListedPath, ...]) -> bool:
    here = {listed.link_group for listed in part} - {None}
    return not here & {listed.link_group for listed in rest}


@given(LISTS)
def test_halves_are_a_partition_with_groups_whole(paths: list[ListedPath]) -> None:
    if not packing.divisible(paths):
        with pytest.raises(ValueError, match="single unit"):
            packing.halves(paths)
        return
    first, second = packing.halves(paths)
    assert first
    assert second
    assert sorted(listed.path for listed in (*first, *second)) == sorted(listed.path for listed in paths)
    assert group_is_whole(first, second)
    assert packing.total_bytes(first) + packing.total_bytes(second) == packing.total_bytes(paths)


@given(LISTS, st.sets(st.integers(min_value=0, max_value=29)))
def test_files_set_apart_keep_their_group(paths: list[ListedPath], chosen: set[int]) -> None:
    names = {b"p%d" % number for number in chosen}
    rest, apart = packing.set_apart(paths, names)
    assert sorted((*rest, *apart), key=lambda listed: listed.path) == sorted(paths, key=lambda listed: listed.path)
    assert not names & {listed.path for listed in rest}
    assert group_is_whole(apart, rest)
    for unit in packing.units(apart):
        assert any(listed.path in names for listed in unit)
