"""What a drain left is brought back over a simulated volume: killed at every call, opened, changed, contested."""

import asyncio
import errno
import hashlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from itertools import count

import pytest
from msgspec.structs import replace

from migrator.bricks.recover.model import ASIDE, COPIES, BrickLeftovers, Leftover, RecoverySummary, VolumeName
from migrator.bricks.recover.stage import Recovery
from migrator.core.entry import EntryType
from migrator.gluster.model import Brick
from tests.support.fakes import VirtualClock, inline
from tests.support.kills import Death, Killed, dying
from tests.support.making import made
from tests.support.volumes import brick

BRICK = Brick(name="gl3:/b", host="gl3", path=b"/b", online=True)
_numbers = count(1)


@dataclass
class File:
    """One inode. `on_brick`: its data lies on the drained brick."""

    content: bytes
    on_brick: bool = False
    gfid: bytes = b""
    type: EntryType = EntryType.FILE
    number: int = field(default_factory=lambda: next(_numbers))
    changes: int = 0
    open: bool = False
    finished: bool = True
    link_to: bool = False


def gfid() -> bytes:
    return next(_numbers).to_bytes(16, "big")


@dataclass
class Volume:
    """Names of the volume, and those of the brick, which the volume shows only where it knows them. Both ports."""

    names: dict[bytes, File] = field(default_factory=dict)
    brick: dict[bytes, File] = field(default_factory=dict)
    descriptor: File | None = None
    on_look: Callable[[], None] | None = None
    members: tuple[Brick, ...] = (BRICK,)
    blamed: bytes = b""

    # What lies there.

    def shown(self, content: bytes, *names: bytes, kind: EntryType = EntryType.FILE) -> File:
        """A file of the brick that the volume shows."""
        file = File(content, on_brick=True, gfid=gfid(), type=kind)
        for name in names:
            self.names[name] = self.brick[name] = file
        return file

    def hidden(self, content: bytes, *names: bytes) -> File:
        """One that only the brick has."""
        file = File(content, on_brick=True, gfid=gfid())
        self.brick.update(dict.fromkeys(names, file))
        return file

    def tree(self) -> dict[bytes, bytes]:
        return {name: file.content for name, file in self.names.items()}

    def everything(self) -> set[bytes]:
        """Content that is anywhere."""
        return {file.content for file in (*self.names.values(), *self.brick.values()) if file.finished}

    # The brick's host.

    async def look_at_brick(self, brick: Brick, *, volume_id: str, digests: bool) -> BrickLeftovers:
        await asyncio.sleep(0)
        assert brick in self.members
        assert volume_id == "v"
        if self.on_look is not None:
            self.on_look()
        files = {file.number: file for file in self.brick.values()}
        assert not (digests and brick.arbiter), "it has no content"
        return BrickLeftovers(
            brick=brick.name, found=tuple(self._left(brick, file, digests) for file in files.values())
        )

    def _left(self, brick: Brick, file: File, digests: bool) -> Leftover:
        names = tuple(sorted(name for name, one in self.brick.items() if one is file))
        return made(
            Leftover,
            brick=brick.name,
            names=names,
            type=file.type,
            gfid=file.gfid,
            inode=file.number,
            link_count=len(names),
            size_bytes=0 if brick.arbiter else len(file.content),
            ctime_ns=file.changes,
            target=file.content if file.type is EntryType.SYMLINK else b"",
            open=file.open,
            mode=0o1000 if file.link_to else 0o644,
            link_to=file.link_to,
            digest=hashlib.sha256(file.content).digest() if digests else b"",
            pending=("trusted.afr.v-client-0",) if self.blamed in names else (),
        )

    async def read(self, brick: Brick, leftover: Leftover, take: Callable[[bytes], Awaitable[None]]) -> None:
        assert not brick.arbiter, "it has no content"
        content = self.brick[leftover.names[0]].content
        for piece in (content[:3], content[3:]):
            await take(piece)

    # The mount.

    def look(self, path: bytes) -> VolumeName | None:
        assert path in self.names or self.brick.get(path) is None or self.brick[path].gfid, "a client can hang on that"
        file = self.names.get(path)
        if file is None:
            return None
        size_bytes = len(file.content)
        return VolumeName(type=file.type, gfid=file.gfid, inode=file.number, size_bytes=size_bytes, mode=0o644)

    def digest(self, path: bytes) -> bytes:
        return hashlib.sha256(self.names[path].content).digest()

    def copy_inode(self, leftover: Leftover) -> int | None:
        copy = self.names.get(COPIES + leftover.key)
        return None if copy is None else copy.number

    def begin_copy(self, leftover: Leftover) -> int | None:
        copy = File(leftover.target, gfid=gfid(), type=leftover.type, finished=False)
        self.names[COPIES + leftover.key] = copy
        self.descriptor = copy
        return 7 if leftover.type is EntryType.FILE else None

    def write(self, descriptor: int, piece: bytes, position: int, *, sparse: bool) -> None:
        assert self.descriptor is not None
        assert len(self.descriptor.content) == position
        self.descriptor.content += piece

    def abandon(self, descriptor: int) -> None:
        self.descriptor = None

    def end_copy(self, leftover: Leftover, descriptor: int | None, *, times: tuple[int, int]) -> None:
        self.names[COPIES + leftover.key].finished = True

    def _unlink(self, path: bytes) -> None:
        file = self.names.pop(path)
        if file.on_brick:
            del self.brick[path]
            file.changes += 1

    def _link(self, file: File, path: bytes) -> None:
        if path in self.names:
            raise FileExistsError(path)
        self.names[path] = file
        if file.on_brick:
            self.brick[path] = file
            file.changes += 1

    def set_aside(self, path: bytes) -> None:
        if path not in self.names:
            return
        file = self.names[path]
        if ASIDE + path in self.names:
            assert self.names[ASIDE + path] is file
            self._unlink(ASIDE + path)
        self._unlink(path)
        self._link(file, ASIDE + path)

    def put_back(self, path: bytes) -> None:
        file = self.names.get(ASIDE + path)
        if file is None:
            return
        if self.names.get(path) is not file:
            self._link(file, path)
        self._unlink(ASIDE + path)

    def place(self, leftover: Leftover, path: bytes) -> None:
        copy = self.names[COPIES + leftover.key]
        assert copy.finished
        self._link(copy, path)

    def drop_aside(self, leftover: Leftover, path: bytes) -> None:
        if ASIDE + path in self.names:
            assert self.names[ASIDE + path].gfid == leftover.gfid
            self._unlink(ASIDE + path)

    def drop_copy(self, leftover: Leftover) -> None:
        self.names.pop(COPIES + leftover.key, None)

    def tidy(self, keep: Collection[bytes] | None) -> None:
        for path in [path for path in self.names if path.startswith(COPIES)]:
            if keep is not None and path.removeprefix(COPIES) not in keep:
                del self.names[path]


class OnBrick:
    """The `LeftoverBricks` port of a simulated volume."""

    def __init__(self, volume: Volume) -> None:
        self.look = volume.look_at_brick
        self.read = volume.read


def recovery(volume: Volume, death: Death | None = None, *, in_volume: bool = True) -> Recovery:
    return Recovery(
        bricks=volume.members,
        volume_id="v",
        in_volume=in_volume,
        own_times=True,
        leftovers=OnBrick(volume) if death is None else dying(OnBrick(volume), death),  # type: ignore[arg-type]
        volume=volume if death is None else dying(volume, death),  # type: ignore[arg-type]
        blocking=inline,
        clock=VirtualClock(),
    )


def bring_back(volume: Volume, death: Death | None = None) -> RecoverySummary:
    return asyncio.run(recovery(volume, death).bring_back())


def proven(volume: Volume, *, in_volume: bool = True) -> frozenset[bytes]:
    return asyncio.run(recovery(volume, in_volume=in_volume).proven())[BRICK.name]


def left_volume() -> Volume:
    """A symlink with two names, a file of two that the volume does not show, an empty one, and somebody else's."""
    made = Volume()
    made.shown(b"nowhere", b"home/s1", b"home/s2", kind=EntryType.SYMLINK)
    made.shown(b"content", b"home/a")
    made.hidden(b"raw file", b"home/r1", b"home/r2")
    made.hidden(b"", b"home/empty")
    made.names[b"home/other"] = File(b"somebody's", gfid=gfid())
    return made


@pytest.fixture
def volume() -> Volume:
    return left_volume()


WHOLE = {
    b"home/s1": b"nowhere",
    b"home/s2": b"nowhere",
    b"home/a": b"content",
    b"home/r1": b"raw file",
    b"home/r2": b"raw file",
    b"home/empty": b"",
    b"home/other": b"somebody's",
}
HIDDEN = {b"home/r1", b"home/r2", b"home/empty"}


def assert_whole(volume: Volume) -> None:
    assert volume.tree() == WHOLE
    assert volume.names[b"home/s1"] is volume.names[b"home/s2"]
    assert volume.names[b"home/r1"] is volume.names[b"home/r2"]
    assert not any(file.on_brick for file in volume.names.values())
    assert set(volume.brick) == HIDDEN
    assert proven(volume) == HIDDEN


def test_everything_comes_back_what_stays_is_proven_and_a_second_call_changes_nothing(volume: Volume) -> None:
    assert proven(volume) == frozenset()
    summary = bring_back(volume)
    assert (summary.recovered, summary.names, summary.problems) == (4, 6, ())
    assert_whole(volume)
    before = {name: file.number for name, file in volume.names.items()}
    assert bring_back(volume) == RecoverySummary(recovered=0, names=0, problems=())
    assert {name: file.number for name, file in volume.names.items()} == before


def test_a_kill_at_any_call_loses_nothing_and_the_next_call_goes_on(volume: Volume) -> None:
    contents = set(WHOLE.values())
    for calls in count(1):
        world = left_volume()
        death = Death(left=calls)
        try:
            bring_back(world, death)
        except Killed:
            assert world.everything() >= contents, calls
        if not death.happened:
            break
        assert bring_back(world).problems == ()
        assert_whole(world)
    assert calls > 40


def test_two_kills_one_after_the_other_lose_nothing_either() -> None:
    for first in range(10, 60, 3):
        for second in range(2, 40, 3):
            world = Volume()
            world.shown(b"content", b"home/a", b"home/b")
            for calls in (first, second):
                try:
                    bring_back(world, Death(left=calls))
                except Killed:
                    assert b"content" in world.everything()
            assert bring_back(world).problems == ()
            assert world.tree() == {b"home/a": b"content", b"home/b": b"content"}
            assert world.brick == {}


def test_what_is_open_or_contested_is_left_alone_and_named(volume: Volume) -> None:
    volume.brick[b"home/a"].open = True
    volume.names[b"home/r2"] = theirs = File(b"of the user", gfid=gfid())
    before = volume.names[b"home/a"]
    summary = bring_back(volume)
    assert summary.recovered == 2
    assert [problem.partition(":")[0] for problem in summary.problems] == ["home/a", "home/r1"]
    assert volume.names[b"home/a"] is before
    assert volume.names[b"home/r2"] is theirs
    assert b"home/r1" not in volume.names
    assert proven(volume) == {b"home/empty"}


@pytest.mark.parametrize("what", ["opened", "written"])
@pytest.mark.parametrize("look", [2, 3])
def test_what_is_opened_or_written_meanwhile_gets_its_names_back(what: str, look: int) -> None:
    volume = Volume()
    file = volume.shown(b"content", b"home/a", b"home/b")
    looks = count(1)

    def meddle() -> None:
        if next(looks) == look:
            if what == "opened":
                file.open = True
            else:
                file.content = b"CONTENT"
                file.changes += 1
                file.open = True

    volume.on_look = meddle
    summary = bring_back(volume)
    assert summary.recovered == 0
    assert summary.problems
    assert volume.names == {b"home/a": file, b"home/b": file}


def test_a_name_that_a_user_takes_while_it_is_set_aside_is_his_and_the_original_waits() -> None:
    volume = Volume()
    file = volume.shown(b"content", b"home/a")
    theirs = File(b"new", gfid=gfid())

    def take() -> None:
        if ASIDE + b"home/a" in volume.names:
            volume.names.setdefault(b"home/a", theirs)

    volume.on_look = take
    summary = bring_back(volume)
    (problem,) = summary.problems
    assert ".migrator-recover/aside/home/a" in problem
    assert volume.names[b"home/a"] is theirs
    assert volume.names[ASIDE + b"home/a"] is file
    assert proven(volume) == frozenset()


def test_a_copy_that_the_volume_spoils_gets_no_name() -> None:
    volume = Volume()
    volume.hidden(b"content", b"home/a")
    right = volume.end_copy

    def spoil(leftover: Leftover, descriptor: int | None, *, times: tuple[int, int]) -> None:
        right(leftover, descriptor, times=times)
        volume.names[COPIES + leftover.key].content = b"CONTENT"

    volume.end_copy = spoil  # type: ignore[method-assign]
    summary = bring_back(volume)
    assert summary.recovered == 0
    assert b"home/a" not in volume.names


def test_what_was_put_there_past_gluster_is_named_and_never_asked_for() -> None:
    volume = Volume()
    volume.hidden(b"content", b"home/a").gfid = b""
    summary = bring_back(volume)
    assert (summary.recovered, len(summary.problems)) == (0, 1)
    assert "past Gluster" in summary.problems[0]
    assert set(volume.brick) == {b"home/a"}
    assert proven(volume) == frozenset()


def test_the_leftover_itself_is_no_proof_of_itself() -> None:
    volume = Volume()
    volume.shown(b"content", b"home/a")
    assert proven(volume) == frozenset()
    # Out of the volume, the same gfid is another copy.
    assert proven(volume, in_volume=False) == {b"home/a"}


@pytest.mark.guarantee("drain-recover")
@pytest.mark.parametrize("doubt", ["", "content", "gfid", "open", "meanwhile"])
def test_a_link_to_file_with_content_is_proven_by_the_file_that_was_moved_and_never_copied(doubt: str) -> None:
    volume = Volume()
    left = volume.hidden(b"content", b"home/a")
    left.link_to, left.open = True, doubt == "open"
    moved = File(b"CONTENT" if doubt == "content" else b"content", gfid=b"" if doubt == "gfid" else left.gfid)
    volume.names[b"home/a"] = moved
    if doubt == "meanwhile":
        looks = count(1)
        volume.on_look = lambda: setattr(left, "changes", next(looks))
    assert proven(volume) == (frozenset() if doubt else {b"home/a"})
    summary = bring_back(volume)
    assert (summary.recovered, bool(summary.problems)) == (0, bool(doubt) and doubt != "meanwhile")
    assert (volume.names, volume.brick) == ({b"home/a": moved}, {b"home/a": left})


def test_what_gluster_takes_up_while_it_is_proven_is_not_proven() -> None:
    volume = Volume()
    file = volume.hidden(b"content", b"home/a")
    volume.names[b"home/a"] = File(b"content", gfid=gfid())
    assert proven(volume) == {b"home/a"}
    looks = count(1)

    def heal() -> None:
        if next(looks) == 2:
            file.gfid = volume.names[b"home/a"].gfid
            file.changes += 1

    volume.on_look = heal
    assert proven(volume) == frozenset()


def test_what_clients_remember_of_bricks_that_have_just_left_is_no_proof() -> None:
    volume = Volume()
    volume.shown(b"content", b"home/a")
    call = recovery(volume, in_volume=False)
    clock = call.clock
    assert isinstance(clock, VirtualClock)
    right = volume.look

    def remembered(path: bytes) -> VolumeName | None:
        # The brick is gone: its names are known only until entry-timeout is over.
        return right(path) if clock.monotonic_s() < began_s + 1.0 else None

    began_s = clock.monotonic_s()
    volume.look = remembered  # type: ignore[method-assign]
    assert asyncio.run(call.proven())[BRICK.name] == frozenset()


@pytest.mark.parametrize("gone", [False, True])
def test_what_was_set_aside_comes_back_where_its_copy_cannot_get_the_name(gone: bool) -> None:
    volume = Volume()
    file = volume.shown(b"content", b"home/a", b"home/b")

    def fail(leftover: Leftover, path: bytes) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    def lost(path: bytes) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    volume.place = fail  # type: ignore[method-assign]
    if gone:
        volume.put_back = lost  # type: ignore[method-assign]
    (problem,) = bring_back(volume).problems
    if gone:
        assert ".migrator-recover/aside/home/a" in problem
        assert volume.names[ASIDE + b"home/a"] is file
    else:
        assert "quota" in problem
        assert volume.names == {b"home/a": file, b"home/b": file}


class OldCopy(Volume):
    """A set whose bricks tell another content than the volume."""

    OLD = b"CONTENT"

    async def look_at_brick(self, brick: Brick, *, volume_id: str, digests: bool) -> BrickLeftovers:
        found = await super().look_at_brick(brick, volume_id=volume_id, digests=digests)
        old = hashlib.sha256(self.OLD).digest() if digests else b""
        return replace(found, found=tuple(replace(one, digest=old) for one in found.found))

    async def read(self, brick: Brick, leftover: Leftover, take: Callable[[bytes], Awaitable[None]]) -> None:
        await take(self.OLD)


def test_an_old_copy_of_a_set_replaces_nothing() -> None:
    volume = OldCopy()
    file = volume.shown(b"content", b"home/a", b"home/b")
    volume.members = (BRICK, brick("gl2:/b"))
    summary = bring_back(volume)
    assert summary.recovered == 0
    assert "another content" in summary.problems[0]
    assert volume.names == {b"home/a": file, b"home/b": file}
    assert file.content == b"content"


def test_a_leftover_of_a_replica_set_is_brought_back_once(volume: Volume) -> None:
    volume.members = (BRICK, brick("gl2:/b"), brick("gl1:/b", arbiter=True))
    summary = bring_back(volume)
    assert (summary.recovered, summary.names, summary.problems) == (4, 6, ())
    assert volume.tree() == WHOLE
    # The copies of what the volume never showed stay on all of them, proven.
    found = asyncio.run(recovery(volume).proven())
    assert set(found) == {member.name for member in volume.members}
    assert set(map(frozenset, found.values())) == {frozenset(HIDDEN)}


def test_a_fifo_is_named_and_left_on_the_brick() -> None:
    volume = Volume()
    volume.shown(b"", b"home/fifo", kind=EntryType.FIFO)
    (problem,) = bring_back(volume).problems
    assert "neither a file nor a symlink" in problem
    assert proven(volume) == frozenset()
