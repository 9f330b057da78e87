"""What a comparison of two catalogs says of single changes."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from migrator.adapters.catalog.comparison import ComparisonFiles
from migrator.adapters.plans.reap_lists import ReapListFiles
from migrator.domain.changes import ChangeKind, Changes
from migrator.domain.entry import Entry, EntryType
from migrator.domain.errors import Refused, UsageError
from migrator.domain.reap import ReapAction, ReapRow
from migrator.domain.states import ChunkKind
from migrator.domain.units import NS_PER_S
from migrator.ports.changes import Comparison
from tests.catalogs import write_catalog
from tests.changing_trees import Source

A, B = b"home/a", b"home/b"
TREES = (A, B)
FILE, DIRECTORY, SYMLINK = EntryType.FILE, EntryType.DIRECTORY, EntryType.SYMLINK
SETTLED_NS = 998 * NS_PER_S
"""Catalogs of `write_catalog` begin at 1000 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that a comparison says."""

    changes: Changes
    renames: list[tuple[bytes, bytes]]
    gone: list[tuple[bytes, int]]
    files: set[bytes]
    directories: set[bytes]

    def kinds(self) -> dict[str, int]:
        """How many paths of every kind there are."""
        counted = {kind.value: self.changes.tally(kind).paths for kind in ChangeKind}
        return {kind: paths for kind, paths in counted.items() if paths}


class World:
    """A source that is scanned twice."""

    def __init__(self, catalogs: Path) -> None:
        self.source = Source(TREES)
        self._catalogs = catalogs
        self._base: Sequence[Entry] = ()
        self._times = 0

    def files(self, *paths: bytes, size_bytes: int = 10) -> None:
        for path in paths:
            self.source.make(path, FILE, size_bytes)

    def directories(self, *paths: bytes) -> None:
        for path in paths:
            self.source.make(path, DIRECTORY)

    def scan(self, **options: bool) -> None:
        """The scan that the target was made from."""
        self._base = copy.deepcopy(self.source).entries(**options)

    @contextmanager
    def _open(
        self, base: Sequence[Entry], now: Sequence[Entry], trees: Sequence[bytes], **settings: Any
    ) -> Iterator[Comparison]:
        self._times += 1
        catalogs = self._catalogs / str(self._times)
        for name, entries in (("base", base), ("now", now)):
            write_catalog(catalogs, entries, TREES, name=name)
        comparisons = ComparisonFiles(catalogs, temp_dir=self._catalogs / "tmp", threads=1)
        with comparisons.open("base", "now", trees=trees, **settings) as comparison:
            yield comparison

    def compare(
        self,
        *,
        base: Sequence[Entry] | None = None,
        now: Sequence[Entry] | None = None,
        trees: Sequence[bytes] = TREES,
        **settings: Any,
    ) -> Seen:
        """Scan again and compare; or compare other rows."""
        before, after = base or self._base, now or self.source.entries()
        with self._open(before, after, trees, **settings) as comparison:
            listings = list(comparison.listings([trees]))
            return Seen(
                changes=comparison.changes,
                renames=[(one.old, one.new) for one in comparison.renames()],
                gone=[(one.path, one.names) for one in comparison.gone()],
                files={path for one in listings if one.kind is not ChunkKind.DIRECTORIES for path in one.paths},
                directories={path for one in listings if one.kind is ChunkKind.DIRECTORIES for path in one.paths},
            )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def change(entries: Sequence[Entry], path: bytes, **facts: object) -> list[Entry]:
    """The rows with other facts of one path."""
    assert any(entry.path == path for entry in entries)
    return [replace(entry, **facts) if entry.path == path else entry for entry in entries]  # type: ignore[arg-type]


def one_file(world: World) -> list[Entry]:
    world.directories(A + b"/d")
    world.files(A + b"/d/f", A + b"/d/other", B + b"/f")
    world.scan()
    return world.source.entries()


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


def test_a_file_that_was_unsettled_is_sent_under_its_new_name(world: World) -> None:
    one_file(world)
    world.source.rename(A + b"/d/f", A + b"/d/g")
    seen = world.compare(unsettled=[A + b"/d/f"])
    assert not seen.renames
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
        (A + b"/d", A + b"/e"),
        (A + b"/e/s/t", A + b"/e/s/u"),
        (A + b"/e/deep", A + b"/e/s/u/deep"),
        (A + b"/e/out", A + b"/out/f"),
    ]
    assert seen.gone == [(A + b"/d/gone", 1)]
    assert seen.files == {A + b"/e/s/u/3", A + b"/e/s/new"}
    assert seen.changes.tally(ChangeKind.VANISHED).paths == 1


def test_swapped_directories(world: World) -> None:
    world.directories(A + b"/a", A + b"/b")
    world.files(A + b"/a/f", A + b"/b/f", A + b"/b/g")
    world.scan()
    world.source.exchange(A + b"/a", A + b"/b")
    seen = world.compare()
    assert set(seen.renames) == {(A + b"/a", A + b"/b"), (A + b"/b", A + b"/a")}
    assert not seen.files
    assert not seen.gone


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
        (A + b"/log", A + b"/log.1"),
        (A + b"/log.1", A + b"/log.2"),
    ]
    # `log.2` was replaced by rename(2), which takes nothing away for itself.
    assert not seen.gone
    assert seen.files == {A + b"/run.0/x", A + b"/log"}
    assert seen.kinds() == {"renamed": 4, "new": 3}


def test_what_is_moved_out_of_a_directory_that_is_gone(world: World) -> None:
    world.directories(A + b"/d", A + b"/d/keep", A + b"/d/other")
    world.files(A + b"/d/f", A + b"/d/keep/f", A + b"/d/keep/g", A + b"/d/other/x")
    world.scan()
    world.source.rename(A + b"/d/keep", A + b"/keep")
    world.source.rename(A + b"/d/f", A + b"/f")
    world.source.remove(A + b"/keep/g")
    world.source.remove(A + b"/d")
    seen = world.compare()
    assert seen.renames == [(A + b"/d/keep", A + b"/keep"), (A + b"/d/f", A + b"/f")]
    assert seen.gone == [(A + b"/d", 3), (A + b"/d/keep/g", 1)]
    assert not seen.files


def test_a_directory_replaced_by_another_one_that_was_renamed(world: World) -> None:
    world.directories(A + b"/a", A + b"/a/s", A + b"/b", A + b"/keep")
    world.files(A + b"/a/f", A + b"/a/s/x", A + b"/a/g", A + b"/b/f")
    world.scan()
    world.source.rename(A + b"/a/s", A + b"/keep/s")
    world.source.remove(A + b"/a")
    world.source.rename(A + b"/b", A + b"/a")
    seen = world.compare()
    # What has the name `a/f` now lay in the other directory.
    assert seen.renames == [(A + b"/a/s", A + b"/keep/s"), (A + b"/b", A + b"/a")]
    assert seen.gone == [(A + b"/a", 3)]
    assert not seen.files


def test_what_went_from_a_directory_that_is_gone_into_the_one_with_its_name_is_sent(world: World) -> None:
    world.directories(A + b"/a", A + b"/a/s", A + b"/b")
    world.files(A + b"/a/f", A + b"/a/s/x", A + b"/b/f")
    world.scan()
    world.source.rename(A + b"/a/s", A + b"/b/s")
    world.source.remove(A + b"/a")
    world.source.rename(A + b"/b", A + b"/a")
    seen = world.compare()
    # No list of renames can tell both directories of that name apart: what it cannot bring over is sent again.
    assert seen.renames == [(A + b"/b", A + b"/a")]
    assert seen.gone == [(A + b"/a", 4)]
    assert seen.files == {A + b"/a/s/x"}


def test_directories_whose_times_were_put_back_are_listed_when_something_in_them_moved(world: World) -> None:
    names = [A + b"/" + name for name in (b"from", b"to", b"less", b"more", b"deep")]
    world.directories(*names, A + b"/deep/d")
    world.files(A + b"/from/f", A + b"/less/f", A + b"/deep/d/f")
    for name in names:
        world.source.put_time_back(name)
    world.scan()
    world.source.rename(A + b"/from/f", A + b"/to/f")
    world.source.remove(A + b"/less/f")
    world.source.rename(A + b"/deep/d", A + b"/deep/e")
    world.files(A + b"/more/f")
    for name in names:
        world.source.put_time_back(name)
    seen = world.compare()
    assert seen.kinds() == {"new": 1, "renamed": 2, "vanished": 1}
    assert seen.directories == {*names, A + b"/deep/e"}


def test_a_directory_that_keeps_its_path_while_the_one_above_is_another(world: World) -> None:
    world.directories(A + b"/a", A + b"/a/s")
    world.files(A + b"/a/f", A + b"/a/s/x")
    world.scan()
    world.source.rename(A + b"/a", A + b"/b")
    world.directories(A + b"/a")
    world.source.rename(A + b"/b/s", A + b"/a/s")
    seen = world.compare()
    # It does not differ in anything, and would go away with what had the name before.
    assert seen.renames == [(A + b"/a", A + b"/b"), (A + b"/b/s", A + b"/a/s")]
    assert not seen.files
    assert not seen.gone


def test_a_new_name_of_an_inode_that_had_two_is_new(world: World) -> None:
    base = one_file(world)
    twice = [replace(entry, path=A + b"/d/g") for entry in base if entry.path == A + b"/d/f"]
    world.source.rename(A + b"/d/f", A + b"/d/h")
    seen = world.compare(base=[*base, *twice])
    assert not seen.renames
    assert seen.gone == [(A + b"/d/f", 1), (A + b"/d/g", 1)]


def test_two_new_names_of_one_inode_are_both_new(world: World) -> None:
    one_file(world)
    world.source.rename(A + b"/d/f", A + b"/d/g")
    now = world.source.entries()
    seen = world.compare(now=[*now, *(replace(entry, path=A + b"/d/h") for entry in now if entry.path == A + b"/d/g")])
    assert not seen.renames
    assert seen.files == {A + b"/d/g", A + b"/d/h"}


def test_a_directory_moved_into_a_new_one_and_into_its_own_child(world: World) -> None:
    world.directories(A + b"/d", A + b"/p", A + b"/p/c")
    world.files(A + b"/d/f", A + b"/p/f", A + b"/p/c/f")
    world.scan()
    world.directories(A + b"/new")
    world.source.rename(A + b"/d", A + b"/new/d")
    world.source.rename(A + b"/p/c", A + b"/c")
    world.source.rename(A + b"/p", A + b"/c/p")
    world.source.rename(A + b"/c", A + b"/p")
    seen = world.compare()
    assert seen.renames == [
        (A + b"/d", A + b"/new/d"),
        (A + b"/p/c", A + b"/p"),
        (A + b"/p", A + b"/p/p"),
    ]
    assert not seen.files
    assert A + b"/new" in seen.directories


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


@pytest.mark.parametrize("how", ["link", "unlink", "rename"])
def test_a_name_of_a_link_group_came_or_went(world: World, how: str) -> None:
    world.files(A + b"/f", A + b"/single")
    world.source.link(A + b"/f", A + b"/g")
    world.scan()
    if how == "link":
        world.source.link(A + b"/f", A + b"/h")
    elif how == "unlink":
        world.source.remove(A + b"/g")
    else:
        world.source.rename(A + b"/g", A + b"/h")
    seen = world.compare()
    assert not seen.renames
    names = {path for path, inode in world.source.names.items() if inode is world.source.names[A + b"/f"]}
    assert seen.files == names
    assert seen.gone == ([] if how == "link" else [(A + b"/g", 1)])
    assert seen.changes.tally(ChangeKind.REWRITTEN).paths == (2 if how == "link" else 1)


def test_a_renamed_symlink_must_point_to_the_same(world: World) -> None:
    world.source.make(A + b"/s", SYMLINK, 1)
    world.scan()
    world.source.rename(A + b"/s", A + b"/t")
    assert world.compare().renames == [(A + b"/s", A + b"/t")]


def test_a_tree_without_rows(world: World) -> None:
    seen = world.compare(base=world.source.entries(), now=world.source.entries(), trees=[A, b"home/nobody"])
    assert seen.changes.nothing
    assert [tree.names_before for tree in seen.changes.trees] == [0, 0]


def test_what_is_refused(tmp_path: Path) -> None:
    entries = Source(TREES).entries()
    write_catalog(tmp_path, entries, TREES, name="whole")
    write_catalog(tmp_path, entries, TREES, name="half", whole=False)
    comparisons = ComparisonFiles(tmp_path, temp_dir=tmp_path / "tmp")
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
    comparisons = ComparisonFiles(tmp_path, temp_dir=tmp_path / "tmp", threads=1)
    for base, now in (("whole", "of a"), ("of a", "whole"), ("of a", "of a")):
        with comparisons.open(base, now, trees=[A]) as comparison:
            assert comparison.changes.nothing
            assert [tree.tree for tree in comparison.changes.trees] == [A]
        for trees in ([B], TREES):
            with pytest.raises(Refused, match="other user trees"), comparisons.open(base, now, trees=trees):
                pass


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
