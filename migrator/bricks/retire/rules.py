"""The checks and the next step of stopping the source volume. An unknown fact is a failed check. Pure."""

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from migrator.bricks.retire import model
from migrator.bricks.volume import condition_problems, other_work
from migrator.catalog.model import VerificationRecord
from migrator.core.collected import collected
from migrator.core.entry import EntryType
from migrator.core.paths import show
from migrator.core.probe import PROBE_NAME
from migrator.core.units import format_size, several
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.cutover.rules_writers import Writers, hosts_of
from migrator.fs.model import BENCH_NAME, PURGE_NAME, SENTINEL_NAME, TRASH_NAME, SourceHealth
from migrator.gluster.model import ClientSeen, VolumeTask, volume_state
from migrator.operations.model import Act, Finished, Halt
from migrator.purge.model import Proof
from migrator.purge.rules import NO_DIGEST, changed
from migrator.site.rules_guards import health_problems

# What covers each path, the preflight checks, and the next step.


OWN_NAMES = frozenset({SENTINEL_NAME, TRASH_NAME, PROBE_NAME, BENCH_NAME})
"""This program's own entries in the root of the source. They do not include the directory of a purge, whose content
belongs to users.
"""

_SHOWN = 10


def next_step(
    record: model.Retirement | None, *, started: bool, volume: str
) -> Act[model.RetireStep, model.RetirementState] | Halt | Finished:
    """Return the next step, from the newest attempt and the state that Gluster reports."""
    if started:
        return Act(
            step=model.RetireStep.STOP, intent=model.RetirementState.RETIRING, result=model.RetirementState.RETIRED
        )
    state = None if record is None else record.state
    if state is model.RetirementState.STOPPING:
        # An attempt that was killed before its last check has not stopped the volume. Someone else may have done so
        # days later.
        return Act(step=model.RetireStep.STOP, intent=state, result=model.RetirementState.RETIRED, seen_done=True)
    if state is model.RetirementState.RETIRED:
        return Finished(state=state, words="it is stopped")
    return Halt(
        words="the volume was stopped outside of this program: its content cannot be read",
        hint=f"start it (`gluster volume start {volume}`), then run the same command again",
    )


def judge_path(
    found: model.CatalogedPath, proof: Proof | None, *, moved: Collection[bytes], unproven: Collection[bytes]
) -> model.Cover | model.Uncovered:
    """Return how a path that is not a directory is covered. `proof` is its row in a manifest that counts, and `moved`
    has the trees of such manifests. `unproven` has the trees of users who work on the target although their manifest
    does not count.
    """
    if found.path.split(b"/", 1)[0] in OWN_NAMES:
        return model.Cover.OWN
    if proof is None:
        return _without_proof(found, moved, unproven)
    if why := changed(found, found.xattr_digest, proof):
        return _uncovered(found, model.UncoveredKind.CHANGED, why)
    if found.type is not EntryType.FILE:
        return model.Cover.PROVEN
    if proof.archive is not None:
        return _uncovered(
            found, model.UncoveredKind.CONTENT, "is in an archive, which the purge of its tree reads again"
        )
    if proof.digest is None or proof.algorithm is None:
        return _uncovered(found, model.UncoveredKind.CONTENT, NO_DIGEST)
    if found.ctime_ns != proof.ctime_ns or found.ino != proof.ino:
        return model.Cover.READ
    return model.Cover.PROVEN


def judge_content(
    found: model.CatalogedPath, proof: Proof, digest: bytes | None, problem: str
) -> model.Cover | model.Uncovered:
    """Judge a path whose content was read. `digest` is None if that failed, for the reason in `problem`."""
    if digest is None or problem:
        return _uncovered(found, model.UncoveredKind.CONTENT, problem or "could not be read")
    if digest != proof.digest:
        return _uncovered(found, model.UncoveredKind.CHANGED, "has another content than was verified")
    return model.Cover.PROVEN


def _without_proof(
    found: model.CatalogedPath, moved: Collection[bytes], unproven: Collection[bytes]
) -> model.Uncovered:
    if found.tree is None:
        return _uncovered(found, model.UncoveredKind.OUTSIDE, "is in no user tree, so it was never copied")
    if found.tree in unproven:
        return _uncovered(found, model.UncoveredKind.UNPROVEN, "is in a tree whose manifest no longer counts")
    if found.tree not in moved:
        return _uncovered(found, model.UncoveredKind.NOT_MOVED, "is in a tree whose user was not cut over")
    return _uncovered(
        found,
        model.UncoveredKind.NEW,
        "is not in the manifest: it was made after the verification, was skipped, or the target cannot keep it",
    )


def _uncovered(found: model.CatalogedPath, kind: model.UncoveredKind, words: str) -> model.Uncovered:
    size_bytes = found.size_bytes if found.type is EntryType.FILE else 0
    return model.Uncovered(path=found.path, kind=kind, size_bytes=size_bytes, words=words)


def manifest_problem(record: CutoverRecord, proof: VerificationRecord | None, digest: str | None) -> str | None:
    """Return why the manifest of a cutover does not count; None if it does. `digest` is that of its file, or None if it
    cannot be read.
    """
    if proof is None or proof.manifest is None or proof.finished_at_s is None:
        return "the ledger does not have the verification that the cutover rests on"
    if not proof.whole or not proof.covers(record.tree.path):
        return "the verification that the cutover rests on was not whole"
    if digest is None:
        return f"the manifest {proof.manifest} is missing"
    if digest != proof.manifest_digest:
        return f"the manifest {proof.manifest} is not the one that was verified"
    return None


class RetireFacts(Struct, frozen=True, kw_only=True):
    """The facts for the preflight checks. None means unknown.

    `tasks` has every listed task. `cutovers` has the newest attempt of each tree. `drains` and `additions` have not
    ended. `clients` are connected to bricks, and are neither this site's mounts nor Gluster's own processes.
    `purge_left` is set if the purge directory has content. `strange` are entries in the root under names of this
    program that no scan lists, or that prove nothing, and whose content is not this program's.
    """

    mounts: Sequence[str]
    health: SourceHealth
    tasks: Sequence[VolumeTask] | None
    cutovers: Sequence[CutoverRecord]
    drains: Sequence[str]
    additions: Sequence[str]
    clients: Sequence[ClientSeen] | None
    clients_unseen: Sequence[str]
    opened: Writers
    purge_left: bool | None
    strange: Sequence[bytes] | None


@collected
def retire_problems(facts: RetireFacts) -> Iterator[str]:
    """Return all failed preflight checks, each with its remedy; empty if the volume may be retired."""
    yield from facts.mounts
    yield from health_problems(facts.health, facts.health)
    yield from _tasks(facts)
    yield from _cutovers(facts.cutovers)
    if facts.purge_left is None:
        yield f"the content of {show(PURGE_NAME)} on the source is unknown: a purge may have left something there"
    elif facts.purge_left:
        yield f"a purge has left something in {show(PURGE_NAME)} of the source: `migrator purge` lists it, and resumes"
    if facts.strange is None:
        yield "the content of this program's own directories in the root of the source is unknown"
    for name in facts.strange or ():
        yield (
            f"{show(name)} in the root of the source is not root's alone, or holds what this program would not leave there: look "
            "into it, and move away the files of others"
        )
    yield from _clients(facts)
    yield from _opened(facts.opened)


def _tasks(facts: RetireFacts) -> Iterator[str]:
    state = volume_state(facts.health)
    if state is None:
        yield "the connected hosts of the pool are unknown: see `gluster pool list`"
    else:
        yield from condition_problems(state)
    if facts.tasks is None:
        yield "the tasks of the volume are unknown: see `gluster volume status VOLUME tasks`"
    yield from other_work(facts.tasks or (), facts.drains, facts.additions)


def _cutovers(cutovers: Sequence[CutoverRecord]) -> Iterator[str]:
    for record in cutovers:
        if record.under_way:
            yield f"{record.tree.user} may be frozen ({record.state.value}): see `migrator status`"
        elif record.state is CutoverState.PURGING:
            yield f"the purge of {record.tree.user} has begun and not ended: `migrator purge --user {record.tree.user}`"


def _clients(facts: RetireFacts) -> Iterator[str]:
    for sentence in facts.clients_unseen:
        yield f"the clients of the bricks are unknown: {sentence}"
    if facts.clients is None:
        if not facts.clients_unseen:
            yield "the clients of the bricks are unknown: see `gluster volume status VOLUME clients`"
        return
    if facts.clients:
        yield f"clients beside this site's own have the volume mounted: {hosts_of(facts.clients)}: unmount it there"


def _opened(opened: Writers) -> Iterator[str]:
    yield from (f"open files may have been missed: {sentence}" for sentence in opened.unseen)
    files = sorted({one.path for one in opened.open_files})
    if files:
        shown = ", ".join(show(path) for path in files[:_SHOWN])
        yield f"{several(len(files), 'path is', 'paths are')} open: {shown}{', ...' if len(files) > _SHOWN else ''}"


def describe_sum(found: model.PathSum) -> str:
    """Return the number of paths with a verb, to begin a sentence."""
    size = format_size(found.size_bytes)
    return several(found.paths, f"path ({size}) is", f"paths ({size}) are")
