"""POSIX ACLs as the kernel takes them: the value of `system.posix_acl_*` (linux/posix_acl_xattr.h, version 2)."""

import struct

_VERSION = 2
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NO_ID = 0xFFFFFFFF


def acl_value(
    *, owner: int, group: int, other: int, mask: int, users: dict[int, int], groups: dict[int, int] | None = None
) -> bytes:
    """Encode an ACL; permissions are 0..7, `users` and `groups` map ids to permissions."""
    entries = [
        (_USER_OBJ, owner, _NO_ID),
        *((_USER, permissions, uid) for uid, permissions in sorted(users.items())),
        (_GROUP_OBJ, group, _NO_ID),
        *((_GROUP, permissions, gid) for gid, permissions in sorted((groups or {}).items())),
        (_MASK, mask, _NO_ID),
        (_OTHER, other, _NO_ID),
    ]
    return struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
