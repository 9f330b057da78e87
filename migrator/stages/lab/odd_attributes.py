"""Odd content, types, permissions, ACLs, extended attributes and times."""

import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from migrator.domain.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.domain.lab import OddKind
from migrator.domain.units import MIB, NS_PER_S
from migrator.stages.lab.acl import acl_value
from migrator.stages.lab.content import file_content
from migrator.stages.lab.odd_maker import CannotMake, OddFunction, OddFunctions, OddMaker

_CAPABILITY_NET_RAW = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
"""security.capability, version 2, effective: cap_net_raw (linux/capability.h)."""


def _sparse(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"sparse")
    path, size_bytes = maker.in_base(b"sparse/three-islands"), 16 * MIB
    offsets = (0, 5 * MIB + 4096, size_bytes - 65536)
    islands = [(offset, file_content(maker.seed, path + b"%d" % offset, 65536)) for offset in offsets]
    late = maker.in_base(b"sparse/starts-with-a-hole")
    return [
        maker.writer.file(path, islands, size_bytes, maker.plain),
        maker.writer.file(late, [(3 * MIB, b"end")], 3 * MIB + 3, maker.plain),
    ]


def _hole_only(maker: OddMaker) -> Iterable[bytes]:
    return [maker.writer.file(maker.in_base(b"hole-only"), (), 8 * MIB, maker.plain)]


def _size_edges(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"size-edges")
    sizes = (1, 511, 512, 513, 4095, 4096, 4097, 65535, 65537, 131072, MIB, MIB + 1)
    return [maker.file(b"size-edges/%d" % size, size) for size in sizes]


def _acl_access(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"acl-access")
    value = acl_value(owner=6, group=4, other=0, mask=6, users={20500: 6, 20501: 4}, groups={20600: 6})
    many = acl_value(owner=7, group=5, other=1, mask=7, users={20500 + number: 5 for number in range(20)})
    on_directory = acl_value(owner=7, group=5, other=0, mask=7, users={20502: 7})
    return [
        maker.file(b"acl-access/file", attributes=maker.with_mode(0o660, {ACL_ACCESS: value})),
        maker.file(b"acl-access/24-entries", attributes=maker.with_mode(0o771, {ACL_ACCESS: many})),
        maker.directory(b"acl-access/directory", maker.with_mode(0o770, {ACL_ACCESS: on_directory})),
    ]


def _acl_default(maker: OddMaker) -> Iterable[bytes]:
    value = acl_value(owner=7, group=5, other=0, mask=7, users={20500: 7}, groups={20600: 5})
    access = acl_value(owner=7, group=5, other=5, mask=7, users={20503: 7})
    path = maker.directory(b"acl-default", maker.with_mode(0o755, {ACL_DEFAULT: value}))
    # Made while nothing was inherited yet: a copy must not let them inherit either.
    maker.file(b"acl-default/file-without", attributes=maker.with_mode(0o600))
    maker.directory(b"acl-default/directory-without", maker.with_mode(0o700))
    both = maker.directory(b"acl-default/both", maker.with_mode(0o775, {ACL_ACCESS: access, ACL_DEFAULT: value}))
    return [path, both]


def _user_xattr(maker: OddMaker) -> Iterable[bytes]:
    several = {
        b"user.comment": b"text",
        b"user.empty": b"",
        b"user.binary": bytes(range(256)),
        b"user.long": file_content(maker.seed, b"user.long", 2000),
        "user.ünïcode \n name".encode(): b"\n",
    }
    maker.directory(b"user-xattr")
    return [
        maker.file(b"user-xattr/file", attributes=maker.with_mode(0o644, several)),
        maker.file(b"user-xattr/read-only-file", attributes=maker.with_mode(0o400, {b"user.a": b"1"})),
        maker.directory(b"user-xattr/directory", maker.with_mode(0o755, {b"user.project": b"alpha"})),
    ]


def _capability(maker: OddMaker) -> Iterable[bytes]:
    attributes = maker.with_mode(0o755, {b"security.capability": _CAPABILITY_NET_RAW})
    return [maker.file(b"file-capability", attributes=attributes)]


def _special(kind: OddKind, file_type: int, device: int = 0) -> OddFunction:
    def make(maker: OddMaker) -> Iterable[bytes]:
        path = maker.in_base(kind.value.encode())
        return [maker.writer.special(path, file_type, maker.with_mode(0o640), device)]

    return make


def _modes(kind: OddKind, *modes: int) -> OddFunction:
    def make(maker: OddMaker) -> Iterable[bytes]:
        folder = kind.value.encode()
        maker.directory(folder)
        return [maker.file(folder + b"/%04o" % mode, attributes=maker.with_mode(mode)) for mode in modes]

    return make


def _directories(kind: OddKind, *modes: int) -> OddFunction:
    def make(maker: OddMaker) -> Iterable[bytes]:
        folder = kind.value.encode()
        maker.directory(folder)
        made: list[bytes] = []
        for mode in modes:
            inside = folder + b"/%04o" % mode
            made.append(maker.directory(inside, maker.with_mode(mode)))
            maker.file(inside + b"/file", attributes=maker.with_mode(0o444))
            maker.directory(inside + b"/directory", maker.with_mode(0o755))
        return made

    return make


def _foreign(maker: OddMaker) -> Iterable[bytes]:
    if not maker.is_root:
        raise CannotMake("only root can give files to somebody else")
    maker.directory(b"foreign-owner")
    theirs = replace(maker.plain, owner=maker.foreign, mode=0o600)
    return [
        maker.file(b"foreign-owner/file", attributes=theirs),
        maker.file(
            b"foreign-owner/setuid-of-root",
            attributes=replace(theirs, owner=replace(theirs.owner, uid=0, gid=0), mode=0o4755)
            if theirs.owner
            else theirs,
        ),
        maker.directory(b"foreign-owner/directory", replace(theirs, mode=0o700)),
        maker.file(b"foreign-owner/directory/file", attributes=theirs),
    ]


def _empty_file(maker: OddMaker) -> Iterable[bytes]:
    return [maker.file(b"empty-file", 0)]


def _empty_directory(maker: OddMaker) -> Iterable[bytes]:
    maker.directory(b"empty-directory")
    maker.directory(b"empty-directory/a")
    return [maker.directory(b"empty-directory/a/b"), maker.directory(b"empty-directory/c")]


def _at(year: int) -> int:
    return int(datetime(year, 7, 1, tzinfo=UTC).timestamp()) * NS_PER_S


def _times(kind: OddKind, *times: tuple[int, int]) -> OddFunction:
    def make(maker: OddMaker) -> Iterable[bytes]:
        folder = kind.value.encode()
        maker.directory(folder)
        made: list[bytes] = []
        for number, (mtime_ns, atime_ns) in enumerate(times):
            attributes = maker.with_times(mtime_ns, atime_ns)
            made.append(maker.file(folder + b"/file-%d" % number, attributes=attributes))
            made.append(maker.directory(folder + b"/directory-%d" % number, replace(attributes, mode=0o755)))
            path = maker.in_base(folder + b"/symlink-%d" % number)
            made.append(maker.writer.symlink(path, b"file-%d" % number, attributes))
        return made

    return make


ATTRIBUTE_FUNCTIONS: OddFunctions = {
    OddKind.SPARSE: _sparse,
    OddKind.HOLE_ONLY: _hole_only,
    OddKind.EMPTY_FILE: _empty_file,
    OddKind.SIZE_EDGES: _size_edges,
    OddKind.ACL_ACCESS: _acl_access,
    OddKind.ACL_DEFAULT: _acl_default,
    OddKind.USER_XATTR: _user_xattr,
    OddKind.FILE_CAPABILITY: _capability,
    OddKind.FIFO: _special(OddKind.FIFO, stat.S_IFIFO),
    OddKind.SOCKET: _special(OddKind.SOCKET, stat.S_IFSOCK),
    OddKind.CHARACTER_DEVICE: _special(OddKind.CHARACTER_DEVICE, stat.S_IFCHR, os.makedev(1, 3)),
    OddKind.BLOCK_DEVICE: _special(OddKind.BLOCK_DEVICE, stat.S_IFBLK, os.makedev(259, 77)),
    OddKind.SETUID: _modes(OddKind.SETUID, 0o4755, 0o4711, 0o6755),
    OddKind.SETGID: _modes(OddKind.SETGID, 0o2755, 0o2644),
    OddKind.SETGID_DIRECTORY: _directories(OddKind.SETGID_DIRECTORY, 0o2775, 0o2770),
    # Never a file of mode exactly 01000: on a brick it looks like Gluster's own link-to files.
    OddKind.STICKY_DIRECTORY: _directories(OddKind.STICKY_DIRECTORY, 0o1777, 0o3775),
    OddKind.READ_ONLY_DIRECTORY: _directories(OddKind.READ_ONLY_DIRECTORY, 0o555, 0o500),
    OddKind.FOREIGN_OWNER: _foreign,
    OddKind.EMPTY_DIRECTORY: _empty_directory,
    OddKind.MODE_000: _modes(OddKind.MODE_000, 0o000),
    OddKind.OLD_TIMES: _times(OddKind.OLD_TIMES, (_at(1985), _at(1990)), (0, 0), (_at(2001), _at(1999))),
    OddKind.FUTURE_TIMES: _times(OddKind.FUTURE_TIMES, (_at(2039), _at(2040)), (_at(2090), _at(2090))),
    OddKind.SUBSECOND_TIMES: _times(
        OddKind.SUBSECOND_TIMES,
        (_at(2020) + 999_999_999, _at(2020) + 1),
        (_at(2020) + 1, _at(2020) + 999_999_999),
        (_at(2020) + 123_456_789, _at(2020) + 500_000_000),
    ),
}
