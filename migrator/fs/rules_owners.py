"""Owners whose numbers differ between source and target. Pure.

The program has the source's numbers everywhere. They are translated in two places: where an entry of the target is read
(`ReadingFileSystem`, and `migrator-native walk`), and where an owner or an ACL is set there (`MountedTarget`, engines).
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry
from migrator.fs.acl import GROUP, USER, build_acl, parse_acl

_NO_IDS: Mapping[int, int] = {}


class OwnerMap(Struct, frozen=True, kw_only=True):
    """Ids of one numbering to those of another, one to one; others are the same in both. Made by `owner_map`."""

    users: Mapping[int, int] = {}
    groups: Mapping[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.users or self.groups)

    def uid(self, uid: int) -> int:
        """The user in the other numbering."""
        return self.users.get(uid, uid)

    def gid(self, gid: int) -> int:
        """The group in the other numbering."""
        return self.groups.get(gid, gid)

    def acl(self, value: bytes) -> bytes:
        """The attribute of a POSIX ACL with its named users and groups in the other numbering, in the kernel's order. A
        value without such ids, or in an unknown form, is returned as it is. As `map_acl` of native/src/owners.c.
        """
        of_tag = {USER: self.users, GROUP: self.groups}
        entries = parse_acl(value) or ()
        mapped = tuple(replace(one, id=of_tag.get(one.tag, _NO_IDS).get(one.id, one.id)) for one in entries)
        return value if mapped == entries else build_acl(mapped)

    def xattrs(self, xattrs: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
        """The attributes of an entry, with its ACLs in the other numbering."""
        acls = {name: self.acl(xattrs[name]) for name in (ACL_ACCESS, ACL_DEFAULT) if name in xattrs}
        return {**xattrs, **acls} if acls else xattrs

    def entry(self, entry: Entry) -> Entry:
        """The entry in the other numbering."""
        if not self:
            return entry
        return replace(entry, uid=self.uid(entry.uid), gid=self.gid(entry.gid), xattrs=self.xattrs(entry.xattrs))

    @property
    def inverse(self) -> "OwnerMap":
        """The way back."""
        users, groups = ({new: old for old, new in one.items()} for one in (self.users, self.groups))
        return OwnerMap(users=users, groups=groups)


SAME_OWNERS = OwnerMap()


def owner_map(users: Iterable[tuple[int, int]], groups: Iterable[tuple[int, int]]) -> OwnerMap:
    """The map of pairs of an old and a new id, no id twice on a side.

    Every id needs a way back, also one that no pair lists: a new number that is no old one gets the old number that it
    leaves unused. `taken_ids` finds such ids in use, for which that would be wrong.
    """
    return OwnerMap(users=_closed(dict(users)), groups=_closed(dict(groups)))


def _closed(pairs: Mapping[int, int]) -> Mapping[int, int]:
    before = {new: old for old, new in pairs.items()}
    found = {old: new for old, new in pairs.items() if old != new}
    for last in before.keys() - pairs.keys():
        first = last
        while first in before:
            first = before[first]
        found[last] = first
    return dict(sorted(found.items()))


def between(source: OwnerMap, target: OwnerMap) -> OwnerMap:
    """From the numbers of one file system to those of another; each map is that from the program's numbers to those of
    the file system.
    """
    from_source = source.inverse

    def joined(first: Mapping[int, int], second: Mapping[int, int]) -> Mapping[int, int]:
        ids = sorted(first.keys() | second.keys())
        ways = {one: second.get(first.get(one, one), first.get(one, one)) for one in ids}
        return {old: new for old, new in ways.items() if old != new}

    return OwnerMap(users=joined(from_source.users, target.users), groups=joined(from_source.groups, target.groups))


def taken_ids(pairs: Iterable[tuple[int, int]], in_use: Collection[int]) -> tuple[int, ...]:
    """Ids in use on the source that the pairs give to others, and for which they have no new id."""
    listed = dict(pairs)
    return tuple(sorted(new for new in set(listed.values()) - listed.keys() if new in in_use))


def owner_options(owners: OwnerMap, of_users: bytes, of_groups: bytes) -> tuple[bytes, ...]:
    """The options of a program that takes pairs, as `--uids 1000:2000,1001:2001`, in order of the first number."""
    return tuple(
        word
        for option, ids in ((of_users, owners.users), (of_groups, owners.groups))
        if ids
        for word in (option, b",".join(b"%d:%d" % pair for pair in sorted(ids.items())))
    )
