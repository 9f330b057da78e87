"""Which extended attributes are user data, on a mount and on a brick. Plain Python 3.9."""

from __future__ import annotations

ACL_ACCESS = b"system.posix_acl_access"
ACL_DEFAULT = b"system.posix_acl_default"
_INTERNAL_PREFIXES = (
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
"""What Gluster and XFS keep for themselves: `trusted.SGI_ACL_FILE` is how XFS stores the ACL that is read as
`system.posix_acl_access` as well, and Gluster's FUSE mount shows it to root."""


def is_carried(name: bytes) -> bool:
    """Whether an attribute is user data: not a file system's internal one, and not the SELinux label, which belongs to the
    policy of a machine.
    """
    if name.startswith(b"user.") or name in (ACL_ACCESS, ACL_DEFAULT):
        return True
    if name.startswith(b"security."):
        return name != b"security.selinux"
    return name.startswith(b"trusted.") and not name.startswith(_INTERNAL_PREFIXES)
