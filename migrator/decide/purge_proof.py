"""Whether a path of the source may go, by its proof and by looks at both sides. Pure.

On the source everything has to be as it was verified. On the target the user has worked since: there a path may be changed
or gone, where the kernel's own times (ctime, which nobody can set) say that this came after he was let in. What differs
without that was lost, and then the source is the only copy.
"""

from dataclasses import dataclass
from enum import StrEnum

from migrator.decide.expectations import floored_time_ns
from migrator.domain.entry import Entry, EntryType, xattr_digest
from migrator.domain.purge import COVERED, Judgement, Verdict
from migrator.domain.purge_proof import Proof
from migrator.domain.site import TargetCapabilities
from migrator.domain.units import NS_PER_S

CLOSED_MODE = 0o700
"""Of a directory in its place of the purge."""

CLOCK_SLACK_NS = 2 * NS_PER_S
"""How much earlier than the user was let in a change on the target may seem to be: granularity of times, and clocks."""

_READ = Verdict(judgement=Judgement.READ)


def judge_source(entry: Entry, proof: Proof | None, *, top: bool = False, closed_uid: int | None = None) -> Verdict:
    """Whether a path of the source is what was verified. `read`: only if its content has the digest of the proof, since its
    ctime or inode is another one (a name of it in another tree was removed, or a brick was drained).

    Of a directory what it holds counts, not its times. The `top` of a tree is frozen, and `closed_uid` is the owner of
    directories that a purge has closed: of both owner, mode and attributes do not count.
    """
    if proof is None:
        return _open("is not in the manifest: it was made after the verification, or the target cannot keep it")
    if entry.type is not proof.type:
        return _open(f"was a {proof.type.value} when it was verified, and is a {entry.type.value}")
    if entry.type is EntryType.DIRECTORY and (top or (entry.uid == closed_uid and entry.mode == CLOSED_MODE)):
        return COVERED
    if (entry.uid, entry.gid) != (proof.uid, proof.gid):
        return _open(
            f"belonged to {proof.uid}:{proof.gid} when it was verified, and belongs to {entry.uid}:{entry.gid}"
        )
    if entry.mode != proof.mode:
        return _open(f"had mode {proof.mode:04o} when it was verified, and has {entry.mode:04o}")
    if xattr_digest(entry.xattrs) != proof.xattr_digest:
        return _open("has other extended attributes or ACLs than when it was verified")
    if entry.type is EntryType.DIRECTORY:
        return COVERED
    if entry.mtime_ns != proof.mtime_ns:
        return _open("was modified after it was verified: it has another mtime")
    if entry.symlink_target != proof.symlink_target:
        return _open("is a symlink that leads elsewhere than when it was verified")
    if entry.rdev != proof.rdev:
        return _open("is another device than when it was verified")
    return _judge_file(entry, proof) if entry.type is EntryType.FILE else COVERED


def _judge_file(entry: Entry, proof: Proof) -> Verdict:
    if entry.size_bytes != proof.size_bytes:
        return _open(f"had {proof.size_bytes:,} bytes when it was verified, and has {entry.size_bytes:,}")
    if proof.digest is None or proof.algorithm is None:
        return _open("has no digest in the manifest: its content was not read back")
    if entry.ctime_ns != proof.ctime_ns or (proof.ino is not None and entry.ino != proof.ino):
        return _READ
    return COVERED


class Stand(StrEnum):
    """How a path stands on the target: as it was verified, changed or removed by its user, or lost."""

    SAME = "same"
    CHANGED = "changed"
    GONE = "gone"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVerdict:
    """The stand of a path, with a sentence where it is lost."""

    stand: Stand
    words: str = ""


_SAME, _CHANGED, _GONE = (TargetVerdict(stand=stand) for stand in (Stand.SAME, Stand.CHANGED, Stand.GONE))


def judge_target(
    proof: Proof,
    target: Entry | None,
    *,
    above_ctime_ns: int | None,
    let_in_ns: int,
    capabilities: TargetCapabilities,
) -> TargetVerdict:
    """How a path stands on the target. `above_ctime_ns` is the ctime of the nearest directory above it that is there,
    `let_in_ns` when the user was let in.
    """
    earliest_ns = let_in_ns - CLOCK_SLACK_NS
    if target is None:
        if above_ctime_ns is not None and above_ctime_ns >= earliest_ns:
            return _GONE
        return _lost("is not on the target, and nobody can have removed it there: the directory was not changed since")
    if target.type is proof.type and _same(proof, target, capabilities):
        return _SAME
    if target.ctime_ns >= earliest_ns:
        return _CHANGED
    return _lost("is another one on the target than was verified, and was not changed there since the user was let in")


def _same(proof: Proof, target: Entry, capabilities: TargetCapabilities) -> bool:
    match proof.type:
        case EntryType.FILE:
            times = (proof.mtime_ns, floored_time_ns(proof.mtime_ns, capabilities))
            return target.size_bytes == proof.size_bytes and target.mtime_ns in times
        case EntryType.SYMLINK:
            return target.symlink_target == proof.symlink_target
        case _:
            return True


def judge_archive(proof: Proof, archive: Entry | None) -> TargetVerdict:
    """The same of a path whose content was packed: the archive has to be there, whole."""
    if proof.archive is None or archive is None:
        return _lost("lies in an archive that is not on the target any more")
    if proof.archive.size_bytes is None:
        return _lost("lies in an archive that does not count: it was not read back, or was lost since")
    if archive.type is not EntryType.FILE or archive.size_bytes != proof.archive.size_bytes:
        return _lost("lies in an archive that is another one than was verified")
    return _SAME


def _open(words: str) -> Verdict:
    return Verdict(judgement=Judgement.OPEN, words=words)


def _lost(words: str) -> TargetVerdict:
    return TargetVerdict(stand=Stand.LOST, words=words)
