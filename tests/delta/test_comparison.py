"""What a comparison of two catalogs says of single changes."""

from pathlib import Path

import pytest

from migrator.core.entry import EntryType
from migrator.core.errors import Refused, UsageError
from migrator.delta.model import ChangeKind
from migrator.delta.store import Comparisons
from tests.delta.changing_trees import Source
from tests.delta.comparison_world import DIRECTORY, FILE, SETTLED_NS, SYMLINK, TREES, A, B, World, change, one_file
from tests.support.catalogs import write_catalog


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_changed(world: World) -> None:
    now = one_file(world)
    seen = world.compare(now=change(now, A + b"/d/f", atime_ns=5, blocks=9))
    assert seen.changes.nothing
    assert not seen.files | seen.directories
    assert [(tree.tree, tree.names_before, tree.bytes_before) for tree in seen.changes.trees] == [
        (A, 3, 20),
        (B, 1, 10),
    ]


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"size_bytes": 11, "ctime_ns": 7}, "grown"),
        ({"size_bytes": 11, "mtime_ns": 7, "mode": 0o600}, "grown"),
        ({"size_bytes": 9}, "rewritten"),
        ({"mtime_ns": 7}, "rewritten"),
        ({"ctime_ns": 7}, "rewritten"),
        ({"ctime_ns": 7, "mode": 0o600}, "attributes"),
        ({"uid": 5}, "attributes"),
        ({"gid": 5}, "attributes"),
        ({"xattrs": {b"user.a": b"b"}}, "attributes"),
        ({"type": EntryType.FIFO}, "rewritten"),
        ({"nlink": 2}, "rewritten"),
        ({"gfid": b"g" * 16, "dev": 9}, None),
        ({"dev": 9}, None),
        ({"ino": 9}, None),
    ],
)
def test_a_file_changed(world: World, facts: dict[str, object], kind: str | None) -> None:
    path = A + b"/d/f"
    seen = world.compare(now=change(one_file(world), path, **facts))
    assert seen.kinds() == ({kind: 1} if kind else {})
    assert seen.files == ({path} if kind else set())
    assert seen.directories == ({A + b"/d"} if kind else set())


def test_a_file_with_another_gfid_is_another_file(world: World) -> None:
    one_file(world)
    base, now = world.source.entries(gfids=True), world.source.entries(gfids=True)
    seen = world.compare(base=base, now=change(now, A + b"/d/f", gfid=b"g" * 16, ino=2**62))
    assert seen.kinds() == {"rewritten": 1}


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"symlink_target": b"y"}, "rewritten"),
        ({"type": EntryType.CHARACTER, "rdev": 7}, "rewritten"),
    ],
)
def test_a_special_changed(world: World, facts: dict[str, object], kind: str) -> None:
    world.source.make(A + b"/s", SYMLINK)
    world.scan()
    assert world.compare(now=change(world.source.entries(), A + b"/s", **facts)).kinds() == {kind: 1}


def test_another_number_of_device(world: World) -> None:
    base = change(one_file(world), A + b"/d/f", type=EntryType.BLOCK, rdev=1)
    assert world.compare(base=base, now=change(base, A + b"/d/f", rdev=2)).kinds() == {"rewritten": 1}


@pytest.mark.parametrize(
    ("facts", "changed"),
    [
        ({"mode": 0o700}, True),
        ({"uid": 5}, True),
        ({"xattrs": {b"user.a": b"b"}}, True),
        ({"mtime_ns": 7}, True),
        ({"ctime_ns": 7}, False),
        ({"nlink": 7}, False),
        ({"size_bytes": 7}, False),
    ],
)
def test_a_directory_changed(world: World, facts: dict[str, object], changed: bool) -> None:
    seen = world.compare(now=change(one_file(world), A + b"/d", **facts))
    assert seen.kinds() == ({"attributes": 1} if changed else {})
    assert seen.directories == ({A + b"/d"} if changed else set())
    assert not seen.files


def test_the_root_of_a_tree_is_not_listed(world: World) -> None:
    seen = world.compare(now=change(one_file(world), A, mode=0, mtime_ns=7))
    assert seen.changes.nothing


def test_other_trees_are_left_out(world: World) -> None:
    seen = world.compare(now=change(one_file(world), B + b"/f", mtime_ns=7), trees=[A])
    assert seen.changes.nothing
    assert [tree.tree for tree in seen.changes.trees] == [A]


@pytest.mark.guarantee("ctime")
@pytest.mark.parametrize(
    ("times", "unsettled"),
    [
        ({"ctime_ns": SETTLED_NS}, False),
        ({"ctime_ns": SETTLED_NS + 1}, True),
        ({"mtime_ns": SETTLED_NS}, False),
        ({"mtime_ns": SETTLED_NS + 1}, True),
        # In the future: whoever set it did not write the file then.
        ({"mtime_ns": SETTLED_NS + 10**18}, False),
    ],
)
def test_what_was_changed_just_before_the_scan_is_unsettled(
    world: World, times: dict[str, object], unsettled: bool
) -> None:
    rows = change(change(one_file(world), A + b"/d/f", **times), A + b"/d", **times)
    seen = world.compare(base=rows, now=rows)
    assert seen.kinds() == ({"unsettled": 1} if unsettled else {})
    assert seen.files == ({A + b"/d/f"} if unsettled else set())


def test_what_is_not_known_to_have_arrived(world: World) -> None:
    one_file(world)
    seen = world.compare(unsettled=[A + b"/d/f", A + b"/d", A + b"/never"], unsettled_trees=[B])
    assert seen.kinds() == {"unsettled": 3}
    assert seen.files == {A + b"/d/f", B + b"/f"}


def test_nothing_of_an_unsettled_tree_is_renamed(world: World) -> None:
    one_file(world)
    world.source.rename(A + b"/d", A + b"/e")
    seen = world.compare(unsettled_trees=[A])
    assert not seen.renames
    assert seen.gone == [(A + b"/d", 3)]
    assert seen.files == {A + b"/e/f", A + b"/e/other"}


def test_new_and_vanished(world: World) -> None:
    world.directories(A + b"/d", A + b"/d/e", A + b"/d-", A + b"/new")
    world.files(A + b"/d/e/f", A + b"/d/g", A + b"/d-/h", A + b"/k")
    world.scan()
    world.source.remove(A + b"/d")
    world.source.remove(A + b"/d-/h")
    world.source.remove(A + b"/k")
    world.files(A + b"/new/f", size_bytes=5)
    seen = world.compare()
    assert seen.gone == [(A + b"/d-/h", 1), (A + b"/d", 4), (A + b"/k", 1)]
    assert seen.changes.tally(ChangeKind.VANISHED).paths == 6
    assert seen.changes.tally(ChangeKind.VANISHED).directories == 2
    assert seen.changes.tally(ChangeKind.VANISHED).size_bytes == 40
    assert seen.changes.tally(ChangeKind.NEW).size_bytes == 5
    assert seen.files == {A + b"/new/f"}
    assert seen.directories == {A + b"/new", A + b"/d-"}


@pytest.mark.parametrize("first", [FILE, DIRECTORY])
def test_a_change_of_type_takes_the_old_one_away(world: World, first: EntryType) -> None:
    second = DIRECTORY if first is FILE else FILE
    world.source.make(A + b"/x", first)
    world.files(A + b"/x/f")
    world.scan()
    names = len(world.source.beneath(A + b"/x"))
    world.source.remove(A + b"/x")
    world.source.make(A + b"/x", second)
    seen = world.compare()
    assert seen.gone == [(A + b"/x", names)]
    assert seen.kinds() == {"vanished": names, "new": 1}
    assert A + b"/x" in seen.files | seen.directories


def test_a_directory_that_was_made_anew_stays(world: World) -> None:
    one_file(world)
    world.source.remove(A + b"/d")
    world.directories(A + b"/d")
    world.files(A + b"/d/f", size_bytes=4)
    seen = world.compare()
    assert seen.gone == [(A + b"/d/other", 1)]
    assert seen.kinds() == {"vanished": 1, "attributes": 1, "rewritten": 1}


def test_a_tree_without_rows(world: World) -> None:
    seen = world.compare(base=world.source.entries(), now=world.source.entries(), trees=[A, b"home/nobody"])
    assert seen.changes.nothing
    assert [tree.names_before for tree in seen.changes.trees] == [0, 0]


def test_what_is_refused(tmp_path: Path) -> None:
    entries = Source(TREES).entries()
    write_catalog(tmp_path, entries, TREES, name="whole")
    write_catalog(tmp_path, entries, TREES, name="half", whole=False)
    comparisons = Comparisons(tmp_path, temp_dir=tmp_path / "tmp")
    with pytest.raises(Refused, match="not whole"), comparisons.open("whole", "half", trees=TREES):
        pass
    with pytest.raises(UsageError), comparisons.open("never", "whole", trees=TREES):
        pass
    with comparisons.open("half", "whole", trees=TREES) as comparison:
        assert comparison.changes.nothing


def test_catalogs_of_some_trees_alone_are_compared_in_these_alone(tmp_path: Path) -> None:
    source = Source(TREES)
    source.make(A + b"/file", FILE, 10)
    source.make(B + b"/file", FILE, 10)
    write_catalog(tmp_path, source.entries(), TREES, name="whole")
    of_a = [entry for entry in source.entries() if entry.path.startswith(A)]
    write_catalog(tmp_path, of_a, TREES, name="of a", scope=(A,))
    comparisons = Comparisons(tmp_path, temp_dir=tmp_path / "tmp", threads=1)
    for base, now in (("whole", "of a"), ("of a", "whole"), ("of a", "of a")):
        with comparisons.open(base, now, trees=[A]) as comparison:
            assert comparison.changes.nothing
            assert [tree.tree for tree in comparison.changes.trees] == [A]
        for trees in ([B], TREES):
            with pytest.raises(Refused, match="other user trees"), comparisons.open(base, now, trees=trees):
                pass
