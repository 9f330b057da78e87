"""Which trees and paths may be purged, and at which rate. Pure."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from migrator.catalog.model import VerificationRecord
from migrator.core.entry import ACL_ACCESS, Entry, EntryType, UserTree, xattr_digest
from migrator.core.paths import join, percent_escape, show
from migrator.core.probe import ProbeSide
from migrator.core.units import NS_PER_S, format_duration, several
from migrator.cutover import model as cutover
from migrator.cutover.model_snapshot import LinkState
from migrator.cutover.rules_preflight import NO_BACKUP
from migrator.cutover.rules_states import describe_state
from migrator.fs.model import TargetCapabilities
from migrator.fs.rules import CLOSED_MODE
from migrator.fs.rules_equality import is_copy
from migrator.operations.model import Finished, Halt
from migrator.plan.rules import FROZEN_UID
from migrator.purge import model
from migrator.purge.model import PathVerdict, PurgeItem, PurgeOutcome
from migrator.site.rules_guards import shrink_losses, shrink_remedy
from migrator.transfer.rules_governor import Brake, braked

# Which trees are purged, and the guards. Unknown facts count against a purge: it cannot be undone.


_OTHERS = 0o077
_CLOCK_BEHIND_S = 60.0
"""A clock that was further behind is reported."""


def left_alone(
    tree: UserTree, record: cutover.CutoverRecord | None, *, now_s: float, retain_s: float
) -> model.TreePurge | None:
    """Why the newest cutover of a tree forbids its purge; None if the purge may begin, has begun, or is done."""
    user, due_at_s = tree.user, None
    if record is None:
        words = f"{user} was not cut over: see `migrator status`"
    elif record.state in (cutover.CutoverState.PURGING, cutover.CutoverState.PURGED):
        return None
    elif record.state is not cutover.CutoverState.RETAINED or cutover.CutoverState.THAWED not in record.times:
        back = record.state in cutover.ROLLBACK_STATES
        more = f"`migrator rollback --user {user}`" if back else "see `migrator status`"
        words = f"{user} does not work on the target for good ({describe_state(record.state)}): {more}"
    else:
        clock_s = record.times[cutover.CutoverState.THAWED]
        since_s = record.works_there_since_s or clock_s
        due_at_s = since_s + retain_s
        if now_s >= due_at_s:
            return None
        words = f"the source of {user} is kept for another {format_duration(due_at_s - now_s)} ([cutover] retain)"
        if since_s - clock_s >= _CLOCK_BEHIND_S:
            words += f", by the target's clock: this machine's was {format_duration(since_s - clock_s)} behind it at the cutover"
    return model.TreePurge(tree=tree, outcome=PurgeOutcome.LATER, words=words, due_at_s=due_at_s)


def plan_checksum(site_id: str, source: str, target: str, items: Sequence[PurgeItem]) -> str:
    """The checksum of a purge: the site, its trees and their proofs. A resumed purge has the same one."""

    def facts(item: PurgeItem) -> dict[str, object]:
        record, proof = item.record, item.proof
        carried = [one.manifest_digest or "" for one in item.carried or ()]
        return {
            "tree": percent_escape(record.tree.path),
            "user": percent_escape(record.tree.user.encode("utf-8", "surrogateescape")),
            "cutover": record.id,
            "attempt": record.attempt,
            "verification": record.notes.verification_id,
            "manifest": None if proof is None else proof.manifest_digest,
        } | ({"carried": ",".join(carried)} if carried else {})

    document = {"site": site_id, "source": source, "target": target, "trees": [facts(item) for item in items]}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("ascii"), digest_size=32).hexdigest()


def counts_as_proof(found: VerificationRecord, *, newer_than: int | None) -> bool:
    """True if a verification proves what a rollback carried back before it was given up.

    It must be newer than `newer_than` (the last one before that rollback), be whole, and have read all content. Paths
    that it found to differ are not in its manifest, so they stay unproven: they may be newer work of the user. The
    caller checks the manifest's digest.
    """
    if newer_than is None or found.id <= newer_than or found.finished_at_s is None:
        return False
    return found.whole and found.policy.share >= 1.0 and None not in (found.manifest, found.manifest_digest)


def confirmation_problem(given: str | None, checksum: str) -> str | None:
    """Why `given` does not confirm the purge with this checksum; None if it does."""
    if given is None:
        return "it was not confirmed"
    if len(given) < model.CONFIRM_CHARACTERS:
        return f"the confirmation is too short: {model.CONFIRM_CHARACTERS} characters of the checksum at least"
    if not checksum.startswith(given.lower()):
        return "the confirmation is for another purge: trees or proofs have changed since it was reviewed"
    return None


def next_step(record: cutover.CutoverRecord, reasons: Sequence[str]) -> cutover.CutoverAct | Halt | Finished:
    """The next step of a purge, by the reasons of `purge_problems` and of the survey."""
    if record.state is cutover.CutoverState.PURGED:
        return Finished(state=record.state, words="the source is purged")
    if reasons:
        return Halt(
            words="; ".join(reasons), hint="fix these problems, then run the same command again", reasons=tuple(reasons)
        )
    return cutover.act_of(cutover.CutoverStep.PURGE)


def purge_problems(
    record: cutover.CutoverRecord,
    *,
    position: model.Position | None,
    top: Entry | None,
    target_top: Entry | None,
    target_names: int | None,
    leads_to: LinkState | None,
    verification: VerificationRecord | None,
    manifest_digest: str | None,
    total: model.ManifestSum | None,
    scan_whole: bool | None,
    lacks_backup: bool,
) -> tuple[str, ...]:
    """The reasons against freeing the source of a tree or resuming that, with what to do next.

    `top` is the tree's own directory on the source if it is at its path, `target_top` that on the target;
    `target_names` is the number of names in the latter. `verification` is that of the cutover, `manifest_digest` the
    present digest of the manifest's file, `total` its totals of the tree. `scan_whole`: whether the scan of the final
    pass was whole. None always means unknown.
    """
    return (
        *_position(record, position),
        *(_closed(record, top) if position is model.Position.IN_PLACE else ()),
        *_target(record, target_top, target_names, total),
        *_link(record, leads_to),
        *_verified(verification),
        *_manifest(verification, manifest_digest, total),
        *_scan(scan_whole),
        *((NO_BACKUP,) if lacks_backup else ()),
    )


def _position(record: cutover.CutoverRecord, position: model.Position | None) -> Iterable[str]:
    name, place = show(record.tree.path), show(model.purge_place(record))
    begun = record.state is cutover.CutoverState.PURGING
    match position:
        case None:
            yield f"the location of {name} on the source is unknown: see `migrator doctor`"
        case model.Position.BOTH:
            yield f"{name} exists on the source again, although its tree is in {place}: find out who created it, and move it away"
        case model.Position.GONE if not begun:
            yield f"{name} is not on the source, and this program did not remove it: find out who did"
        case model.Position.GONE | model.Position.IN_PLACE | model.Position.CLOSED:
            return


def _closed(record: cutover.CutoverRecord, top: Entry | None) -> Iterable[str]:
    name = f"{show(record.tree.path)} on the source"
    if top is None:
        yield f"the top of {name} cannot be read: see `migrator doctor`"
    elif top.type is not EntryType.DIRECTORY:
        yield f"{name} is a {top.type.value} now: it was created outside of this program"
    elif top.uid != FROZEN_UID or top.mode & _OTHERS or ACL_ACCESS in top.xattrs:
        yield (
            f"the top of {name} is not as the freeze left it (uid {top.uid}, mode {top.mode:04o}), so a user may work there: "
            "find out who opened it; close it with `chown root` and `chmod 500`"
        )


def _target(
    record: cutover.CutoverRecord, top: Entry | None, names: int | None, total: model.ManifestSum | None
) -> Iterable[str]:
    name = f"the tree {show(record.tree.path)} on the target"
    if top is None:
        yield f"{name} is missing, or cannot be read: see `migrator doctor`"
    elif top.type is not EntryType.DIRECTORY:
        yield f"{name} is a {top.type.value}, and no directory"
    elif names is None:
        yield f"the content of {name} cannot be listed: see `migrator doctor`"
    elif not names and (total is None or total.names > 1):
        yield f"{name} is empty: the moved files are gone; find out where they went"


def _link(record: cutover.CutoverRecord, leads_to: LinkState | None) -> Iterable[str]:
    name = f"the path of {record.tree.user}" if record.notes.link is None else show(record.notes.link)
    if leads_to is None:
        yield f"the destination of {name} is unknown: see `migrator doctor`"
    elif leads_to is LinkState.SOURCE:
        yield f"{name} leads to the source again: it was switched outside of this program; move the user back with `migrator rollback`"
    elif leads_to is LinkState.OTHER:
        yield f"{name} does not lead to the target: find out where {record.tree.user} works, and fix it"


def _verified(found: VerificationRecord | None) -> Iterable[str]:
    if found is None or found.finished_at_s is None:
        yield "the verification of the cutover is not in the ledger, or did not end: there is no proof of what is on the target"
        return
    if not found.whole:
        reasons = "; ".join(found.reasons[:3]) or "no reason was recorded"
        yield f"the verification of the cutover is not whole: {reasons}"
    if found.differences:
        yield f"the verification of the cutover found {several(sum(found.differences.values()), 'difference')}"
    if found.manifest is None or found.manifest_digest is None:
        yield "the verification of the cutover left no manifest"


def _manifest(found: VerificationRecord | None, digest: str | None, total: model.ManifestSum | None) -> Iterable[str]:
    if digest is None:
        yield "the manifest cannot be read: bring it back from a backup of the state directory"
        return
    if found is not None and found.manifest_digest is not None and digest != found.manifest_digest:
        yield "the manifest is not the one that the verification wrote: bring that back from a backup of the state directory"
    if total is None:
        yield "the content of the manifest is unknown"
        return
    if total.without_digest:
        yield (
            f"{several(total.without_digest, 'file')} of the manifest {'has' if total.without_digest == 1 else 'have'} no digest: the "
            "content was not read back on both sides; a sample is no proof ([verify] sample has to be 1.0 for a cutover)"
        )
    if not total.names:
        yield "the manifest holds nothing of the tree"


def _scan(whole: bool | None) -> Iterable[str]:
    if whole is None:
        yield "the completeness of the scan of the final pass is unknown"
    elif not whole:
        yield "the scan of the final pass was not whole, so the source may hold more than was moved"


def shrink_problem(
    tree: UserTree, *, gone: int, names: int, gone_bytes: int, size_bytes: int, max_shrink: float
) -> str | None:
    """Why too much is missing on the target, although users remove files; None if not too much. `gone` of the `names`
    that were moved, with `gone_bytes` of their `size_bytes`, are missing.
    """
    # No floor: the source may be the last copy.
    lost = shrink_losses(
        names=gone, of_names=names, size_bytes=gone_bytes, of_bytes=size_bytes, max_shrink=max_shrink, floor=False
    )
    if not lost:
        return None
    return (
        f"{' and '.join(lost)} of {show(tree.path)} that were moved are not on the target any more: ask {tree.user}; "
        + shrink_remedy(max_shrink)
    )


def open_path_reasons(tree: UserTree, lacking: int, skipped: int, *, carried: bool, verified: bool) -> tuple[str, ...]:
    """Why a tree may not be freed: `lacking` paths have no proof, and `skipped` more were skipped and not released.
    `carried`: a rollback that was given up brought files to the source. `verified`: some of these are proven.
    """
    found: list[str] = []
    if lacking:
        found.append(
            f"there is no proof on the target for {several(lacking, 'path')} of {show(tree.path)}: copy by hand what is missing "
            f"there, or remove it on the source; or move {tree.user} back with `migrator rollback`, and over again"
        )
    if lacking and carried:
        unproven = "some are not proven" if verified else "nothing has verified them"
        found.append(
            f"a rollback of {tree.user} that was given up has carried files to the source, and {unproven}: `migrator verify --user {tree.user}` compares both sides again without moving the user; equal paths then "
            "count as proven"
        )
    if skipped:
        found.append(
            f"the source alone has {several(skipped, 'file')} that the plan skipped: give up what may go with `migrator reap "
            f"release --user {tree.user} PATH --confirm-loss`, or move the user back with `migrator rollback` and archive it"
        )
    return tuple(found)


_DIGEST_RECORD = re.compile(rb"((?:[0-9a-fA-F]{2})+) [ *](?:\./)?(.+)", re.DOTALL)


def digest_record(record: bytes, tree: bytes) -> tuple[bytes, bytes]:
    """Path and digest of a record in the form of `sha256sum --zero`, without its NUL. Raises ValueError."""
    found = _DIGEST_RECORD.fullmatch(record)
    if found is None:
        raise ValueError(f"the list has a record that is no digest and path: {show(record[:80])}")
    return join(tree, found[2]), bytes.fromhex(found[1].decode("ascii"))


def proofs_named(item: PurgeItem) -> str:
    """The digests of the manifests of a tree, by which an archive of it counts."""
    return ",".join(one.manifest_digest or "" for one in (item.proof, *(item.carried or ())) if one is not None)


def archives_problem(
    tree: UserTree, proven: Sequence[model.SecondCopy], problems: Sequence[str], *, required: int
) -> str | None:
    """Why too few archives hold a tree; None if enough do."""
    names = [one.name for one in proven]
    if len(names) >= required:
        return None
    known = f" ({', '.join(names)})" if names else ""
    reasons = "; ".join(problems) or "the pre-purge hooks named no other"
    return (
        f"{len(names)} of the {required} archives that [cutover] require_archive demands{known} are proven to hold "
        f"{show(tree.path)}: {reasons}"
    )


def released_clause(released: int) -> str:
    """A clause about released files, which exist only on the source; empty if there are none."""
    return f"; with {several(released, 'file')} that the plan skipped and that were released" if released else ""


# Whether a path of the source may be removed, by its proof and the current metadata on both sides.
#
# On the source, everything must be as verified. On the target the user has worked since: a path may have changed or
# gone if its ctime, set by the kernel, shows that this happened after the user was let in. Any other difference is a
# loss, and the source may then be the only copy.


CLOCK_SLACK_NS = 2 * NS_PER_S
"""A change on the target may appear to be this much earlier than the time at which the user was let in: clocks differ,
and times are coarse.
"""


def judge_source(entry: Entry, proof: model.Proof | None, *, top: bool = False, closed_uid: int) -> PathVerdict:
    """Compare a path of the source with its proof. `read`: it is as verified, if its content has the digest of the proof. Its ctime
    or inode then differ, because a name of it in another tree was removed or a brick was drained.

    The times of a directory do not count. The `top` of a tree is frozen, and `closed_uid` owns directories that a cutover
    or a purge has closed: their owner, mode and attributes do not count either.
    """
    if proof is None:
        return model.stays("is not in the manifest: it was made after the verification, or the target cannot keep it")
    closed = top or (entry.uid == closed_uid and entry.mode == CLOSED_MODE)
    if closed and entry.type is proof.type is EntryType.DIRECTORY:
        return model.COVERED
    if why := changed(entry, xattr_digest(entry.xattrs), proof):
        return model.stays(why)
    if entry.type is not EntryType.FILE:
        return model.COVERED
    if proof.digest is None or proof.algorithm is None:
        return model.stays(NO_DIGEST)
    if entry.ctime_ns != proof.ctime_ns or (proof.ino is not None and entry.ino != proof.ino):
        return model.READ
    return model.COVERED


NO_DIGEST = "has no digest in the manifest: its content was not read back"


def changed(now: Entry | model.PathFacts, xattrs: bytes | None, proof: model.Proof) -> str:
    """Which metadata of a path differ from its proof, to follow the path in messages; empty if none do. `xattrs` is the
    digest of its attributes. Inode, ctime and the times of a directory do not count.
    """
    if now.type is not proof.type:
        return f"was a {proof.type.value} when it was verified, and is a {now.type.value}"
    if (now.uid, now.gid) != (proof.uid, proof.gid):
        return f"belonged to {proof.uid}:{proof.gid} when it was verified, and belongs to {now.uid}:{now.gid}"
    if now.mode != proof.mode:
        return f"had mode {proof.mode:04o} when it was verified, and has {now.mode:04o}"
    if xattrs != proof.xattr_digest:
        return "has other extended attributes or ACLs than when it was verified"
    if now.type is EntryType.DIRECTORY:
        return ""
    if now.mtime_ns != proof.mtime_ns:
        return "was modified after it was verified: it has another mtime"
    if now.symlink_target != proof.symlink_target:
        return "is a symlink that leads elsewhere than when it was verified"
    if now.rdev != proof.rdev:
        return "is another device than when it was verified"
    if now.type is EntryType.FILE and now.size_bytes != proof.size_bytes:
        return f"had {proof.size_bytes:,} bytes when it was verified, and has {now.size_bytes:,}"
    return ""


def judge_target(
    proof: model.Proof,
    target: Entry | None,
    *,
    above_ctime_ns: int | None,
    let_in_ns: int,
    capabilities: TargetCapabilities,
) -> PathVerdict:
    """The state of a path on the target. `above_ctime_ns` is the ctime of the nearest existing directory above it,
    `let_in_ns` the time at which the user was let in.
    """
    earliest_ns = let_in_ns - CLOCK_SLACK_NS
    if target is None:
        if above_ctime_ns is not None and above_ctime_ns >= earliest_ns:
            return model.GONE
        return model.stays(
            "is not on the target, and no user can have removed it there: the directory has not changed since"
        )
    if is_copy(proof, target, capabilities):
        return model.COVERED
    if target.ctime_ns >= earliest_ns:
        return model.CHANGED
    return model.stays(
        "is another one on the target than was verified, and was not changed there since the user was let in"
    )


def judge_archive(proof: model.Proof, archive: Entry | None) -> PathVerdict:
    """As `judge_target`, for a path in an archive: the archive must exist with its proven size."""
    if proof.archive is None or archive is None:
        return model.stays("is in an archive that is no longer on the target")
    if proof.archive.size_bytes is None:
        return model.stays("is in an archive that does not count: it was not read back, or was lost since")
    if archive.type is not EntryType.FILE or archive.size_bytes != proof.archive.size_bytes:
        return model.stays("is in an archive that differs from the verified one")
    return model.COVERED


# The removal rate. The rule is the governor's, with names per second in place of streams.


Brakes = Mapping[ProbeSide, Brake]
"""The latency brake of each probed side."""


def after_probe(
    brakes: Brakes, side: ProbeSide, latency_s: float, *, limit_s: float, removing: float, ceiling: int
) -> Brakes:
    """The brakes after one more probe with a result; `removing` is the current rate, which may be below the limit."""
    now = max(min(names_per_s(brakes, ceiling), int(removing)), 1)
    brake = braked(brakes.get(side, Brake()), latency_s, limit=limit_s, streams=now, ceiling=ceiling)
    return {**brakes, side: brake}


def names_per_s(brakes: Brakes, ceiling: int) -> int:
    """The permitted rate in names per second: at most `ceiling`, at least 1."""
    caps = [brake.cap for brake in brakes.values() if brake.cap is not None]
    return max(min((ceiling, *caps)), 1)
