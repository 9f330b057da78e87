"""What is told of directories that were shut while bricks were added."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.domain.addition import AdditionSide
from migrator.domain.directory_owners import OwnersPutBack
from migrator.domain.errors import ToolFailed
from migrator.stages.bricks.add_directories import keeping_open, open_directories
from tests.fakes import VirtualClock, inline

CATALOGS = ("old", "whole", "partial", "scoped")


RECORD: Any = SimpleNamespace(side=AdditionSide.SOURCE, instead_of=None, shown_bricks="gl1:/b")


def call_with(
    put_back: Callable[[str], OwnersPutBack] | None,
    words: list[str],
    *,
    catalogs: tuple[str, ...] = CATALOGS,
    clock: VirtualClock | None = None,
) -> Any:
    """A call that keeps the words of every event."""
    scans = [SimpleNamespace(name=name, whole=name != "partial", scope=name == "scoped") for name in catalogs]
    ledger = SimpleNamespace(scans=SimpleNamespace(all=lambda: scans))
    return SimpleNamespace(
        world=SimpleNamespace(put_owners_back=put_back, ledger=ledger, blocking=inline, clock=clock),
        say=lambda _kind, _severity, _subject, message: words.append(message),
    )


def told(
    put_back: Callable[[str], OwnersPutBack] | None, *, catalogs: tuple[str, ...] = CATALOGS, **of: Any
) -> list[str]:
    """The words of every event."""
    words: list[str] = []
    record: Any = SimpleNamespace(**{**vars(RECORD), **of})
    asyncio.run(open_directories(call_with(put_back, words, catalogs=catalogs), record))
    return words


def test_the_newest_whole_catalog_tells_and_what_was_mended_is_named() -> None:
    asked: list[str] = []

    def put_back(catalog: str) -> OwnersPutBack:
        asked.append(catalog)
        return OwnersPutBack(looked_at=9, mended=1, failed=2, examples=(b"home/a",))

    mended, failed = told(put_back)
    assert asked == ["whole"]
    assert mended.startswith("1 directory had become root's with mode 0000")
    assert mended.endswith("as of whole: home/a")
    assert failed.startswith("2 directories could not be looked at")


def test_while_gluster_works_they_are_looked_at_again_and_again() -> None:
    asked: list[str] = []
    clock = VirtualClock()
    began_s = clock.monotonic_s()

    def put_back(catalog: str) -> OwnersPutBack:
        asked.append(catalog)
        if len(asked) == 3:
            seen.set()
        return OwnersPutBack(looked_at=1)

    async def work() -> None:
        async with keeping_open(call_with(put_back, [], clock=clock), RECORD):
            await asyncio.wait_for(seen.wait(), timeout=60.0)

    seen = asyncio.Event()
    asyncio.run(work())
    assert asked == ["whole"] * 3
    assert clock.monotonic_s() - began_s >= 3 * 600.0


def test_nothing_is_told_where_nothing_was_shut() -> None:
    assert told(lambda _: OwnersPutBack(looked_at=9)) == []


@pytest.mark.parametrize("error", [ToolFailed("torn"), OSError(5, "torn"), TimeoutError()])
def test_what_cannot_be_seen_is_told_with_the_way_to_see_it(error: Exception) -> None:
    def fails(_: str) -> OwnersPutBack:
        raise error

    (words,) = told(fails)
    assert "find MOUNT -type d -uid 0 -perm 0000" in words
    (words,) = told(fails, catalogs=("partial",))
    assert words.startswith("no whole catalog tells")


def test_only_new_bricks_of_the_source_shut_directories() -> None:
    def never(_: str) -> OwnersPutBack:
        raise AssertionError

    assert told(never, side=AdditionSide.TARGET) == told(never, instead_of="gl1:/old") == told(None) == []
