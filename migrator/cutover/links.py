"""Links of users as symlinks of this machine, read and exchanged by descriptor.

The new link is made under a temporary name beside the old one; `renameat2(2)` with RENAME_EXCHANGE then exchanges the
two. If the link that comes back is not the one that was checked, another program replaced it in between, and the
exchange is undone. Some file systems do not support the flag (NFS, some FUSE mounts). On those the link is checked once
more and then replaced by a plain rename; only another root process could replace it in between.
"""

import ctypes
import errno
import hashlib
import os
import stat
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.entry import EntryType, UserTree
from migrator.core.errors import Refused
from migrator.core.paths import is_beneath, join, show
from migrator.cutover.model_snapshot import LinkState
from migrator.fs.beneath import TracedPath, read_mounts, walk
from migrator.fs.model import mount_of
from migrator.fs.rules import TEMPORARY_PREFIX
from migrator.site.config import Site
from migrator.site.model import LinkPlace, LinkProblem, LinkReading
from migrator.site.rules_links import leads_elsewhere, link_path, link_problem, naming_problem, way_problem

_RENAME_EXCHANGE = 2
_NOT_KNOWN = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


Exchange = Callable[[int, bytes, bytes], bool]


class _Link(Struct, frozen=True, kw_only=True):
    """A symlink: its inode, text and owner."""

    inode: tuple[int, int]
    text: bytes
    uid: int
    gid: int


def real_place(place: LinkPlace) -> LinkPlace:
    """The place with the real paths of both roots. Blocking: a mount may not answer."""
    roots = {name: os.path.realpath(getattr(place, name)) for name in ("source_root", "target_root")}
    return replace(place, **roots)


def exchange_names(fd: int, one: bytes, other: bytes) -> bool:
    """Exchange two names of a directory; False if the file system does not support that. Raises OSError."""
    if _libc.renameat2(fd, one, fd, other, _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_KNOWN:
        return False
    raise OSError(code, os.strerror(code), other)


class SymlinkedPaths:
    """The users' links, which lead to trees below the roots of `place`. Blocking: a link may lead to a mount that does
    not answer. Thread-safe for different users; the cutover's lock prevents two calls for one user.

    Trusts root, and every directory above a link that only root can write. Follows a symlink above the link only if
    root owns it; refuses anything else there before it reads the link.
    """

    def __init__(self, place: LinkPlace, *, exchange: Exchange = exchange_names) -> None:
        self.place = place
        self._exchange = exchange

    def side_of(self, tree: UserTree, found: LinkReading) -> LinkState:
        """The side to which a link leads."""
        place = self.place
        for root, side in ((place.source_root, LinkState.SOURCE), (place.target_root, LinkState.TARGET)):
            if found.leads_to == os.path.realpath(join(root, tree.path)):
                return side
        return LinkState.OTHER

    def problem(self, link: LinkReading) -> LinkProblem | None:
        """Why a link cannot be switched."""
        return link_problem(link, real_place(self.place), os.geteuid())

    def read_link(self, tree: UserTree) -> LinkReading:
        """Read the link. Changes nothing. Raises Refused for a tree whose link cannot be named; read errors are in the
        result.
        """
        path = self._path(tree)
        way = TracedPath()
        try:
            with walk(os.path.dirname(path), way) as fd:
                return _read_link(path, way, fd)
        except (FileNotFoundError, NotADirectoryError):
            return LinkReading(path=path, way=tuple(way.looks))
        except OSError as error:
            return LinkReading(path=path, way=tuple(way.looks), unread=error.strerror or str(error))

    def switch(self, tree: UserTree, *, expected_old: bytes, new: bytes) -> bool:
        """Replace a link that leads to `expected_old` by one to `new`, in one step: a user who opens the path finds one
        or the other.

        Both are absolute paths of directories. Compares where a link leads, not its text. Keeps the owner of the link;
        durable on return. Returns False if the link led to `new` already.

        May be called again, also after a kill: the remains of the earlier call are removed. The reverse call switches
        back.

        Raises Refused, and changes nothing, if the path is no symlink, leads elsewhere, or others can change a
        directory above it; a link that somebody else creates there at the same time stays. Raises OSError: then call
        again.
        """
        old_real, new_real = self._tree(expected_old), self._tree(new)
        path = self._path(tree)
        name, way = os.path.basename(path), TracedPath()
        try:
            with walk(os.path.dirname(path), way) as fd:
                _raise(
                    self.problem(
                        LinkReading(path=path, way=tuple(way.looks), directory=way.real, type=EntryType.SYMLINK)
                    )
                )
                _recover(fd, name, new, (old_real, new_real))
                found = _read_link(path, way, fd)
                _raise(self.problem(found))
                if found.leads_to == new_real:
                    _sync(fd)
                    return False
                _raise(leads_elsewhere(found, (old_real,)))
                judged = _link(fd, name)
                if judged is None or judged.text != found.text:
                    raise _replaced(path)
                _exchange_links(fd, path, judged, new, self._exchange)
                return True
        except (FileNotFoundError, NotADirectoryError):
            _raise(self.problem(LinkReading(path=path, way=tuple(way.looks))))
            raise
        except OSError:
            _raise(way_problem(way.looks, os.geteuid(), reached=False))
            raise

    def _path(self, tree: UserTree) -> bytes:
        if problem := naming_problem(self.place.link, tree):
            raise Refused(
                f"no link can be named for {show(tree.path)}: {problem}",
                hint='give the tree a user in [users] map, or set [cutover] switch = "hook"',
            )
        return link_path(self.place.link, tree)

    def _tree(self, path: bytes) -> bytes:
        """The real path of a tree. Raises Refused if there is no such directory below either root."""
        try:
            real = os.path.realpath(path, strict=True)
            found = path.startswith(b"/") and stat.S_ISDIR(os.lstat(real).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            real, found = path, False
        place = real_place(self.place)
        if not found or not any(is_beneath(real, root.rstrip(b"/")) for root in (place.source_root, place.target_root)):
            raise Refused(
                f"{show(path)} is no directory of the source or of the target: no link is switched",
                cause="it is not mounted, or the tree was moved away",
                hint="see that both file systems are mounted: `migrator doctor`",
            )
        return real


def _read_link(path: bytes, way: TracedPath, directory_fd: int) -> LinkReading:
    """The link, and where it leads."""
    name = os.path.basename(path)
    found: EntryType | None = None
    text: bytes | None = None
    leads_to: bytes | None = None
    unread = ""
    try:
        found = EntryType.of_mode(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode)
        if found is EntryType.SYMLINK:
            text = os.readlink(name, dir_fd=directory_fd)
            leads_to = os.path.realpath(os.path.join(way.real, text), strict=True)
    except FileNotFoundError:
        pass  # nothing has the name, or the symlink leads nowhere: `type` tells them apart
    except OSError as error:
        unread = error.strerror or str(error)
    mount = mount_of(read_mounts(), way.real)
    return LinkReading(
        path=path,
        way=tuple(way.looks),
        directory=way.real,
        mount=mount,
        type=found,
        text=text,
        leads_to=leads_to,
        unread=unread,
    )


def _recover(fd: int, name: bytes, new: bytes, known: tuple[bytes, bytes]) -> None:
    """Remove the temporary link of a killed call: the new link if it was not exchanged yet, or the old one after the
    exchange.
    """
    temporary = _temporary_name(name)
    try:
        left = _link(fd, temporary)
    except FileNotFoundError:
        return
    if left is None or (left.text != new and _real(fd, left.text) not in known):
        raise Refused(
            f"{show(temporary)} is beside the link {show(name)}, and was not made by this program",
            cause="another program or person replaced the link during the switch",
            hint="find out which of the two is right, give it the name of the link, and remove the other",
        )
    os.unlink(temporary, dir_fd=fd)


def _require_same(found: _Link | None, old: _Link, path: bytes) -> None:
    if found != old:
        raise _replaced(path)


def _exchange_links(fd: int, path: bytes, old: _Link, new: bytes, exchange: Exchange) -> None:
    name = os.path.basename(path)
    temporary = _temporary_name(name)
    os.symlink(new, temporary, dir_fd=fd)
    try:
        os.chown(temporary, old.uid, old.gid, dir_fd=fd, follow_symlinks=False)
        _sync(fd)
        made = _link(fd, temporary)
        if not exchange(fd, temporary, name):
            _require_same(_link(fd, name), old, path)
            os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            _sync(fd)
            return
    except BaseException:
        os.unlink(temporary, dir_fd=fd)
        raise
    if _link(fd, temporary) != old:
        exchange(fd, temporary, name)
        if _link(fd, temporary) == made:
            os.unlink(temporary, dir_fd=fd)
        _sync(fd)
        raise _replaced(path)
    _sync(fd)
    os.unlink(temporary, dir_fd=fd)
    _sync(fd)


def _link(fd: int, name: bytes) -> _Link | None:
    """The symlink with a name; None if the name belongs to something else. Raises FileNotFoundError."""
    pinned = os.open(name, _PATH, dir_fd=fd)
    try:
        facts = os.fstat(pinned)
        if not stat.S_ISLNK(facts.st_mode):
            return None
        text = os.readlink(b"", dir_fd=pinned)
    finally:
        os.close(pinned)
    return _Link(inode=(facts.st_dev, facts.st_ino), text=text, uid=facts.st_uid, gid=facts.st_gid)


def _real(fd: int, text: bytes) -> bytes | None:
    try:
        # Through the descriptor, which names the open directory even if it has moved.
        return os.path.realpath(os.path.join(b"/proc/self/fd/%d" % fd, text), strict=True)
    except OSError:
        return None


def _sync(fd: int) -> None:
    readable = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        os.fsync(readable)
    finally:
        os.close(readable)


def _temporary_name(name: bytes) -> bytes:
    """A temporary name that is the same in every call, so a call finds the remains of a killed one."""
    return TEMPORARY_PREFIX + b"link-" + hashlib.blake2b(name, digest_size=8).hexdigest().encode()


def _raise(problem: LinkProblem | None) -> None:
    if problem is not None:
        raise Refused(f"no link is switched: {problem.message}", hint=problem.fix)


def _replaced(path: bytes) -> Refused:
    return Refused(
        f"{show(path)} was replaced by another program or person during the switch; the replacement was kept",
        cause="another program keeps these links (configuration management, an automounter, a script)",
        hint='stop it for the time of the cutover, or let it make the switch: [cutover] switch = "hook"',
    )


def links_of(site: Site) -> SymlinkedPaths | None:
    """The links that a cutover switches; None if a hook switches them, or site.toml names none."""
    if site.cutover.switch != "symlink" or site.cutover.link is None:
        return None
    return SymlinkedPaths(
        LinkPlace(
            link=site.cutover.link,
            source_root=os.fsencode(site.source.mount),
            target_root=os.fsencode(site.target.root),
            volume=site.source.volume if site.source.kind == "gluster" else None,
        )
    )
