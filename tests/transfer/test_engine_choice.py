"""Which engine copies a chunk."""

import pytest

from migrator.core.states import ChunkKind
from migrator.transfer.model import choose_engine

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
