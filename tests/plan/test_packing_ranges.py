"""The packer with big files in ranges, and chunks of directories by brick."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.catalog.rules_packing import ChunkLimits, Listing, pack, ranges_of
from migrator.core.states import ChunkKind
from tests.plan.test_packing import Row, listing, packed, trees, with_ranges


@given(st.integers(0, 10**6), st.integers(10**3, 10**5))
def test_ranges_lie_end_to_end(size_bytes: int, range_size_bytes: int) -> None:
    ranges = ranges_of(size_bytes, range_size_bytes)
    assert ranges[0][0] == 0
    assert [offset + length for offset, length in ranges] == [*(offset for offset, _ in ranges[1:]), size_bytes]
    assert all(offset % range_size_bytes == 0 for offset, _ in ranges)
    assert all(length == range_size_bytes for _, length in ranges[:-1])
    if len(ranges) > 1:
        assert range_size_bytes <= 2 * ranges[-1][1] < 3 * range_size_bytes


@given(trees(), with_ranges)
def test_every_byte_and_every_file_counts_once(listings: list[Listing], bound: ChunkLimits) -> None:
    files: Counter[tuple[int, bytes]] = Counter()
    size_bytes: Counter[tuple[int, bytes]] = Counter()
    for one in listings:
        if one.kind is ChunkKind.FILES:
            files[one.batch, one.tree] += len(one.paths)
            size_bytes[one.batch, one.tree] += 0 if one.grouped else sum(one.sizes_bytes)
    found_files: Counter[tuple[int, bytes]] = Counter()
    found_bytes: Counter[tuple[int, bytes]] = Counter()
    for chunk in pack(listings, bound):
        if chunk.kind in (ChunkKind.FILES, ChunkKind.RANGES, ChunkKind.RANGED_FILES):
            found_files[chunk.batch, chunk.tree] += chunk.files
            found_bytes[chunk.batch, chunk.tree] += sum(
                size for size, group in zip(chunk.sizes_bytes, chunk.link_groups, strict=True) if group is None
            )
    assert +found_files == +files
    assert +found_bytes == +size_bytes


@given(trees(), with_ranges)
def test_big_files_with_one_name_are_in_ranges_and_nothing_else_is(listings: list[Listing], bound: ChunkLimits) -> None:
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
    for chunk in pack(listings, bound):
        keys = [(chunk.batch, chunk.brick, path) for path in chunk.paths]
        if chunk.kind is ChunkKind.RANGES:
            assert chunk.range_offset_bytes is not None
            ranges[keys[0]].append((chunk.range_offset_bytes, chunk.size_bytes))
            assert len(keys) == 1
            assert chunk.file_sizes_bytes == (big[keys[0]],)
        elif chunk.kind is ChunkKind.RANGED_FILES:
            assert chunk.size_bytes == 0
            # The ranges come first, so that a list in order of number can be worked off.
            assert set(keys) <= set(ranges)
            assert chunk.file_sizes_bytes == tuple(big[key] for key in keys)
            assert len(keys) == 1 or sum(big[key] for key in keys) <= bound.max_bytes
            assert len(keys) <= bound.max_files
            completed += keys
        elif chunk.kind is ChunkKind.FILES:
            assert not set(keys) & set(big)
    assert Counter(completed) == Counter(big.keys())
    assert {key: list(ranges_of(size, bound.range_size_bytes)) for key, size in big.items()} == ranges


def test_a_big_file_among_small_ones() -> None:
    rows: list[Row] = [(b"t/d/a", 1, None), (b"t/d/big", 90, None), (b"t/d/edge", 60, None), (b"t/d/b", 1, None)]
    chunks = packed([listing(rows, brick="one:/b")], range_size_bytes=30)
    assert [(one.number, one.kind, one.paths, one.files, one.range_offset_bytes, one.size_bytes) for one in chunks] == [
        (1, ChunkKind.RANGES, [b"t/d/big"], 0, 0, 30),
        (2, ChunkKind.RANGES, [b"t/d/big"], 0, 30, 30),
        (3, ChunkKind.RANGES, [b"t/d/big"], 0, 60, 30),
        (4, ChunkKind.RANGED_FILES, [b"t/d/big"], 1, None, 0),
        (5, ChunkKind.FILES, [b"t/d/a", b"t/d/edge", b"t/d/b"], 3, None, 62),
    ]
    assert {one.brick for one in chunks} == {"one:/b"}


def test_names_of_one_file_are_not_copied_in_ranges() -> None:
    (chunk,) = packed([listing([(b"t/a", 90, 1), (b"t/b", 90, 1)], grouped=True)], range_size_bytes=10)
    assert (chunk.kind, chunk.size_bytes) == (ChunkKind.FILES, 90)


def test_directories_go_to_the_bricks_by_turns_with_their_times() -> None:
    rows: list[Row] = [(b"t/%d" % number, 0, None) for number in range(9)]
    directories = listing(rows, kind=ChunkKind.DIRECTORIES)
    chunks = packed([directories, listing([(b"u/x", 1, None)], tree=b"u")], bricks=("one:/b", "two:/b"))
    assert [one.brick for one in chunks] == [*["one:/b"] * 2, *["two:/b"] * 2, *["one:/b"] * 2, None]
    assert [one.mtimes_ns for one in chunks[:2]] == [[21] * 4] * 2
    assert {one.brick for one in packed([directories])} == {None}


def test_a_brick_ends_a_chunk() -> None:
    bricks = ("one:/b", "one:/b", "two:/b")
    chunks = packed([listing([(b"t/d/%d" % number, 1, None)], brick=brick) for number, brick in enumerate(bricks)])
    assert [(one.brick, one.paths) for one in chunks] == [("one:/b", [b"t/d/0", b"t/d/1"]), ("two:/b", [b"t/d/2"])]


def test_ranges_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="limits"):
        packed([], range_size_bytes=-1)
