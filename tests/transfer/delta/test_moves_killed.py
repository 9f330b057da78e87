"""Move lists of any shape, killed at every call that changes the target, and carried out again."""

import copy
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.catalog.ports import Scratch
from migrator.core.entry import EntryType
from migrator.transfer.delta.model import Gone, Rename
from migrator.transfer.delta.moves import Moved
from migrator.transfer.delta.store import Comparisons
from tests.support.catalogs import closed_catalogs, write_catalog
from tests.support.kills import Killed
from tests.support.leftovers import remove_when_killed
from tests.transfer.delta.changing_trees import Inode, Source, Step, change
from tests.transfer.delta.move_world import TREE, MoveWorld

SIZE_BYTES = 8
NUMBERS = st.integers(0, 40)


def steps(*operations: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(
        st.tuples(st.sampled_from(operations), NUMBERS, NUMBERS, st.integers(0, 4)), min_size=2, max_size=20
    )


@dataclass(frozen=True)
class Case:
    """What was on the target, what is on the source now, the lists, and the files that the target has not, or has otherwise."""

    before: dict[bytes, Inode]
    after: dict[bytes, Inode]
    missing: frozenset[bytes]
    changed: frozenset[bytes]
    renames: list[Rename]
    gone: list[Gone]


def a_case(seed: list[Step], later: list[Step], faults: set[int], scratch: Path) -> Case:
    source = Source((TREE,))
    for step in seed:
        change(source, step, size_bytes=SIZE_BYTES)
    before = copy.deepcopy(source)
    for step in later:
        change(source, step, size_bytes=SIZE_BYTES)
    for name, state in (("base", before), ("now", source)):
        write_catalog(scratch / "catalogs", state.entries(), (TREE,), name=name)
    comparisons = Comparisons(closed_catalogs(scratch / "catalogs"), scratch=Scratch(scratch / "tmp"), threads=1)
    with comparisons.open("base", "now", trees=(TREE,)) as comparison:
        renames, gone = list(comparison.renames()), list(comparison.gone())
    held, now = (
        {path.removeprefix(TREE + b"/"): inode for path, inode in state.names.items() if path != TREE}
        for state in (before, source)
    )
    files = sorted(path for path, inode in held.items() if inode.type is EntryType.FILE)
    odd = sorted({files[index % len(files)] for index in faults}) if files else []
    return Case(held, now, frozenset(odd[::2]), frozenset(odd[1::2]), renames, gone)


def content(inode: Inode) -> bytes | None:
    return None if inode.type is EntryType.DIRECTORY else b"%08d" % inode.number


def a_world(case: Case, root: Path) -> MoveWorld:
    world = MoveWorld(root)
    for path, inode in sorted(case.before.items()):
        if inode.type is EntryType.DIRECTORY:
            world.directory(path)
        elif path not in case.missing:
            world.file(path, content(inode) or b"", mtime_ns=inode.mtime_ns + (path in case.changed))
    for path, inode in case.after.items():
        world.source.add(TREE + b"/" + path, content(inode))
    world.lists.kept_renames, world.lists.kept_gone = case.renames, case.gone
    return world


def assert_right(case: Case, world: MoveWorld, moved: Moved, contents: set[bytes]) -> None:
    assert moved.stop is None
    names = world.names()
    # Nothing that was on the target is lost, nothing that the source does not have is left in the tree.
    assert world.contents() == contents
    assert set(names) <= set(case.after)
    # What was there before is under its name of now, with its content, or is told to be sent.
    sent = {rename.new.removeprefix(TREE + b"/") for rename in moved.to_send}
    renamed = {rename.new.removeprefix(TREE + b"/") for rename in case.renames}
    old = {inode.number: path for path, inode in case.before.items()}
    for path, inode in case.after.items():
        if inode.number not in old:
            continue
        if inode.type is EntryType.DIRECTORY or old[inode.number] not in case.missing | case.changed:
            assert names.get(path, b"nothing") == content(inode), path
            assert path not in sent
        elif path in renamed:
            assert path in sent
    assert {rename.type for rename in moved.to_send} <= {EntryType.FILE}


@pytest.mark.guarantee("moves-killed")
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=steps("file", "file", "directory", "directory"),
    later=steps("file", "directory", "rename", "rename", "rename", "exchange", "remove"),
    faults=st.sets(NUMBERS, max_size=4),
    torn=st.booleans(),
)
def test_killed_at_every_call_and_carried_out_again(
    seed: list[Step], later: list[Step], faults: set[int], torn: bool
) -> None:
    scratch = remove_when_killed(Path(tempfile.mkdtemp(prefix="migrator-test-")))
    try:
        case = a_case(seed, later, faults, scratch)
        world = a_world(case, scratch / "whole")
        contents = world.contents()
        first = world.apply()
        assert_right(case, world, first, contents)
        calls, names = world.moves.calls, world.names()
        assert_right(case, world, world.apply(), contents)
        world.close()
        for left in range(1, calls + 1):
            world = a_world(case, scratch / f"killed-{left}")
            world.moves.left, world.moves.torn = left, torn
            with pytest.raises(Killed):
                world.apply()
            assert world.contents() == contents
            # A second time, two calls later.
            world.moves.calls, world.moves.left = 0, 2
            with suppress(Killed):
                world.apply()
            world.moves.left = None
            again = world.apply()
            assert_right(case, world, again, contents)
            assert again.to_send == first.to_send
            assert world.names() == names
            world.close()
    finally:
        shutil.rmtree(scratch)
    assert not os.path.exists(scratch)
