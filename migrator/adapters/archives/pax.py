"""Tar headers in pax format (POSIX.1-2001), byte for byte the same for the same member.

Own code, because names are bytes: `tarfile` marks names that are not UTF-8 with `hdrcharset`, which GNU tar does not
know. Attributes and ACLs are written as GNU tar 1.34 does (`SCHILY.xattr.*`, `SCHILY.acl.*`), so that it brings them back.
"""

import os

from migrator.decide.acl import GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, parse_acl
from migrator.domain.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType

BLOCK_BYTES = 512
RECORD_BYTES = 20 * BLOCK_BYTES
"""What tar reads at once; an archive ends on one, as GNU tar's do."""

_NS = 1_000_000_000
_NAME_BYTES = 100
_MAX_ID = 8**7 - 1
_MAX_NUMBER = 8**11 - 1
_LINK = b"1"
_TYPES = {
    EntryType.FILE: b"0",
    EntryType.SYMLINK: b"2",
    EntryType.CHARACTER: b"3",
    EntryType.BLOCK: b"4",
    EntryType.FIFO: b"6",
}
ARCHIVED_TYPES = frozenset(_TYPES)

_ACL_KEYS = {ACL_ACCESS: b"SCHILY.acl.access", ACL_DEFAULT: b"SCHILY.acl.default"}
_ACL_WORDS = {
    USER_OBJ: b"user",
    USER: b"user",
    GROUP_OBJ: b"group",
    GROUP: b"group",
    MASK: b"mask",
    OTHER: b"other",
}


def header(name: bytes, entry: Entry, link_to: bytes | None) -> bytes:
    """The whole header of a member: the pax records that it needs, then its own block. Names are relative to the tree."""
    is_link = link_to is not None
    target = link_to if link_to is not None else (entry.symlink_target or b"")
    size_bytes = content_bytes(entry) if not is_link else 0
    records = _records(name, target, size_bytes, entry)
    extended = b""
    if records:
        body = b"".join(_record(key, value) for key, value in records)
        extended = _block(b"PaxHeaders/" + name[:80], b"x", size_bytes=len(body)) + padded(body)
    seconds = entry.mtime_ns // _NS
    return extended + _block(
        name,
        _LINK if is_link else _TYPES[entry.type],
        size_bytes=min(size_bytes, _MAX_NUMBER),
        target=target,
        mode=entry.mode & 0o7777,
        uid=min(entry.uid, _MAX_ID),
        gid=min(entry.gid, _MAX_ID),
        mtime_s=min(max(seconds, 0), _MAX_NUMBER),
        device=(os.major(entry.rdev), os.minor(entry.rdev)),
    )


def content_bytes(entry: Entry) -> int:
    """How much content follows the header of a first name."""
    return entry.size_bytes if entry.type is EntryType.FILE else 0


def padding(size_bytes: int) -> bytes:
    """Zeros up to the next block."""
    return bytes(-size_bytes % BLOCK_BYTES)


def padded(content: bytes) -> bytes:
    """Content in whole blocks."""
    return content + padding(len(content))


def end(position_bytes: int) -> bytes:
    """The end of an archive: two blocks of zeros at least, up to a whole record."""
    position_bytes += 2 * BLOCK_BYTES
    return bytes(2 * BLOCK_BYTES + -position_bytes % RECORD_BYTES)


def _records(name: bytes, target: bytes, size_bytes: int, entry: Entry) -> list[tuple[bytes, bytes]]:
    records = [(b"mtime", _seconds(entry.mtime_ns)), (b"atime", _seconds(entry.atime_ns))]
    if not _fits(name):
        records.append((b"path", name))
    if not _fits(target):
        records.append((b"linkpath", target))
    if size_bytes > _MAX_NUMBER:
        records.append((b"size", b"%d" % size_bytes))
    records += [(key, b"%d" % value) for key, value in ((b"uid", entry.uid), (b"gid", entry.gid)) if value > _MAX_ID]
    for key in sorted(entry.xattrs):
        value = entry.xattrs[key]
        entries = parse_acl(value) if key in _ACL_KEYS else None
        if entries is not None:
            records.append((_ACL_KEYS[key], b",".join(map(_acl_text, entries))))
        else:
            records.append((b"SCHILY.xattr." + key.replace(b"%", b"%25").replace(b"=", b"%3D"), value))
    return records


def _fits(name: bytes) -> bool:
    return len(name) < _NAME_BYTES and name.isascii()


def _seconds(time_ns: int) -> bytes:
    sign = b"-" if time_ns < 0 else b""
    seconds, rest = divmod(abs(time_ns), _NS)
    return sign + (b"%d.%09d" % (seconds, rest) if rest else b"%d" % seconds)


def _record(key: bytes, value: bytes) -> bytes:
    body = b" " + key + b"=" + value + b"\n"
    length = len(body)
    # The length counts its own digits.
    while True:
        whole = len(body) + len(b"%d" % length)
        if whole == length:
            return b"%d" % length + body
        length = whole


def _acl_text(entry: AclEntry) -> bytes:
    identity = b"%d" % entry.id if entry.tag in (USER, GROUP) else b""
    letters = b"".join(letter if entry.permissions & bit else b"-" for letter, bit in ((b"r", 4), (b"w", 2), (b"x", 1)))
    return _ACL_WORDS[entry.tag] + b":" + identity + b":" + letters


def _block(
    name: bytes,
    kind: bytes,
    *,
    size_bytes: int,
    target: bytes = b"",
    mode: int = 0o600,
    uid: int = 0,
    gid: int = 0,
    mtime_s: int = 0,
    device: tuple[int, int] = (0, 0),
) -> bytes:
    parts = (
        name[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
        b"%07o\0" % mode,
        b"%07o\0" % uid,
        b"%07o\0" % gid,
        b"%011o\0" % size_bytes,
        b"%011o\0" % mtime_s,
        b"        ",
        kind,
        target[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
        b"ustar\x0000",
        bytes(64),
        b"%07o\0" % device[0],
        b"%07o\0" % device[1],
        bytes(155 + 12),
    )
    block = b"".join(parts)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
