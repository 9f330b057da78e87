"""Extended attributes of what lies on a brick, in plain Python 3.9: Gluster's own, and those that are somebody's data."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from collections.abc import Sequence

GFID = b"trusted.gfid"
MDATA = b"trusted.glusterfs.mdata"
LINKTO = b"trusted.glusterfs.dht.linkto"
VOLUME_ID = b"trusted.glusterfs.volume-id"
ACL_ACCESS = b"system.posix_acl_access"
ACL_DEFAULT = b"system.posix_acl_default"
INTERNAL_PREFIXES = (
    b"trusted.gfid",
    b"trusted.glusterfs.",
    b"trusted.afr.",
    b"trusted.ec.",
    b"trusted.pgfid.",
    b"trusted.bit-rot.",
    b"trusted.SGI_ACL_",
    b"trusted.tier.",
    b"trusted.distribute.",
    b"trusted.io-stats-dump",
)

ABSENT = (errno.ENODATA, errno.EOPNOTSUPP)
NS_PER_S = 1_000_000_000

USER, ACCESS, DEFAULT, CAPABILITY, SECURITY, TRUSTED = 1, 2, 4, 8, 16, 32


def is_carried(name: bytes) -> bool:
    """Whether an attribute is somebody's data."""
    if name.startswith(b"user.") or name in (ACL_ACCESS, ACL_DEFAULT):
        return True
    if name.startswith(b"security."):
        return name != b"security.selinux"
    return name.startswith(b"trusted.") and not name.startswith(INTERNAL_PREFIXES)


def list_attributes(name: bytes) -> list[bytes]:
    """The names of an entry's attributes; none where the file system knows none. Raises OSError."""
    try:
        return [os.fsencode(key) for key in os.listxattr(name, follow_symlinks=False)]
    except OSError as error:
        if error.errno in ABSENT:
            return []
        raise


def attribute(name: bytes, key: bytes) -> bytes | None:
    """One attribute; None where it is not there. Raises OSError."""
    try:
        return os.getxattr(name, key, follow_symlinks=False)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise


def read_carried(name: bytes, keys: Sequence[bytes]) -> tuple[bytes | None, int, int, int]:
    """Digest, size of the largest value, kinds, and entries of the longer ACL. Raises OSError."""
    digest = hashlib.blake2b(digest_size=16)
    largest = kinds = acl_entries = 0
    for key in keys:
        value = attribute(name, key)
        if value is None:
            continue
        digest.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
        kind = kind_of(key)
        kinds |= kind
        largest = max(largest, len(value))
        if kind in (ACCESS, DEFAULT):
            acl_entries = max(acl_entries, max(len(value) - 4, 0) // 8)
    return (digest.digest() if kinds else None), largest, kinds, acl_entries


def kind_of(key: bytes) -> int:
    """The namespace of an attribute."""
    if key.startswith(b"user."):
        return USER
    if key in (ACL_ACCESS, ACL_DEFAULT):
        return ACCESS if key == ACL_ACCESS else DEFAULT
    if key == b"security.capability":
        return CAPABILITY
    return TRUSTED if key.startswith(b"trusted.") else SECURITY


def parse_mdata(value: bytes) -> list[int] | None:
    """The times of change, modification and access in nanoseconds; None where the form is not known."""
    if len(value) != 57 or value[0] != 1:
        return None
    numbers = struct.unpack_from(">qQqQqQ", value, 9)
    if any(nanoseconds >= NS_PER_S for nanoseconds in numbers[1::2]):
        return None
    return [seconds * NS_PER_S + nanoseconds for seconds, nanoseconds in zip(numbers[::2], numbers[1::2])]
