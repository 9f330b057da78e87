"""Sets the times of what rsync has copied from a brick, and tells what was no data there: without the compiled program.

Stand-alone: standard library only, so that it can be run by any Python 3.9 or later on any host:

    python3 -I -S settle_times.py --source-root R --target-root R --tree T --times mdata|file [--granularity-ns N]
        [--symlink-times] < LIST

As `migrator-native copy --kind settle`, with the same list (`copy_list.c`; of its fields only the mtime counts) and the
same lines on standard output (`copy_events.c`) and exit codes. It is not confined: it opens every directory component
by component without following symlinks, and sets nothing but times.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys

EXIT_LIST_DONE = 0
EXIT_USAGE = 64
EXIT_BAD_LIST = 65
EXIT_NO_TREE = 66

_DIRECTORY_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MDATA = "trusted.glusterfs.mdata"
_MDATA_FORMAT = struct.Struct(">BQqQqQqQ")
"""Version, flags, then seconds and nanoseconds of ctime, mtime and atime."""
_LINKTO = "trusted.glusterfs.dht.linkto"
_NS_PER_S = 1_000_000_000
_SETGID_AND_STICKY = stat.S_ISGID | stat.S_ISVTX


class Failed(Exception):
    """A system call failed for one path."""

    def __init__(self, side: str, operation: str, code: int) -> None:
        super().__init__(operation)
        self.side = side
        self.operation = operation
        self.code = code


class Options:
    """What the command line asks for. Raises ValueError."""

    def __init__(self, arguments: list[str]) -> None:
        self.source_root = b""
        self.target_root = b""
        self.tree = b""
        self.times = ""
        self.granularity_ns = 1
        self.symlink_times = False
        left = list(arguments)
        while left:
            option = left.pop(0)
            if option == "--symlink-times":
                self.symlink_times = True
                continue
            if not left:
                raise ValueError(option)
            value = left.pop(0)
            if option in ("--source-root", "--target-root", "--tree"):
                setattr(self, option[2:].replace("-", "_"), os.fsencode(value))
            elif option == "--times" and value in ("mdata", "file"):
                self.times = value
            elif option == "--granularity-ns":
                self.granularity_ns = max(int(value), 1)
            else:
                raise ValueError(option)
        if not (self.source_root and self.target_root and self.times):
            raise ValueError("missing options")

    def same(self, one_ns: int, other_ns: int) -> bool:
        """Whether the target cannot tell these times apart."""
        return one_ns // self.granularity_ns == other_ns // self.granularity_ns


class Tree:
    """One tree; the directory of the last path stays open, since lists come sorted by directory."""

    def __init__(self, root: bytes, tree: bytes, side: str) -> None:
        self._side = side
        root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._tree_fd = _descend(root_fd, tree)
        if self._tree_fd != root_fd:
            os.close(root_fd)
        self._directory = b""
        self._fd = self._tree_fd

    def directory(self, path: bytes) -> int:
        """The descriptor of a directory of the tree; valid until the next call. Raises Failed."""
        if path != self._directory:
            self._leave()
            try:
                self._fd = _descend(self._tree_fd, path)
            except OSError as error:
                raise Failed(self._side, "open directory", error.errno or errno.EIO) from error
            self._directory = path
        return self._fd

    def close(self) -> None:
        """Close what is open."""
        self._leave()
        os.close(self._tree_fd)

    def _leave(self) -> None:
        if self._fd != self._tree_fd:
            os.close(self._fd)
        self._directory, self._fd = b"", self._tree_fd


def _descend(fd: int, path: bytes) -> int:
    """The directory at a path beneath an open one, which stays open (and is the answer for the empty path)."""
    start = fd
    for component in path.split(b"/") if path else ():
        try:
            deeper = os.open(component, _DIRECTORY_FLAGS, dir_fd=fd)
        finally:
            if fd != start:
                os.close(fd)
        fd = deeper
    return fd


def parse_mtime(value: bytes) -> int | None:
    """The mtime in nanoseconds that Gluster keeps; None where the value is malformed."""
    if len(value) != _MDATA_FORMAT.size:
        return None
    version, _, _, ctime_rest, seconds, rest, _, atime_rest = _MDATA_FORMAT.unpack(value)
    if version != 1 or max(ctime_rest, rest, atime_rest) >= _NS_PER_S:
        return None
    return int(seconds * _NS_PER_S + rest)


def is_moved(mode: int, size_bytes: int, *, link_to: bool) -> bool:
    """Whether what lies on the brick is not, or not for long, the file itself, or may not be."""
    if not link_to or not stat.S_ISREG(mode):
        return False
    migrating = mode & _SETGID_AND_STICKY == _SETGID_AND_STICKY
    return migrating or stat.S_IMODE(mode) == stat.S_ISVTX or size_bytes == 0


def settle(options: Options, source: Tree, target: Tree, name: bytes, listed_ns: int | None) -> str | None:
    """Settle one path; `moved` or `changed` where that is to be told of it. Raises Failed."""
    directory, _, last = name.rpartition(b"/")
    source_fd, target_fd = source.directory(directory), target.directory(directory)
    try:
        seen = os.stat(last, dir_fd=source_fd, follow_symlinks=False)
        attributes = b"/proc/self/fd/%d/%s" % (source_fd, last)
        names = os.listxattr(attributes, follow_symlinks=False)
        wanted_ns = seen.st_mtime_ns
        if options.times == "mdata" and _MDATA in names:
            mtime_ns = parse_mtime(os.getxattr(attributes, _MDATA, follow_symlinks=False))
            wanted_ns = wanted_ns if mtime_ns is None else mtime_ns
    except OSError as error:
        raise Failed("source", "stat", error.errno or errno.EIO) from error
    if is_moved(seen.st_mode, seen.st_size, link_to=_LINKTO in names):
        return "moved"
    if stat.S_ISLNK(seen.st_mode) and not options.symlink_times:
        return None
    try:
        there = os.stat(last, dir_fd=target_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None  # it was told already that this one did not arrive
    except OSError as error:
        raise Failed("target", "stat", error.errno or errno.EIO) from error
    if stat.S_IFMT(there.st_mode) != stat.S_IFMT(seen.st_mode):
        return "changed"
    is_directory = stat.S_ISDIR(seen.st_mode)
    if is_directory and listed_ns is not None:
        wanted_ns = listed_ns
    if options.same(there.st_mtime_ns, wanted_ns):
        return None
    same_size = not stat.S_ISREG(seen.st_mode) or there.st_size == seen.st_size
    if not is_directory and not (same_size and options.same(there.st_mtime_ns, seen.st_mtime_ns)):
        return "changed"  # of an older content: a new time would hide that
    try:
        os.utime(last, ns=(there.st_atime_ns, wanted_ns), dir_fd=target_fd, follow_symlinks=False)
    except OSError as error:
        raise Failed("target", "set times", error.errno or errno.EIO) from error
    return None


def parse_list(text: bytes) -> list[tuple[bytes, int | None]]:
    """Names with their listed mtimes. Raises ValueError."""
    if text and not text.endswith(b"\0"):
        raise ValueError("cut off")
    found: list[tuple[bytes, int | None]] = []
    for record in text.split(b"\0")[:-1]:
        fields, colon, name = record.partition(b":")
        if not colon or any(part in (b"", b".", b"..") for part in name.split(b"/")):
            raise ValueError("no plain name")
        times = [int(field[1:]) for field in fields.split(b",") if field.startswith(b"m")]
        found.append((name, times[0] if times else None))
    return found


def main(arguments: list[str]) -> int:
    """Settle what is listed on standard input."""
    try:
        options = Options(arguments)
    except ValueError:
        sys.stderr.write("unknown or missing options\n")
        return EXIT_USAGE
    try:
        listed = parse_list(sys.stdin.buffer.read())
    except ValueError:
        sys.stderr.write("the list of paths is malformed\n")
        return EXIT_BAD_LIST
    try:
        source = Tree(options.source_root, options.tree, "source")
        target = Tree(options.target_root, options.tree, "target")
    except OSError as error:
        sys.stderr.write(f"a tree cannot be opened: {os.strerror(error.errno or 0)}\n")
        return EXIT_NO_TREE
    for index, (name, listed_ns) in enumerate(listed):
        try:
            told = settle(options, source, target, name, listed_ns)
            line = f"{told} source 0 -" if told else ""
        except Failed as failure:
            gone = failure.side == "source" and failure.code == errno.ENOENT
            kind = "vanished" if gone else "bad"
            line = f"{kind} {failure.side} {failure.code} {failure.operation}"
        if line:
            sys.stdout.write(f"F {index} {line}\n")
    sys.stdout.write("P 0 0\n")
    sys.stdout.flush()
    source.close()
    target.close()
    return EXIT_LIST_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
