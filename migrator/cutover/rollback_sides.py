"""The sides of one frozen user tree for a rollback, which reads the target and writes to the source."""

import errno
import os
import stat
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.core.paths import is_beneath
from migrator.cutover.rules_tops import FROZEN_PERMISSIONS, PERMISSION_BITS
from migrator.fs.model import RewrittenLinks, SourceHealth, TargetCapabilities
from migrator.fs.ports import Block, FileSystemTool, SourceFileSystem, WalkedRoot
from migrator.fs.reading import PosixSource
from migrator.fs.rules import CLOSED_MODE
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap
from migrator.fs.writing import MountedTarget
from migrator.plan.rules import FROZEN_UID
from migrator.reap.model import archive_directory

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class _TreeSide(MountedTarget):
    """A mounted side of one tree, without its archives. `source` reports the health of the
    migration's source.
    """

    def __init__(
        self,
        root: bytes,
        capabilities: TargetCapabilities | None = None,
        *,
        tree: bytes,
        name_seed: int,
        source: SourceFileSystem,
        tool: FileSystemTool | None = None,
        owners: OwnerMap = SAME_OWNERS,
        links: RewrittenLinks | None = None,
    ) -> None:
        super().__init__(root, capabilities, tool, owners=owners, links=links)
        self._tree = tree
        self._hidden = archive_directory(tree, name_seed)
        self._real_source = source

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """The entries of a directory, without what is hidden."""
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

    def walked(self) -> WalkedRoot:
        """As the port."""
        return replace(super().walked(), hidden=(self._hidden,))

    def look(self, path: bytes) -> Entry | None:
        """One entry; None if it is hidden."""
        return None if is_beneath(path, self._hidden) else super().look(path)

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """No quotas: carrying back does not check them."""
        return ()


class TargetAsSource(_TreeSide):
    """The target, from which changes are carried back: a source (`SourceFileSystem`) that can also be verified.

    `look` shows a frozen top as a closed one. The target is healthy if it is mounted and the source has no problem:
    writes to the source may be lost while a brick is down. The source may have other bricks than at the switch, so its
    fingerprint does not count.
    """

    def look(self, path: bytes) -> Entry | None:
        """One entry; a frozen top is shown as a closed one."""
        seen = super().look(path)
        return _as_closed(seen) if seen is not None and path == self._tree else seen

    async def health(self) -> SourceHealth:
        """The health of both sides."""
        own, other = await PosixSource(self.root, self._tool).health(), await self._real_source.health()
        return SourceHealth(
            problems=(*own.problems, *other.problems),
            doubts=(*own.doubts, *other.doubts),
            fingerprint=own.fingerprint,
        )


class SourceAsTarget(_TreeSide):
    """The source, to which changes are carried back: a target (`TargetFileSystem`) that can also be verified.

    The top stays frozen: nothing opens or closes it here.
    """

    async def health(self) -> SourceHealth:
        """The health of the source alone."""
        return await self._real_source.health()

    def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:  # noqa: ARG002 - nothing is made
        """Make nothing: the tree has to exist. Raises OSError."""
        if tree != self._tree:
            raise OSError(errno.EINVAL, "another user tree than the one that is carried back", tree)
        if (top := self.look(tree)) is None or top.type is not EntryType.DIRECTORY:
            raise OSError(errno.ENOTDIR if top else errno.ENOENT, "no user tree is here", tree)

    def flush(self, paths: Sequence[bytes]) -> None:
        """Sync these files and directories one by one: a FUSE mount does not pass syncfs(2) to its servers. Skips paths
        that are gone, or are neither file nor directory. Raises OSError.
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
            # A device is not opened: opening it may have effects.
            if kind not in (stat.S_IFREG, stat.S_IFDIR):
                continue
            fd = self.beneath.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _as_closed(top: Entry) -> Entry:
    """A frozen top in the form of a closed one; any other entry unchanged."""
    frozen = (
        top.type is EntryType.DIRECTORY
        and top.uid == FROZEN_UID
        and top.mode & PERMISSION_BITS == FROZEN_PERMISSIONS
        and not {ACL_ACCESS, ACL_DEFAULT} & top.xattrs.keys()
    )
    return replace(top, uid=os.geteuid(), gid=os.getegid(), mode=CLOSED_MODE) if frozen else top
