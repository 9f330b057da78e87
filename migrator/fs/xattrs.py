"""Which extended attributes are user data, on a mount and on a brick. Pure."""

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT

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
"""The prefixes that Gluster and XFS reserve. XFS stores the ACL in `trusted.SGI_ACL_FILE` and also shows it as
`system.posix_acl_access`; Gluster's FUSE mount shows both to root."""


def is_carried(name: bytes) -> bool:
    """Whether an attribute is user data: neither a file system's internal attribute nor the SELinux label, which
    belongs to the machine's policy.
    """
    if name.startswith(b"user.") or name in (ACL_ACCESS, ACL_DEFAULT):
        return True
    if name.startswith(b"security."):
        return name != b"security.selinux"
    return name.startswith(b"trusted.") and not name.startswith(_INTERNAL_PREFIXES)
