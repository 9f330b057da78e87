"""What a comparison of two catalogs says of renames, and of the names of a link group."""

from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.entry import EntryType
from migrator.delta.model import ChangeKind
from tests.delta.comparison_world import A, B, World, change, one_file


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_renamed_file_is_not_sent(world: World) -> None:
    world.directories(A + b"/from", A + b"/to")
    world.files(A + b"/from/f", A + b"/g")
    world.scan()
    world.source.rename(A + b"/from/f", A + b"/to/f")
    world.source.rename(A + b"/g", A + b"/h")
    world.source.change_mode(A + b"/h")
    seen = world.compare()
    assert seen.renames == [(A + b"/g", A + b"/h"), (A + b"/from/f", A + b"/to/f")]
    assert seen.files == {A + b"/h"}
    assert seen.directories == {A + b"/from", A + b"/to"}
    assert not seen.gone
    assert seen.kinds() == {"renamed": 2, "attributes": 3}


@pytest.mark.parametrize(
    "spoil",
    [
        {"size_bytes": 11},
        {"mtime_ns": 7},
        {"ino": 7},
        {"dev": 7},
        {"nlink": 2},
        {"type": EntryType.FIFO},
        {"symlink_target": b"x"},
    ],
)
def test_what_is_not_sure_to_be_the_same_file_is_sent(world: World, spoil: dict[str, object]) -> None:
    one_file(world)
    world.source.rename(A + b"/d/f", A + b"/d/g")
    seen = world.compare(now=change(world.source.entries(), A + b"/d/g", **spoil))
    assert not seen.renames
    assert seen.gone == [(A + b"/d/f", 1)]
    assert seen.files == {A + b"/d/g"}


def test_a_file_seen_under_both_names_is_not_renamed(world: World) -> None:
    now = one_file(world)
    twice = [replace(entry, path=A + b"/d/g") for entry in now if entry.path == A + b"/d/f"]
    seen = world.compare(now=[*now, *twice])
    assert not seen.renames
    assert seen.kinds() == {"new": 1}
    back = world.compare(base=[*now, *twice], now=now)
    assert back.gone == [(A + b"/d/g", 1)]


def test_renames_across_trees_are_new_and_vanished(world: World) -> None:
    one_file(world)
    world.source.rename(A + b"/d", B + b"/d")
    seen = world.compare()
    assert not seen.renames
    assert seen.gone == [(A + b"/d", 3)]
    assert seen.files == {B + b"/d/f", B + b"/d/other"}


@pytest.mark.parametrize(
    ("before", "after", "device", "renamed"),
    [
        (True, True, 65, True),
        (True, False, 65, True),
        (False, True, 65, True),
        (False, False, 64, True),
        (False, False, 65, False),
    ],
)
def test_how_an_inode_is_known_again(world: World, before: bool, after: bool, device: int, renamed: bool) -> None:
    one_file(world)
    base = world.source.entries(gfids=before)
    world.source.rename(A + b"/d", A + b"/e")
    seen = world.compare(base=base, now=world.source.entries(gfids=after, device=device))
    assert seen.renames == ([(A + b"/d", A + b"/e")] if renamed else [])
    assert seen.files == (set() if renamed else {A + b"/e/f", A + b"/e/other"})


def test_what_lies_in_a_renamed_directory_moved_along(world: World) -> None:
    world.directories(A + b"/d", A + b"/d/s", A + b"/d/s/t", A + b"/out")
    world.files(*(A + b"/d/s/t/%d" % number for number in range(20)), A + b"/d/gone", A + b"/d/out", A + b"/d/deep")
    world.scan()
    world.source.rename(A + b"/d", A + b"/e")
    world.source.rename(A + b"/e/s/t", A + b"/e/s/u")
    world.source.write(A + b"/e/s/u/3", 50)
    world.source.remove(A + b"/e/gone")
    world.source.rename(A + b"/e/out", A + b"/out/f")
    world.source.rename(A + b"/e/deep", A + b"/e/s/u/deep")
    world.files(A + b"/e/s/new")
    seen = world.compare()
    assert seen.renames == [
        (A + b"/d/s/t", A + b"/e/s/u"),
        (A + b"/d/out", A + b"/out/f"),
        (A + b"/d/deep", A + b"/e/s/u/deep"),
        (A + b"/d", A + b"/e"),
    ]
    assert seen.gone == [(A + b"/d/gone", 1)]
    assert seen.files == {A + b"/e/s/u/3", A + b"/e/s/new"}
    assert seen.changes.tally(ChangeKind.VANISHED).paths == 1


def test_a_rotation(world: World) -> None:
    world.directories(A + b"/run.0", A + b"/run.1")
    world.files(A + b"/run.0/x", A + b"/run.1/x", A + b"/log", A + b"/log.1", A + b"/log.2")
    world.scan()
    for kind in (b"run", b"log"):
        world.source.rename(A + b"/" + kind + b".1", A + b"/" + kind + b".2")
    world.source.rename(A + b"/run.0", A + b"/run.1")
    world.source.rename(A + b"/log", A + b"/log.1")
    world.directories(A + b"/run.0")
    world.files(A + b"/run.0/x", A + b"/log")
    seen = world.compare()
    assert seen.renames == [
        (A + b"/run.1", A + b"/run.2"),
        (A + b"/run.0", A + b"/run.1"),
        (A + b"/log.1", A + b"/log.2"),
        (A + b"/log", A + b"/log.1"),
    ]
    # `log.2` was replaced by rename(2), which takes nothing away for itself.
    assert not seen.gone
    assert seen.files == {A + b"/run.0/x", A + b"/log"}
    assert seen.kinds() == {"renamed": 4, "new": 3}


def test_every_name_of_a_touched_link_group_is_sent(world: World) -> None:
    world.directories(A + b"/d", A + b"/e")
    world.files(A + b"/d/f", A + b"/d/single", A + b"/d/other")
    world.source.link(A + b"/d/f", A + b"/e/g")
    world.source.link(A + b"/d/f", B + b"/g")
    world.source.link(A + b"/d/other", A + b"/d/other-2")
    world.scan()
    seen = world.compare(unsettled=[A + b"/e/g"])
    assert seen.kinds() == {"unsettled": 1}
    assert seen.files == {A + b"/d/f", A + b"/e/g", B + b"/g"}
    assert seen.directories == {A + b"/d", A + b"/e"}
