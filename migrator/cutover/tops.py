"""The tops of user trees on the source, closed and opened by descriptor."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.core.errors import Refused
from migrator.core.paths import show
from migrator.cutover.model_snapshot import TopState
from migrator.cutover.rules_tops import FrozenTop, TopComparison, frozen_form, judge_top
from migrator.fs.beneath import Root

_GFID = b"glusterfs.gfid"
"""The name on Gluster's FUSE mount (GlusterFS 10.3); `trusted.gfid` is hidden there."""
_ABSENT = (errno.ENODATA, errno.EOPNOTSUPP)


class TopChanged(Refused):
    """The top of a tree is neither as recorded nor as a freeze leaves it: nothing was changed."""


class MountedTops:
    """The tops of user trees on the source, through its mount. Tree paths are relative to its root; symlinks are never followed.

    Blocking and thread-safe; holds nothing open between calls. All methods raise OSError: ENOENT if the tree is gone, ENOTDIR
    or ELOOP if something else has its name.
    """

    def __init__(self, root: bytes) -> None:
        self._path = os.path.abspath(root)

    def read_top(self, tree: bytes) -> FrozenTop:
        """The current top, to be recorded before `freeze`. Call it only for a tree that is not frozen."""
        with self._top(tree) as fd:
            return _read(fd, tree)

    def compare(self, tree: bytes, top: FrozenTop) -> TopComparison:
        """Compare the top with the recorded one. Changes nothing."""
        return judge_top(top, self.read_top(tree))

    def freeze(self, tree: bytes, top: FrozenTop) -> None:
        """Close the top to everybody but root. Nobody can enter by path any more, but processes inside stay inside.

        May be called again, also after a crash in the middle. `judge_top` knows each state that a crash can leave, so
        it depends on the order of these calls. Raises TopChanged.
        """
        with self._top(tree) as fd:
            _check(fd, tree, top)
            # The mode comes first: with an ACL it sets the mask, which excludes named users and groups at once too.
            os.fchmod(fd, top.frozen_mode)
            os.fchown(fd, frozen_form(top).uid, -1)
            _remove(fd, ACL_DEFAULT)
            _remove(fd, ACL_ACCESS)
            os.fsync(fd)
            _confirm(fd, tree, frozen_form(top), "closed")

    def thaw(self, tree: bytes, top: FrozenTop) -> None:
        """Restore owner, group, mode and both ACLs. May be called again, also after a crash in it or in `freeze`. Raises
        TopChanged.
        """
        with self._top(tree) as fd:
            _check(fd, tree, top)
            _put(fd, ACL_DEFAULT, top.acl_default)
            # The access ACL sets the permissions in the mode too. The mode comes after it, to restore bits that the ACL
            # may clear.
            _put(fd, ACL_ACCESS, top.acl_access)
            os.fchmod(fd, top.mode)
            os.fchown(fd, top.uid, -1)
            os.fsync(fd)
            _confirm(fd, tree, top, "put back as it was")

    @contextmanager
    def _top(self, tree: bytes) -> Iterator[int]:
        if not tree:
            raise OSError(errno.EINVAL, "the root of the source is no user tree", tree)
        with Root(self._path) as root, root.directory(tree) as fd:
            yield fd


def _read(fd: int, tree: bytes) -> FrozenTop:
    facts = os.fstat(fd)
    return FrozenTop(
        tree=tree,
        ino=facts.st_ino,
        gfid=_attribute(fd, _GFID),
        uid=facts.st_uid,
        gid=facts.st_gid,
        mode=stat.S_IMODE(facts.st_mode),
        acl_access=_attribute(fd, ACL_ACCESS),
        acl_default=_attribute(fd, ACL_DEFAULT),
    )


def _check(fd: int, tree: bytes, top: FrozenTop) -> None:
    """Raise TopChanged if the top is not the recorded one, or is in a state that this program cannot have left."""
    found = judge_top(top, _read(fd, tree))
    if found.state is TopState.OTHER:
        raise TopChanged(
            f"the top of {show(tree)} has changed since, and is left unchanged: {'; '.join(found.differences)}",
            cause="another program or person changed it, or replaced it by another directory",
            hint="check it on the source; give it the owner, mode and ACLs that it should have, and run the command again",
        )


def _confirm(fd: int, tree: bytes, wanted: FrozenTop, what: str) -> None:
    now = _read(fd, tree)
    if now != wanted:
        differences = "; ".join(judge_top(wanted, now).differences) or "not every change was taken"
        raise TopChanged(
            f"the top of {show(tree)} could not be {what}: {differences}",
            cause="another program changes it now, or the file system of the source does not keep modes and ACLs",
            hint="check it on the source, then run the command again",
        )


def _attribute(fd: int, name: bytes) -> bytes | None:
    try:
        return os.getxattr(fd, name)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return None


def _remove(fd: int, name: bytes) -> None:
    try:
        os.removexattr(fd, name)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise


def _put(fd: int, name: bytes, value: bytes | None) -> None:
    if value is None:
        _remove(fd, name)
    elif _attribute(fd, name) != value:
        os.setxattr(fd, name, value)
