"""Owner, mode and ACLs of directories, compared. Pure."""

from migrator.fs.acl import GROUP_OBJ, OTHER, USER_OBJ, parse_acl
from migrator.gluster.model import BrickDirectory

_OF_MODE = (USER_OBJ, GROUP_OBJ, OTHER)


def same_owner(one: BrickDirectory, other: BrickDirectory) -> bool:
    """Return whether owner, mode and known ACLs are equal."""
    acls = ((beyond_mode(one.access), beyond_mode(other.access)), (one.default, other.default))
    alike = all(a is None or b is None or a == b for a, b in acls)
    return (one.mode, one.uid, one.gid) == (other.mode, other.uid, other.gid) and alike


def beyond_mode(acl: bytes | None) -> bytes | None:
    """Reduce an access ACL that is equivalent to a mode to none. A mount of Gluster shows such an ACL if a brick has
    none.
    """
    entries = parse_acl(acl) if acl else None
    return b"" if entries and all(entry.tag in _OF_MODE for entry in entries) else acl
