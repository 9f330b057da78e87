"""What became of the owner and mode of a directory while bricks were added. Pure.

What GlusterFS 10.3 was seen to do to directories that clients and the fix-layout make on new bricks side by side, to all copies
alike: some become root's with mode 0000; others get what a directory that is made there anew would have (the setgid bit of the one
above or none, its group, the bits that its default ACL leaves). Its own record of times (`trusted.glusterfs.mdata`) is not touched
by that. A chmod, chown or setfacl of a user sets ctime there on every copy, and leaves mtime; a file that is made in the
directory sets both, on the copy beside it.
"""

import shlex
import stat
from dataclasses import replace
from enum import StrEnum

from migrator.core.paths import parent
from migrator.fs.acl import GROUP_OBJ, MASK, OTHER, USER_OBJ, parse_acl, show_acl
from migrator.gluster.model import DirectoryFacts, ListedDirectory


class DirectoryVerdict(StrEnum):
    """What is to be done about a directory. `right`: nothing. `changed`: people did that, and it is what counts from now on.
    `taken`: it gets back what it had. `unknown`: it is shut, and was never seen otherwise. `doubtful`: GlusterFS may have done
    that, and so may people.
    """

    RIGHT = "right"
    CHANGED = "changed"
    TAKEN = "taken"
    UNKNOWN = "unknown"
    DOUBTFUL = "doubtful"


_V = DirectoryVerdict
_OF_MODE = (USER_OBJ, GROUP_OBJ, OTHER)
LET_ALONE = frozenset({_V.RIGHT, _V.CHANGED})


def judge(known: DirectoryFacts | None, seen: DirectoryFacts, above: DirectoryFacts | None) -> DirectoryVerdict:
    """One copy of a directory, by what was last known to be right of the same copy (None: it was not there), and of the directory
    that it lies in (None: nothing).
    """
    if known is None:
        return _V.UNKNOWN if seen.shut else _V.RIGHT
    if _owned(known) == _owned(seen):
        return _V.RIGHT
    if known.shut:
        return _V.CHANGED
    told = known.changed_ns is not None and seen.changed_ns is not None
    by_gluster = _as_if_made_anew(known, seen, above) or _given_away(known, seen, above)
    if told and known.changed_ns == seen.changed_ns:
        # Whatever a user does to it sets its ctime, unless the clock of his client is behind that of another one.
        return _V.TAKEN if by_gluster or seen.shut else _V.DOUBTFUL
    if seen.shut:
        # A user cannot give anything to root; root himself can shut what is his.
        return _V.DOUBTFUL if known.uid == 0 and _set_by_people(known, seen) else _V.TAKEN
    # That ctime is later than mtime proves nothing: healing writes an mtime too, sometimes an earlier one.
    return _V.DOUBTFUL if by_gluster else _V.CHANGED


def untouched_since(known: DirectoryFacts, copy: DirectoryFacts) -> bool:
    """Whether any copy of a directory tells that no user has changed it since it was known to be right: what he does to it sets
    the same ctime on all of them. False where it does not tell.
    """
    if known.changed_ns is None or copy.changed_ns is None:
        return False
    return copy.gfid == known.gfid and copy.changed_ns <= known.changed_ns


def same_owner(one: DirectoryFacts, other: DirectoryFacts) -> bool:
    """Whether owner, mode and known ACLs are equal."""
    acls = ((_beyond_mode(one.access), _beyond_mode(other.access)), (one.default, other.default))
    alike = all(a is None or b is None or a == b for a, b in acls)
    return (one.mode, one.uid, one.gid) == (other.mode, other.uid, other.gid) and alike


def shown_as(shown: DirectoryFacts, seen: DirectoryFacts, above: DirectoryFacts | None) -> bool:
    """Whether a mount shows what one copy has. Of ACLs it may show those of another copy, which has inherited them."""
    inherits = above is not None and bool(above.default) and shown.default == above.default
    return same_owner(shown, replace(seen, access=shown.access, default=shown.default) if inherits else seen)


def listed(
    verdict: DirectoryVerdict, known: DirectoryFacts | None, seen: DirectoryFacts, *, root: bytes, failure: str = ""
) -> ListedDirectory:
    """How people are told of a directory that was not given back. `root` is the mount of the volume, `failure` says why it could
    not be where that was tried.
    """
    now = f"it is {_words(seen)} now" if not seen.shut else "only root may enter it: it is root's with mode 0000"
    if known is None:
        reason = f"{now}, and was never seen otherwise: whose it is, is not known"
        command = _by_the_one_above(root, seen.path)
    else:
        reason = f"{now}, and was {_words(known)}"
        command = _as_before(root, seen, known)
    if verdict is _V.DOUBTFUL:
        reason += "; GlusterFS may have done that, or somebody who works there"
    if failure:
        reason += f"; it could not be given back ({failure})"
    return ListedDirectory(
        path=seen.path,
        gfid=seen.gfid.hex(),
        mode=seen.mode,
        uid=seen.uid,
        gid=seen.gid,
        reason=reason,
        command=command,
    )


def _owned(one: DirectoryFacts) -> tuple[object, ...]:
    return (one.mode, one.uid, one.gid, _beyond_mode(one.access), one.default)


def _beyond_mode(acl: bytes | None) -> bytes | None:
    """An access ACL that says no more than a mode is none: a mount of Gluster shows such a one where a brick has none."""
    entries = parse_acl(acl) if acl else None
    return b"" if entries and all(entry.tag in _OF_MODE for entry in entries) else acl


def _set_by_people(known: DirectoryFacts, seen: DirectoryFacts) -> bool:
    """Whether what was last done to it seems to have been done to its attributes; a rename sets its ctime too."""
    if seen.changed_ns is None or seen.modified_ns is None or seen.path != known.path:
        return False
    return seen.changed_ns != known.changed_ns and seen.changed_ns > seen.modified_ns


def _as_if_made_anew(known: DirectoryFacts, seen: DirectoryFacts, above: DirectoryFacts | None) -> bool:
    """Whether what it has is what it had, or what it would have if it was made where it lies."""
    modes, groups = {known.mode}, {known.gid, 0}
    acls = {_beyond_mode(known.access), b""}
    if above is not None:
        groups.add(above.gid)
        modes |= {mode & _left_by(above.default) | mode & ~0o777 for mode in modes}
        modes |= {mode & ~stat.S_ISGID | above.mode & stat.S_ISGID for mode in modes}
    inherited = above is not None and bool(above.default)
    alike = inherited or (_beyond_mode(seen.access) in acls and seen.default in (known.default, b""))
    return alike and seen.mode in modes and seen.uid in (known.uid, 0) and seen.gid in groups


def _given_away(known: DirectoryFacts, seen: DirectoryFacts, above: DirectoryFacts | None) -> bool:
    """Whether it belongs to root now, or to the group that a new directory would have there: whatever its mode was set to since."""
    group = above is not None and bool(above.mode & stat.S_ISGID) and seen.gid == above.gid != known.gid
    return (seen.uid == 0 and known.uid != 0) or group


def _left_by(default: bytes | None) -> int:
    """The permissions that a default ACL leaves to a new directory."""
    entries = parse_acl(default) if default else None
    if not entries:
        return 0o777
    by_tag = {entry.tag: entry.permissions for entry in entries}
    group = by_tag.get(MASK, by_tag.get(GROUP_OBJ, 7))
    return by_tag.get(USER_OBJ, 7) << 6 | group << 3 | by_tag.get(OTHER, 7)


def _words(one: DirectoryFacts) -> str:
    acl = ", with an ACL" if one.access else ""
    return f"{one.uid}:{one.gid} {one.mode:04o}{acl}"


def _as_before(root: bytes, seen: DirectoryFacts, known: DirectoryFacts) -> str:
    place = _quoted(root + b"/" + seen.path)
    commands = [f"chown {known.uid}:{known.gid} {place}"]
    entries = parse_acl(known.access) if known.access and known.access != seen.access else None
    if entries and len(shown := show_acl(entries).split(",")) == len(entries):
        commands.append(f"setfacl --set {','.join(shown)} {place}")
    return " && ".join([*commands, f"chmod {known.mode:04o} {place}"])


def _by_the_one_above(root: bytes, path: bytes) -> str:
    """Grants no more than the owner of the parent has, who may remove the directory anyway."""
    place, above = _quoted(root + b"/" + path), _quoted((root + b"/" + parent(path)).rstrip(b"/"))
    return f"chown --reference={above} {place} && chmod 0700 {place}"


def _quoted(path: bytes) -> str:
    """For a shell; what is no readable text in the form of bash."""
    text = path.decode("utf-8", "surrogateescape")
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\x{byte:02x}" for byte in path) + "'"
