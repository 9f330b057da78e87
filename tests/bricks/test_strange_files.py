"""What is left of what a scan found past Gluster."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from migrator.bricks.strange_files import StrangeLook, strange_now
from migrator.catalog.model import StrangeFiles
from migrator.gluster.model import Brick

ONE, OTHER = (Brick(name=f"gl{number}:/b", host=f"gl{number}", path=b"/b", online=True) for number in (1, 2))
FOUND = StrangeFiles(brick=ONE.name, files=2, paths=(b"a", b"b"))


def now(look: StrangeLook | None, bricks: Sequence[Brick] = (ONE, OTHER), *, scanned: bool = True) -> Any:
    record = SimpleNamespace(strange=(FOUND,)) if scanned else None
    scans: Any = SimpleNamespace(of_bricks=lambda: record)
    return asyncio.run(strange_now(scans, look, bricks, "v"))


def test_only_bricks_with_strange_files_in_the_scan_are_read() -> None:
    asked: list[tuple[str, str, tuple[bytes, ...]]] = []

    async def look(brick: Brick, volume_id: str, paths: Sequence[bytes]) -> frozenset[bytes]:
        asked.append((brick.name, volume_id, tuple(paths)))
        return frozenset({b"b"})

    assert now(look) == (StrangeFiles(brick=ONE.name, files=1, paths=(b"b",)),)
    assert asked == [(ONE.name, "v", FOUND.paths)]
    assert now(look, (OTHER,)) == ()


def test_without_a_look_the_scan_counts_and_without_a_scan_nothing_is_known() -> None:
    assert now(None) == (FOUND,)
    assert now(None, scanned=False) is None
