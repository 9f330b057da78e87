"""Both sides of one frozen user tree, as a rollback reads and writes them."""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from migrator.adapters.filesystems.posix import PosixSource
from migrator.adapters.filesystems.target import MountedTarget
from migrator.decide.compare import CLOSED_MODE
from migrator.domain.brick import SourceHealth
from migrator.domain.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.domain.freezing import FROZEN_PERMISSIONS, FROZEN_UID, PERMISSION_BITS
from migrator.domain.paths import is_beneath, join
from migrator.domain.site import TargetCapabilities
from migrator.ports.filesystem import Block

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class Healthy(Protocol):
    """What tells whether a side shows everything."""

    async def health(self) -> SourceHealth:
        """As a source says it."""


class _Side(MountedTarget):
    """A mounted side of one tree, which does not show what lies under the path `hidden`."""

    def __init__(
        self, root: bytes, capabilities: TargetCapabilities | None = None, *, tree: bytes, hidden: bytes
    ) -> None:
        super().__init__(root, capabilities)
        self._tree = tree
        self._hidden = join(tree, hidden)

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """The entries of a directory, as the port says, but for what is hidden."""
        if is_beneath(path, self._hidden):
            return
        for block in super().read_directory(path, block_entries=block_entries):
            if path != self._tree:
                yield block
                continue
            yield replace(
                block,
                entries=tuple(entry for entry in block.entries if entry.path != self._hidden),
                problems=tuple(one for one in block.problems if not is_beneath(one.path, self._hidden)),
            )

    def look(self, path: bytes) -> Entry | None:
        """One entry, as the port says; None for what is hidden."""
        return None if is_beneath(path, self._hidden) else super().look(path)

    def top(self) -> Entry:
        """The tree's own directory as it really is. Raises OSError, also where there is none."""
        seen = MountedTarget.look(self, self._tree)
        if seen is None or seen.type is not EntryType.DIRECTORY:
            raise OSError(errno.ENOTDIR if seen else errno.ENOENT, "no user tree is here", self._tree)
        return seen

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """None: nobody asks here."""
        return ()


class TargetSide(_Side):
    """The target: what is carried back is read here. It is a source (`SourceFileSystem`) and a side to be verified.

    A frozen top counts as closed: `look` shows it so. It is healthy where it is mounted and `other`, the side that is
    written to, has no problem: with a brick down, what is written there may go astray. `other` may be any volume by now,
    with other bricks than at the switch, so its fingerprint says nothing here.
    """

    def __init__(
        self,
        root: bytes,
        capabilities: TargetCapabilities | None = None,
        *,
        tree: bytes,
        hidden: bytes,
        other: Healthy,
    ) -> None:
        super().__init__(root, capabilities, tree=tree, hidden=hidden)
        self._other = other

    def look(self, path: bytes) -> Entry | None:
        """One entry, the top as said above."""
        seen = super().look(path)
        return _as_closed(seen) if seen is not None and path == self._tree else seen

    async def health(self) -> SourceHealth:
        """Of both sides, as said above."""
        own, other = await PosixSource(self.root).health(), await self._other.health()
        return SourceHealth(problems=(*own.problems, *other.problems), fingerprint=own.fingerprint)


class SourceSide(_Side):
    """The source: what is carried back is written here. It is a target (`TargetFileSystem`) and a side to be verified.

    The top stays as the freeze has left it: nothing opens or closes it here.
    """

    def __init__(
        self,
        root: bytes,
        capabilities: TargetCapabilities | None = None,
        *,
        tree: bytes,
        hidden: bytes,
        real: Healthy,
    ) -> None:
        super().__init__(root, capabilities, tree=tree, hidden=hidden)
        self._real = real

    async def health(self) -> SourceHealth:
        """Of the source itself."""
        return await self._real.health()

    def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:  # noqa: ARG002 - nothing is made
        """Make nothing: the tree has to be there. Raises OSError."""
        if tree != self._tree:
            raise OSError(errno.EINVAL, "another user tree than the one that is carried back", tree)
        self.top()

    def flush(self, paths: Sequence[bytes]) -> None:
        """Sync these files and directories, each by itself: a mount of FUSE lets no syncfs(2) through to its servers. What is
        not there any more, or is no file or directory, is left out. Raises OSError.
        """
        for path in paths:
            try:
                fd = self.beneath.open(path, os.O_PATH)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
                continue
            try:
                kind = stat.S_IFMT(os.fstat(fd).st_mode)
            finally:
                os.close(fd)
            # A device is not opened: that may do something.
            if kind in (stat.S_IFREG, stat.S_IFDIR):
                self._flush_one(path)

    def _flush_one(self, path: bytes) -> None:
        fd = self.beneath.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _as_closed(top: Entry) -> Entry:
    """A frozen top as a closed one is; any other as it is."""
    frozen = (
        top.type is EntryType.DIRECTORY
        and top.uid == FROZEN_UID
        and top.mode & PERMISSION_BITS == FROZEN_PERMISSIONS
        and not {ACL_ACCESS, ACL_DEFAULT} & top.xattrs.keys()
    )
    return replace(top, uid=os.geteuid(), gid=os.getegid(), mode=CLOSED_MODE) if frozen else top
