"""Which engine copies a chunk."""

import pytest

from migrator.decide.engine_choice import choose_engine
from migrator.domain.states import ChunkKind

BOTH, ONLY_RSYNC = ("rsync", "direct"), ("rsync",)


@pytest.mark.parametrize(
    ("requested", "kind", "available", "from_brick", "in_ranges", "expected"),
    [
        ("auto", ChunkKind.FILES, BOTH, True, False, "direct"),
        ("auto", ChunkKind.DIRECTORIES, BOTH, True, False, "direct"),
        ("auto", ChunkKind.FILES, BOTH, False, False, "rsync"),
        ("auto", ChunkKind.FILES, BOTH, False, True, "direct"),
        ("auto", ChunkKind.FILES, ONLY_RSYNC, True, False, "rsync"),
        ("auto", ChunkKind.RANGES, BOTH, False, False, "direct"),
        ("auto", ChunkKind.RANGES, ONLY_RSYNC, True, False, None),
        ("rsync", ChunkKind.RANGES, BOTH, True, False, None),
        ("rsync", ChunkKind.FILES, BOTH, True, True, "rsync"),
        ("direct", ChunkKind.FILES, BOTH, False, False, "direct"),
        ("direct", ChunkKind.FILES, ONLY_RSYNC, False, False, "rsync"),
        ("auto", ChunkKind.FILES, ("direct",), False, False, "direct"),
        ("rsync", ChunkKind.FILES, ("direct",), False, False, "rsync"),
        ("fpsync", ChunkKind.FILES, BOTH, False, True, "rsync"),
        ("parsyncfp2", ChunkKind.RANGES, BOTH, False, False, None),
    ],
)
def test_choice(
    *,
    requested: str,
    kind: ChunkKind,
    available: tuple[str, ...],
    from_brick: bool,
    in_ranges: bool,
    expected: str | None,
) -> None:
    assert choose_engine(requested, kind, available, from_brick=from_brick, in_ranges=in_ranges) == expected
