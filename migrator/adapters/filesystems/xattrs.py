"""Extended attributes of an entry: one call to list them, one more for each that is kept."""

import errno
import os
from collections.abc import Mapping

from migrator.adapters.filesystems.beneath import entry_path
from migrator.domain.entry import ACL_ACCESS, ACL_DEFAULT

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

_ABSENT: Mapping[bytes, bytes] = {}
_NO_SUCH_ATTRIBUTE = (errno.ENODATA, errno.EOPNOTSUPP)


def is_carried(name: bytes) -> bool:
    """Whether an attribute is somebody's data: not a file system's internal one, and not the SELinux label, which
    belongs to the policy of a machine.
    """
    if name.startswith(b"user.") or name in (ACL_ACCESS, ACL_DEFAULT):
        return True
    if name.startswith(b"security."):
        return name != b"security.selinux"
    return name.startswith(b"trusted.") and not name.startswith(_INTERNAL_PREFIXES)


def read_xattrs(directory_fd: int, name: bytes) -> Mapping[bytes, bytes]:
    """The carried attributes of an entry, never through a symlink; empty where the file system knows none.

    An attribute that goes away between the two calls is not there. Raises OSError.
    """
    path = entry_path(directory_fd, name)
    try:
        listed = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_SUCH_ATTRIBUTE:
            return _ABSENT
        raise
    if not listed:
        return _ABSENT
    xattrs: dict[bytes, bytes] = {}
    for key in map(os.fsencode, listed):
        if is_carried(key):
            try:
                xattrs[key] = os.getxattr(path, key, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_SUCH_ATTRIBUTE:
                    raise
    return xattrs
