"""A simulated volume with a drained brick, whose leftovers are brought back: the ports of a recovery over names in memory."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from itertools import count

from migrator.bricks.recover.model import ASIDE, COPIES, BrickLeftovers, Leftover, RecoverySummary, VolumeName
from migrator.bricks.recover.stage import Recovery
from migrator.core.entry import EntryType
from migrator.gluster.model import Brick
from tests.support.fakes import VirtualClock, inline
from tests.support.kills import Death, dying
from tests.support.making import made

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
