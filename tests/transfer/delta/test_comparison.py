"""What a comparison of two catalogs says, of single changes and of any history: it makes the target the same again."""

import copy
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog.ports import Scratch
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import Refused, UsageError
from migrator.core.states import ChunkKind
from migrator.core.units import MIB, NS_PER_S
from migrator.reap.model import PlanReap, Savings
from migrator.reap.store import ReapListFiles
from migrator.site.model import ReapAction
from migrator.transfer.delta.model import ChangeKind, Changes, ExtrasOfTree
from migrator.transfer.delta.store import CatalogComparison, Comparisons, Extras
from tests.support.catalogs import closed_catalogs, write_catalog
from tests.support.entries import reap_row
from tests.transfer.delta import changing_trees
from tests.transfer.delta.changing_trees import Source, Step, Target

A, B = b"home/a", b"home/b"
TREES = (A, B)
FILE, DIRECTORY, SYMLINK = EntryType.FILE, EntryType.DIRECTORY, EntryType.SYMLINK
SETTLED_NS = 998 * NS_PER_S
"""Catalogs of `write_catalog` begin at 1000 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that a comparison says."""

    changes: Changes
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
        self.bricks: tuple[str, ...] = ()

    def files(self, *paths: bytes) -> None:
        for path in paths:
            self.source.make(path, FILE, 10)

    def directories(self, *paths: bytes) -> None:
        for path in paths:
            self.source.make(path, DIRECTORY)

    def scan(self, **options: bool) -> None:
        """The scan that the target was made from."""
        self._base = copy.deepcopy(self.source).entries(**options)

    @contextmanager
    def _open(self, base: Sequence[Entry], now: Sequence[Entry], **settings: Any) -> Iterator[CatalogComparison]:
        self._times += 1
        catalogs = self._catalogs / str(self._times)
        for name, entries in (("base", base), ("now", now)):
            write_catalog(catalogs, entries, TREES, name=name, bricks=self.bricks)
        comparisons = Comparisons(closed_catalogs(catalogs), scratch=Scratch(self._catalogs / "tmp"), threads=1)
        with comparisons.open("base", "now", trees=TREES, **settings) as comparison:
            yield comparison

    def compare(
        self,
        *,
        base: Sequence[Entry] | None = None,
        now: Sequence[Entry] | None = None,
        **settings: Any,
    ) -> Seen:
        """Scan again and compare; or compare other rows."""
        before, after = base or self._base, now or self.source.entries()
        with self._open(before, after, **settings) as comparison:
            listings = list(comparison.listings([TREES]))
            return Seen(
                changes=comparison.changes,
                files={path for one in listings if one.kind is not ChunkKind.DIRECTORIES for path in one.paths},
                directories={path for one in listings if one.kind is ChunkKind.DIRECTORIES for path in one.paths},
            )


def change(entries: Sequence[Entry], path: bytes, **facts: object) -> list[Entry]:
    """The rows with other facts of one path."""
    assert any(entry.path == path for entry in entries)
    return [replace(entry, **facts) if entry.path == path else entry for entry in entries]


def one_file(world: World) -> list[Entry]:
    world.directories(A + b"/d")
    world.files(A + b"/d/f", A + b"/d/other", B + b"/f")
    world.scan()
    return world.source.entries()


F, OTHER = A + b"/d/f", A + b"/d/other"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# Single changes.


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [("h1:/b", None, {"rewritten": 1}), (None, None, {}), (None, "h1:/b", {}), ("h1:/b", "h2:/b", {})],
)
def test_file_that_is_no_longer_taken_from_its_brick(
    world: World, before: str | None, after: str | None, kinds: dict[str, int]
) -> None:
    rows = [replace(one, brick="h1:/b") if one.type is EntryType.FILE else one for one in one_file(world)]
    base, now = change(rows, F, brick=before), change(rows, F, brick=after)
    # Scans of the mount take every file from it.
    assert world.compare(base=base, now=now).kinds() == {}
    world.bricks = ("h1:/b", "h2:/b")
    assert world.compare(base=base, now=now).kinds() == kinds
    renamed = [replace(one, path=A + b"/d/new") if one.path == F else one for one in now]
    assert world.compare(base=base, now=renamed).kinds() == ({"new": 1, "vanished": 1} if kinds else {"renamed": 1})


@pytest.mark.parametrize(
    ("path", "facts", "kind"),
    [
        (F, {"size_bytes": 11, "ctime_ns": 7}, "grown"),
        (F, {"size_bytes": 11, "mtime_ns": 7, "mode": 0o600}, "grown"),
        (F, {"size_bytes": 9}, "rewritten"),
        (F, {"mtime_ns": 7}, "rewritten"),
        (F, {"ctime_ns": 7}, "rewritten"),
        (F, {"ctime_ns": 7, "mode": 0o600}, "attributes"),
        (F, {"uid": 5}, "attributes"),
        (F, {"gid": 5}, "attributes"),
        (F, {"xattrs": {b"user.a": b"b"}}, "attributes"),
        (F, {"type": EntryType.FIFO}, "rewritten"),
        (F, {"nlink": 2}, "rewritten"),
        (F, {"gfid": b"g" * 16, "dev": 9}, None),
        (F, {"dev": 9}, None),
        (F, {"ino": 9}, None),
        (F, {"atime_ns": 5, "blocks": 9}, None),
        (A + b"/s", {"symlink_target": b"y"}, "rewritten"),
        (A + b"/s", {"type": EntryType.CHARACTER, "rdev": 7}, "rewritten"),
        (A + b"/d", {"mode": 0o700}, "attributes"),
        (A + b"/d", {"uid": 5}, "attributes"),
        (A + b"/d", {"xattrs": {b"user.a": b"b"}}, "attributes"),
        (A + b"/d", {"mtime_ns": 7}, "attributes"),
        (A + b"/d", {"ctime_ns": 7}, None),
        (A + b"/d", {"nlink": 7}, None),
        (A + b"/d", {"size_bytes": 7}, None),
        # The roots of trees are not listed.
        (A, {"mode": 0, "mtime_ns": 7}, None),
    ],
)
def test_one_change(world: World, path: bytes, facts: dict[str, object], kind: str | None) -> None:
    world.source.make(A + b"/s", SYMLINK)
    seen = world.compare(now=change(one_file(world), path, **facts))
    assert seen.kinds() == ({kind: 1} if kind else {})
    assert seen.changes.nothing == (kind is None)
    listed = seen.directories if path == A + b"/d" else seen.files
    assert listed == ({path} if kind else set())
    assert (A + b"/d" in seen.directories) == (kind is not None and path.startswith(A + b"/d"))


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
def test_a_change_just_before_the_scan_is_unsettled(world: World, times: dict[str, object], unsettled: bool) -> None:
    rows = change(change(one_file(world), F, **times), A + b"/d", **times)
    seen = world.compare(base=rows, now=rows)
    assert seen.kinds() == ({"unsettled": 1} if unsettled else {})
    assert seen.files == ({F} if unsettled else set())


def test_catalogs_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    source = Source(TREES)
    source.make(A + b"/file", FILE, 10)
    source.make(B + b"/file", FILE, 10)
    write_catalog(tmp_path, source.entries(), TREES, name="whole")
    write_catalog(tmp_path, source.entries(), TREES, name="half", whole=False)
    of_a = [entry for entry in source.entries() if entry.path.startswith(A)]
    write_catalog(tmp_path, of_a, TREES, name="of a", scope=(A,))
    comparisons = Comparisons(closed_catalogs(tmp_path), scratch=Scratch(tmp_path / "tmp"), threads=1)
    with pytest.raises(Refused, match="not whole"), comparisons.open("whole", "half", trees=TREES):
        pass
    with pytest.raises(UsageError), comparisons.open("never", "whole", trees=TREES):
        pass
    with comparisons.open("half", "whole", trees=TREES) as comparison:
        assert comparison.changes.nothing
    for base, now in (("whole", "of a"), ("of a", "whole"), ("of a", "of a")):
        with comparisons.open(base, now, trees=[A]) as comparison:
            assert comparison.changes.nothing
            assert [tree.tree for tree in comparison.changes.trees] == [A]
        for trees in ([B], TREES):
            with pytest.raises(Refused, match="other user trees"), comparisons.open(base, now, trees=trees):
                pass


def test_room_is_needed_only_for_the_trees_that_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(TREES)
    for path in (A + b"/f", *(B + b"/%d" % number for number in range(5))):
        source.make(path, FILE, 10)
    for name in ("base", "now"):
        write_catalog(tmp_path, source.entries(), TREES, name=name)
    # Memory holds what 5 rows spill, and the disk nothing.
    monkeypatch.setattr("migrator.catalog.database._SPILLED_BYTES", 100 * MIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    scratch = Scratch(tmp_path / "tmp", memory_bytes=512 * MIB)
    comparisons = Comparisons(closed_catalogs(tmp_path), scratch=scratch, threads=1)
    with comparisons.open("base", "now", trees=[A]) as comparison:
        assert comparison.changes.nothing
    with pytest.raises(Refused, match="more room"), comparisons.open("base", "now", trees=TREES):
        pass


# Paths on the reap list, which are not on the target.


def reap_list(place: Path, entries: Sequence[Entry], path: bytes) -> Path:
    """A reap list that names a path with the facts that it has in the rows."""
    (entry,) = (entry for entry in entries if entry.path == path)
    lists = ReapListFiles(place)
    name, digest = lists.write("plan", [[reap_row(entry, A, ReapAction.SKIP)]])
    file = lists.checked(PlanReap(reap_list=name, digest=digest, trees=(), saved=Savings(), listed=Savings()))
    assert file is not None
    return file


@pytest.fixture
def reaped(world: World, tmp_path: Path) -> Path:
    """`d/f` is on the reap list."""
    return reap_list(tmp_path / "it's plans", one_file(world), F)


def test_reaped_paths_are_sent_only_if_they_are_unsettled_by_name(world: World, reaped: Path) -> None:
    assert world.compare(reap_list=reaped).changes.nothing
    assert world.compare(reap_list=reaped, unsettled_trees=[A]).files == {OTHER}
    assert world.compare(reap_list=reaped, unsettled=[F]).files == {F}


_OPERATIONS = (
    *("file", "directory", "directory", "symlink", "remove", "link", "write", "write_back", "mode"),
    *("rename", "rename", "rename", "exchange", "time_back"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(_OPERATIONS), st.integers(0, 40), st.integers(0, 40), st.integers(0, 4)), max_size=30
)
SEED_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["file", "file", "directory", "directory", "symlink", "link", "time_back"]),
        st.integers(0, 40),
        st.integers(0, 40),
        st.integers(0, 4),
    ),
    max_size=30,
)


def show_hidden_writes(before: Source, after: Source) -> None:
    """Give a time to writes that nobody can see: to a file that was also renamed, with size and mtime put back. A rename
    changes ctime by itself.
    """
    olds = {inode.number: (path, inode) for path, inode in before.names.items()}
    for path, inode in after.names.items():
        old_path, old = olds.get(inode.number, (path, inode))
        if path != old_path and (inode.size_bytes, inode.mtime_ns) == (old.size_bytes, old.mtime_ns):
            inode.mtime_ns += inode.content - old.content


def unchanged_but_sent(before: Source, after: Source, target: Target, unsettled: Sequence[bytes]) -> list[bytes]:
    """Files with one name that are sent although nothing was done to them."""
    found = []
    for path in target.sent:
        inode = after.names[path]
        if inode.type is EntryType.DIRECTORY or after.nlink(inode) > 1 or path in unsettled:
            continue
        was = before.names.get(path)
        if was is not None and (was.number, was.ctime_ns) == (inode.number, inode.ctime_ns):
            found.append(path)
    return found


AT_ONCE = st.sampled_from([3, 10_000_000])


@contextmanager
def in_parts_of(rows: int) -> Iterator[None]:
    """Work on so many rows at once."""
    with ExitStack() as stack:
        for name in (
            "transfer.delta.store._KEYS_AT_ONCE",
            "transfer.delta.store._JOINED_PATHS",
            "catalog.queries._SORTED_AT_ONCE",
        ):
            stack.enter_context(mock.patch(f"migrator.{name}", rows))
        yield


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=SEED_STEPS,
    steps=STEPS,
    gfids=st.sampled_from([(False, False), (True, True), (False, True), (True, False)]),
    doubt=st.sets(st.integers(0, 40), max_size=3),
    doubtful_tree=st.booleans(),
    twice=st.tuples(st.booleans(), st.booleans()),
    stale=st.sets(st.tuples(st.integers(0, 40), st.integers(0, len(changing_trees.NAMES) - 1)), max_size=3),
    at_once=AT_ONCE,
)
def test_applying_a_comparison_makes_the_target_the_same(
    tmp_path: Path,
    *,
    seed: list[Step],
    steps: list[Step],
    gfids: tuple[bool, bool],
    doubt: set[int],
    doubtful_tree: bool,
    twice: tuple[bool, bool],
    stale: set[tuple[int, int]],
    at_once: int,
) -> None:
    """A scan of a Gluster mount may list entries twice. The pass before may have left names on the target."""
    source = Source(TREES)
    for step in seed:
        changing_trees.change(source, step)
    before, target = copy.deepcopy(source), Target(source)
    paths = sorted(set(source.names) - set(TREES))
    unsettled = sorted({paths[index % len(paths)] for index in doubt}) if paths else []
    unsettled_trees = TREES[1:] if doubtful_tree else ()
    for path, held in target.names.items():
        if path in unsettled or any(path.startswith(tree + b"/") for tree in unsettled_trees):
            held.content, held.mode = -5, 0
    leftovers = target.leave(stale)
    for step in steps:
        changing_trees.change(source, step)
    show_hidden_writes(before, source)

    shutil.rmtree(tmp_path / "catalogs", ignore_errors=True)
    for name, state, gfid, doubled in zip(("base", "now"), (before, source), gfids, twice, strict=True):
        entries = state.entries(gfids=gfid)
        again = [entry for entry in entries if doubled and entry.type is not DIRECTORY]
        write_catalog(tmp_path / "catalogs", [*entries, *again], TREES, name=name)
    comparisons = Comparisons(closed_catalogs(tmp_path / "catalogs"), scratch=Scratch(tmp_path / "tmp"), threads=1)
    opened = comparisons.open(
        "base",
        "now",
        trees=TREES,
        unsettled=unsettled,
        unsettled_trees=unsettled_trees,
        leftovers=[*leftovers, *unsettled],
    )
    with in_parts_of(at_once), opened as comparison:
        renames, gone = list(comparison.renames()), list(comparison.gone())
        listings = list(comparison.listings([TREES]))
        changes = comparison.changes

    target.move(renames, gone)
    target.receive(source, listings)
    assert target.differences(source) == []
    assert twice[1] or len(target.sent) == len(set(target.sent))
    assert changes.tally(ChangeKind.RENAMED).paths == len(renames)
    assert changes.tally(ChangeKind.VANISHED).paths == target.removed
    if not doubtful_tree:
        # What lay in a directory that moved, or that was renamed besides, is under another path or was changed.
        assert unchanged_but_sent(before, source, target, unsettled) == []
    if before.entries() == source.entries() and not unsettled and not doubtful_tree and not leftovers:
        assert changes.nothing
        assert not listings


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states=st.lists(STEPS, min_size=4, max_size=4), at_once=AT_ONCE)
def test_extras_are_the_paths_that_only_earlier_catalogs_have(
    tmp_path: Path, *, states: list[list[Step]], at_once: int
) -> None:
    """A path is a directory or not: a directory that became a file is one, a file that was replaced by another is none."""
    source, catalogs = Source(TREES), {}
    shutil.rmtree(tmp_path / "catalogs", ignore_errors=True)
    for name, steps in zip(("one", "two", "base", "now"), states, strict=True):
        for step in steps:
            changing_trees.change(source, step)
        catalogs[name] = source.entries()
        write_catalog(tmp_path / "catalogs", catalogs[name], TREES, name=name)
    is_directory = {
        name: {entry.path: entry.type is DIRECTORY for entry in entries} for name, entries in catalogs.items()
    }
    newest = {**is_directory["one"], **is_directory["two"]}
    expected = sorted(
        path
        for path, was in newest.items()
        if path not in TREES and all(is_directory[name].get(path, not was) is not was for name in ("base", "now"))
    )
    outermost = [one for one in expected if not any(one.startswith(other + b"/") for other in expected)]
    wanted = [ExtrasOfTree(tree=tree, brought=("one", "two"), earlier=("one", "two")) for tree in TREES]
    extras = Extras(closed_catalogs(tmp_path / "catalogs"), scratch=Scratch(tmp_path / "tmp"))
    with in_parts_of(at_once), extras.open(wanted, base="base", now="now") as found:
        gone = [one.path for one in found.gone()]
    assert sorted(gone) == outermost
