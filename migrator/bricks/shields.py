"""Shields: ACLs that keep a moved file from getting the default ACL of its directory.

GlusterFS 10.3 gives that to every file without an ACL that a drain or rebalance moves; files with an ACL keep theirs. A
shield grants what the mode of the file grants, and has a mask, so that file systems store it.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

from msgspec import DecodeError, Struct, json

from migrator.core.durable import sync, write_durably
from migrator.core.entry import ACL_ACCESS
from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.core.tasks import Blocking
from migrator.core.units import several
from migrator.fs import acl
from migrator.fs.beneath import Root, held
from migrator.fs.reading import INO_MASK
from migrator.gluster.model import Brick, VolumeState
from migrator.gluster.reports import BrickReports, files_without_acl, names_of
from migrator.gluster.rules import subvolumes
from migrator.gluster.walks import WalkFinding

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
_TIMEOUT_S = 24 * 3600.0
_EXAMPLES = 3
_ROUNDS = 3
"""How often files are looked for whose names change meanwhile."""
_LEFT = "left"


def shield(mode: int) -> bytes:
    """The ACL of a file with this mode: it grants what the mode grants, now and after a `chmod` of owner or others."""
    owner, group, other = mode >> 6 & 7, mode >> 3 & 7, mode & 7
    granted = ((acl.USER_OBJ, owner), (acl.GROUP_OBJ, group), (acl.MASK, group), (acl.OTHER, other))
    return acl.build_acl(tuple(acl.AclEntry(tag=tag, id=0, permissions=bits) for tag, bits in granted))


def is_shield(value: bytes) -> bool:
    """True if the ACL grants no more than a mode could, and has a mask."""
    entries = acl.parse_acl(value)
    return entries is not None and acl.is_minimal(entries) and any(entry.tag == acl.MASK for entry in entries)


def inode_of(gfid: bytes) -> int:
    """The inode number of a file in a mount of its volume."""
    return int.from_bytes(gfid[8:], "big")


class Listed(Struct, frozen=True, array_like=True):
    """A file that may have a shield: its path (latin-1) when it was listed, and its gfid in hex. Users rename files and the
    directories above; the gfid stays.
    """

    path: str
    gfid: str

    @classmethod
    def at(cls, path: bytes, gfid: bytes) -> "Listed":
        return cls(path.decode("latin-1"), gfid.hex())


class AclChange(Protocol):
    """Changes the ACL of a file with this mode through an open descriptor's path; returns whether it did."""

    def __call__(self, place: bytes, mode: int, /) -> bool: ...


class Shields(Struct, frozen=True, kw_only=True):
    """Shields through the mount at `root`. `directory` lists the files that may have one, a list per brick that was
    walked, and one of those that were not reached to remove it; each line is a `Listed` in JSON. A list is on disk before
    its first shield is set. `inode_of` returns the inode number of a gfid in the mount.
    """

    reports: BrickReports
    root: bytes
    directory: Path
    blocking: Blocking
    inode_of: Callable[[bytes], int] = inode_of

    @property
    def on(self) -> bool:
        """True if files may have shields."""
        return bool(self._lists())

    async def put_on(self, state: VolumeState) -> int:
        """Shield all files that a move would open to others; returns their number. Reads every directory of one brick
        of each set: a drain moves files of other bricks too. May be called again. Raises ToolFailed if a brick cannot be
        read or a file not be shielded, HostLost and UsageError.
        """
        self.directory.mkdir(mode=0o700, exist_ok=True)
        await asyncio.gather(*(self._list(brick, state.volume_id) for brick in _walked(state)))
        if next(self._listed(), None) is None:
            self._unlink()
        changed, _ = await self._change(_put_on, state)
        return changed

    async def take_off(self, state: VolumeState) -> int:
        """Remove all shields that are listed, unless their ACL was changed meanwhile; returns their number. Files that were
        renamed are found by their gfids. Those that were not reached all the same stay listed, and are named. May be called
        again. Raises ToolFailed, HostLost, UsageError.
        """
        if not self.on:
            return 0
        taken, left = await self._change(_take_off, state)
        if not left:
            self._unlink()
            return taken
        write_durably(self.directory / _LEFT, b"".join(json.encode(one) + b"\n" for one in left))
        self._unlink(but=_LEFT)
        raise ToolFailed(
            f"{several(len(left), 'file')} could not be reached: {'; '.join(shown(left))}",
            cause="their names changed during the search",
            hint="run the same command again; until then no scan is whole",
        )

    def _unlink(self, but: str = "") -> None:
        for file in self._lists():
            if file.name != but:
                file.unlink()

    async def _change(self, change: AclChange, state: VolumeState) -> tuple[int, list[Listed]]:
        """Change each listed file once; returns the number of changes, and the files that have a name and were not reached.
        Raises as `put_on`.
        """
        changed, missed = await self.blocking(lambda: self._each(self._listed(), change), timeout_s=_TIMEOUT_S)
        for _ in range(_ROUNDS):
            if not missed:
                break
            named = await self._renamed(missed, state)
            more, missed = await self.blocking(partial(self._each, named, change), timeout_s=_TIMEOUT_S)
            changed += more
        return changed, missed

    async def _renamed(self, missed: Sequence[Listed], state: VolumeState) -> list[Listed]:
        """Those that a brick has, with the names that they have now."""
        gfids = sorted({bytes.fromhex(one.gfid) for one in missed})
        found = {one.gfid: one for one in missed}
        there = dict[str, Listed]()

        async def ask(brick: Brick) -> None:
            for gfid, path in (await names_of(self.reports, brick, state.volume_id, gfids)).items():
                if path is not None:
                    there[gfid.hex()] = Listed.at(path, gfid)
                else:
                    there.setdefault(gfid.hex(), found[gfid.hex()])

        await asyncio.gather(*map(ask, _walked(state)))
        return list(there.values())

    async def _list(self, brick: Brick, volume_id: str) -> None:
        file = self.directory / brick.name.replace("/", "_")
        with file.open("ab") as opened:
            # A list of a killed call may end within a line.
            opened.write(b"\n")

            def take(found: Sequence[WalkFinding]) -> None:
                opened.writelines(json.encode(Listed.at(one.path, one.value)) + b"\n" for one in found)

            await files_without_acl(self.reports, brick, volume_id, take)
        sync(file)
        sync(self.directory)

    def _lists(self) -> list[Path]:
        return sorted(self.directory.iterdir()) if self.directory.exists() else []

    def _listed(self) -> Iterator[Listed]:
        return (one for file in self._lists() for one in _read(file))

    def _each(self, listed: Iterable[Listed], change: AclChange) -> tuple[int, list[Listed]]:
        """Change each of these files that has its name still; returns the number of changes, and the other files."""
        changed, missed, failed = 0, list[Listed](), list[str]()
        with Root(self.root) as root:
            for one in listed:
                path = one.path.encode("latin-1")
                try:
                    # By descriptor: the name may be another file's in the next moment.
                    with held(root.open(path, os.O_PATH)) as fd:
                        facts = os.fstat(fd)
                        if facts.st_ino & INO_MASK != self.inode_of(bytes.fromhex(one.gfid)):
                            missed.append(one)
                        else:
                            changed += change(b"/proc/self/fd/%d" % fd, facts.st_mode)
                except OSError as error:
                    if error.errno in _GONE:
                        missed.append(one)
                    else:
                        failed.append(f"{show(path)}: {os.strerror(error.errno or 0)}")
        if failed:
            raise ToolFailed(
                f"the ACLs of {several(len(failed), 'file')} cannot be changed: {'; '.join(failed[:_EXAMPLES])}",
                cause="GlusterFS gives them the default ACL of their directory when it moves them (docs/bricks.md, Default ACLs)",
                hint="make these files readable and mount the source with ACLs, then run the same command again",
            )
        return changed, missed


def _walked(state: VolumeState) -> list[Brick]:
    """A brick of each set."""
    return [min(bricks, key=lambda brick: (brick.arbiter, not brick.online)) for bricks in subvolumes(state)]


def _read(file: Path) -> Iterator[Listed]:
    with file.open("rb") as lines:
        for line in lines:
            with suppress(DecodeError):  # cut off, or empty
                yield json.decode(line, type=Listed)


def shielded_files(directory: Path) -> list[str] | None:
    """The first files that may have shields, for people; None if no file has. Raises OSError."""
    lists = sorted(directory.iterdir()) if directory.exists() else []
    return shown(one for file in lists for one in _read(file)) if lists else None


def shown(listed: Iterable[Listed]) -> list[str]:
    """The first of these files, for people."""
    return [f"{show(one.path.encode('latin-1'))} (gfid {one.gfid})" for one in islice(listed, _EXAMPLES)]


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
