"""Shields: ACLs that keep a moved file from getting the default ACL of its directory.

GlusterFS 10.3 gives that to every file without an ACL that a drain or rebalance moves; files with an ACL keep theirs. A
shield grants what the mode of the file grants, and has a mask, so that file systems store it.
"""

import asyncio
import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from migrator.core.durable import sync
from migrator.core.entry import ACL_ACCESS
from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.core.tasks import Blocking
from migrator.core.units import several
from migrator.fs import acl
from migrator.fs.beneath import Root, held
from migrator.gluster.looks import ask_brick
from migrator.gluster.model import Brick, VolumeState
from migrator.gluster.rules import subvolumes
from migrator.hosts.ports import Hosts

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_TIMEOUT_S = 24 * 3600.0
_EXAMPLES = 3


def shield(mode: int) -> bytes:
    """The ACL of a file with this mode: it grants what the mode grants, now and after a `chmod` of owner or others."""
    owner, group, other = mode >> 6 & 7, mode >> 3 & 7, mode & 7
    granted = ((acl.USER_OBJ, owner), (acl.GROUP_OBJ, group), (acl.MASK, group), (acl.OTHER, other))
    return acl.build_acl(tuple(acl.AclEntry(tag=tag, id=0, permissions=bits) for tag, bits in granted))


def is_shield(value: bytes) -> bool:
    """Whether the ACL grants no more than a mode could, and has a mask."""
    entries = acl.parse_acl(value)
    return entries is not None and acl.is_minimal(entries) and any(entry.tag == acl.MASK for entry in entries)


class Shields(Struct, frozen=True, kw_only=True):
    """Shields through the mount at `root`. `directory` lists the files that may have one, a list per brick that was
    walked, each line a path in JSON: a list is on disk before its first shield is set.
    """

    hosts: Hosts
    root: bytes
    directory: Path
    blocking: Blocking

    @property
    def on(self) -> bool:
        """Whether files may have shields."""
        return bool(self._lists())

    async def put_on(self, state: VolumeState) -> int:
        """Shield all files that a move would open to others; returns their number. Reads every directory of one brick
        of each set: a drain moves files of other bricks too. May be called again. Raises ToolFailed if a brick cannot be
        read or a file not be shielded, HostLost and UsageError.
        """
        self.directory.mkdir(mode=0o700, exist_ok=True)
        first = [min(bricks, key=lambda brick: (brick.arbiter, not brick.online)) for bricks in subvolumes(state)]
        await asyncio.gather(*(self._list(brick, state.volume_id) for brick in first))
        if next(self._paths(), None) is None:
            self._unlink()
        return await self.blocking(lambda: self._each(_put_on), timeout_s=_TIMEOUT_S)

    async def take_off(self) -> int:
        """Remove all shields that are listed, unless their ACL was changed meanwhile; returns their number. May be
        called again. Raises ToolFailed.
        """
        if not self.on:
            return 0
        taken = await self.blocking(lambda: self._each(_take_off), timeout_s=_TIMEOUT_S)
        self._unlink()
        return taken

    def _unlink(self) -> None:
        for file in self._lists():
            file.unlink()

    async def _list(self, brick: Brick, volume_id: str) -> None:
        file = self.directory / brick.name.replace("/", "_")
        with file.open("ab") as opened:
            # A list of a killed call may end within a line.
            opened.write(b"\n")

            def take(piece: bytes) -> None:
                opened.write(piece)

            said = await ask_brick(self.hosts, brick, ("far_bare",), {}, volume_id=volume_id, take=take)
        sync(file)
        sync(self.directory)
        if said is not None:
            raise ToolFailed(f"which files of {brick.name} a move would open to others cannot be seen: {said}")

    def _lists(self) -> list[Path]:
        return sorted(self.directory.iterdir()) if self.directory.exists() else []

    def _paths(self) -> Iterator[bytes]:
        for file in self._lists():
            with file.open("rb") as lines:
                for line in lines:
                    with suppress(ValueError):  # cut off, or empty
                        yield json.loads(line).encode("latin-1")

    def _each(self, change: Callable[[bytes, int], bool]) -> int:
        changed, failed = 0, list[str]()
        with Root(self.root) as root:
            for path in self._paths():
                try:
                    # By descriptor: the name may be another file's in the next moment.
                    with held(root.open(path, os.O_PATH)) as fd:
                        mode = os.fstat(fd).st_mode
                        changed += not stat.S_ISLNK(mode) and change(b"/proc/self/fd/%d" % fd, mode)
                except OSError as error:
                    if error.errno not in _GONE:
                        failed.append(f"{show(path)}: {os.strerror(error.errno or 0)}")
        if failed:
            raise ToolFailed(
                f"the ACLs of {several(len(failed), 'file')} cannot be changed: {'; '.join(failed[:_EXAMPLES])}",
                cause="GlusterFS gives them the default ACL of their directory when it moves them (docs/bricks.md, Default ACLs)",
                hint="see that these files can be read and the source is mounted with ACLs, then run the same command again",
            )
        return changed


def _access(place: bytes) -> bytes:
    try:
        return os.getxattr(place, ACL_ACCESS)
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return b""


def _put_on(place: bytes, mode: int) -> bool:
    if _access(place):
        return False
    os.setxattr(place, ACL_ACCESS, shield(mode))
    return True


def _take_off(place: bytes, _: int) -> bool:
    if not is_shield(_access(place)):
        return False
    os.removexattr(place, ACL_ACCESS)
    return True
