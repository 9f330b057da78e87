"""What a comparison of two catalogs says of what the plan archives or skips."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from migrator.core.entry import Entry
from migrator.reap.model import ReapAction, ReapRow
from migrator.reap.store import ReapListFiles
from tests.delta.comparison_world import TREES, A, World, change, one_file


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def reap_list(place: Path, entries: Sequence[Entry], *paths: bytes) -> Path:
    """A reap list that names these paths with the facts that they have in the rows."""
    rows = [
        ReapRow(
            path=entry.path,
            tree=next(tree for tree in TREES if entry.path.startswith(tree)),
            action=ReapAction.SKIP,
            size_bytes=entry.size_bytes,
            blocks=entry.blocks,
            mtime_ns=entry.mtime_ns,
            ctime_ns=entry.ctime_ns,
            atime_ns=entry.atime_ns,
            ino=entry.ino,
            gfid=entry.gfid,
            uid=entry.uid,
            gid=entry.gid,
            mode=entry.mode,
        )
        for entry in entries
        if entry.path in paths
    ]
    assert len(rows) == len(paths)
    lists = ReapListFiles(place)
    written = lists.write("plan", [rows])
    return lists.checked(written.reap_list, written.digest)


@pytest.fixture
def reaped(world: World, tmp_path: Path) -> Path:
    """`d/f` is on the reap list, and so it is not on the target."""
    entries = one_file(world)
    return reap_list(tmp_path / "it's plans", entries, A + b"/d/f")


def test_what_is_reaped_is_not_sent_as_long_as_it_stays(world: World, reaped: Path) -> None:
    assert world.compare(reap_list=reaped).changes.nothing
    everything = world.compare(reap_list=reaped, unsettled_trees=[A])
    assert everything.files == {A + b"/d/other"}


def test_what_is_reaped_is_sent_when_it_is_unsettled_by_name(world: World, reaped: Path) -> None:
    assert world.compare(reap_list=reaped, unsettled=[A + b"/d/f"]).files == {A + b"/d/f"}


@pytest.mark.parametrize("facts", [{"size_bytes": 11}, {"mtime_ns": 7}, {"ctime_ns": 7, "mode": 0o600}])
def test_what_was_reaped_and_changed_is_sent_and_counts_for_sent_from_then_on(
    world: World, reaped: Path, facts: dict[str, object]
) -> None:
    changed = change(world.source.entries(), A + b"/d/f", **facts)
    assert world.compare(reap_list=reaped, now=changed).files == {A + b"/d/f"}
    assert world.compare(reap_list=reaped, base=changed, now=changed).changes.nothing
    again = world.compare(reap_list=reaped, base=changed, now=changed, unsettled_trees=[A])
    assert again.files == {A + b"/d/f", A + b"/d/other"}


def test_what_is_reaped_is_not_renamed_but_sent_under_its_new_name(world: World, reaped: Path) -> None:
    world.source.rename(A + b"/d/f", A + b"/new")
    seen = world.compare(reap_list=reaped)
    assert (seen.renames, seen.files) == ([], {A + b"/new"})
    assert seen.gone == [(A + b"/d/f", 1)]


def test_what_is_reaped_is_sent_when_a_directory_took_it_along(world: World, reaped: Path) -> None:
    world.source.rename(A + b"/d", A + b"/new")
    seen = world.compare(reap_list=reaped)
    assert (seen.renames, seen.files, seen.gone) == ([(A + b"/d", A + b"/new")], {A + b"/new/f"}, [])


def test_what_is_reaped_is_sent_when_two_directories_change_places(world: World, tmp_path: Path) -> None:
    world.directories(A + b"/d", A + b"/e")
    world.files(A + b"/d/f", A + b"/d/g", A + b"/e/f", A + b"/e/g")
    world.scan()
    reaped = reap_list(tmp_path / "plans", world.source.entries(), A + b"/d/f")
    for old, new in ((b"/d", b"/x"), (b"/e", b"/d"), (b"/x", b"/e")):
        world.source.rename(A + old, A + new)
    assert world.compare(reap_list=reaped).files == {A + b"/e/f"}
