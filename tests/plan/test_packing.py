"""The packer, file by file: partition exact, limits hold, link groups whole, directories together."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.catalog.rules_packing import ChunkLimits, Listing, PackedChunk, pack
from migrator.core.paths import parent
from migrator.core.states import ChunkKind

Row = tuple[bytes, int, int | None]


def listing(
    rows: Sequence[Row],
    *,
    batch: int = 1,
    kind: ChunkKind = ChunkKind.FILES,
    tree: bytes = b"t",
    grouped: bool = False,
    brick: str | None = None,
) -> Listing:
    return Listing(
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


def packed(
    listings: Sequence[Listing],
    *,
    max_bytes: int = 100,
    max_files: int = 4,
    range_size_bytes: int | None = None,
    bricks: Sequence[str] = (),
) -> list[PackedChunk]:
    bound = ChunkLimits(max_bytes=max_bytes, max_files=max_files, range_size_bytes=range_size_bytes)
    return list(pack(listings, bound, bricks=bricks))


def paths(chunks: Sequence[PackedChunk]) -> list[list[bytes]]:
    return [chunk.paths for chunk in chunks]


@st.composite
def trees(draw: st.DrawFn) -> list[Listing]:
    """Listings as a catalog gives them: per batch and tree its directories, files in scan order,
    link groups, links; cut anywhere."""
    result: list[Listing] = []
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
                    for group, (count, weight) in enumerate(
                        draw(st.lists(st.tuples(st.integers(1, 7), size), max_size=6))
                    ):
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


limits = st.builds(ChunkLimits, max_bytes=st.integers(1, 200), max_files=st.integers(1, 6))
with_ranges = st.builds(
    ChunkLimits, max_bytes=st.integers(1, 200), max_files=st.integers(1, 6), range_size_bytes=st.integers(1, 90)
)


@given(trees(), limits)
def test_every_path_is_in_exactly_one_chunk_of_its_tree_kind_and_brick(
    listings: list[Listing], bound: ChunkLimits
) -> None:
    chunks = list(pack(listings, bound))
    wanted = Counter((one.batch, one.kind, one.tree, one.brick, path) for one in listings for path in one.paths)
    found = Counter(
        (chunk.batch, chunk.kind, chunk.tree, chunk.brick, path)
        for chunk in chunks
        if chunk.kind is not ChunkKind.DIRECTORY_TIMES
        for path in chunk.paths
    )
    assert found == wanted
    assert all(chunk.paths for chunk in chunks)
    for chunk in chunks:
        columns = (chunk.sizes_bytes, chunk.link_groups, chunk.links_to, chunk.mtimes_ns)
        assert {len(column) for column in columns} == {len(chunk.paths)}
        assert chunk.mtimes_ns == [len(path) * 7 for path in chunk.paths]


@given(trees(), limits)
def test_a_chunk_is_within_the_limits_or_is_a_single_thing(listings: list[Listing], bound: ChunkLimits) -> None:
    for chunk in pack(listings, bound):
        if chunk.files > bound.max_files or chunk.size_bytes > bound.max_bytes:
            groups = set(chunk.link_groups)
            assert chunk.files == 1 or (len(groups) == 1 and None not in groups)


@given(trees(), limits)
def test_a_link_group_is_whole_and_its_bytes_count_once(listings: list[Listing], bound: ChunkLimits) -> None:
    homes: defaultdict[tuple[bytes, int], set[tuple[int, int]]] = defaultdict(set)
    weights = {
        (one.tree, group): size
        for one in listings
        for group, size in zip(one.link_groups, one.sizes_bytes, strict=True)
        if group is not None
    }
    for chunk in pack(listings, bound):
        sums: Counter[int] = Counter()
        for group, size in zip(chunk.link_groups, chunk.sizes_bytes, strict=True):
            if group is not None:
                homes[chunk.tree, group].add((chunk.batch, chunk.number))
                sums[group] += size
        assert all(total == weights[chunk.tree, group] for group, total in sums.items())
    assert all(len(found) == 1 for found in homes.values())


@given(trees(), limits)
def test_a_directory_that_fits_is_not_divided(listings: list[Listing], bound: ChunkLimits) -> None:
    content: defaultdict[bytes, list[int]] = defaultdict(list)
    homes: defaultdict[bytes, set[tuple[int, int]]] = defaultdict(set)
    for one in listings:
        if one.kind is ChunkKind.FILES and not one.grouped:
            for path, size in zip(one.paths, one.sizes_bytes, strict=True):
                content[parent(path)].append(size)
    for chunk in pack(listings, bound):
        if chunk.kind is ChunkKind.FILES and None in chunk.link_groups:
            for path in chunk.paths:
                homes[parent(path)].add((chunk.batch, chunk.number))
    for directory, sizes in content.items():
        if len(sizes) <= bound.max_files and sum(sizes) <= bound.max_bytes:
            assert len(homes[directory]) == 1


@given(trees(), limits | with_ranges)
def test_numbers_count_from_one_in_every_batch(listings: list[Listing], bound: ChunkLimits) -> None:
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    for chunk in pack(listings, bound):
        numbers[chunk.batch].append(chunk.number)
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


@given(trees(), limits | with_ranges)
def test_the_cuts_of_the_listings_do_not_matter(listings: list[Listing], bound: ChunkLimits) -> None:
    merged: list[Listing] = []
    for one in listings:
        single = zip(one.paths, one.sizes_bytes, one.link_groups, strict=True)
        merged += [
            listing([row], batch=one.batch, kind=one.kind, tree=one.tree, grouped=one.grouped, brick=one.brick)
            for row in single
        ]
    assert list(pack(listings, bound)) == list(pack(merged, bound))


@given(trees(), limits)
def test_three_chunks_that_follow_one_another_would_not_fit_into_one(
    listings: list[Listing], bound: ChunkLimits
) -> None:
    """Chunks are well filled, although directories stay together."""
    chunks = [
        chunk
        for chunk in pack(listings, bound)
        if chunk.kind is ChunkKind.FILES and None in chunk.link_groups and chunk.size_bytes <= bound.max_bytes
    ]
    for three in zip(chunks, chunks[1:], chunks[2:], strict=False):
        if len({(chunk.batch, chunk.tree, chunk.brick) for chunk in three}) == 1:
            files = sum(chunk.files for chunk in three)
            assert files > bound.max_files or sum(chunk.size_bytes for chunk in three) > bound.max_bytes


def test_a_file_larger_than_a_chunk_stands_alone_and_leaves_the_open_chunk_open() -> None:
    rows: list[Row] = [(b"t/d/a", 1, None), (b"t/d/big", 101, None), (b"t/d/b", 1, None)]
    assert paths(packed([listing(rows)])) == [[b"t/d/big"], [b"t/d/a", b"t/d/b"]]


def test_directories_get_a_twin_for_their_times() -> None:
    chunks = packed([listing([(b"t/%d" % number, 0, None) for number in range(5)], kind=ChunkKind.DIRECTORIES)])
    assert [(chunk.number, chunk.kind, len(chunk.paths)) for chunk in chunks] == [
        (1, ChunkKind.DIRECTORIES, 4),
        (2, ChunkKind.DIRECTORY_TIMES, 4),
        (3, ChunkKind.DIRECTORIES, 1),
        (4, ChunkKind.DIRECTORY_TIMES, 1),
    ]


def test_a_group_larger_than_the_limits_is_alone() -> None:
    rows: list[Row] = [(b"t/a", 1, 1), (b"t/b", 1, 1)]
    rows += [(b"t/c%d" % number, 90, 2) for number in range(6)]
    rows += [(b"t/d", 1, 3), (b"t/e", 1, 3)]
    assert [len(chunk.paths) for chunk in packed([listing(rows, grouped=True)])] == [2, 6, 2]


def test_names_of_a_group_that_disagree_count_as_the_largest() -> None:
    (chunk,) = packed([listing([(b"t/a", 10, 1), (b"t/b", 30, 1), (b"t/c", 20, 1)], grouped=True)])
    assert chunk.sizes_bytes == [10, 20, 0]


def test_limits_that_nothing_can_keep_are_refused() -> None:
    with pytest.raises(ValueError, match="limits"):
        packed([], max_files=0)
