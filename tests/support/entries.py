"""Entries for tests of pure decisions."""

from typing import Any

from msgspec.structs import replace

from migrator.core.entry import Entry, EntryType
from migrator.fs.acl import GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, build_acl
from migrator.reap.model import ReapRow
from migrator.site.model import ReapAction

_PLAIN = Entry(
    path=b"home/alice/file",
    type=EntryType.FILE,
    size_bytes=8192,
    blocks=16,
    uid=1001,
    gid=1002,
    mode=0o644,
    mtime_ns=1_500_000_000_123_456_789,
    atime_ns=1,
    ctime_ns=2,
    dev=3,
    rdev=0,
    ino=4,
    nlink=1,
)


def entry(path: bytes = b"home/alice/file", **changes: Any) -> Entry:
    """A plain file, or something else with some changes."""
    return replace(_PLAIN, path=path, **changes)


def acl(
    user: int, named: int | None = None, group: int = 5, mask: int | None = None, other: int = 0, *, uid: int = 1234
) -> bytes:
    """By permissions; `named` are those of `uid`."""
    parts = ((USER_OBJ, 0, user), (USER, uid, named), (GROUP_OBJ, 0, group), (MASK, 0, mask), (OTHER, 0, other))
    return build_acl(tuple(AclEntry(tag=tag, id=of, permissions=bits) for tag, of, bits in parts if bits is not None))


def reap_row(found: Entry, tree: bytes, action: ReapAction) -> ReapRow:
    """The row of a reap list that names this entry."""
    facts = {name: getattr(found, name) for name in ReapRow.__struct_fields__ if name not in ("tree", "action")}
    return ReapRow(tree=tree, action=action, **facts)
