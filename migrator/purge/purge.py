"""`purge`: preflight checks, confirmation, then one tree after the other.

Read from top to bottom: the verb, then the procedure that frees the source of one tree.
"""

import asyncio
import errno
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import VerificationRecord
from migrator.core.errors import Interrupted, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import percent_escape, show
from migrator.core.units import NS_PER_S, format_duration, format_size, several
from migrator.cutover.model import CutoverAct, CutoverNotes, CutoverRecord, CutoverState, PurgeSum
from migrator.cutover.records import CutoverRecords
from migrator.fs.model import PURGE_NAME
from migrator.hooks.calls import HookSkipped
from migrator.hooks.model import HookState, HookStep
from migrator.ledger.locks import VOLUME, of_tree
from migrator.ledger.model import SiteRecord
from migrator.operations.call import Call
from migrator.operations.engine import Done, OperationEngine, Procedure, StepEvents, Stuck
from migrator.operations.model import Act, Finished, Halt
from migrator.purge import model, rules
from migrator.purge.call import LOG, PurgeCall, PurgePorts
from migrator.purge.checks import TreeChecks, closed_tree
from migrator.purge.hooks import TreeHooks
from migrator.purge.judge import PathJudge, TreeFindings
from migrator.purge.model import PurgeItem, PurgeOutcome, TreeLocation
from migrator.purge.proofs import IndexedProofs, open_proofs
from migrator.purge.rate import RemovalRate
from migrator.purge.removal import Removal
from migrator.purge.reread import Rereading
from migrator.purge.rules import open_path_reasons, released_clause
from migrator.purge.survey import Survey
from migrator.reap.model import ArchiveState, archive_directory
from migrator.transfer.rules_convergence import check_cost

if TYPE_CHECKING:
    from migrator.catalog.manifest import ReadingParts

VERB = "purge"

_REFUSED = "preflight checks failed"

# The verb.


async def purge(request: model.PurgeRequest, ports: PurgePorts) -> model.PurgeSummary:
    """Free the source of trees whose users work on the target. The same call resumes after any crash.

    The caller passes file systems that were opened for this call. A dry run makes the same decisions and changes
    nothing. Raises UsageError, Refused (no tree may be purged, or it was not confirmed), LockHeld, Interrupted,
    MigratorError; refusals of single trees are in the summary.
    """
    site = ports.ledger.site.required()
    if site.capabilities is None:
        raise Refused(
            "the capabilities of the target are unknown",
            cause="`migrator doctor`, which probes it, has not been run, or could not write there",
            hint="run `migrator doctor`",
        )
    call: PurgeCall = Call(ports=ports, request=request, site=site, log=LOG)
    if request.dry_run:
        return await _purge(call, *_chosen(request, ports))
    locked = {item.record.tree.path for item in _chosen(request, ports)[0]}
    with ports.locks.hold(VERB, *map(of_tree, locked), shared=(VOLUME,)):
        # The purge removes only the confirmed items, even if the retention of another tree ends now.
        found, left = _chosen(request, ports)
        items = tuple(item for item in found if item.record.tree.path in locked)
        for tree in (item.record.tree for item in found if item not in items):
            words = f"the source of {tree.user} became due after this purge had begun: review it with --dry-run"
            left[tree.path] = model.TreePurge(tree=tree, outcome=PurgeOutcome.LATER, words=words)
        checksum = _checksum(ports, site, items)
        if problem := rules.confirmation_problem(request.confirm, checksum):
            raise Refused(
                f"nothing was purged: {problem}; the checksum of this purge is {checksum}",
                cause="a purge cannot be undone, so what it frees has to be reviewed first",
                hint=f"review it with --dry-run, then pass --confirm {checksum[: model.CONFIRM_CHARACTERS]}",
            )
        try:
            return await call.recorded(VERB, lambda call: _purge(call, items, left), hook_steps=(HookStep.PURGE,))
        except asyncio.CancelledError:
            raise Interrupted(
                "the purge was interrupted",
                hint="the same command resumes; until then the source is partly freed",
            ) from None


_Later = dict[bytes, model.TreePurge]


def _chosen(request: model.PurgeRequest, ports: PurgePorts) -> tuple[tuple[PurgeItem, ...], _Later]:
    """The trees to purge, and those left for later. The former include trees whose purge has begun or is done, to keep
    the checksum the same. Raises Refused if none can be purged.
    """
    items: list[PurgeItem] = []
    left: _Later = {}
    for tree in request.trees:
        record = ports.ledger.cutovers.latest(tree.path)
        later = rules.left_alone(tree, record, now_s=ports.clock.now_s(), retain_s=request.retain_s)
        if later is not None:
            left[tree.path] = later
        elif record is not None:
            known, wanted = ports.ledger.verifications.of_plan(record.plan), record.notes.verification_id
            proof = next((one for one in known if one.id == wanted), None)
            items.append(PurgeItem(record=record, proof=proof, carried=_carried_proofs(ports, record)))
    if left and (request.named or not items):
        raise Refused(
            f"nothing was purged: {'; '.join(one.words for one in left.values())}",
            cause="the source is freed of users who have worked on the target for [cutover] retain, and of no others",
            hint="see `migrator status` for where each user works",
        )
    return tuple(items), left


def _carried_proofs(ports: PurgePorts, record: CutoverRecord) -> tuple[VerificationRecord, ...] | None:
    """The proofs of paths that a rollback carried to the source before it was given up, oldest first; None if nothing
    was carried. Unreadable manifests prove nothing.
    """

    def is_as_written(one: VerificationRecord) -> bool:
        try:
            return ports.manifests.digest(one.manifest or "") == one.manifest_digest
        except MigratorError:
            return False

    try:
        found = ports.carried(record)
    except MigratorError:
        return ()
    if found is None:
        return None
    newer_than = record.notes.proofs_before
    return tuple(one for one in found if rules.counts_as_proof(one, newer_than=newer_than) and is_as_written(one))


def _checksum(ports: PurgePorts, site: SiteRecord, items: Sequence[PurgeItem]) -> str:
    source, target = percent_escape(ports.source.root), percent_escape(ports.target.root)
    return rules.plan_checksum(site.site_id, source, target, items)


async def _purge(call: PurgeCall, items: Sequence[PurgeItem], left: _Later) -> model.PurgeSummary:
    ports, request = call.ports, call.request
    # A dry run calls none.
    hooks = None if call.run_id is None else call.hooks
    pace = RemovalRate(
        probes=ports.ledger.probes,
        controls=ports.ledger.controls,
        clock=ports.clock,
        most=request.names_per_s,
        max_latency_s=request.max_latency_s,
        report=lambda severity, message: call.emit(EventKind.THROTTLE_SET, severity, VERB, message),
    )
    done = dict(left)
    for item in items:
        procedure = PurgeProcedure(
            call=call,
            item=item,
            checks=TreeChecks(call=call, item=item),
            tree_hooks=TreeHooks(call=call, item=item, hooks=hooks),
            pace=pace,
        )
        done[item.record.tree.path] = await procedure.run()
    return model.PurgeSummary(
        run_id=call.run_id,
        dry_run=request.dry_run,
        checksum=_checksum(ports, call.site, items),
        require_archive=request.require_archive,
        trees=tuple(done[tree.path] for tree in request.trees),
    )


# Freeing the source of one tree.


class PathsKept(MigratorError):
    """Some paths of a tree stay in its place."""


class PurgeSnapshot(Struct, frozen=True, kw_only=True):
    """A tree and every reason against freeing it, or resuming that.

    Without reasons, `proofs` None means that the source has nothing left of it. `found` comes from a survey, also of a
    tree in its place.
    """

    placed: TreeLocation
    reasons: tuple[str, ...] = ()
    proofs: IndexedProofs | None = None
    names: int = 0
    found: TreeFindings | None = None


@dataclass(slots=True, kw_only=True)
class PurgeProcedure(Procedure[CutoverRecord, PurgeSnapshot]):
    """Frees the source of one tree. Unknown facts count against it, because it cannot be undone.

    `prepare` calls the `pre` hooks, because the intent `purging` is final. The `post` hooks follow the end.
    """

    events = StepEvents(done=EventKind.PURGE_FINISHED, failed=EventKind.PURGE_KEPT, aborting=EventKind.PURGE_KEPT)

    call: PurgeCall
    item: PurgeItem
    checks: TreeChecks
    tree_hooks: TreeHooks
    pace: RemovalRate
    _snapshot: PurgeSnapshot = field(init=False)
    _reread: model.Reread | None = None
    _removed: TreeFindings | None = None
    _kept_in: bytes | None = None
    _freed: str = ""
    _marked: frozenset[bytes] = frozenset()

    async def run(self) -> model.TreePurge:
        """Free the tree, or return the reasons against it. Raises errors that stop the whole purge."""
        tree = self.item.record.tree
        try:
            return await self._drive()
        except Interrupted:
            raise
        except MigratorError as error:
            record, refused = self.records.read(self.item.record.id), isinstance(error, Refused)
            if self.tree_hooks.called:
                await self.tree_hooks.after(record, HookState.REFUSED if refused else HookState.FAILED)
            if isinstance(error, PathsKept):
                return self._result(PurgeOutcome.KEPT, words=error.message, whole=record.notes.purge)
            if isinstance(error, HookSkipped):
                return model.TreePurge(tree=tree, outcome=PurgeOutcome.LATER, words=error.message)
            if not refused:
                raise
            self.call.emit(EventKind.GUARD_REFUSED, Severity.ERROR, record.subject(), error.message)
            return model.TreePurge(
                tree=tree,
                outcome=PurgeOutcome.REFUSED,
                words=_REFUSED,
                reasons=(error.message,),
                archives=tuple(one.name for one in self.tree_hooks.proven_archives()),
            )
        except OSError as error:
            raise MigratorError(
                f"the purge of {tree.user} failed: {error.strerror or error}",
                cause="a file system or the state directory does not answer, or has an error",
                hint="check with `migrator doctor`, then run the same command again: it resumes",
            ) from error

    async def _drive(self) -> model.TreePurge:
        ended = await OperationEngine(self, self.call).drive(self.item.record)
        match ended.reason:
            case Finished() as step:
                return await self._finished(ended.record, step)
            case Halt() as step:
                return self._halted(ended.record, step)
            case Stuck():
                raise AssertionError("`after_failure` raises the error of a step")
            case _:
                assert_never(ended.reason)

    async def _finished(self, record: CutoverRecord, step: Finished) -> model.TreePurge:
        if record.state is not CutoverState.PURGED:
            return self._result(PurgeOutcome.WOULD_PURGE, words=step.words)
        await self.tree_hooks.after(record, HookState.DONE)
        if not self._freed:
            words = f"the source of {record.tree.user} was purged before"
            return self._result(PurgeOutcome.DONE_BEFORE, words=words, whole=record.notes.purge)
        return self._result(PurgeOutcome.PURGED, words=self._freed, whole=record.notes.purge)

    def _halted(self, record: CutoverRecord, step: Halt) -> model.TreePurge:
        message = f"the source of {record.tree.user} stays: {step.words}"
        self.call.emit(EventKind.GUARD_REFUSED, Severity.ERROR, record.subject(), message)
        return self._result(PurgeOutcome.REFUSED, words=_REFUSED, reasons=step.reasons)

    # For the engine.

    @property
    def records(self) -> CutoverRecords:
        return self.call.ports.ledger.cutovers

    async def snapshot(self, record: CutoverRecord) -> PurgeSnapshot:
        if not self._freed:
            self._snapshot = await self._take_snapshot(record)
        return self._snapshot

    def next_step(self, record: CutoverRecord, snapshot: PurgeSnapshot) -> CutoverAct | Halt | Finished:
        step = rules.next_step(record, snapshot.reasons)
        if isinstance(step, Act) and self.call.request.dry_run:
            found = snapshot.found
            released = "" if found is None else released_clause(found.released)
            words = "nothing of it is left on the source" if found is None else f"may be freed{released}"
            return Finished(state=record.state, words=words)
        return step

    async def prepare(self, record: CutoverRecord, act: CutoverAct, snapshot: PurgeSnapshot) -> CutoverNotes | None:
        del act
        if self.tree_hooks.hooks is not None:
            await self.tree_hooks.before(record, snapshot.proofs)
            if snapshot.proofs is not None and self.call.request.require_archive:
                # Archives may have taken days.
                total, health = await asyncio.to_thread(snapshot.proofs.total), await self.call.ports.source.health()
                position = await self.checks.position(record)
                if reasons := await self.checks.problems(record, position, snapshot.placed, total, health):
                    raise self._stopped(record, "; ".join(reasons))
        await asyncio.to_thread(self.call.ports.back_up, f"purge-{record.own_name}")
        # The sum of a tree whose purge has begun is what earlier calls have left of it.
        return None if snapshot.found is None or snapshot.placed.begun else CutoverNotes(purge=snapshot.found.sum)

    def after_failure(self, record: CutoverRecord, act: CutoverAct, error: Exception, *, resumed: bool) -> None:
        del record, act, resumed
        raise error

    async def perform(self, act: CutoverAct, record: CutoverRecord) -> Done[CutoverState, CutoverNotes]:
        del act
        snapshot, whole = self._snapshot, record.notes.purge
        placed = closed = closed_tree(record)
        if snapshot.proofs is not None:
            placed = snapshot.placed if snapshot.placed.moved else await self._put(record, closed)
            words = f"the source of {record.tree.user} is being freed: {_describe_sum(whole)}"
            self.call.emit(EventKind.PURGE_STARTED, Severity.INFO, record.subject(), words)
            self._removed = await self._remove(record, placed, snapshot.proofs)
            if self._removed.open_paths:
                self._kept_in = placed.at
                raise PathsKept(
                    f"there is no proof on the target for {several(self._removed.open_paths, 'path')}, kept in {show(placed.at)} of the source"
                )
        await self._put_away(record, placed)
        await asyncio.to_thread(self._parts().remove)
        released = released_clause(self._removed.released) if self._removed else ""
        self._freed = f"the source of {record.tree.user} is free: {_describe_sum(whole)}{released}"
        return Done(message=self._freed)

    # The snapshot.

    async def _take_snapshot(self, record: CutoverRecord) -> PurgeSnapshot:
        """Take a snapshot with every fact. A resumed purge surveys the tree again in its place: days may have passed, and
        every guard of a new purge counts.
        """
        ports, tree = self.call.ports, record.tree
        closed = closed_tree(record)
        if record.state is CutoverState.PURGED:
            return PurgeSnapshot(placed=closed)
        position = await self.checks.position(record)
        placed = closed
        if position is not model.Position.CLOSED:
            placed = TreeLocation(tree=tree.path, at=tree.path, begun=record.state is CutoverState.PURGING)
        if position is model.Position.GONE and record.state is CutoverState.PURGING:
            # The purge was killed before it wrote its result. A missing mount would look the same.
            return PurgeSnapshot(placed=placed, reasons=await self.checks.outside_problems())
        proofs = await self._open_proofs(record)
        before = await ports.source.health()
        total = None if proofs is None else await asyncio.to_thread(proofs.total)
        reasons = await self.checks.problems(record, position, placed, total, before)
        if reasons or proofs is None or total is None:
            return PurgeSnapshot(placed=placed, reasons=reasons or ("its proofs cannot be read",))
        if marks_unknown := await self._read_marks(placed):
            return PurgeSnapshot(placed=placed, reasons=marks_unknown)
        snapshot = PurgeSnapshot(placed=placed, proofs=proofs, names=total.names)
        if damaged := await asyncio.to_thread(lambda: ports.archived().problems(tree.path)):
            return replace(
                snapshot, reasons=tuple(f"{one}: bring it back from a backup of the target" for one in damaged)
            )
        found = await self._survey(record, placed, proofs, total.names)
        self._reread = self._reread_of(record, found, total)
        reasons = self._survey_problems(record, found, placed) or await self.checks.outside_problems(before)
        if not reasons and self._reread.files and self._reread.wanted and not self.call.request.dry_run:
            reasons = await self._read_again(record, placed, proofs, found, self._reread)
            if not reasons:
                # The reading may have taken days.
                position, health = await self.checks.position(record), await ports.source.health()
                reasons = await self.checks.problems(record, position, placed, total, health)
        return replace(snapshot, reasons=reasons, found=found)

    async def _open_proofs(self, record: CutoverRecord) -> IndexedProofs | None:
        """The proofs, until the end of the step; None if they cannot be read."""
        ports, proof = self.call.ports, self.item.proof
        if proof is None or proof.manifest is None:
            return None
        rows = await asyncio.to_thread(ports.skipped, record)
        opened = open_proofs(
            proof.manifest,
            record.tree.path,
            archives={
                one.number: one.written.archive_bytes
                for one in ports.ledger.archives.of_tree(record.tree.path)
                if one.state is ArchiveState.PROVEN
            },
            archive_directory=archive_directory(record.tree.path, ports.ledger.site.required().name_seed),
            skipped=rows,
            newer=[one.manifest or "" for one in self.item.carried or ()],
            scratch=ports.scratch,
        )
        try:
            return await asyncio.to_thread(self.step_locks.enter_context, opened)
        except Refused:
            return None

    async def _read_marks(self, placed: TreeLocation) -> tuple[str, ...]:
        """Read the marks of the tree's copies on all bricks; return why they are not all known."""
        if self.call.ports.marks is None:
            return ()
        marks = await self.call.ports.marks((placed.at,))
        self._marked = frozenset(placed.known_as(path) for path in marks.paths)
        return (*marks.reasons, *marks.kept)

    async def _survey(
        self, record: CutoverRecord, placed: TreeLocation, proofs: IndexedProofs, names: int
    ) -> TreeFindings:
        top = await asyncio.to_thread(self.call.ports.source.look, placed.at)
        if top is None:
            raise self._stopped(record, f"{show(placed.at)} is no longer on the source")
        judge = PathJudge(self.call, record, placed, proofs, self._marked, surveys=True)
        survey = Survey(self.call, placed, proofs, judge)
        return await survey.run(top, user=record.tree.user, total=names)

    def _survey_problems(self, record: CutoverRecord, found: TreeFindings, placed: TreeLocation) -> tuple[str, ...]:
        carried, tree = self.item.carried, record.tree
        if found.open_paths and not placed.moved:
            lacking = found.open_paths - found.skipped
            return open_path_reasons(tree, lacking, found.skipped, carried=carried is not None, verified=bool(carried))
        # Of the whole tree, also if an earlier call has removed a part of it.
        whole = (record.notes.purge if placed.begun else None) or found.sum
        lost = rules.shrink_problem(
            tree,
            gone=found.gone,
            names=whole.names,
            gone_bytes=found.gone_bytes,
            size_bytes=whole.size_bytes,
            max_shrink=self.call.request.max_shrink,
        )
        return () if lost is None else (lost,)

    def _reread_of(self, record: CutoverRecord, found: TreeFindings, total: model.ManifestSum) -> model.Reread:
        records = [one for one in self.call.ports.ledger.verifications.of_plan(record.plan) if one.whole]
        _, s_per_path, s_per_byte = check_cost(records)
        proven_at_s = None if total.oldest_ns is None else total.oldest_ns / NS_PER_S
        return model.Reread(
            files=found.unchanged,
            size_bytes=found.unchanged_bytes,
            expected_s=found.unchanged * s_per_path + found.unchanged_bytes * s_per_byte,
            proven_at_s=proven_at_s,
            age_s=None if proven_at_s is None else max(self.call.ports.clock.now_s() - proven_at_s, 0.0),
            wanted=self.call.request.reread,
        )

    async def _read_again(
        self,
        record: CutoverRecord,
        placed: TreeLocation,
        proofs: IndexedProofs,
        found: TreeFindings,
        reread: model.Reread,
    ) -> tuple[str, ...]:
        """Read on the target what the user has not changed there; return why the tree may not be freed then."""
        user = record.tree.user
        words = (
            f"the content of {several(reread.files, 'file')} of {user} ({format_size(reread.size_bytes)}) is read again on the "
            f"target before anything is freed, which takes about {format_duration(reread.expected_s)}"
        )
        self.call.emit(EventKind.PURGE_STARTED, Severity.INFO, record.subject(), words)
        judge = PathJudge(self.call, record, placed, proofs, self._marked)
        again = Rereading(
            call=self.call, proofs=proofs, parts=self._parts(), verification=record.notes.verification_id or 0
        )
        read = await again.run(judge, user=user, files=reread.files)
        found.add_target(read)
        return self._survey_problems(record, found, placed)

    def _parts(self) -> "ReadingParts":
        """What is read again on the target, by the present manifests: a call that was killed need not read it once more."""
        proofs = hashlib.blake2b(rules.proofs_named(self.item).encode("ascii"), digest_size=8).hexdigest()
        return self.call.ports.manifests.readings(f"purge-{self.item.record.own_name}-{proofs}")

    # The act.

    async def _put(self, record: CutoverRecord, closed: TreeLocation) -> TreeLocation:
        """Move the tree into its place, and search for processes with open files in it once more. A full file system has no room
        for the place: the tree is then freed where it stands, its top closed since the freeze.
        """
        ports, tree, place = self.call.ports, record.tree.path, model.purge_place(record)
        top = await asyncio.to_thread(ports.source.look, tree)
        if top is None:
            raise self._stopped(record, f"{show(tree)} is no longer on the source")
        placed = closed
        try:
            await asyncio.to_thread(ports.places.put, tree, place, ino=top.ino)
        except OSError as error:
            why = f"{show(tree)} cannot be moved to {show(place)}: {error.strerror or error}"
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if not is_full or await self.checks.position(record) is not model.Position.IN_PLACE:
                raise self._stopped(record, why) from error
            placed = TreeLocation(tree=tree, at=tree, begun=True)
            self.call.emit(EventKind.PURGE_STARTED, Severity.INFO, record.subject(), f"{why}; it is freed in place")
        if reasons := await self.checks.writing_problems(placed.at):
            raise self._stopped(record, "; ".join(reasons))
        return placed

    async def _remove(self, record: CutoverRecord, placed: TreeLocation, proofs: IndexedProofs) -> TreeFindings:
        async def watch() -> None:
            if reasons := await self.checks.outside_problems():
                raise self._stopped(record, "; ".join(reasons))

        judge = PathJudge(self.call, record, placed, proofs, self._marked)
        removal = Removal(call=self.call, placed=placed, proofs=proofs, judge=judge, pace=self.pace, watch=watch)
        found = await removal.run(user=record.tree.user, total=self._snapshot.names)
        await watch()
        return found

    async def _put_away(self, record: CutoverRecord, placed: TreeLocation) -> None:
        places = self.call.ports.places
        try:
            if await asyncio.to_thread(places.stands, placed.at):
                raise self._stopped(record, f"{show(placed.at)} still exists, although everything in it is gone")
            await asyncio.to_thread(places.remove_directory, model.purge_place(record))
            await asyncio.to_thread(self.call.ports.source.sync)
            # Fails until the last place is removed.
            with suppress(OSError):
                await asyncio.to_thread(places.remove_directory, PURGE_NAME)
        except OSError as error:
            raise self._stopped(
                record, f"the end of the purge cannot be confirmed: {error.strerror or error}"
            ) from error

    # Results.

    def _result(
        self, outcome: PurgeOutcome, *, words: str, reasons: tuple[str, ...] = (), whole: PurgeSum | None = None
    ) -> model.TreePurge:
        snapshot, removed = self._snapshot, self._removed or TreeFindings()
        found = snapshot.found or TreeFindings()
        listed = self._removed or found
        return model.TreePurge(
            tree=self.item.record.tree,
            outcome=outcome,
            words=words,
            reasons=reasons,
            sum=whole or (None if snapshot.found is None else found.sum),
            removed=removed.removed,
            read_again=removed.read_again + found.read_again,
            reread=self._reread,
            changed=found.changed,
            gone=found.gone,
            outside=found.outside,
            open_paths=listed.open_paths,
            findings=listed.listed,
            kept_in=self._kept_in if outcome is PurgeOutcome.KEPT else None,
            archives=tuple(one.name for one in self.tree_hooks.proven_archives()),
        )

    def _stopped(self, record: CutoverRecord, why: str) -> Refused:
        return Refused(
            f"the purge of {record.tree.user} was stopped: {why}",
            cause="a precondition of removals no longer holds",
            hint="fix that, then run the same command again: it resumes",
        )


def _describe_sum(whole: PurgeSum | None) -> str:
    if whole is None:
        return "its size is unknown"
    return f"{format_size(whole.size_bytes)} in {several(whole.names, 'name')}, {several(whole.inodes, 'inode')}"
