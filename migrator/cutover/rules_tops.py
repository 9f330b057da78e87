"""The top directories of a user tree: in the ledger, frozen, and as a thaw leaves them. Pure."""

import json
import stat
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.core.errors import LedgerCorrupt
from migrator.cutover.model_snapshot import TopState
from migrator.fs.acl import GROUP, USER, build_acl, parse_acl, show_acl
from migrator.fs.model import TargetCapabilities
from migrator.fs.rules import CLOSED_MODE, kept_xattrs, opened_mode, shows_time, xattr_loss
from migrator.plan.rules import FROZEN_UID

FROZEN_PERMISSIONS = 0o500
"""Of the top of a frozen tree. Root owns that top: its former owner could open it again with a mere chmod, as login
programs do.
"""

PERMISSION_BITS = 0o777


class FrozenTop(Struct, frozen=True, kw_only=True):
    """The top directory of a user tree before it was frozen; kept in the ledger, as JSON, before anything changes.

    `mode` has the twelve bits of permissions, setuid, setgid and sticky. The ACLs are the bytes of their extended
    attributes, None if there is none. `ino` and `gfid` (16 bytes; None if the source is no Gluster volume) identify the
    directory.
    """

    tree: bytes
    ino: int
    gfid: bytes | None
    uid: int
    gid: int
    mode: int
    acl_access: bytes | None
    acl_default: bytes | None

    @property
    def frozen_mode(self) -> int:
        """The mode while it is frozen: setuid, setgid and sticky stay and need not be restored."""
        return self.mode & ~PERMISSION_BITS | FROZEN_PERMISSIONS


class TopComparison(Struct, frozen=True, kw_only=True):
    """A top on the source, compared with its record from before the freeze. `differences` are sentences, empty unless
    the state is `other`; `another`: another directory has its name.
    """

    state: TopState
    differences: tuple[str, ...] = ()
    another: bool = False


_OWN_ENTRIES = 3
"""An ACL with no more entries repeats the mode; file systems store it as the mode alone."""


def write_top(top: FrozenTop) -> str:
    """A top as JSON for the ledger, with bytes in hexadecimal."""
    return json.dumps({name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(top).items()})


def read_top(text: str) -> FrozenTop:
    """Parse a top from the ledger. Raises LedgerCorrupt."""
    try:
        found = json.loads(text)
        values: dict[str, Any] = {name: int(found[name]) for name in ("ino", "uid", "gid", "mode")}
        for name in ("gfid", "acl_access", "acl_default"):
            values[name] = None if found[name] is None else bytes.fromhex(found[name])
        return FrozenTop(tree=bytes.fromhex(found["tree"]), **values)
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerCorrupt(
            "the record of the top to thaw cannot be read from the ledger",
            hint="restore the ledger from its backup, or give the top directory its owner and mode by hand",
        ) from error


def top_of(entry: Entry) -> FrozenTop:
    """The top directory in this entry."""
    return FrozenTop(
        tree=entry.path,
        ino=entry.ino,
        gfid=entry.gfid,
        uid=entry.uid,
        gid=entry.gid,
        mode=entry.mode,
        acl_access=entry.xattrs.get(ACL_ACCESS),
        acl_default=entry.xattrs.get(ACL_DEFAULT),
    )


def opened_top(like: Entry, now: Entry, capabilities: TargetCapabilities) -> FrozenTop:
    """The top on the target after a thaw. `now` is its current entry, `like` the entry of the top on the source before
    the freeze.
    """
    kept = kept_xattrs(like.xattrs, capabilities)
    return replace(
        top_of(now),
        gfid=None,
        uid=like.uid,
        gid=like.gid,
        mode=opened_mode(like, capabilities),
        acl_access=kept.get(ACL_ACCESS),
        acl_default=kept.get(ACL_DEFAULT),
    )


def as_before(seen: Entry, top: FrozenTop) -> Entry:
    """A top directory as recorded before a freeze, from its current entry `seen`, for the thaw. A freeze changes owner,
    mode and ACLs, but neither times nor other attributes.
    """
    kept = {name: value for name, value in seen.xattrs.items() if name not in (ACL_ACCESS, ACL_DEFAULT)}
    acls = {ACL_ACCESS: top.acl_access, ACL_DEFAULT: top.acl_default}
    xattrs = kept | {name: value for name, value in acls.items() if value is not None}
    return replace(seen, uid=top.uid, gid=top.gid, mode=top.mode, xattrs=xattrs)


def is_closed(now: Entry, *, uid: int, gid: int) -> bool:
    """True if only the user that runs this program can enter the top on the target."""
    acls = {ACL_ACCESS, ACL_DEFAULT} & now.xattrs.keys()
    return not acls and (now.type, now.uid, now.gid, now.mode) == (EntryType.DIRECTORY, uid, gid, CLOSED_MODE)


def target_top(now: Entry | None, wanted: FrozenTop | None, *, uid: int, gid: int) -> tuple[TopState, tuple[str, ...]]:
    """The state of the top on the target, and sentences about the differences if it is `other`.

    `wanted` is the top when open; None if it was never opened. `uid` and `gid` are those of this program, which owns a
    closed top.
    """
    if now is None:
        return TopState.OTHER, ("it is missing",)
    if now.type is not EntryType.DIRECTORY:
        return TopState.OTHER, (f"it is a {now.type.value}",)
    if is_closed(now, uid=uid, gid=gid):
        return TopState.FROZEN, ()
    if wanted is None:
        return TopState.OTHER, (f"it is open (uid {now.uid}, mode {now.mode:04o}), and this program did not open it",)
    if _same(now, wanted):
        return TopState.OPEN, ()
    if now.uid in (uid, wanted.uid) and now.gid in (gid, wanted.gid):
        # Freeze and thaw begin and end with permissions for the owner alone; only the user can have granted others any.
        partly = now.uid == uid or now.mode & 0o077 == 0
        return (TopState.PARTLY if partly else TopState.OPEN), ()
    return TopState.OTHER, (
        f"it belongs to {now.uid}:{now.gid} with mode {now.mode:04o}, and should to {wanted.uid}:{wanted.gid} "
        f"with {wanted.mode:04o}",
    )


def _same(now: Entry, wanted: FrozenTop) -> bool:
    return (
        (now.uid, now.gid, now.mode) == (wanted.uid, wanted.gid, wanted.mode)
        and _plain(now.xattrs.get(ACL_ACCESS)) == _plain(wanted.acl_access)
        and now.xattrs.get(ACL_DEFAULT) == wanted.acl_default
    )


def _plain(acl: bytes | None) -> object:
    """None for an ACL that repeats the mode."""
    entries = None if acl is None else parse_acl(acl)
    return None if entries is None or len(entries) <= _OWN_ENTRIES else entries


# The top directory on the source after a rollback. No pass carries it, because it is frozen. Attributes that the user
# changed on the target since the switch are taken from the target. All others, and those that the target cannot keep in
# full, are as on the source before the freeze.


def carried_top(
    source: Entry,
    target: Entry,
    *,
    source_before: FrozenTop,
    target_before: FrozenTop,
    capabilities: TargetCapabilities,
) -> Entry:
    """The top on the source after a rollback, for `MountedTarget.open_tree`.

    `source` and `target` are the current, frozen tops; they provide times and the attributes that a freeze leaves
    alone. `source_before` is the source's top before the freeze of the cutover, `target_before` the target's before the
    freeze of the rollback. `capabilities` are the target's.
    """
    opened = opened_top(as_before(source, source_before), target, capabilities)
    changed = {
        name: getattr(target_before, name)
        for name in ("uid", "gid", "mode", "acl_access", "acl_default")
        if _read(name, getattr(target_before, name)) != _read(name, getattr(opened, name))
    }
    lost = {name: value for name, value in source.xattrs.items() if xattr_loss(name, value, capabilities) is not None}
    same_time = shows_time(target.mtime_ns, source.mtime_ns, capabilities)
    carried = replace(
        source, mtime_ns=source.mtime_ns if same_time else target.mtime_ns, xattrs={**lost, **target.xattrs}
    )
    return as_before(carried, replace(source_before, **changed))


def _read(name: str, value: object) -> object:
    """An ACL as its entries, because equal ACLs may differ in bytes; any other value unchanged."""
    return _plain(value) if name.startswith("acl") and isinstance(value, bytes) else value


def frozen_form(top: FrozenTop) -> FrozenTop:
    """The frozen form of a top: root's, closed, without ACLs. The group stays."""
    return replace(top, uid=FROZEN_UID, mode=top.frozen_mode, acl_access=None, acl_default=None)


def judge_top(before: FrozenTop, now: FrozenTop) -> TopComparison:
    """Compare a top with its record from before the freeze.

    A crash during a freeze or thaw leaves each attribute either as it was or as frozen; anything else was changed by
    somebody else. (Setting an ACL may clear setgid: setxattr(2) by a caller outside the group does.)
    """
    frozen = frozen_form(before)
    if now in (before, frozen):
        return TopComparison(state=TopState.OPEN if now == before else TopState.FROZEN)
    if (now.tree, now.ino, now.gfid) != (before.tree, before.ino, before.gfid):
        another = ("another directory has its name",)
        return TopComparison(state=TopState.OTHER, differences=another, another=True)
    attributes: tuple[tuple[str, Callable[[Any], str], object, object, tuple[object, ...]], ...] = (
        ("group", str, now.gid, before.gid, ()),
        ("owner", str, now.uid, before.uid, (frozen.uid,)),
        ("mode", "{:04o}".format, now.mode, before.mode, (frozen.mode, before.mode & ~stat.S_ISGID)),
        ("ACL", _shown, _unmasked(now.acl_access), _unmasked(before.acl_access), (None,)),
        ("default ACL", _shown, now.acl_default, before.acl_default, (None,)),
    )
    found = [
        f"its {name} is {shown(value)}, and was {shown(was)}"
        for name, shown, value, was, others in attributes
        if value not in (was, *others)
    ]
    state = TopState.OTHER if found else TopState.PARTLY
    return TopComparison(state=state, differences=tuple(found))


def _unmasked(acl: bytes | None) -> bytes | None:
    """The ACL without the permissions that chmod(2) changes in it, as a freeze does: the mode has them too."""
    entries = None if acl is None else parse_acl(acl)
    if entries is None:
        return acl
    return build_acl(tuple(one if one.tag in (USER, GROUP) else replace(one, permissions=0) for one in entries))


def _shown(acl: bytes | None) -> str:
    if acl is None:
        return "none"
    entries = parse_acl(acl)
    return "not readable" if entries is None else show_acl(entries)
