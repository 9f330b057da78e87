"""Closing the tops of user trees on the source, and opening them again, by descriptor through the source's mount."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from migrator.adapters.filesystems.beneath import Root
from migrator.decide.freezing import frozen_form, judge_top
from migrator.domain.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.domain.freezing import FrozenTop, TopLook, TopState
from migrator.domain.paths import show
from migrator.ports.freezing import TopChanged

_GFID = b"glusterfs.gfid"
"""Gluster's FUSE mount gives it by this name (GlusterFS 10.3); `trusted.gfid` is hidden there."""
_ABSENT = (errno.ENODATA, errno.EOPNOTSUPP)


class MountedTops:
    """The `Freezer` port over a mounted directory. Thread-safe; holds nothing open between calls."""

    def __init__(self, root: bytes) -> None:
        self._path = os.path.abspath(root)

    def read_top(self, tree: bytes) -> FrozenTop:
        """What the top is now."""
        with self._top(tree) as fd:
            return _read(fd, tree)

    def look(self, tree: bytes, top: FrozenTop) -> TopLook:
        """What the top is, against what was kept."""
        return judge_top(top, self.read_top(tree))

    def freeze(self, tree: bytes, top: FrozenTop) -> None:
        """Close the top. The order is that of `decide.freezing`, which knows every state that a crash can leave."""
        with self._top(tree) as fd:
            _check(fd, tree, top)
            # First the mode: with an ACL it sets the mask, so that named users and groups are out at once, too.
            os.fchmod(fd, top.frozen_mode)
            os.fchown(fd, frozen_form(top).uid, -1)
            _remove(fd, ACL_DEFAULT)
            _remove(fd, ACL_ACCESS)
            os.fsync(fd)
            _confirm(fd, tree, frozen_form(top), "closed")

    def thaw(self, tree: bytes, top: FrozenTop) -> None:
        """Put back what was there before."""
        with self._top(tree) as fd:
            _check(fd, tree, top)
            _put(fd, ACL_DEFAULT, top.acl_default)
            # The access ACL sets the mode's permissions as well. The mode comes after it, for the bits that this may clear.
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
    """Raises TopChanged where this is not the top that was written down, in one of the states that are ours."""
    look = judge_top(top, _read(fd, tree))
    if look.state is TopState.CHANGED:
        raise TopChanged(
            f"the top of {show(tree)} is not as it was left, and stays as it is: {'; '.join(look.differences)}",
            cause="somebody changed it meanwhile, or put another directory in its place",
            hint="look at it on the source; give it the owner, mode and ACLs that it should have, and run the command again",
        )


def _confirm(fd: int, tree: bytes, wanted: FrozenTop, what: str) -> None:
    now = _read(fd, tree)
    if now != wanted:
        differences = "; ".join(judge_top(wanted, now).differences) or "not every change was taken"
        raise TopChanged(
            f"the top of {show(tree)} could not be {what}: {differences}",
            cause="somebody changes it just now, or the source's file system does not keep modes and ACLs",
            hint="look at it on the source, then run the command again",
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
