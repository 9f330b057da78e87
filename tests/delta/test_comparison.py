"""What a comparison of two catalogs says: of single changes, of renames and link groups, of what the plan archives or skips."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from migrator.catalog.ports import Scratch
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import Refused, UsageError
from migrator.delta.store import Comparisons
from migrator.reap.model import PlanReap, ReapAction, ReapRow, Savings
from migrator.reap.store import ReapListFiles
from tests.delta.changing_trees import Source
from tests.delta.comparison_world import FILE, SETTLED_NS, SYMLINK, TREES, A, B, World, change, one_file
from tests.support.catalogs import closed_catalogs, write_catalog

F, OTHER = A + b"/d/f", A + b"/d/other"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# Single changes.


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
def test_what_was_changed_just_before_the_scan_is_unsettled(
    world: World, times: dict[str, object], unsettled: bool
) -> None:
    rows = change(change(one_file(world), F, **times), A + b"/d", **times)
    seen = world.compare(base=rows, now=rows)
    assert seen.kinds() == ({"unsettled": 1} if unsettled else {})
    assert seen.files == ({F} if unsettled else set())


def test_what_is_refused(tmp_path: Path) -> None:
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


# Paths on the reap list, which are not on the target.


def reap_list(place: Path, entries: Sequence[Entry], path: bytes) -> Path:
    """A reap list that names a path with the facts that it has in the rows."""
    (entry,) = (entry for entry in entries if entry.path == path)
    row = ReapRow(
        path=path,
        tree=A,
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
    lists = ReapListFiles(place)
    name, digest = lists.write("plan", [[row]])
    file = lists.checked(PlanReap(reap_list=name, digest=digest, trees=(), saved=Savings(), listed=Savings()))
    assert file is not None
    return file


@pytest.fixture
def reaped(world: World, tmp_path: Path) -> Path:
    """`d/f` is on the reap list."""
    return reap_list(tmp_path / "it's plans", one_file(world), F)


def test_what_is_reaped_is_sent_only_when_it_is_unsettled_by_name(world: World, reaped: Path) -> None:
    assert world.compare(reap_list=reaped).changes.nothing
    assert world.compare(reap_list=reaped, unsettled_trees=[A]).files == {OTHER}
    assert world.compare(reap_list=reaped, unsettled=[F]).files == {F}
