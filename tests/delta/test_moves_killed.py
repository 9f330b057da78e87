"""Move lists of any shape, killed at every call that changes the target, and carried out again."""

import os
import random
import shutil
import tempfile
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.core.entry import EntryType
from migrator.delta.model import Gone, Rename
from migrator.delta.moving import Moved
from tests.support.move_world import MTIME_NS, TREE, Killed, MoveWorld


@dataclass(eq=False)
class Inode:
    """A file or directory; `content` of a file tells it from every other one."""

    number: int
    directory: bool
    above: "Inode | None"
    name: bytes

    @property
    def content(self) -> bytes:
        return b"%08d" % self.number

    @property
    def path(self) -> bytes:
        if self.above is None:
            return b""
        return self.above.path + b"/" + self.name if self.above.above else self.name


@dataclass
class Source:
    """A tree on the source that a user changes at random, and what a comparison of two scans says of it."""

    chance: random.Random
    root: Inode = field(default_factory=lambda: Inode(0, directory=True, above=None, name=b""))
    there: list[Inode] = field(default_factory=list)
    count: int = 0

    def make(self) -> None:
        self.count += 1
        above = self.chance.choice(self._directories())
        made = Inode(self.count, directory=self.chance.random() < 0.4, above=above, name=self._name())
        if made.path not in {inode.path for inode in self.there}:
            self.there.append(made)

    def rename(self) -> None:
        """As mv -T does it: what has the new name already is replaced, with all that is in it."""
        moved = self.chance.choice(self.there)
        above, name = self.chance.choice(self._directories()), self._name()
        if moved is above or moved in _ancestors(above):
            return
        replaced = Inode(-1, directory=False, above=above, name=name).path
        for other in list(self.there):
            if other is not moved and other.path == replaced:
                if other in _ancestors(moved) or other is above or other in _ancestors(above):
                    return
                self._drop(other)
        moved.above, moved.name = above, name

    def swap(self) -> None:
        one, other = self.chance.choice(self.there), self.chance.choice(self.there)
        if one is not other and one not in _ancestors(other) and other not in _ancestors(one):
            one.above, one.name, other.above, other.name = other.above, other.name, one.above, one.name

    def remove(self) -> None:
        self._drop(self.chance.choice(self.there))

    def _drop(self, inode: Inode) -> None:
        self.there = [other for other in self.there if other is not inode and inode not in _ancestors(other)]

    def _directories(self) -> list[Inode]:
        return [self.root, *(inode for inode in self.there if inode.directory)]

    def _name(self) -> bytes:
        return self.chance.choice([b"a", b"b", b"c", b"d\n"])


def _ancestors(inode: Inode) -> list[Inode]:
    found: list[Inode] = []
    while inode.above is not None:
        inode = inode.above
        found.append(inode)
    return found


@dataclass(frozen=True)
class Case:
    """What was on the target, what is on the source now, the lists, and which files are where now by inode."""

    before: dict[bytes, Inode]
    after: dict[bytes, Inode]
    missing: frozenset[bytes]
    changed: frozenset[bytes]
    renames: list[Rename]
    gone: list[Gone]


def a_case(seed: int, makes: int, steps: int, faults: int) -> Case:
    chance = random.Random(seed)
    source = Source(chance)
    for _ in range(makes):
        source.make()
    scanned = {inode.path: (inode, inode.above, inode.name) for inode in source.there}
    files = [path for path, (inode, _, _) in scanned.items() if not inode.directory]
    odd = chance.sample(files, min(faults, len(files)))
    before = {path: inode for path, (inode, _, _) in scanned.items()}
    for _ in range(steps):
        if source.there:
            chance.choice([source.make, *[source.rename] * 4, source.swap, source.remove])()
    after = {inode.path: inode for inode in source.there}
    # Back to how it was scanned first: what lies in a renamed directory moves along, and is listed only if it went elsewhere.
    new_paths = {inode: path for path, inode in after.items()}
    for inode, above, name in scanned.values():
        inode.above, inode.name = above, name

    def moved_along(inode: Inode) -> bytes:
        """What a path would be called now if only the directories above it had been renamed."""
        above = inode.above
        if above is None or above.above is None:
            return inode.path
        return (new_paths.get(above) or moved_along(above)) + b"/" + inode.name

    def lost_above(inode: Inode) -> set[Inode]:
        """The directories above that vanished, up to one that was renamed."""
        return set(takewhile(lambda above: above not in new_paths, _ancestors(inode)[:-1]))

    renames = [
        Rename(
            tree=TREE,
            old=TREE + b"/" + inode.path,
            new=TREE + b"/" + new_paths[inode],
            type=EntryType.DIRECTORY if inode.directory else EntryType.FILE,
            size_bytes=8,
            mtime_ns=MTIME_NS,
        )
        for inode in sorted(before.values(), key=lambda inode: inode.path, reverse=True)
        if inode in new_paths and (moved_along(inode) != new_paths[inode] or inode.above in lost_above(inode))
    ]
    gone: list[Gone] = []
    listed: set[Inode] = set()
    for path, inode in sorted(before.items()):
        if inode in new_paths or moved_along(inode) in after or listed & lost_above(inode):
            continue
        listed.add(inode)
        gone.append(Gone(tree=TREE, path=TREE + b"/" + path, type=EntryType.FILE, names=1))
    return Case(before, after, frozenset(odd[::2]), frozenset(odd[1::2]), renames, gone)


def a_world(case: Case, root: Path) -> MoveWorld:
    world = MoveWorld(root)
    for path, inode in case.before.items():
        if inode.directory:
            world.directory(path)
        elif path not in case.missing:
            world.file(path, inode.content, mtime_ns=MTIME_NS + (path in case.changed))
    for path, inode in case.after.items():
        world.source.add(TREE + b"/" + path, None if inode.directory else inode.content)
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
    old = {inode: path for path, inode in case.before.items()}
    for path, inode in case.after.items():
        if inode not in old:
            continue
        if inode.directory:
            assert names.get(path, b"") is None, path
        elif old[inode] not in case.missing | case.changed:
            assert names.get(path) == inode.content, path
            assert path not in sent
        elif path in {rename.new.removeprefix(TREE + b"/") for rename in case.renames}:
            assert path in sent
    assert {rename.type for rename in moved.to_send} <= {EntryType.FILE}


@pytest.mark.guarantee("moves-killed")
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    makes=st.integers(4, 20),
    steps=st.integers(2, 30),
    faults=st.integers(0, 4),
    torn=st.booleans(),
)
def test_killed_at_every_call_and_carried_out_again(seed: int, makes: int, steps: int, faults: int, torn: bool) -> None:
    case = a_case(seed, makes, steps, faults)
    scratch = Path(tempfile.mkdtemp(prefix="migrator-test-"))
    try:
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
            killed = False
            try:
                world.apply()
            except Killed:
                killed = True
            assert killed
            assert world.contents() == contents
            # A second time, two calls later.
            world.moves.calls, world.moves.left = 0, 2
            try:
                world.apply()
            except Killed:
                killed = True
            world.moves.left = None
            again = world.apply()
            assert_right(case, world, again, contents)
            assert again.to_send == first.to_send
            assert world.names() == names
            world.close()
    finally:
        shutil.rmtree(scratch)
    assert not os.path.exists(scratch)
