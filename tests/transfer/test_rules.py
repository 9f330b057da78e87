"""Which engine copies a chunk, when a chunk is tried again, which errors stop the pool, and when a copy will be done."""

import pytest

from migrator.core.states import ChunkKind
from migrator.transfer.model import choose_engine
from migrator.transfer.rules import rates, seconds_left

BOTH, ONLY_RSYNC = ("rsync", "direct"), ("rsync",)


@pytest.mark.parametrize(
    ("requested", "kind", "available", "from_brick", "expected"),
    [
        ("auto", ChunkKind.FILES, BOTH, True, "direct"),
        ("auto", ChunkKind.DIRECTORIES, BOTH, True, "direct"),
        ("auto", ChunkKind.FILES, BOTH, False, "rsync"),
        ("auto", ChunkKind.RANGED_FILES, BOTH, False, "direct"),
        ("auto", ChunkKind.RANGES, BOTH, False, "direct"),
        ("auto", ChunkKind.RANGES, ONLY_RSYNC, False, None),
        ("rsync", ChunkKind.RANGES, BOTH, False, None),
        ("rsync", ChunkKind.RANGED_FILES, BOTH, False, "rsync"),
        ("rsync", ChunkKind.FILES, BOTH, True, "direct"),
        ("direct", ChunkKind.FILES, BOTH, False, "direct"),
        ("direct", ChunkKind.FILES, ONLY_RSYNC, False, "rsync"),
        ("auto", ChunkKind.FILES, ("direct",), False, "direct"),
        ("rsync", ChunkKind.FILES, ("direct",), False, "rsync"),
        ("fpsync", ChunkKind.RANGED_FILES, BOTH, False, "rsync"),
        ("parsyncfp2", ChunkKind.RANGES, BOTH, False, None),
    ],
)
def test_choice(
    *,
    requested: str,
    kind: ChunkKind,
    available: tuple[str, ...],
    from_brick: bool,
    expected: str | None,
) -> None:
    assert choose_engine(requested, kind, available, from_brick=from_brick) == expected


def test_rates_are_those_between_two_points() -> None:
    assert rates((50.0, 10, 100), (60.0, 30, 400)) == (2.0, 30.0)
    assert rates((60.0, 30, 400), (60.0, 30, 400)) == (0.0, 0.0)
    # A chunk that failed no longer counts.
    assert rates((50.0, 10, 100), (60.0, 5, 50)) == (0.0, 0.0)


def test_the_slower_of_files_and_bytes_counts() -> None:
    assert seconds_left(100, 1000, files_per_s=10.0, bytes_per_s=1000.0) == 10.0
    assert seconds_left(10, 5000, files_per_s=10.0, bytes_per_s=1000.0) == 5.0
    assert seconds_left(5, 10, files_per_s=0.0, bytes_per_s=10.0) is None
    assert seconds_left(0, 0, files_per_s=0.0, bytes_per_s=0.0) == 0.0
