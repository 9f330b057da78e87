"""Rules on changes of owner and mode of directories while bricks are added. Pure.

GlusterFS 10.3 was observed to change directories that clients and the fix-layout create on new bricks at the same time.
It changes all copies alike. Some become root's with mode 0000. Others get the attributes of a new directory in that
place: the setgid bit of the parent or none, its group, and the permissions that its default ACL leaves. Gluster's own
record of times (`trusted.glusterfs.mdata`) stays unchanged by this. A chmod, chown or setfacl of a user sets ctime
there on every copy and leaves mtime. A file created in the directory sets both, on the copy beside it.
"""

import stat
from enum import StrEnum

from msgspec.structs import replace

from migrator.bricks.directory_owners import beyond_mode, same_owner
from migrator.core.paths import parent, shell_quoted, show
from migrator.fs.acl import GROUP_OBJ, MASK, OTHER, USER_OBJ, parse_acl, show_acl
from migrator.gluster.model import BrickDirectory, ListedDirectory


class DirectoryVerdict(StrEnum):
    """What to do about a directory. `right`: nothing. `changed`: users changed it, and the new attributes count from
    now on. `taken`: its former attributes are restored. `outdated`: the same, but it was changed, or a file was made in
    it, after they were recorded; attributes that users set then are lost. `unknown`: it is closed to all but root, and
    no other attributes were recorded. `doubtful`: either GlusterFS or users may have changed it.
    """

    RIGHT = "right"
    CHANGED = "changed"
    TAKEN = "taken"
    OUTDATED = "outdated"
    UNKNOWN = "unknown"
    DOUBTFUL = "doubtful"


_V = DirectoryVerdict
LET_ALONE = frozenset({_V.RIGHT, _V.CHANGED})
RESTORED = frozenset({_V.TAKEN, _V.OUTDATED})
UNDECIDED = frozenset({_V.OUTDATED, _V.DOUBTFUL})
"""Another copy may show that no user has changed the directory: then it is `taken`."""


def judge(known: BrickDirectory | None, seen: BrickDirectory, above: BrickDirectory | None) -> DirectoryVerdict:
    """Judge one copy of a directory. `known` is the last record of the same copy that was right (None: the directory
    did not exist). `above` is its parent (None: unknown).
    """
    if known is None:
        return _V.UNKNOWN if seen.shut else _V.RIGHT
    if _owned(known) == _owned(seen):
        return _V.RIGHT
    if known.shut:
        return _V.CHANGED
    dated = known.changed_ns is not None and seen.changed_ns is not None
    by_gluster = _as_if_made_anew(known, seen, above) or _given_away(known, seen, above)
    if dated and known.changed_ns == seen.changed_ns:
        # Every change by a user sets ctime, unless the clock of their client is behind that of another client.
        return _V.TAKEN if by_gluster or seen.shut else _V.DOUBTFUL
    if seen.shut:
        # A user cannot give a directory to root. Root can close its own directories.
        if known.uid == 0 and _set_by_people(known, seen):
            return _V.DOUBTFUL
        # Users may have set a mode in the seconds between the record and the damage. They need access all the same.
        return _V.OUTDATED if dated else _V.TAKEN
    # A ctime later than mtime proves nothing: self-heal writes an mtime too, sometimes an earlier one.
    return _V.DOUBTFUL if by_gluster else _V.CHANGED


def untouched_since(known: BrickDirectory, copy: BrickDirectory) -> bool:
    """Return whether a copy shows that no user has changed the directory since it was known to be right. A change by a
    user sets the same ctime on all copies. False if the times are unknown.
    """
    if known.changed_ns is None or copy.changed_ns is None:
        return False
    return copy.gfid == known.gfid and copy.changed_ns <= known.changed_ns


def shown_as(shown: BrickDirectory, seen: BrickDirectory, above: BrickDirectory | None) -> bool:
    """Return whether the mount shows the attributes of this copy. Its ACLs may be those of another copy, which has
    inherited them.
    """
    inherits = above is not None and bool(above.default) and shown.default == above.default
    return same_owner(shown, replace(seen, access=shown.access, default=shown.default) if inherits else seen)


def restored(known: BrickDirectory) -> str:
    """Report an `outdated` directory that was restored to what is recorded."""
    return (
        f"{show(known.path)}: GlusterFS had made it root's with mode 0000; it is {_attributes(known)} again. It was used after that "
        f"was recorded: a mode, owner or ACL that a user gave it in those seconds is lost, and must be set again"
    )


def listed(
    verdict: DirectoryVerdict, known: BrickDirectory | None, seen: BrickDirectory, *, root: bytes, failure: str = ""
) -> ListedDirectory:
    """Describe a directory that was not restored, for the admin. `root` is the mount of the volume. `failure` is the
    reason if a restore was tried and failed.
    """
    now = f"it is {_attributes(seen)} now" if not seen.shut else "only root can enter it: it is root's with mode 0000"
    if known is None:
        reason = f"{now}, and its owner is unknown: no other attributes were recorded"
        command = _by_the_one_above(root, seen.path)
    else:
        reason = f"{now}, and was {_attributes(known)}"
        command = _as_before(root, seen, known)
    if verdict is _V.DOUBTFUL:
        reason += "; GlusterFS or a user may have changed it"
    if failure:
        reason += f"; it could not be restored ({failure})"
    return ListedDirectory(
        path=seen.path,
        gfid=seen.gfid.hex(),
        mode=seen.mode,
        uid=seen.uid,
        gid=seen.gid,
        reason=reason,
        command=command,
    )


def _owned(one: BrickDirectory) -> tuple[object, ...]:
    return (one.mode, one.uid, one.gid, beyond_mode(one.access), one.default)


def _set_by_people(known: BrickDirectory, seen: BrickDirectory) -> bool:
    """Return whether the last change seems to be one of attributes. A rename sets ctime too."""
    if seen.changed_ns is None or seen.modified_ns is None or seen.path != known.path:
        return False
    return seen.changed_ns != known.changed_ns and seen.changed_ns > seen.modified_ns


def _as_if_made_anew(known: BrickDirectory, seen: BrickDirectory, above: BrickDirectory | None) -> bool:
    """Return whether its attributes are the former ones, or those of a new directory in the same place."""
    modes, groups = {known.mode}, {known.gid, 0}
    acls = {beyond_mode(known.access), b""}
    if above is not None:
        groups.add(above.gid)
        modes |= {mode & _left_by(above.default) | mode & ~0o777 for mode in modes}
        modes |= {mode & ~stat.S_ISGID | above.mode & stat.S_ISGID for mode in modes}
    inherited = above is not None and bool(above.default)
    alike = inherited or (beyond_mode(seen.access) in acls and seen.default in (known.default, b""))
    return alike and seen.mode in modes and seen.uid in (known.uid, 0) and seen.gid in groups


def _given_away(known: BrickDirectory, seen: BrickDirectory, above: BrickDirectory | None) -> bool:
    """Return whether it belongs to root now, or to the group of a new directory in that place, whatever its mode is
    now.
    """
    group = above is not None and bool(above.mode & stat.S_ISGID) and seen.gid == above.gid != known.gid
    return (seen.uid == 0 and known.uid != 0) or group


def _left_by(default: bytes | None) -> int:
    """Return the permissions that a default ACL leaves to a new directory."""
    entries = parse_acl(default) if default else None
    if not entries:
        return 0o777
    by_tag = {entry.tag: entry.permissions for entry in entries}
    group = by_tag.get(MASK, by_tag.get(GROUP_OBJ, 7))
    return by_tag.get(USER_OBJ, 7) << 6 | group << 3 | by_tag.get(OTHER, 7)


def _attributes(one: BrickDirectory) -> str:
    acl = ", with an ACL" if one.access else ""
    return f"{one.uid}:{one.gid} {one.mode:04o}{acl}"


def _as_before(root: bytes, seen: BrickDirectory, known: BrickDirectory) -> str:
    place = shell_quoted(root + b"/" + seen.path)
    commands = [f"chown {known.uid}:{known.gid} {place}"]
    entries = parse_acl(known.access) if known.access and known.access != seen.access else None
    if entries and len(shown := show_acl(entries).split(",")) == len(entries):
        commands.append(f"setfacl --set {','.join(shown)} {place}")
    return " && ".join([*commands, f"chmod {known.mode:04o} {place}"])


def _by_the_one_above(root: bytes, path: bytes) -> str:
    """Grant no more than the parent's owner has, who may remove the directory anyway."""
    place, above = shell_quoted(root + b"/" + path), shell_quoted((root + b"/" + parent(path)).rstrip(b"/"))
    return f"chown --reference={above} {place} && chmod 0700 {place}"
