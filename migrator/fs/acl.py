"""POSIX ACLs in their extended attributes (linux/posix_acl_xattr.h), and their effect on a file's mode."""

import hashlib
import struct
from collections.abc import Callable, Iterable

from msgspec import Struct

USER_OBJ = 0x01
USER = 0x02
GROUP_OBJ = 0x04
GROUP = 0x08
MASK = 0x10
OTHER = 0x20

_VERSION = 2
_HEADER = struct.Struct("<I")
_ENTRY = struct.Struct("<HHI")
_NAMED = (USER, GROUP)
_WORDS = {USER_OBJ: "user", USER: "user", GROUP_OBJ: "group", GROUP: "group", MASK: "mask", OTHER: "other"}
_SHOWN_ENTRIES = 8


class AclEntry(Struct, frozen=True, kw_only=True, order=True):
    """One entry: `tag` as in the kernel's header, `id` 0 if the tag has none, `permissions` 0 to 7."""

    tag: int
    id: int
    permissions: int


def parse_acl(value: bytes) -> tuple[AclEntry, ...] | None:
    """The entries in order of tag and id; None if the format is unknown."""
    if len(value) < _HEADER.size or (len(value) - _HEADER.size) % _ENTRY.size:
        return None
    if _HEADER.unpack_from(value)[0] != _VERSION:
        return None
    entries = [
        AclEntry(tag=tag, id=identity if tag in _NAMED else 0, permissions=permissions)
        for tag, permissions, identity in _ENTRY.iter_unpack(value[_HEADER.size :])
    ]
    return tuple(sorted(entries))


def build_acl(entries: tuple[AclEntry, ...]) -> bytes:
    """The attribute's bytes, with the entries in order of tag and id, as the kernel requires."""
    body = b"".join(
        _ENTRY.pack(entry.tag, entry.permissions, entry.id if entry.tag in _NAMED else 0xFFFFFFFF)
        for entry in sorted(entries)
    )
    return _HEADER.pack(_VERSION) + body


def is_minimal(entries: tuple[AclEntry, ...]) -> bool:
    """Whether an access ACL has no named user or group, so that a mode can express it. `rsync -A` treats it as no ACL."""
    return not any(entry.tag in _NAMED for entry in entries)


def owning_group_bits(entries: tuple[AclEntry, ...]) -> int | None:
    """The effective rights of the owning group: its entry under the mask; None without such an entry. The mode of a
    file with an ACL shows the mask instead.
    """
    group = next((entry.permissions for entry in entries if entry.tag == GROUP_OBJ), None)
    mask = next((entry.permissions for entry in entries if entry.tag == MASK), 7)
    return None if group is None else group & mask


def show_acl(entries: tuple[AclEntry, ...]) -> str:
    """A short form for people: `u::rw-,u:1001:r--,g::r--,m::rw-,o::---`. Distinct ACLs look different."""
    shown = acl_text(entries[:_SHOWN_ENTRIES], word=lambda word: word[0])
    left = entries[_SHOWN_ENTRIES:]
    if not left:
        return shown
    digest = hashlib.blake2b(build_acl(left), digest_size=4).hexdigest()
    return f"{shown} and {len(left)} more ({digest})"


def acl_text(entries: Iterable[AclEntry], *, word: Callable[[str], str] = str) -> str:
    """The text form of acl(5), with `word` applied to `user`, `group`, `mask` and `other`."""
    texts = []
    for one in entries:
        letters = "".join(letter if one.permissions & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
        texts.append(f"{word(_WORDS.get(one.tag, '?'))}:{one.id if one.tag in _NAMED else ''}:{letters}")
    return ",".join(texts)
