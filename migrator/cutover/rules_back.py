"""What the top directory of a user tree is to be on the source after a rollback. Pure.

No pass carries it: it is frozen. Attributes that the user changed on the target since the switch are taken from there. All others,
and those that the target cannot keep in full, are as on the source before the freeze.
"""

from collections.abc import Mapping
from dataclasses import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry
from migrator.cutover.model import FrozenTop
from migrator.fs.acl import parse_acl
from migrator.fs.model import TargetCapabilities
from migrator.fs.rules import floored_time_ns, opened_mode, xattr_loss


def carried_top(
    source: Entry,
    target: Entry,
    *,
    source_before: FrozenTop,
    target_before: FrozenTop,
    capabilities: TargetCapabilities,
) -> Entry:
    """What the top on the source becomes, for `TargetTrees.open_tree`.

    `source` and `target` are both tops as they are now, frozen: times and attributes that freezing leaves alone are taken
    from them. `source_before` is the source's before the freeze of the cutover, `target_before` the target's before the
    freeze of the rollback. `capabilities` are the target's.
    """
    acls = {
        ACL_ACCESS: _acl(ACL_ACCESS, source_before.acl_access, target_before.acl_access, capabilities),
        ACL_DEFAULT: _acl(ACL_DEFAULT, source_before.acl_default, target_before.acl_default, capabilities),
    }
    same_time = target.mtime_ns == floored_time_ns(source.mtime_ns, capabilities)
    return replace(
        source,
        uid=target_before.uid,
        gid=target_before.gid,
        mode=_mode(source, source_before, target_before, capabilities),
        mtime_ns=source.mtime_ns if same_time else target.mtime_ns,
        xattrs={
            **_attributes(source.xattrs, target.xattrs, capabilities),
            **{name: value for name, value in acls.items() if value is not None},
        },
    )


def _acl(name: bytes, source: bytes | None, target: bytes | None, capabilities: TargetCapabilities) -> bytes | None:
    lost = source is not None and target is None and xattr_loss(name, source, capabilities) is not None
    return source if lost or _entries(source) == _entries(target) else target


def _mode(source: Entry, before: FrozenTop, target: FrozenTop, capabilities: TargetCapabilities) -> int:
    """Where the target lacks the ACL it was opened with other bits of the group than the source's."""
    acls = {} if before.acl_access is None else {ACL_ACCESS: before.acl_access}
    opened = opened_mode(replace(source, mode=before.mode, xattrs=acls), capabilities)
    return before.mode if target.mode == opened else target.mode


def _attributes(
    source: Mapping[bytes, bytes], target: Mapping[bytes, bytes], capabilities: TargetCapabilities
) -> dict[bytes, bytes]:
    """All but ACLs: those of the target, with what it cannot keep of the source's."""
    own = {name: value for name, value in source.items() if xattr_loss(name, value, capabilities) is not None}
    return {name: value for name, value in {**own, **target}.items() if name not in (ACL_ACCESS, ACL_DEFAULT)}


def _entries(acl: bytes | None) -> object:
    return None if acl is None else parse_acl(acl) or acl
