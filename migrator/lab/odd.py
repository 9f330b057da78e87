"""Odd files: a directory with every kind of path that has broken a copying program."""

import errno
import hashlib
import os
import random
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.core.paths import name as last_name
from migrator.core.paths import parent
from migrator.core.units import MIB, NS_PER_S
from migrator.fs.acl import GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, build_acl
from migrator.fs.beneath import Root, held
from migrator.fs.writing import write_piece
from migrator.lab.model import FIRST_UID, OddFiles, OddKind

# Contents, derived from the seed and the path, so that every byte can be checked


BLOCK_BYTES = 1024 * 1024


def seeded_random(seed: int, *scope: bytes) -> random.Random:
    """A generator for each scope, so that draws in one do not change another."""
    key = hashlib.blake2b(b"\0".join((b"%d" % seed, *scope)), digest_size=16).digest()
    return random.Random(key)  # noqa: S311 (invented users, not secrets: repeatable is the point)


def content_blocks(seed: int, path: bytes, size_bytes: int) -> Iterator[bytes]:
    """The content of a file in blocks of at most 1 MiB. Smaller sizes are prefixes of larger ones."""
    for number in range((size_bytes + BLOCK_BYTES - 1) // BLOCK_BYTES):
        length = min(BLOCK_BYTES, size_bytes - number * BLOCK_BYTES)
        yield hashlib.shake_128(b"%d\0%d\0%s" % (seed, number, path)).digest(length)


def file_content(seed: int, path: bytes, size_bytes: int) -> bytes:
    """The whole content of a small file."""
    return b"".join(content_blocks(seed, path, size_bytes))


# Creating files below a tree by descriptors, so that paths may be of any length and bytes


_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Attributes(Struct, frozen=True, kw_only=True):
    """The attributes that a path gets after its content. None keeps a value; the group has the owner's number; xattrs
    have full names.
    """

    owner: int | None = None
    mode: int | None = None
    mtime_ns: int | None = None
    atime_ns: int | None = None
    xattrs: Mapping[bytes, bytes] = {}


def apply_attributes(directory_fd: int, name: bytes, attributes: Attributes) -> None:
    """Set owner, mode, xattrs and times, in an order in which none undoes another. Never follows a symlink. Without
    root the owner is kept. Raises OSError.
    """
    if attributes.owner is not None and os.geteuid() == 0:
        os.chown(name, attributes.owner, attributes.owner, dir_fd=directory_fd, follow_symlinks=False)
    through = b"/proc/self/fd/%d/%s" % (directory_fd, name)
    before_mode = [key for key in sorted(attributes.xattrs) if key.startswith(b"user.")]  # refused when read-only
    for key in before_mode:
        os.setxattr(through, key, attributes.xattrs[key], follow_symlinks=False)
    if attributes.mode is not None:  # after chown, which clears setuid and setgid
        os.chmod(name, attributes.mode, dir_fd=directory_fd)
    for key in sorted(attributes.xattrs.keys() - set(before_mode)):  # ACLs: their mask is a part of the mode
        os.setxattr(through, key, attributes.xattrs[key], follow_symlinks=False)
    if attributes.mtime_ns is not None:
        atime_ns = attributes.atime_ns if attributes.atime_ns is not None else attributes.mtime_ns
        os.utime(name, ns=(atime_ns, attributes.mtime_ns), dir_fd=directory_fd, follow_symlinks=False)


def write_file(directory_fd: int, name: bytes, pieces: Iterable[tuple[int, bytes]], size_bytes: int) -> None:
    """Make a new regular file from pieces with their offsets; the rest is holes. Raises OSError."""
    with held(os.open(name, _NEW_FILE, 0o600, dir_fd=directory_fd)) as fd:
        for offset, piece in pieces:
            write_piece(fd, piece, offset, skip_zeros=False)
        os.ftruncate(fd, size_bytes)


class TreeWriter:
    """Makes paths in one tree. Directories get their attributes last, by `finish`.

    Every path is relative to the tree. Raises OSError; existing paths are never replaced.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self.parent = root.parent
        self._directories: dict[bytes, Attributes] = {}

    def directory(self, path: bytes, attributes: Attributes) -> bytes:
        """Make a directory with write permission; `finish` sets its attributes."""
        with self.parent(path) as (fd, name):
            os.mkdir(name, 0o700, dir_fd=fd)
        self.attributes_of_directory(path, attributes)
        return path

    def attributes_of_directory(self, path: bytes, attributes: Attributes) -> None:
        """The attributes that `finish` gives to an existing directory; `b""` is the tree itself."""
        self._directories[path] = attributes

    def file(self, path: bytes, pieces: Iterable[tuple[int, bytes]], size_bytes: int, attributes: Attributes) -> bytes:
        with self.parent(path) as (fd, name):
            write_file(fd, name, pieces, size_bytes)
            apply_attributes(fd, name, attributes)
        return path

    def symlink(self, path: bytes, target: bytes, attributes: Attributes) -> bytes:
        """Make a symlink, without the mode and xattrs of the attributes."""
        with self.parent(path) as (fd, name):
            os.symlink(target, name, dir_fd=fd)
            apply_attributes(fd, name, replace(attributes, mode=None, xattrs={}))
        return path

    def link(self, existing: bytes, path: bytes) -> bytes:
        """Make another name of a file in this tree."""
        with self.parent(existing) as (from_fd, from_name), self.parent(path) as (to_fd, to_name):
            os.link(from_name, to_name, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
        return path

    def special(self, path: bytes, file_type: int, attributes: Attributes, device: int = 0) -> bytes:
        """Make a FIFO, a socket or a device node (`stat.S_IFIFO`, ...)."""
        with self.parent(path) as (fd, name):
            os.mknod(name, stat.S_IFMT(file_type) | 0o600, device, dir_fd=fd)
            apply_attributes(fd, name, attributes)
        return path

    def finish(self) -> None:
        """Give every directory its attributes, the deepest first. May be called again."""
        for path in sorted(self._directories, key=lambda path: path.count(b"/") + bool(path), reverse=True):
            attributes = self._directories[path]
            if path:
                with self.parent(path) as (fd, name):
                    apply_attributes(fd, name, attributes)
            else:
                with self._root.directory(path) as fd:
                    apply_attributes(fd, b".", attributes)
        self._directories.clear()


@contextmanager
def writing(tree: bytes) -> Iterator[TreeWriter]:
    """A writer that finishes at the end of the block, unless the block fails."""
    with Root(tree) as root:
        writer = TreeWriter(root)
        yield writer
        writer.finish()


# POSIX ACLs


def acl_value(
    *, owner: int, group: int, other: int, mask: int, users: dict[int, int], groups: dict[int, int] | None = None
) -> bytes:
    """Encode an ACL; permissions are 0..7, `users` and `groups` map ids to permissions."""
    by_tag = {USER_OBJ: {0: owner}, GROUP_OBJ: {0: group}, MASK: {0: mask}, OTHER: {0: other}}
    by_tag |= {USER: users, GROUP: groups or {}}
    return build_acl(
        tuple(
            AclEntry(tag=tag, id=identity, permissions=permissions)
            for tag, by_id in by_tag.items()
            for identity, permissions in by_id.items()
        )
    )


# Paths of one kind


_BASE = b"odd"


class CannotMake(Exception):
    """This kind is impossible here; the message has the reason."""


class OddMaker(Struct, frozen=True, kw_only=True):
    """Makes paths of one kind in a folder named after it, missing parents included, with the attributes `plain` by
    default. The name of a path is relative to that folder, empty for a path in its place. Every method returns the path
    relative to the tree.
    """

    writer: TreeWriter
    tree_name: bytes
    seed: int
    plain: Attributes
    foreign: int
    neighbour: bytes | None
    source_mount: bytes
    folder: bytes = b""
    directories: set[bytes] = set()

    def with_mode(self, mode: int, xattrs: Mapping[bytes, bytes] | None = None) -> Attributes:
        """The default attributes with other permission bits."""
        return replace(self.plain, mode=mode, xattrs=xattrs or {})

    def place(self, name: bytes = b"") -> bytes:
        """The path of a name, whose parents are made."""
        path = b"/".join(part for part in (_BASE, self.folder, name) if part)
        self._make_parents(path)
        return path

    def _make_parents(self, path: bytes) -> None:
        if (above := parent(path)) and above not in self.directories:
            self._make_parents(above)
            self.directories.add(above)
            self.writer.directory(above, self.with_mode(0o755))

    def directory(self, name: bytes = b"", attributes: Attributes | None = None) -> bytes:
        path = self.place(name)
        self.directories.add(path)
        return self.writer.directory(path, attributes or self.with_mode(0o755))

    def file(self, name: bytes = b"", size_bytes: int = 300, attributes: Attributes | None = None) -> bytes:
        """Make a file with content from the seed."""
        path = self.place(name)
        return self.writer.file(path, pieces(self.seed, path, size_bytes), size_bytes, attributes or self.plain)

    def symlink(self, name: bytes, target: bytes, attributes: Attributes | None = None) -> bytes:
        return self.writer.symlink(self.place(name), target, attributes or self.plain)

    def links(self, existing: bytes, *names: bytes) -> list[bytes]:
        """Make other names of a path of the tree; returns all its paths."""
        return [existing, *(self.writer.link(existing, self.place(name)) for name in names)]


def pieces(seed: int, path: bytes, size_bytes: int) -> Iterable[tuple[int, bytes]]:
    """The content of a file with the offset of each piece."""
    return ((number * BLOCK_BYTES, block) for number, block in enumerate(content_blocks(seed, path, size_bytes)))


# One function for some kinds: it makes all their paths, and returns those with the property. Raises CannotMake or
# OSError


# Names that have broken lists, logs, tables and argument parsers


_DEEP_COMPONENT = b"deep-" + b"d" * 195
_DEEP_LEVELS = 25
"""25 levels of 200 bytes: over 5,000 bytes, beyond PATH_MAX and the limits of rsync's lists."""

_DEEP_ENOUGH_BYTES = 3900
"""The least depth that counts if the file system allows no more."""

_TOO_DEEP = frozenset({errno.ENAMETOOLONG, errno.ESTALE})
"""GlusterFS 10.3 has no paths that exceed PATH_MAX on the brick, the brick's own path included: mkdir and lookup fail
with one of these at about 4,080 bytes from the volume's root, measured with components of 20 to 200 bytes.
"""

_EDGE_LENGTHS = (4030, 4060, 4090, 4094, 4095, 4096, 4097, 4100)
"""Lengths of paths below the tree, around the limits of 4,095 and 4,096 bytes."""

NAMES: Mapping[OddKind, tuple[bytes, ...]] = {
    OddKind.NAME_NEWLINE: (b"new\nline", b"\n", b"ends with newline\n", b"carriage\r\nreturn"),
    OddKind.NAME_INVALID_UTF8: (
        b"latin-\xe9",
        b"\xff\xfe",
        b"cut-\xe2\x82",
        b"overlong-\xc0\xaf",
        b"half-\xed\xa0\x80",
    ),
    OddKind.NAME_LEADING_DASH: (b"-rf", b"--delete", b"-", b"- *", b"--files-from=list"),
    OddKind.NAME_SPACE: (b" ", b" leading", b"trailing ", b"two  blanks", b"tab\there"),
    OddKind.NAME_QUOTES: (b"'single'", b'"double"', b"`id`", b"$(id)", b'it\'s; "both" & more | < >'),
    OddKind.NAME_BACKSLASH: (b"back\\slash", b"\\", b"\\n", b"ends\\", b"\\\\server\\share"),
    OddKind.NAME_OCTAL_ESCAPE: (b"\\#012", b"a\\#012b", b"\\#134#012", b"\\012", b"\\x0a"),
    OddKind.NAME_CONTROL: (
        b"\x01",
        b"red-\x1b[31m",
        b"del-\x7f",
        b"bell-\x07",
        b"vertical-\x0b-\x85",
        b"clear-\x1b[2J",
    ),
    OddKind.NAME_PATTERN: (
        b"*",
        b"?",
        b"[a-z]",
        b"{a,b}",
        b"+ include",
        b"#comment",
        b";comment",
        b"!",
        b"~",
        b"%s%n%0A",
    ),
    OddKind.NAME_MARKUP: (
        *(b"<script>alert(1)<|script>", b"=1+1", b"a,b;c"),
        *(b"[bold]rich[|bold]", b"{{ 7 * 7 }}", b"|table|"),
    ),
    OddKind.NAME_UNICODE: tuple(
        name.encode()
        # The first letter is one code point, the second is the same letter as two.
        for name in (
            *("é", "e\u0301", "日本語", "\U0001f40c", "right-\u202eto-left"),
            *("line\u2028separator", "next\u0085line", "\ufeffbom"),
        )
    ),
    OddKind.NAME_255_BYTES: (b"n" * 255, "ü".encode() * 127 + b"x", b"\n" * 255),
    OddKind.NAME_RSYNC_TEMPORARY: (b".x.AbC123", b".report.txt.q1W2e3", b".~tmp~", b".rsync-partial"),
}


def _names(maker: OddMaker, *names: bytes) -> Iterable[bytes]:
    odd = names[0]
    return [
        *(maker.file(name, 10 + len(name)) for name in names),
        # A file, in addition to a directory with content and a symlink to itself, of the same name.
        maker.file(b"directories/" + odd + b"/" + odd),
        maker.symlink(b"symlinks/" + odd, odd),
    ]


def _glusterfs(maker: OddMaker) -> Iterable[bytes]:
    return [
        maker.directory(b".glusterfs"),
        maker.file(b".glusterfs/00/00/00000000-0000-0000-0000-000000000001"),  # like a GFID
        maker.file(b".trashcan"),
    ]


def _deep(maker: OddMaker) -> Iterable[bytes]:
    made: list[bytes] = []
    try:
        for path in _deep_paths(maker):
            made.append(path)  # noqa: PERF402 (what was made before a refusal counts)
    except OSError as error:
        if error.errno not in _TOO_DEEP or not made or len(made[-1]) < _DEEP_ENOUGH_BYTES:
            raise
    return made


def _deep_paths(maker: OddMaker) -> Iterable[bytes]:
    wanted, above = list(_EDGE_LENGTHS), b""
    for _ in range(_DEEP_LEVELS):
        prefix_bytes = len(maker.place(above)) + (1 if not above else 0)
        while wanted and 1 <= wanted[0] - prefix_bytes <= 220:
            name = b"edge-%d-" % wanted[0]
            yield maker.file(above + name.ljust(wanted.pop(0) - prefix_bytes, b"e"))
        yield maker.directory(above + _DEEP_COMPONENT)
        above += _DEEP_COMPONENT + b"/"
    yield maker.file(above + b"bottom", 5000)
    yield maker.symlink(above + b"up", b"../" * 3 + b"nowhere")


def _linked_files(maker: OddMaker, first: bytes, *others: bytes) -> Iterable[bytes]:
    return maker.links(maker.file(first, 70_000), *others)


def _linked_across_trees(maker: OddMaker) -> Iterable[bytes]:
    if maker.neighbour is None:
        raise CannotMake("no neighbouring tree was given")
    here = maker.file(b"here", 4000)
    with maker.writer.parent(here) as (from_fd, name), Root(maker.neighbour) as root, root.directory(b"") as to_fd:
        there = b"hard-link-from-" + maker.tree_name
        os.link(name, there, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
    return [here]


def _symlinks(maker: OddMaker, *targets: tuple[bytes, bytes]) -> Iterable[bytes]:
    return [maker.symlink(name, target) for name, target in targets]


def _relative(maker: OddMaker, *targets: tuple[bytes, bytes]) -> Iterable[bytes]:
    maker.file(b"file")
    maker.file(b"directory/inside")
    return _symlinks(maker, *targets)


def _symlink_across_trees(maker: OddMaker) -> Iterable[bytes]:
    up = b"../" * len(maker.place().split(b"/"))
    neighbour = up + b"../" + (last_name(maker.neighbour) if maker.neighbour else b"neighbour")
    return _symlinks(maker, (b"file", neighbour + b"/hard-link-from-" + maker.tree_name), (b"tree", neighbour))


def _into_source(maker: OddMaker) -> Iterable[bytes]:
    source = maker.source_mount
    return _symlinks(maker, (b"root", source), (b"deeper", source + b"/home/somebody/data"))


_CAPABILITY_NET_RAW = {b"security.capability": struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)}
"""Version 2, effective: cap_net_raw (linux/capability.h)."""


def _sparse(maker: OddMaker) -> Iterable[bytes]:
    path, size_bytes = maker.place(b"three-islands"), 16 * MIB
    offsets = (0, 5 * MIB + 4096, size_bytes - 65536)
    islands = [(offset, file_content(maker.seed, path + b"%d" % offset, 65536)) for offset in offsets]
    late = maker.place(b"starts-with-a-hole")
    return [
        maker.writer.file(path, islands, size_bytes, maker.plain),
        maker.writer.file(late, [(3 * MIB, b"end")], 3 * MIB + 3, maker.plain),
    ]


_SIZES_BYTES = (1, 511, 512, 513, 4095, 4096, 4097, 65535, 65537, 131072, MIB, MIB + 1)


def _acl_access(maker: OddMaker) -> Iterable[bytes]:
    value = acl_value(owner=6, group=4, other=0, mask=6, users={20500: 6, 20501: 4}, groups={20600: 6})
    many = acl_value(owner=7, group=5, other=1, mask=7, users={20500 + number: 5 for number in range(20)})
    on_directory = acl_value(owner=7, group=5, other=0, mask=7, users={20502: 7})
    return [
        maker.file(b"file", attributes=maker.with_mode(0o660, {ACL_ACCESS: value})),
        maker.file(b"24-entries", attributes=maker.with_mode(0o771, {ACL_ACCESS: many})),
        maker.directory(b"directory", maker.with_mode(0o770, {ACL_ACCESS: on_directory})),
    ]


def _acl_default(maker: OddMaker) -> Iterable[bytes]:
    value = acl_value(owner=7, group=5, other=0, mask=7, users={20500: 7}, groups={20600: 5})
    access = acl_value(owner=7, group=5, other=5, mask=7, users={20503: 7})
    path = maker.directory(attributes=maker.with_mode(0o755, {ACL_DEFAULT: value}))
    # Created before the default ACL is set, so that a copy must not let them inherit it either.
    maker.file(b"file-without", attributes=maker.with_mode(0o600))
    maker.directory(b"directory-without", maker.with_mode(0o700))
    both = maker.directory(b"both", maker.with_mode(0o775, {ACL_ACCESS: access, ACL_DEFAULT: value}))
    return [path, both]


def _user_xattr(maker: OddMaker) -> Iterable[bytes]:
    several = {
        b"user.comment": b"text",
        b"user.empty": b"",
        b"user.binary": bytes(range(256)),
        b"user.long": file_content(maker.seed, b"user.long", 2000),
        "user.ünïcode \n name".encode(): b"\n",
    }
    return [
        maker.file(b"file", attributes=maker.with_mode(0o644, several)),
        maker.file(b"read-only-file", attributes=maker.with_mode(0o400, {b"user.a": b"1"})),
        maker.directory(b"directory", maker.with_mode(0o755, {b"user.project": b"alpha"})),
    ]


def _special(maker: OddMaker, file_type: int, device: int = 0) -> Iterable[bytes]:
    return [maker.writer.special(maker.place(), file_type, maker.with_mode(0o640), device)]


def _file_modes(maker: OddMaker, *modes: int) -> Iterable[bytes]:
    return [maker.file(b"%04o" % mode, attributes=maker.with_mode(mode)) for mode in modes]


def _directory_modes(maker: OddMaker, *modes: int) -> Iterable[bytes]:
    made = [maker.directory(b"%04o" % mode, maker.with_mode(mode)) for mode in modes]
    for mode in modes:
        maker.file(b"%04o/file" % mode, attributes=maker.with_mode(0o444))
        maker.directory(b"%04o/directory" % mode)
    return made


def _foreign(maker: OddMaker) -> Iterable[bytes]:
    if os.geteuid() != 0:
        raise CannotMake("only root can give files to somebody else")
    theirs = replace(maker.plain, owner=maker.foreign, mode=0o600)
    return [
        maker.file(b"file", attributes=theirs),
        maker.file(b"setuid-of-root", attributes=replace(theirs, owner=0, mode=0o4755)),
        maker.directory(b"directory", replace(theirs, mode=0o700)),
        maker.file(b"directory/file", attributes=theirs),
    ]


def _times(maker: OddMaker, *times: tuple[int, int]) -> Iterable[bytes]:
    for number, (mtime_ns, atime_ns) in enumerate(times):
        attributes = replace(maker.plain, mtime_ns=mtime_ns, atime_ns=atime_ns)
        yield maker.file(b"file-%d" % number, attributes=attributes)
        yield maker.directory(b"directory-%d" % number, replace(attributes, mode=0o755))
        yield maker.symlink(b"symlink-%d" % number, b"file-%d" % number, attributes)


def _at(year: int) -> int:
    return int(datetime(year, 7, 1, tzinfo=UTC).timestamp()) * NS_PER_S


_KINDS: Mapping[OddKind, tuple[Any, ...]] = {
    **{kind: (_names, *names) for kind, names in NAMES.items()},
    OddKind.NAME_GLUSTERFS: (_glusterfs,),
    OddKind.DEEP_PATH: (_deep,),
    OddKind.HARD_LINK_SAME_DIRECTORY: (_linked_files, b"first", b"second", b"third\n", b"-fourth"),
    OddKind.HARD_LINK_ACROSS_DIRECTORIES: (_linked_files, b"a/file", b"b/file", b"b/deeper/file"),
    OddKind.HARD_LINK_ACROSS_TREES: (_linked_across_trees,),
    OddKind.HARD_LINK_SYMLINK: (lambda maker: maker.links(maker.symlink(b"first", b"somewhere"), b"second"),),
    OddKind.SYMLINK_RELATIVE: (
        _relative,
        (b"to-file", b"file"),
        (b"to-directory", b"directory"),
        (b"to-directory-with-slash", b"directory/"),
        (b"roundabout", b"./directory/../directory//inside"),
        (b"not-text", b"\xff\n"),
    ),
    OddKind.SYMLINK_ABSOLUTE: (_symlinks, (b"root", b"/"), (b"file", b"/etc/hostname"), (b"proc", b"/proc/self/root")),
    OddKind.SYMLINK_DANGLING: (
        _symlinks,
        (b"relative", b"no/such/file"),
        (b"absolute", b"/no/such/file"),
        (b"above-the-root", b"../" * 60 + b"no/such/file"),
    ),
    OddKind.SYMLINK_LOOP: (_symlinks, (b"itself", b"itself"), (b"one", b"two"), (b"two", b"one"), (b"parent", b"..")),
    OddKind.SYMLINK_ACROSS_TREES: (_symlink_across_trees,),
    OddKind.SYMLINK_INTO_SOURCE: (_into_source,),
    # XFS, and therefore every brick, stores at most 1,023 bytes of a symlink (XFS_SYMLINK_MAXLEN).
    OddKind.SYMLINK_LONG: (_symlinks, (b"1000-bytes", b"/".join([b"t" * 199] * 5) + b"/")),
    OddKind.SPARSE: (_sparse,),
    OddKind.HOLE_ONLY: (lambda maker: [maker.writer.file(maker.place(), (), 8 * MIB, maker.plain)],),
    OddKind.EMPTY_FILE: (lambda maker: [maker.file(size_bytes=0)],),
    OddKind.SIZE_EDGES: (lambda maker: [maker.file(b"%d" % size, size) for size in _SIZES_BYTES],),
    OddKind.ACL_ACCESS: (_acl_access,),
    OddKind.ACL_DEFAULT: (_acl_default,),
    OddKind.USER_XATTR: (_user_xattr,),
    OddKind.FILE_CAPABILITY: (lambda maker: [maker.file(attributes=maker.with_mode(0o755, _CAPABILITY_NET_RAW))],),
    OddKind.FIFO: (_special, stat.S_IFIFO),
    OddKind.SOCKET: (_special, stat.S_IFSOCK),
    OddKind.CHARACTER_DEVICE: (_special, stat.S_IFCHR, os.makedev(1, 3)),
    OddKind.BLOCK_DEVICE: (_special, stat.S_IFBLK, os.makedev(259, 77)),
    OddKind.SETUID: (_file_modes, 0o4755, 0o4711, 0o6755),
    OddKind.SETGID: (_file_modes, 0o2755, 0o2644),
    OddKind.MODE_000: (_file_modes, 0o000),
    OddKind.SETGID_DIRECTORY: (_directory_modes, 0o2775, 0o2770),
    # Never a file of mode exactly 01000: on a brick it looks like Gluster's own link-to files.
    OddKind.STICKY_DIRECTORY: (_directory_modes, 0o1777, 0o3775),
    OddKind.READ_ONLY_DIRECTORY: (_directory_modes, 0o555, 0o500),
    OddKind.FOREIGN_OWNER: (_foreign,),
    OddKind.EMPTY_DIRECTORY: (lambda maker: [maker.directory(b"a/b"), maker.directory(b"c")],),
    OddKind.OLD_TIMES: (_times, (_at(1985), _at(1990)), (0, 0), (_at(2001), _at(1999))),
    OddKind.FUTURE_TIMES: (_times, (_at(2039), _at(2040)), (_at(2090), _at(2090))),
    OddKind.SUBSECOND_TIMES: (
        _times,
        (_at(2020) + 999_999_999, _at(2020) + 1),
        (_at(2020) + 1, _at(2020) + 999_999_999),
        (_at(2020) + 123_456_789, _at(2020) + 500_000_000),
    ),
}
"""The function of each kind, and its further arguments."""


# The directory of odd files


_TIME_NS = int(datetime(2023, 3, 4, 5, 6, 7, tzinfo=UTC).timestamp()) * NS_PER_S + 123_456_789
_FOREIGN_UID_OFFSET = 900

# Errors for a missing feature or privilege. All others are raised.
_REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ})


def odd_files(
    tree: bytes,
    *,
    seed: int = 1,
    uid: int = FIRST_UID,
    neighbour: bytes | None = None,
    source_mount: bytes | None = None,
) -> OddFiles:
    """Make every kind of odd file in the directory `odd` of an existing tree.

    `uid` is the owner (its gid has the same number), without root the caller. `neighbour` is another tree on the same
    file system, for a hard link across trees. `source_mount` is the target of absolute symlinks, by default the
    tree's parent directory. Equal seeds give equal trees, with times and contents. Kinds that are impossible for this
    file system or user are listed as skipped. Raises OSError if the directory exists, and for all other errors.
    """
    made: dict[OddKind, tuple[bytes, ...]] = {}
    skipped: dict[OddKind, str] = {}
    plain = Attributes(owner=uid, mode=0o644, mtime_ns=_TIME_NS, atime_ns=_TIME_NS + 3 * NS_PER_S)
    tree = tree.rstrip(b"/")
    with writing(tree) as writer:
        maker = OddMaker(
            writer=writer,
            tree_name=last_name(tree),
            seed=seed,
            plain=plain,
            foreign=uid + _FOREIGN_UID_OFFSET,
            neighbour=neighbour and neighbour.rstrip(b"/"),
            source_mount=source_mount if source_mount is not None else os.path.dirname(tree),
        )
        for kind, (make, *more) in _KINDS.items():
            try:
                made[kind] = tuple(make(replace(maker, folder=kind.value.encode()), *more))
            except CannotMake as reason:
                skipped[kind] = str(reason)
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                skipped[kind] = f"the file system or a missing privilege refuses it: {error.strerror}"
    return OddFiles(paths=made, skipped=skipped)
