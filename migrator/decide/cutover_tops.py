"""The tops of a tree that is cut over: how they are written down, and what a look at that of the target shows. Pure."""

import json
from dataclasses import replace

from migrator.decide.acl import parse_acl
from migrator.decide.compare import CLOSED_MODE
from migrator.decide.expectations import kept_xattrs
from migrator.decide.switching import opened_mode
from migrator.domain.cutover_seen import TopSeen
from migrator.domain.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.domain.errors import LedgerCorrupt
from migrator.domain.freezing import FrozenTop, TopState
from migrator.domain.site import TargetCapabilities

_OWN_ENTRIES = 3
"""An ACL of no more entries says what the mode says, and file systems keep it as the mode alone."""

SOURCE_SEEN = {
    TopState.AS_BEFORE: TopSeen.OPEN,
    TopState.FROZEN: TopSeen.FROZEN,
    TopState.BETWEEN: TopSeen.PARTLY,
    TopState.CHANGED: TopSeen.OTHER,
}
"""What the state of a top on the source means to a cutover."""


def write_top(top: FrozenTop) -> str:
    """A top as the ledger keeps it: JSON, bytes in hexadecimal digits."""
    return json.dumps(
        {
            "tree": top.tree.hex(),
            "ino": top.ino,
            "gfid": _hex(top.gfid),
            "uid": top.uid,
            "gid": top.gid,
            "mode": top.mode,
            "acl_access": _hex(top.acl_access),
            "acl_default": _hex(top.acl_default),
        }
    )


def read_top(text: str) -> FrozenTop:
    """The top that was written down. Raises LedgerCorrupt."""
    try:
        found = json.loads(text)
        return FrozenTop(
            tree=bytes.fromhex(found["tree"]),
            ino=int(found["ino"]),
            gfid=_bytes(found["gfid"]),
            uid=int(found["uid"]),
            gid=int(found["gid"]),
            mode=int(found["mode"]),
            acl_access=_bytes(found["acl_access"]),
            acl_default=_bytes(found["acl_default"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerCorrupt(
            "how a user is thawed cannot be read from the ledger",
            hint="bring the ledger back from its backup, or give the top directory its owner and mode by hand",
        ) from error


def top_of(entry: Entry) -> FrozenTop:
    """A top directory as a look saw it."""
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
    """What a thaw makes of the top on the target: `now` is that, `like` the one on the source before it was frozen."""
    kept = kept_xattrs(like.xattrs, capabilities)
    return FrozenTop(
        tree=now.path,
        ino=now.ino,
        gfid=None,
        uid=like.uid,
        gid=like.gid,
        mode=opened_mode(like, capabilities),
        acl_access=kept.get(ACL_ACCESS),
        acl_default=kept.get(ACL_DEFAULT),
    )


def as_before(seen: Entry, top: FrozenTop) -> Entry:
    """The top directory on the target as it was written down, from a look at it: for opening it again."""
    kept = {name: value for name, value in seen.xattrs.items() if name not in (ACL_ACCESS, ACL_DEFAULT)}
    acls = {ACL_ACCESS: top.acl_access, ACL_DEFAULT: top.acl_default}
    xattrs = kept | {name: value for name, value in acls.items() if value is not None}
    return replace(seen, uid=top.uid, gid=top.gid, mode=top.mode, xattrs=xattrs)


def is_closed(now: Entry, *, uid: int, gid: int) -> bool:
    """Whether only this program's user enters the top on the target."""
    acls = {ACL_ACCESS, ACL_DEFAULT} & now.xattrs.keys()
    return not acls and (now.type, now.uid, now.gid, now.mode) == (EntryType.DIRECTORY, uid, gid, CLOSED_MODE)


def target_top(now: Entry | None, wanted: FrozenTop | None, *, uid: int, gid: int) -> tuple[TopSeen, tuple[str, ...]]:
    """What the top on the target is, with sentences about one that is `other`. `wanted` is what it is when it is open, None
    where nobody opened it ever; `uid` and `gid` are those of this program, to whom a closed one belongs.
    """
    if now is None:
        return TopSeen.OTHER, ("it is missing",)
    if now.type is not EntryType.DIRECTORY:
        return TopSeen.OTHER, (f"it is a {now.type.value}",)
    if is_closed(now, uid=uid, gid=gid):
        return TopSeen.FROZEN, ()
    if wanted is None:
        return TopSeen.OTHER, (
            f"it is open (uid {now.uid}, mode {now.mode:04o}), and nobody opened it by this program",
        )
    if _same(now, wanted):
        return TopSeen.OPEN, ()
    if now.uid in (uid, wanted.uid) and now.gid in (gid, wanted.gid):
        # Both ways begin and end with the bits of its owner alone; what has others' bits was given them by the user.
        partly = now.uid == uid or now.mode & 0o077 == 0
        return (TopSeen.PARTLY if partly else TopSeen.OPEN), ()
    return TopSeen.OTHER, (
        f"it belongs to {now.uid}:{now.gid} with mode {now.mode:04o}, and should to {wanted.uid}:{wanted.gid} "
        f"with {wanted.mode:04o}",
    )


def _same(now: Entry, wanted: FrozenTop) -> bool:
    facts = (now.uid, now.gid, now.mode) == (wanted.uid, wanted.gid, wanted.mode)
    return (
        facts
        and _same_acl(now.xattrs.get(ACL_ACCESS), wanted.acl_access)
        and (now.xattrs.get(ACL_DEFAULT) == wanted.acl_default)
    )


def _same_acl(now: bytes | None, wanted: bytes | None) -> bool:
    return now == wanted or _plain(now) == _plain(wanted)


def _plain(acl: bytes | None) -> object:
    """None for an ACL that the mode says as well."""
    entries = None if acl is None else parse_acl(acl)
    return None if entries is None or len(entries) <= _OWN_ENTRIES else entries


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _bytes(value: object) -> bytes | None:
    return None if value is None else bytes.fromhex(str(value))
