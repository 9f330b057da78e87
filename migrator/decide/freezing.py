"""Whether a user tree is frozen: what became of its top, and who can still write below it."""

import stat
from collections.abc import Collection, Sequence
from dataclasses import replace

from migrator.decide.acl import GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, parse_acl, show_acl
from migrator.domain.brick import VolumeState
from migrator.domain.filesystems import LOCAL_FILESYSTEMS
from migrator.domain.finding import Finding, failure, ok, warning
from migrator.domain.freezing import (
    FROZEN_PERMISSIONS,
    FROZEN_UID,
    FreezeWay,
    FrozenTop,
    OpenFile,
    OpenKind,
    TopLook,
    TopState,
    Writers,
)
from migrator.domain.hooks import Hook, HookEvent, HookStep
from migrator.domain.paths import show

_OPEN_BEHIND = "performance.open-behind"
_OFF = frozenset({"off", "no", "false", "0", "disable"})
_SHOWN = 5

_Entries = tuple[AclEntry, ...] | bytes | None
"""Bytes are what is no ACL that this program knows."""
_State = tuple[int, int, _Entries, _Entries]
"""Owner, mode, access ACL, default ACL."""


def frozen_form(top: FrozenTop) -> FrozenTop:
    """What freezing makes of a top: root's, closed, without ACLs. The group stays."""
    return replace(top, uid=FROZEN_UID, mode=top.frozen_mode, acl_access=None, acl_default=None)


def judge_top(before: FrozenTop, now: FrozenTop) -> TopLook:
    """What a top is now, against what was written down before it was frozen.

    A crash in the middle of freezing or thawing leaves one of a few exact states, each a step of one of the two orders;
    everything else was somebody else's doing.
    """
    if now == before:
        return TopLook(state=TopState.AS_BEFORE)
    frozen = frozen_form(before)
    if now == frozen:
        return TopLook(state=TopState.FROZEN)
    same = (now.tree, now.ino, now.gfid, now.gid) == (before.tree, before.ino, before.gfid, before.gid)
    if same and _state(now) in _steps(before):
        return TopLook(state=TopState.BETWEEN)
    another = (now.tree, now.ino, now.gfid) != (before.tree, before.ino, before.gfid)
    return TopLook(state=TopState.CHANGED, differences=tuple(_differences(before, frozen, now)), another=another)


def why_not_frozen(writers: Writers, *, vouched: bool) -> tuple[str, ...]:
    """Why somebody may still write below the trees, as sentences; none where nobody can. Who only reads stops nothing.
    `vouched`: the site's freeze hook answers for what was not seen; for what was seen to be open nobody can.
    """
    writing = tuple(one for one in writers.open_files if can_write(one))
    reasons = []
    if writing:
        shown = "; ".join(describe_open(one) for one in writing[:_SHOWN])
        more = f"; and {len(writing) - _SHOWN} more" if len(writing) > _SHOWN else ""
        reasons.append(f"something can still be written below the frozen trees: {shown}{more}")
    return (*reasons, *what_is_unseen(writers, vouched=vouched))


def what_is_unseen(writers: Writers, *, vouched: bool) -> tuple[str, ...]:
    """What no freeze would find out either, as sentences: it can be asked before anybody is frozen."""
    if vouched:
        return ()
    return tuple(f"whether somebody writes was not seen: {sentence}" for sentence in writers.unseen)


def can_write(found: OpenFile) -> bool:
    """Whether a tree can be changed through it, closed as its top is. From a working directory files are opened and made
    without passing the top. A file without a name belongs to no tree any more.
    """
    return not found.unlinked and (found.writable or found.kind is OpenKind.WORKING_DIRECTORY)


def describe_open(found: OpenFile) -> str:
    """One line for people: what, who, where."""
    holder = f"process {found.pid}" if found.pid is not None else ""
    holder += f" ({show(found.program)})" if found.program else ""
    place = f"on {found.host}" if not found.brick else f"through brick {found.brick}"
    how = _HOW.get(found.kind, "open for writing" if found.writable else "open for reading")
    state = ", has no name any more" if found.unlinked else ""
    return f"{show(found.path)}: {how}{state}, {' '.join(part for part in (holder, place) if part)}"


_HOW = {OpenKind.WORKING_DIRECTORY: "a working directory", OpenKind.LOOP_DEVICE: "a loop device"}


def missing_freeze_hook(way: FreezeWay, hooks: Collection[Hook]) -> str | None:
    """Why the site's freeze cannot be vouched for by a hook as it asks to; None where nothing is missing."""
    if way is FreezeWay.TOP or any(
        hook.stage.step is HookStep.FREEZE and hook.stage.event is HookEvent.PRE for hook in hooks
    ):
        return None
    return (
        '[cutover] freeze is "hook", and there is no pre-freeze hook: put one into pre-freeze.d of hooks_dir, '
        "which succeeds only where the users cannot write any more"
    )


def closed_already(top: FrozenTop) -> str | None:
    """Why a top cannot be frozen that looks frozen before; None for any other. How it was would not be known at its thaw."""
    if frozen_form(top) != top:
        return None
    return (
        f"the top of {show(top.tree)} on the source is closed already (root's, mode {top.mode:04o}), and no cutover of it is "
        "under way by the ledger: give it the owner, mode and ACLs that it should have, and see whether the ledger is the "
        "latest one"
    )


def check_freeze_hooks(way: FreezeWay, hooks: Collection[Hook]) -> list[Finding]:
    """For `doctor`, where the site's freeze hooks answer for what was not seen: are there any?"""
    if missing_freeze_hook(way, hooks) is None:
        return []
    message = '[cutover] freeze is "hook", and there is no pre-freeze hook to answer for it'
    fix = (
        "put one into pre-freeze.d in [site] hooks_dir that succeeds only where the users cannot write any more, "
        'or set [cutover] freeze = "top" (docs/cutover.md)'
    )
    return [failure("hooks", message, fix)]


def has_clients_elsewhere(filesystem: str) -> bool:
    """Whether other machines may have it mounted, which remember for a while what they saw of it. `filesystem` is the type as
    mountinfo names it.
    """
    return filesystem not in LOCAL_FILESYSTEMS


def clients_unseen(filesystem: str, *, mount: bytes) -> tuple[str, ...]:
    """What a search on this machine cannot see of a source that is no Gluster volume; nothing where only this machine
    has it mounted. `filesystem` is the type as mountinfo names it.
    """
    if not has_clients_elsewhere(filesystem):
        return ()
    return (
        f"{show(mount)} is a file system of type {filesystem}: what other machines have open there is not known here",
    )


def unopened_unseen(state: VolumeState) -> tuple[str, ...]:
    """Why what clients have open may be open on no brick: a client opens a file there only when it is first written or
    read, while performance.open-behind is on, as it is unless somebody set it (GlusterFS 10.3). Set to off, even what was
    opened before shows within a second.
    """
    value = dict(state.options).get(_OPEN_BEHIND, "on")
    if value.lower() in _OFF:
        return ()
    return (
        f"{_OPEN_BEHIND} is on: what a client has open and has not written to yet shows on no brick; "
        f"`gluster volume set {state.volume} {_OPEN_BEHIND} off` shows it",
    )


def check_open_files(state: VolumeState, way: FreezeWay) -> list[Finding]:
    """For `doctor`, where users are to be moved: does all that clients have open show on the bricks?"""
    if way is FreezeWay.HOOK:
        return []
    unseen = unopened_unseen(state)
    if not unseen:
        return [ok("open files", "what clients open shows on the bricks at once")]
    fix = f"before users are moved: gluster volume set {state.volume} {_OPEN_BEHIND} off"
    return [warning("open files", f"{_OPEN_BEHIND} is on: what is open and was not written to shows on no brick", fix)]


def _state(top: FrozenTop) -> _State:
    return top.uid, top.mode, _entries(top.acl_access), _entries(top.acl_default)


def _entries(acl: bytes | None) -> _Entries:
    if acl is None:
        return None
    entries = parse_acl(acl)
    return acl if entries is None else entries


def _steps(before: FrozenTop) -> Sequence[_State]:
    """Every state between `before` and frozen: `adapters.filesystems.freezing` has the two orders."""
    uid, mode, access, default = _state(before)
    closed = before.frozen_mode
    masked = tuple(_after_chmod(one, access) for one in access) if isinstance(access, tuple) else access
    freezing = [
        (uid, closed, masked, default),
        (FROZEN_UID, closed, masked, default),
        (FROZEN_UID, closed, masked, None),
    ]
    # Whoever sets an ACL may lose setgid by it (setxattr(2) of a caller that is not in the group).
    thawing = [
        (FROZEN_UID, closed, None, default),
        (FROZEN_UID, mode & ~stat.S_ISGID, access, default),
        (FROZEN_UID, mode, access, default),
    ]
    return [*freezing, *thawing]


def _after_chmod(entry: AclEntry, acl: tuple[AclEntry, ...]) -> AclEntry:
    """What chmod(2) to the frozen permissions makes of an entry: the mode's group is the mask, where there is one."""
    has_mask = any(one.tag == MASK for one in acl)
    shifts = {USER_OBJ: 6, MASK: 3, OTHER: 0} if has_mask else {USER_OBJ: 6, GROUP_OBJ: 3, OTHER: 0}
    if entry.tag in (USER, GROUP) or entry.tag not in shifts:
        return entry
    return replace(entry, permissions=FROZEN_PERMISSIONS >> shifts[entry.tag] & 7)


def _differences(before: FrozenTop, frozen: FrozenTop, now: FrozenTop) -> Sequence[str]:
    if (now.ino, now.gfid) != (before.ino, before.gfid):
        return ("another directory stands in its place",)
    found = []
    if now.gid != before.gid:
        found.append(f"its group is {now.gid}, and was {before.gid}")
    if now.uid not in (before.uid, frozen.uid):
        found.append(f"its owner is {now.uid}, and was {before.uid}")
    if now.mode not in (before.mode, frozen.mode):
        found.append(f"its mode is {now.mode:04o}, and was {before.mode:04o}, frozen {frozen.mode:04o}")
    acls = (("ACL", now.acl_access, before.acl_access), ("default ACL", now.acl_default, before.acl_default))
    for name, acl, was in acls:
        if acl not in (was, None):
            found.append(f"its {name} is {_shown(acl)}, and was {_shown(was)}")
    return found or (
        f"owner {now.uid}, mode {now.mode:04o}, ACL {_shown(now.acl_access)} and default ACL {_shown(now.acl_default)} "
        "are together no step of freezing or thawing",
    )


def _shown(acl: bytes | None) -> str:
    if acl is None:
        return "none"
    entries = parse_acl(acl)
    return "not readable" if entries is None else show_acl(entries)
