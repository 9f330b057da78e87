"""Which engine copies a chunk."""

import pytest

from migrator.decide.engine_choice import choose_engine
from migrator.domain.states import ChunkKind

BOTH, ONLY_RSYNC = ("rsync", "direct"), ("rsync",)


@pytest.mark.parametrize(
    ("requested", "kind", "available", "from_brick", "expected"),
    [
        ("auto", ChunkKind.FILES, BOTH, True, "direct"),
        ("auto", ChunkKind.DIRECTORIES, BOTH, True, "direct"),
        ("auto", ChunkKind.FILES, BOTH, False, "rsync"),
        ("auto", ChunkKind.RANGED_FILES, BOTH, False, "direct"),
        ("auto", ChunkKind.FILES, ONLY_RSYNC, True, "rsync"),
        ("auto", ChunkKind.RANGES, BOTH, False, "direct"),
        ("auto", ChunkKind.RANGES, ONLY_RSYNC, True, None),
        ("rsync", ChunkKind.RANGES, BOTH, True, None),
        ("rsync", ChunkKind.RANGED_FILES, BOTH, True, "rsync"),
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
