"""`purge`: preflight checks, confirmation, then one tree after the other."""

import asyncio
import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import VerificationRecord
from migrator.core.errors import Interrupted, LedgerCorrupt, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join, percent_escape, show
from migrator.core.tasks import told
from migrator.core.units import NS_PER_S, format_duration, format_size, several
from migrator.cutover.model import CutoverAct, CutoverNotes, CutoverRecord, CutoverState, PurgeSum
from migrator.cutover.places import CutoverPlace
from migrator.cutover.records import CutoverRecords
from migrator.cutover.rules_writers import writing_problems
from migrator.fs.model import PURGE_NAME, SourceHealth
from migrator.fs.ports import FileSystem
from migrator.gluster.model import volume_state
from migrator.gluster.rules import freeing_problems
from migrator.hooks.model import HookFacts, HookState, HookStep
from migrator.hooks.stage import HookedStep, HookSkipped, StepHooks
from migrator.ledger.locks import VOLUME, of_tree
from migrator.ledger.model import SiteRecord
from migrator.operations.engine import Done, OperationEngine, Procedure, StepEvents, StepPorts, Stuck
from migrator.operations.model import Act, Finished, Halt
from migrator.purge import model, rules
from migrator.purge.copies import Answers
from migrator.purge.proofs import IndexedProofs, open_proofs
from migrator.purge.removal import LOG, Call, Found, Judge, Pace, Placed, PurgeRequest, PurgeWorld, Removal, Survey
from migrator.purge.reread import Rereading
from migrator.reap.model import ArchiveState, archive_directory
from migrator.site.rules_guards import health_problems, mount_problems
from migrator.transfer.rules_convergence import check_cost

if TYPE_CHECKING:
    from migrator.catalog.manifest import ReadingParts

VERB = "purge"

LOOK_TIMEOUT_S = 120.0

_REFUSED = "refused by a guard"


T = TypeVar("T")


# Freeing the source of one tree


class PathsKept(MigratorError):
    """Some paths of a tree stay in its place."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """A tree and every reason against freeing it, or resuming that.

    Without reasons, `proofs` None means that the source has nothing left of it. `found` comes from a survey, also of a
    tree in its place.
    """

    placed: Placed
    reasons: tuple[str, ...] = ()
    proofs: IndexedProofs | None = None
    names: int = 0
    found: Found | None = None


@dataclass(slots=True, kw_only=True)
class TreeMachine(Procedure[CutoverRecord, Snapshot]):
    """Frees the source of one tree. Unknown facts count against it, because it cannot be undone.

    `prepare` calls the `pre` hooks, because the intent `purging` is final. The `post` hooks follow the end.
    """

    events = StepEvents(done=EventKind.PURGE_FINISHED, failed=EventKind.PURGE_KEPT, aborting=EventKind.PURGE_KEPT)

    call: Call
    item: model.Item
    purge_hooks: StepHooks | None
    pace: Pace
    _seen: Snapshot = field(init=False)
    _hooked: bool = False
    _reread: model.Reread | None = None
    _removed: Found | None = None
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
            if self._hooked:
                await self._post_hooks(record, HookState.REFUSED if refused else HookState.FAILED)
            if isinstance(error, PathsKept):
                return self._result(model.TreeOutcome.KEPT, words=error.message, whole=record.notes.purge)
            if isinstance(error, HookSkipped):
                return model.TreePurge(tree=tree, outcome=model.TreeOutcome.LATER, words=error.message)
            if not refused:
                raise
            self.emit(EventKind.GUARD_REFUSED, Severity.ERROR, record, error.message)
            return model.TreePurge(
                tree=tree,
                outcome=model.TreeOutcome.REFUSED,
                words=_REFUSED,
                reasons=(error.message,),
                archives=tuple(one.name for one in self._proven()),
            )
        except OSError as error:
            raise MigratorError(
                f"the purge of {tree.user} failed: {error.strerror or error}",
                cause="a file system or the state directory does not answer, or has an error",
                hint="check with `migrator doctor`, then run the same command again: it resumes",
            ) from error

    # What the engine needs.

    @property
    def records(self) -> CutoverRecords:
        return self.call.world.ledger.cutovers

    @property
    def ports(self) -> StepPorts:
        return self.call.world

    def emit(self, kind: EventKind, severity: Severity, record: CutoverRecord, message: str) -> None:
        self.call.say(kind, severity, record.tree.user, message)

    def shown(self, record: CutoverRecord) -> str:
        return f"the source of {record.tree.user}"

    async def snapshot(self, record: CutoverRecord) -> Snapshot:
        if not self._freed:
            self._seen = await self._look_at(record)
        return self._seen

    def next_step(self, record: CutoverRecord, snapshot: Snapshot) -> CutoverAct | Halt | Finished:
        step = rules.next_step(record, snapshot.reasons)
        if isinstance(step, Act) and self.call.request.dry_run:
            found = snapshot.found
            released = "" if found is None else rules.released_words(found.released)
            words = "nothing of it is left on the source" if found is None else f"may be freed{released}"
            return Finished(state=record.state, words=words)
        return step

    async def prepare(self, record: CutoverRecord, act: CutoverAct, seen: Snapshot) -> CutoverNotes | None:
        del act
        if self.purge_hooks is not None:
            await self._call_hooks(self.purge_hooks, record, seen.proofs)
            if seen.proofs is not None and self.call.request.require_archive:
                # Archives may have taken days.
                total, health = await asyncio.to_thread(seen.proofs.total), await self.call.world.source.health()
                position = await self._position(record)
                if reasons := await self._problems(record, position, seen.placed, total, health):
                    raise self._stopped(record, "; ".join(reasons))
        await asyncio.to_thread(self.call.world.back_up, f"purge-{record.own_name}")
        # The sum of a tree whose purge has begun is what earlier calls have left of it.
        return None if seen.found is None or seen.placed.begun else CutoverNotes(purge=seen.found.sum)

    def after_failure(self, record: CutoverRecord, act: CutoverAct, error: Exception, *, resumed: bool) -> None:
        del record, act, resumed
        raise error

    async def _drive(self) -> model.TreePurge:
        ended = await OperationEngine(self).drive(self.item.record)
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
            return self._result(model.TreeOutcome.WOULD_PURGE, words=step.words)
        await self._post_hooks(record, HookState.DONE)
        if not self._freed:
            words = f"the source of {record.tree.user} was purged before"
            return self._result(model.TreeOutcome.DONE_BEFORE, words=words, whole=record.notes.purge)
        return self._result(model.TreeOutcome.PURGED, words=self._freed, whole=record.notes.purge)

    def _halted(self, record: CutoverRecord, step: Halt) -> model.TreePurge:
        message = f"the source of {record.tree.user} stays: {step.words}"
        self.emit(EventKind.GUARD_REFUSED, Severity.ERROR, record, message)
        return self._result(model.TreeOutcome.REFUSED, words=_REFUSED, reasons=step.reasons)

    # Looking.

    async def _look_at(self, record: CutoverRecord) -> Snapshot:
        """Take a snapshot with every fact. A resumed purge surveys the tree again in its place: days may have passed, and
        every guard of a new purge counts.
        """
        world, tree = self.call.world, record.tree
        closed = _closed(record)
        if record.state is CutoverState.PURGED:
            return Snapshot(placed=closed)
        position = await self._position(record)
        placed = closed
        if position is not model.Position.CLOSED:
            placed = Placed(tree=tree.path, at=tree.path, begun=record.state is CutoverState.PURGING)
        if position is model.Position.GONE and record.state is CutoverState.PURGING:
            # The purge was killed before it wrote its result. A missing mount would look the same.
            return Snapshot(placed=placed, reasons=await self._outside_problems())
        proofs = await self._open_proofs(record)
        before = await world.source.health()
        total = None if proofs is None else await asyncio.to_thread(proofs.total)
        reasons = await self._problems(record, position, placed, total, before)
        if reasons or proofs is None or total is None:
            return Snapshot(placed=placed, reasons=reasons or ("its proofs cannot be read",))
        if marks_unknown := await self._read_marks(placed):
            return Snapshot(placed=placed, reasons=marks_unknown)
        seen = Snapshot(placed=placed, proofs=proofs, names=total.names)
        if damaged := await asyncio.to_thread(lambda: world.archived().problems(tree.path)):
            return replace(seen, reasons=tuple(f"{one}: bring it back from a backup of the target" for one in damaged))
        found = await self._survey(record, placed, proofs, total.names)
        self._reread = self._reread_of(record, found, total)
        reasons = self._survey_problems(record, found, placed) or await self._outside_problems(before)
        if not reasons and self._reread.files and self._reread.wanted and not self.call.request.dry_run:
            reasons = await self._read_again(record, placed, proofs, found, self._reread)
            if not reasons:
                # The reading may have taken days.
                position, health = await self._position(record), await world.source.health()
                reasons = await self._problems(record, position, placed, total, health)
        return replace(seen, reasons=reasons, found=found)

    def _reread_of(self, record: CutoverRecord, found: Found, total: model.ManifestSum) -> model.Reread:
        records = [one for one in self.call.world.ledger.verifications.of_plan(record.plan) if one.whole]
        s_per_path, s_per_byte = check_cost(records)
        proven_at_s = None if total.oldest_ns is None else total.oldest_ns / NS_PER_S
        return model.Reread(
            files=found.unchanged,
            size_bytes=found.unchanged_bytes,
            expected_s=found.unchanged * s_per_path + found.unchanged_bytes * s_per_byte,
            proven_at_s=proven_at_s,
            age_s=None if proven_at_s is None else max(self.call.world.clock.now_s() - proven_at_s, 0.0),
            wanted=self.call.request.reread,
        )

    async def _read_again(
        self, record: CutoverRecord, placed: Placed, proofs: IndexedProofs, found: Found, reread: model.Reread
    ) -> tuple[str, ...]:
        """Read on the target what the user has not changed there; return why the tree may not be freed then."""
        user = record.tree.user
        words = (
            f"the content of {several(reread.files, 'file')} of {user} ({format_size(reread.size_bytes)}) is read again on the "
            f"target before anything is freed, which takes about {format_duration(reread.expected_s)}"
        )
        self.emit(EventKind.PURGE_STARTED, Severity.INFO, record, words)
        judge = Judge(self.call, record, placed, proofs, self._marked)
        again = Rereading(
            call=self.call, proofs=proofs, parts=self._parts(), verification=record.notes.verification_id or 0
        )
        read = await again.run(judge, user=user, files=reread.files)
        found.add_target(read)
        return self._survey_problems(record, found, placed)

    def _parts(self) -> "ReadingParts":
        """What is read again on the target, by the present manifests: a call that was killed need not read it once more."""
        proofs = hashlib.blake2b(rules.proofs_named(self.item).encode("ascii"), digest_size=8).hexdigest()
        return self.call.world.manifests.readings(f"purge-{self.item.record.own_name}-{proofs}")

    async def _read_marks(self, placed: Placed) -> tuple[str, ...]:
        """Read the marks of the tree's copies on all bricks; return why they are not all known."""
        if self.call.world.marks is None:
            return ()
        marks = await self.call.world.marks((placed.at,))
        self._marked = frozenset(placed.known_as(path) for path in marks.paths)
        return (*marks.reasons, *marks.kept)

    async def _position(self, record: CutoverRecord) -> model.Position | None:
        """Location of the tree; None if unknown."""
        places, closed = self.call.world.places, _closed(record)
        stands = await self._told(lambda: (places.stands(record.tree.path), places.stands(closed.at)))
        if stands is None:
            return None
        return {
            (True, False): model.Position.IN_PLACE,
            (False, True): model.Position.CLOSED,
            (True, True): model.Position.BOTH,
            (False, False): model.Position.GONE,
        }[stands]

    async def _open_proofs(self, record: CutoverRecord) -> IndexedProofs | None:
        """The proofs, until the end of the step; None if they cannot be read."""
        world, proof = self.call.world, self.item.proof
        if proof is None or proof.manifest is None:
            return None
        rows = await asyncio.to_thread(world.skipped, record)
        opened = open_proofs(
            proof.manifest,
            record.tree.path,
            archives={
                one.number: one.written.archive_bytes
                for one in world.ledger.archives.of_tree(record.tree.path)
                if one.state is ArchiveState.PROVEN
            },
            archive_directory=archive_directory(record.tree.path, world.ledger.site.required().name_seed),
            skipped=rows,
            newer=[one.manifest or "" for one in self.item.carried or ()],
            scratch=world.scratch,
        )
        try:
            return await asyncio.to_thread(self.step_locks.enter_context, opened)
        except Refused:
            return None

    async def _problems(
        self,
        record: CutoverRecord,
        position: model.Position | None,
        placed: Placed,
        total: model.ManifestSum | None,
        before: SourceHealth,
    ) -> tuple[str, ...]:
        """The reasons against freeing the tree. `total` is None if the manifest cannot be read."""
        world, tree, proof = self.call.world, record.tree, self.item.proof
        manifest = None if proof is None else proof.manifest
        problems = rules.purge_problems(
            record,
            position=position,
            top=await self._told(lambda: world.source.look(tree.path)) if position is model.Position.IN_PLACE else None,
            target_top=await self._told(lambda: world.target.look(tree.path)),
            target_names=await self._told(lambda: _count(world.target, tree.path)),
            leads_to=await self._told(lambda: world.link(tree)),
            verification=proof,
            manifest_digest=None if manifest is None else await self._told(lambda: world.manifests.digest(manifest)),
            total=total,
            scan_whole=self._scan_whole(record),
            lacks_backup=self.call.request.wants_backup
            and world.ledger.backups.lack(tree.path, since_s=record.thawed_at_s),
        )
        return (
            *problems,
            *await self._outside_problems(before, before),
            *(() if world.storage is None else await world.storage()),
            *await self._writing(placed.at),
        )

    async def _outside_problems(
        self, before: SourceHealth | None = None, now: SourceHealth | None = None
    ) -> tuple[str, ...]:
        """Problems of mounts, bricks, tasks and options that forbid any removal now."""
        now = now or await self.call.world.source.health()
        state = volume_state(now)
        freeing = () if state is None else freeing_problems(state)
        return (*await self._mounts(), *health_problems(before or now, now), *freeing)

    async def _mounts(self) -> tuple[str, ...]:
        world = self.call.world
        capacity = await self._told(world.source.capacity)
        return (
            *mount_problems(self.call.site.source, await self._told(world.source.identity), where="the source"),
            *mount_problems(self.call.site.target, await self._told(world.target.identity), where="the target"),
            *(("the source is mounted read-only",) if capacity is not None and capacity.read_only else ()),
        )

    async def _writing(self, path: bytes) -> tuple[str, ...]:
        """Processes that can still write below a path, as sentences."""
        found = await self.call.world.writers((path,))
        return writing_problems(found, vouched=self.call.request.vouched)

    def _scan_whole(self, record: CutoverRecord) -> bool | None:
        """Whether the scan of the final pass was whole."""
        ledger, pass_id = self.call.world.ledger, record.notes.final_pass_id
        if pass_id is None:
            return None
        try:
            catalog = ledger.passes.read(pass_id).catalog
        except LedgerCorrupt:
            return None
        scans = [
            scan.whole_of((record.tree.path,)) and scan.finished_at_s is not None
            for scan in ledger.scans.all()
            if scan.name == catalog and scan.covers((record.tree.path,))
        ]
        return scans[-1] if scans else None

    async def _told(self, look: Callable[[], T]) -> T | None:
        return await told(self.call.world.blocking(look, timeout_s=LOOK_TIMEOUT_S))

    async def _survey(self, record: CutoverRecord, placed: Placed, proofs: IndexedProofs, names: int) -> Found:
        top = await asyncio.to_thread(self.call.world.source.look, placed.at)
        if top is None:
            raise self._stopped(record, f"{show(placed.at)} has gone from the source just now")
        judge = Judge(self.call, record, placed, proofs, self._marked, surveys=True)
        survey = Survey(self.call, placed, proofs, judge)
        return await survey.run(top, user=record.tree.user, total=names)

    def _survey_problems(self, record: CutoverRecord, found: Found, placed: Placed) -> tuple[str, ...]:
        carried, tree = self.item.carried, record.tree
        if found.open_paths and not placed.moved:
            lacking = found.open_paths - found.skipped
            return rules.open_words(tree, lacking, found.skipped, carried=carried is not None, verified=bool(carried))
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

    # Acting.

    async def perform(self, act: CutoverAct, record: CutoverRecord) -> Done[CutoverState, CutoverNotes]:
        del act
        seen, whole = self._seen, record.notes.purge
        placed = closed = _closed(record)
        if seen.proofs is not None:
            placed = seen.placed if seen.placed.moved else await self._put(record, closed)
            words = f"the source of {record.tree.user} is being freed: {_sum_words(whole)}"
            self.emit(EventKind.PURGE_STARTED, Severity.INFO, record, words)
            self._removed = await self._remove(record, placed, seen.proofs)
            if self._removed.open_paths:
                self._kept_in = placed.at
                raise PathsKept(
                    f"there is no proof on the target for {several(self._removed.open_paths, 'path')}, kept in {show(placed.at)} of the source"
                )
        await self._put_away(record, placed)
        await asyncio.to_thread(self._parts().remove)
        released = rules.released_words(self._removed.released) if self._removed else ""
        self._freed = f"the source of {record.tree.user} is free: {_sum_words(whole)}{released}"
        return Done(words=self._freed)

    async def _put(self, record: CutoverRecord, closed: Placed) -> Placed:
        """Move the tree into its place, and search for processes with open files in it once more. A full file system has no room
        for the place: the tree is then freed where it stands, its top closed since the freeze.
        """
        world, tree, place = self.call.world, record.tree.path, model.purge_place(record)
        top = await asyncio.to_thread(world.source.look, tree)
        if top is None:
            raise self._stopped(record, f"{show(tree)} has gone from the source just now")
        placed = closed
        try:
            await asyncio.to_thread(world.places.put, tree, place, ino=top.ino)
        except OSError as error:
            why = f"{show(tree)} cannot be moved to {show(place)}: {error.strerror or error}"
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if not is_full or await self._position(record) is not model.Position.IN_PLACE:
                raise self._stopped(record, why) from error
            placed = Placed(tree=tree, at=tree, begun=True)
            self.emit(EventKind.PURGE_STARTED, Severity.INFO, record, f"{why}; it is freed in place")
        if reasons := await self._writing(placed.at):
            raise self._stopped(record, "; ".join(reasons))
        return placed

    async def _remove(self, record: CutoverRecord, placed: Placed, proofs: IndexedProofs) -> Found:
        async def watch() -> None:
            if reasons := await self._outside_problems():
                raise self._stopped(record, "; ".join(reasons))

        judge = Judge(self.call, record, placed, proofs, self._marked)
        removal = Removal(call=self.call, placed=placed, proofs=proofs, judge=judge, pace=self.pace, watch=watch)
        found = await removal.run(user=record.tree.user, total=self._seen.names)
        await watch()
        return found

    async def _put_away(self, record: CutoverRecord, placed: Placed) -> None:
        places = self.call.world.places
        try:
            if await asyncio.to_thread(places.stands, placed.at):
                raise self._stopped(record, f"{show(placed.at)} is still there, although everything in it is gone")
            await asyncio.to_thread(places.remove_directory, model.purge_place(record))
            await asyncio.to_thread(self.call.world.source.sync)
            # Fails until the last place is removed.
            with suppress(OSError):
                await asyncio.to_thread(places.remove_directory, PURGE_NAME)
        except OSError as error:
            raise self._stopped(record, f"the end of the purge cannot be seen: {error.strerror or error}") from error

    # Hooks, archives and results.

    async def _call_hooks(self, hooks: StepHooks, record: CutoverRecord, proofs: IndexedProofs | None) -> None:
        """Call the `pre` hooks, and record which archives they named. Raises Refused if too few hold the tree."""
        facts, request, world = self._facts(record), self.call.request, self.call.world
        if proofs is None or not request.require_archive:
            await hooks.before(self._hooked_step(record), facts)
            self._hooked = True
            return
        directory = world.scratch.directory / model.ARCHIVES_NAME / record.own_name
        answers = Answers(
            directory=directory.absolute(), tree=record.tree.path, manifests=rules.proofs_named(self.item)
        )
        # Of a call that was killed, or of a job that an earlier one began.
        await self._take(answers, record, proofs)
        algorithms = await asyncio.to_thread(proofs.algorithms)
        await asyncio.to_thread(answers.offer, proofs, self._proven())
        archives = os.fsencode(answers.directory)
        facts = replace(facts, archives=archives, digest=algorithms[0] if len(algorithms) == 1 else None)
        try:
            await hooks.before(self._hooked_step(record), facts)
        except Refused:
            # Archives of earlier hooks count although a later one refuses.
            await self._take(answers, record, proofs)
            raise
        self._hooked = True
        problems = await self._take(answers, record, proofs)
        why = rules.archives_problem(record.tree, self._proven(), problems, required=request.require_archive)
        if why is not None:
            raise Refused(
                why,
                cause="a pre-purge hook has to make an archive, and to give the digests of what it stored",
                hint="fix what the hooks report (docs/hooks.md), then run the same command again: proven archives are kept",
            )
        await asyncio.to_thread(answers.close)

    async def _take(self, answers: Answers, record: CutoverRecord, proofs: IndexedProofs) -> list[str]:
        """Record the archives that hold the tree by their answers, forget those that hooks have lost, and return why others
        do not.
        """
        lost = await asyncio.to_thread(answers.lost, self._proven())
        self.call.world.ledger.second_copies.remove(lost)
        for one in lost:
            words = f"the archive {one.name} ({one.place}) no longer counts: the hooks have lost it"
            self.emit(EventKind.BACKUP_TOLD, Severity.WARNING, record, words)
        whole, problems = await asyncio.to_thread(answers.taken, proofs, now_s=self.call.world.clock.now_s())
        self.call.world.ledger.second_copies.add(whole)
        answers.recorded(whole)
        for one in whole:
            more = f", and {several(one.extra, 'other file')}" if one.extra else ""
            held = f"{several(one.files, 'file')}, {format_size(one.size_bytes)}{more}"
            words = f"the archive {one.name} ({one.place}) holds the tree by its digests: {held}"
            self.emit(EventKind.BACKUP_TOLD, Severity.INFO, record, words)
        for problem in problems:
            self.emit(EventKind.BACKUP_TOLD, Severity.WARNING, record, problem)
        return problems

    def _proven(self) -> Sequence[model.SecondCopy]:
        """The archives that hold the tree as its present manifests have it."""
        return self.call.world.ledger.second_copies.of_tree(self.item.record.tree.path, rules.proofs_named(self.item))

    def _hooked_step(self, record: CutoverRecord) -> HookedStep:
        return CutoverPlace(step=HookStep.PURGE, record=record).hooked

    async def _post_hooks(self, record: CutoverRecord, state: HookState) -> None:
        """Call the `post` hooks, including those that a killed purge still owes."""
        if self.purge_hooks is not None:
            facts, whole = replace(self._facts(record), state=state), record.notes.purge
            if whole is not None:
                facts = replace(facts, files=whole.names, size_bytes=whole.size_bytes)
            await self.purge_hooks.catch_up(self._hooked_step(record), facts)

    def _facts(self, record: CutoverRecord) -> HookFacts:
        world, manifest = self.call.world, None if self.item.proof is None else self.item.proof.manifest
        return HookFacts(
            run_id=self.call.run_id or 0,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=record.notes.link,
            old_path=join(world.source.root, record.tree.path),
            new_path=join(world.target.root, record.tree.path),
            manifest=None if manifest is None else os.path.abspath(os.fsencode(manifest)),
            started_at_s=world.clock.now_s(),
        )

    def _result(
        self, outcome: model.TreeOutcome, *, words: str, reasons: tuple[str, ...] = (), whole: PurgeSum | None = None
    ) -> model.TreePurge:
        seen, removed = self._seen, self._removed or Found()
        found = seen.found or Found()
        listed = self._removed or found
        return model.TreePurge(
            tree=self.item.record.tree,
            outcome=outcome,
            words=words,
            reasons=reasons,
            sum=whole or (None if seen.found is None else found.sum),
            removed=removed.removed,
            read_again=removed.read_again + found.read_again,
            reread=self._reread,
            changed=found.changed,
            gone=found.gone,
            outside=found.outside,
            open_paths=listed.open_paths,
            findings=listed.listed,
            kept_in=self._kept_in if outcome is model.TreeOutcome.KEPT else None,
            archives=tuple(one.name for one in self._proven()),
        )

    def _stopped(self, record: CutoverRecord, why: str) -> Refused:
        return Refused(
            f"the purge of {record.tree.user} was stopped: {why}",
            cause="a precondition of removals no longer holds",
            hint="put it right, then run the same command again: it resumes",
        )


def _closed(record: CutoverRecord) -> Placed:
    """The tree in its place of the purge."""
    return Placed(tree=record.tree.path, at=join(model.purge_place(record), model.TREE_NAME), begun=True)


def _count(target: FileSystem, tree: bytes) -> int:
    """The number of names in the first block of the tree: 0 if it is empty. Raises OSError."""
    for block in target.read_directory(tree, block_entries=1):
        if block.problems:
            raise OSError(block.problems[0].errno or 0, block.problems[0].reason, tree)
        return len(block.entries)
    return 0


def _sum_words(whole: PurgeSum | None) -> str:
    if whole is None:
        return "how much is not known"
    return f"{format_size(whole.size_bytes)} in {several(whole.names, 'name')}, {several(whole.inodes, 'inode')}"


# The verb


async def purge(request: PurgeRequest, world: PurgeWorld) -> model.PurgeSummary:
    """Free the source of trees whose users work on the target. The same call resumes after any crash.

    The caller passes file systems that were opened for this call. A dry run makes the same decisions and changes
    nothing. Raises UsageError, Refused (no tree may be purged, or it was not confirmed), LockHeld, Interrupted,
    MigratorError; refusals of single trees are in the summary.
    """
    site = world.ledger.site.required()
    if site.capabilities is None:
        raise Refused(
            "what the target keeps of a file is not known",
            cause="`migrator doctor`, which probes it, has not been run, or could not write there",
            hint="run `migrator doctor`",
        )
    if request.dry_run:
        return await _purge(Call(world=world, request=request, site=site, run_id=None), *_chosen(request, world))
    locked = {item.record.tree.path for item in _chosen(request, world)[0]}
    with world.locks.hold(VERB, *map(of_tree, locked), shared=(VOLUME,)):
        # The purge removes only the confirmed items, even if the retention of another tree ends now.
        found, left = _chosen(request, world)
        items = tuple(item for item in found if item.record.tree.path in locked)
        for tree in (item.record.tree for item in found if item not in items):
            words = f"the source of {tree.user} became due after this purge had begun: review it with --dry-run"
            left[tree.path] = model.TreePurge(tree=tree, outcome=model.TreeOutcome.LATER, words=words)
        checksum = _checksum(world, site, items)
        if problem := rules.confirmation_problem(request.confirm, checksum):
            raise Refused(
                f"nothing was purged: {problem}; the checksum of this purge is {checksum}",
                cause="a purge cannot be undone, so what it frees has to be reviewed first",
                hint=f"review it with --dry-run, then pass --confirm {checksum[: model.CONFIRM_CHARACTERS]}",
            )
        try:
            async with world.files.recorded(world.ledger, world.clock, verb=VERB, pid=request.pid, log=LOG) as run:
                call = Call(world=world, request=request, site=site, run_id=run.id)
                summary = await _purge(call, items, left)
                run.exit_code = summary.exit_code
        except asyncio.CancelledError:
            raise Interrupted(
                "the purge was interrupted",
                hint="the same command resumes; until then the source is partly freed",
            ) from None
    return summary


_Later = dict[bytes, model.TreePurge]


def _chosen(request: PurgeRequest, world: PurgeWorld) -> tuple[tuple[model.Item, ...], _Later]:
    """The trees to purge, and those left for later. The former include trees whose purge has begun or is done, to keep
    the checksum the same. Raises Refused if none can be purged.
    """
    items: list[model.Item] = []
    left: _Later = {}
    for tree in request.trees:
        record = world.ledger.cutovers.latest(tree.path)
        later = rules.left_alone(tree, record, now_s=world.clock.now_s(), retain_s=request.retain_s)
        if later is not None:
            left[tree.path] = later
        elif record is not None:
            known, wanted = world.ledger.verifications.of_plan(record.plan), record.notes.verification_id
            proof = next((one for one in known if one.id == wanted), None)
            items.append(model.Item(record=record, proof=proof, carried=_carried_proofs(world, record)))
    if left and (request.named or not items):
        raise Refused(
            f"nothing was purged: {'; '.join(one.words for one in left.values())}",
            cause="the source is freed of users who have worked on the target for [cutover] retain, and of no others",
            hint="see `migrator status` for where each user works",
        )
    return tuple(items), left


def _carried_proofs(world: PurgeWorld, record: CutoverRecord) -> tuple[VerificationRecord, ...] | None:
    """The proofs of paths that a rollback carried to the source before it was given up, oldest first; None if nothing
    was carried. Unreadable manifests prove nothing.
    """

    def is_as_written(one: VerificationRecord) -> bool:
        try:
            return world.manifests.digest(one.manifest or "") == one.manifest_digest
        except MigratorError:
            return False

    try:
        found = world.carried(record)
    except MigratorError:
        return ()
    if found is None:
        return None
    newer_than = record.notes.proofs_before
    return tuple(one for one in found if rules.counts_as_proof(one, newer_than=newer_than) and is_as_written(one))


def _checksum(world: PurgeWorld, site: SiteRecord, items: Sequence[model.Item]) -> str:
    source, target = percent_escape(world.source.root), percent_escape(world.target.root)
    return rules.plan_checksum(site.site_id, source, target, items)


async def _purge(call: Call, items: Sequence[model.Item], left: _Later) -> model.PurgeSummary:
    world, request = call.world, call.request
    # A dry run calls none.
    hooks = None if call.run_id is None else StepHooks(ports=world, hooks=world.hooks, run_id=call.run_id, say=call.say)
    if hooks is not None:
        await hooks.begin((HookStep.PURGE,))
    pace = Pace(
        probes=world.ledger.probes,
        controls=world.ledger.controls,
        clock=world.clock,
        most=request.names_per_s,
        max_latency_s=request.max_latency_s,
        say=lambda severity, message: call.say(EventKind.THROTTLE_SET, severity, VERB, message),
    )
    done = dict(left)
    for item in items:
        done[item.record.tree.path] = await TreeMachine(call=call, item=item, purge_hooks=hooks, pace=pace).run()
    return model.PurgeSummary(
        run_id=call.run_id,
        dry_run=request.dry_run,
        checksum=_checksum(world, call.site, items),
        require_archive=request.require_archive,
        trees=tuple(done[tree.path] for tree in request.trees),
    )
