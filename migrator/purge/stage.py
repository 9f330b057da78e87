"""`purge`: guards, confirmation, one tree after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from migrator.core.clock import Clock
from migrator.core.errors import Interrupted, LedgerCorrupt, MigratorError, Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join, percent_escape, show
from migrator.core.units import format_size, several
from migrator.cutover.model import CutoverAct, CutoverNotes, CutoverRecord, CutoverState, CutoverStep, PurgeSum
from migrator.cutover.rules import why_not_frozen
from migrator.fs.model import TargetCapabilities
from migrator.fs.ports import FileSystem
from migrator.gluster.model import SourceHealth
from migrator.hooks.model import HookFacts, HookState, HookStep
from migrator.hooks.stage import CutoverPlace, HookedStep, HookSkipped, StepHooks
from migrator.ledger.call import recorded_run
from migrator.ledger.model import SiteRecord
from migrator.operations.engine import Done, Engine, Events
from migrator.operations.model import Act, Finished, Halt
from migrator.purge import model
from migrator.purge.removal import (
    LOG,
    Call,
    Found,
    Judge,
    Pace,
    Placed,
    PurgeRequest,
    PurgeWorld,
    Removal,
    Survey,
    open_words,
    released_words,
)
from migrator.purge.rules import (
    choose,
    confirmation_problem,
    counts_as_proof,
    next_step,
    plan_checksum,
    purge_problems,
    shrink_problem,
)
from migrator.reap.model import ArchiveState
from migrator.site.rules_guards import health_problems, mount_problems
from migrator.verify.model import VerificationRecord

if TYPE_CHECKING:
    from migrator.ledger.operations import CutoverRecords
    from migrator.purge.proofs import IndexedProofs

VERB = "purge"
LOCK = "run"
"""Held by every verb that writes to either side."""

LOOK_TIMEOUT_S = 120.0

_PURGED = (model.Choice.PURGE, model.Choice.GO_ON, model.Choice.PURGED)
"""The trees of a plan. A resumed one counts, so that the checksum stays the same."""
_EVENTS = Events(step=EventKind.PURGE_FINISHED, failed=EventKind.PURGE_KEPT)

_Act = Act[CutoverStep, CutoverState]
T = TypeVar("T")


# Freeing the source of one tree


class PathsKept(MigratorError):
    """Some paths of a tree stay in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A tree of the request, its newest cutover, and its proofs: the verification of that cutover, and those of what a
    rollback carried to the source before it was given up, oldest first (None: nothing was carried).
    """

    chosen: model.Chosen
    record: CutoverRecord
    proof: VerificationRecord | None
    carried: tuple[VerificationRecord, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A tree and every reason against freeing it, or resuming that. Without reasons, `proofs` None means that nothing of it is
    left on the source. `found` and `sum` come from a survey, which a tree in its place no longer needs.
    """

    placed: Placed
    reasons: tuple[str, ...] = ()
    proofs: "IndexedProofs | None" = None
    names: int = 0
    found: Found | None = None
    sum: PurgeSum | None = None
    outside: int = 0


@dataclass(slots=True, kw_only=True)
class TreeMachine(Engine[CutoverRecord, Snapshot, CutoverState, CutoverStep, CutoverNotes, model.TreePurge]):
    """Frees the source of one tree. Unknown facts count against it: it cannot be undone.

    `prepare` calls the `pre` hooks, because the intent is final: `purging` has no way back. The `post` hooks follow the end.
    """

    resumes: str = "the same command resumes; until then the source is partly freed"
    call: Call
    site: SiteRecord
    capabilities: TargetCapabilities
    item: Item
    hooks: StepHooks | None
    pace: Pace
    _seen: Snapshot = field(init=False)
    _hooked: bool = False
    _removed: Found | None = None
    _freed: str = ""

    async def run(self) -> model.TreePurge:
        """Free the tree, or return the reasons against it. Raises errors that stop the whole purge."""
        try:
            return await self.drive(self.item.record)
        except Interrupted:
            raise
        except MigratorError as error:
            record = self.records.read(self.item.record.id)
            if self._hooked:
                await self._post_hooks(record, HookState.REFUSED if isinstance(error, Refused) else HookState.FAILED)
            if isinstance(error, PathsKept):
                return self._result(model.TreeOutcome.KEPT, words=error.message, whole=record.notes.purge)
            raise

    # What the engine needs.

    @property
    def events(self) -> Events:
        return _EVENTS

    @property
    def records(self) -> "CutoverRecords":
        return self.call.world.ledger.cutovers

    @property
    def clock(self) -> Clock:
        return self.call.world.clock

    @property
    def acts(
        self,
    ) -> Mapping[CutoverStep, Callable[[_Act, CutoverRecord], Awaitable[Done[CutoverState, CutoverNotes]]]]:
        return {CutoverStep.PURGE: self._purge}

    def say(self, kind: EventKind, severity: Severity, record: CutoverRecord, message: str) -> None:
        self.call.say(kind, severity, record.tree.user, message)

    def shown(self, record: CutoverRecord) -> str:
        return f"the source of {record.tree.user}"

    async def snapshot(self, record: CutoverRecord) -> Snapshot:
        if not self._freed:
            self._seen = await self._look_at(record)
        return self._seen

    def next_step(self, record: CutoverRecord, seen: Snapshot) -> CutoverAct | Halt | Finished:
        return next_step(record, seen.reasons)

    def ends_before(self, record: CutoverRecord, act: _Act) -> model.TreePurge | None:
        del record, act
        if not self.call.request.dry_run:
            return None
        found = self._seen.found
        words = (
            "nothing of it is left on the source" if found is None else f"may be freed{released_words(found.released)}"
        )
        return self._result(model.TreeOutcome.WOULD_PURGE, words=words)

    async def prepare(self, record: CutoverRecord, act: _Act, seen: Snapshot) -> CutoverNotes | None:
        del act
        if self.hooks is not None:
            await self.hooks.before(self._hooked_step(record), self._facts(record))
            self._hooked = True
        await asyncio.to_thread(self.call.world.back_up, f"purge-{record.own_name}")
        return None if seen.sum is None else CutoverNotes(purge=seen.sum)

    def failing(self, record: CutoverRecord, act: _Act, error: Exception, *, resumed: bool) -> None:
        del record, act, resumed
        raise error

    async def finished(self, record: CutoverRecord, step: Finished) -> model.TreePurge:
        del step
        await self._post_hooks(record, HookState.DONE)
        if not self._freed:
            return self._result(model.TreeOutcome.DONE_BEFORE, words=self.item.chosen.words, whole=record.notes.purge)
        return self._result(model.TreeOutcome.PURGED, words=self._freed, whole=record.notes.purge)

    async def halted(self, record: CutoverRecord, step: Halt) -> model.TreePurge:
        self.say(
            EventKind.GUARD_REFUSED, Severity.ERROR, record, f"the source of {record.tree.user} stays: {step.words}"
        )
        return self._result(model.TreeOutcome.REFUSED, words="refused by a guard", reasons=step.reasons)

    def stuck(self, record: CutoverRecord, seen: Snapshot) -> model.TreePurge:
        del record, seen
        raise AssertionError("`failing` raises the error of a step")

    # Looking.

    async def _look_at(self, record: CutoverRecord) -> Snapshot:
        """Every fact. A tree at its path is surveyed; one in its place was, and the removal judges each path again."""
        world, tree = self.call.world, record.tree
        closed = _closed(record)
        if record.state is CutoverState.PURGED:
            return Snapshot(placed=closed)
        position = await self._position(record)
        placed = closed if position is model.Position.CLOSED else Placed(tree=tree.path, at=tree.path)
        if position is model.Position.GONE and record.state is CutoverState.PURGING:
            # It was killed before its result was written. A missing mount would look the same.
            return Snapshot(placed=placed, reasons=await self._outside_problems())
        proofs = await self._open_proofs(record)
        before = await world.source.health()
        total = None if proofs is None else await asyncio.to_thread(proofs.total)
        reasons = await self._problems(record, position, placed, total, before)
        if reasons or proofs is None or total is None:
            return Snapshot(placed=placed, reasons=reasons or ("its proofs cannot be read",))
        seen = Snapshot(placed=placed, proofs=proofs, names=total.names)
        if damaged := await asyncio.to_thread(lambda: world.archived().problems(tree.path)):
            return replace(seen, reasons=tuple(f"{one}: bring it back from a backup of the target" for one in damaged))
        if position is not model.Position.IN_PLACE and not self.call.request.dry_run:
            return seen
        found = await self._survey(record, placed, proofs, total.names)
        whole, outside = found.sum(proofs)
        reasons = self._survey_problems(record, found, placed) or await self._outside_problems(before)
        return replace(seen, reasons=reasons, found=found, sum=whole, outside=outside)

    async def _position(self, record: CutoverRecord) -> model.Position | None:
        """Where the tree lies; None if unknown."""
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

    async def _open_proofs(self, record: CutoverRecord) -> "IndexedProofs | None":
        """The proofs, until the end of the step; None if they cannot be read."""
        world, proof = self.call.world, self.item.proof
        if proof is None or proof.manifest is None:
            return None
        rows = await asyncio.to_thread(world.skipped, record)
        opened = world.manifest.open(
            proof.manifest,
            record.tree.path,
            archives={
                one.number: one.written.archive_bytes
                for one in world.ledger.archives.of_tree(record.tree.path)
                if one.state is ArchiveState.PROVEN
            },
            skipped=rows,
            newer=[one.manifest or "" for one in self.item.carried or ()],
        )
        try:
            return await asyncio.to_thread(self.locks.enter_context, opened)
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
        problems = purge_problems(
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
            backup=world.backup(record),
        )
        return (
            *problems,
            *await self._mounts(),
            *health_problems(before, before),
            *await world.storage.problems(),
            *await self._writing(placed.at),
        )

    async def _outside_problems(self, before: SourceHealth | None = None) -> tuple[str, ...]:
        """Problems of mounts, bricks and tasks that forbid any removal now."""
        now = await self.call.world.source.health()
        return (*await self._mounts(), *health_problems(before or now, now))

    async def _mounts(self) -> tuple[str, ...]:
        world = self.call.world
        capacity = await self._told(world.source.capacity)
        return (
            *mount_problems(self.site.source, await self._told(world.source.identity), where="the source"),
            *mount_problems(self.site.target, await self._told(world.target.identity), where="the target"),
            *(("the source is mounted read-only",) if capacity is not None and capacity.read_only else ()),
        )

    async def _writing(self, path: bytes) -> tuple[str, ...]:
        """Who can still write below a path."""
        found = await self.call.world.writers((path,))
        return why_not_frozen(found, vouched=self.call.request.vouched)

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
        try:
            return await self.call.world.blocking(look, timeout_s=LOOK_TIMEOUT_S)
        except (MigratorError, OSError, TimeoutError):
            return None

    async def _survey(self, record: CutoverRecord, placed: Placed, proofs: "IndexedProofs", names: int) -> Found:
        top = await asyncio.to_thread(self.call.world.source.look, placed.at)
        if top is None:
            raise self._stopped(record, f"{show(placed.at)} has gone from the source just now")
        survey = Survey(self.call, placed, proofs, self._judge(record, placed, proofs))
        return await survey.run(top, user=record.tree.user, total=names)

    def _survey_problems(self, record: CutoverRecord, found: Found, placed: Placed) -> tuple[str, ...]:
        carried, tree = self.item.carried, record.tree
        if found.open_paths and not placed.moved:
            lacking = found.open_paths - found.skipped
            return open_words(tree, lacking, found.skipped, carried=carried is not None, verified=bool(carried))
        lost = shrink_problem(tree, gone=found.gone, names=found.names, max_shrink=self.call.request.max_shrink)
        return () if lost is None else (lost,)

    # Acting.

    async def _purge(self, act: _Act, record: CutoverRecord) -> Done[CutoverState, CutoverNotes]:
        del act
        seen, whole = self._seen, record.notes.purge
        closed = _closed(record)
        if seen.proofs is not None:
            if not seen.placed.moved:
                await self._put(record, closed)
            words = f"the source of {record.tree.user} is being freed: {_sum_words(whole)}"
            self.say(EventKind.PURGE_STARTED, Severity.INFO, record, words)
            self._removed = await self._remove(record, closed, seen.proofs)
            if self._removed.open_paths:
                raise PathsKept(
                    f"there is no proof on the target for {several(self._removed.open_paths, 'path')}, kept in {show(closed.at)} of the source"
                )
        await self._put_away(record, closed)
        released = released_words(self._removed.released) if self._removed else ""
        self._freed = f"the source of {record.tree.user} is free: {_sum_words(whole)}{released}"
        return Done(words=self._freed)

    async def _put(self, record: CutoverRecord, closed: Placed) -> None:
        """Move the tree into its place, and search for processes with open files in it once more."""
        world, tree, place = self.call.world, record.tree.path, model.purge_place(record)
        top = await asyncio.to_thread(world.source.look, tree)
        if top is None:
            raise self._stopped(record, f"{show(tree)} has gone from the source just now")
        try:
            await asyncio.to_thread(world.places.put, tree, place, ino=top.ino)
        except OSError as error:
            why = f"{show(tree)} cannot be moved to {show(place)}: {error.strerror or error}"
            raise self._stopped(record, why) from error
        if reasons := await self._writing(closed.at):
            raise self._stopped(record, "; ".join(reasons))

    async def _remove(self, record: CutoverRecord, closed: Placed, proofs: "IndexedProofs") -> Found:
        async def watch() -> None:
            if reasons := await self._outside_problems():
                raise self._stopped(record, "; ".join(reasons))

        judge = self._judge(record, closed, proofs)
        removal = Removal(call=self.call, placed=closed, proofs=proofs, judge=judge, pace=self.pace, watch=watch)
        found = await removal.run(user=record.tree.user, total=self._seen.names)
        await watch()
        return found

    async def _put_away(self, record: CutoverRecord, closed: Placed) -> None:
        places = self.call.world.places
        try:
            if await asyncio.to_thread(places.stands, closed.at):
                raise self._stopped(record, f"{show(closed.at)} is still there, although everything in it is gone")
            await asyncio.to_thread(places.remove_directory, model.purge_place(record))
            await asyncio.to_thread(self.call.world.source.sync)
            # Fails until the last place is removed.
            with suppress(OSError):
                await asyncio.to_thread(places.remove_directory, model.PURGE_NAME)
        except OSError as error:
            raise self._stopped(record, f"the end of the purge cannot be seen: {error.strerror or error}") from error

    def _judge(self, record: CutoverRecord, placed: Placed, proofs: "IndexedProofs") -> Judge:
        return Judge(self.call, record, placed, proofs, self.capabilities)

    # Hooks and results.

    def _hooked_step(self, record: CutoverRecord) -> HookedStep:
        return CutoverPlace(step=HookStep.PURGE, record=record).hooked

    async def _post_hooks(self, record: CutoverRecord, state: HookState) -> None:
        """Also those that a killed purge still owes."""
        if self.hooks is not None:
            facts, whole = replace(self._facts(record), state=state), record.notes.purge
            if whole is not None:
                facts = replace(facts, files=whole.names, size_bytes=whole.size_bytes)
            await self.hooks.catch_up(self._hooked_step(record), facts)

    def _facts(self, record: CutoverRecord) -> HookFacts:
        world = self.call.world
        return HookFacts(
            run_id=self.call.run_id or 0,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=record.notes.link,
            old_path=join(world.source.root, record.tree.path),
            new_path=join(world.target.root, record.tree.path),
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
            sum=whole or seen.sum,
            removed=removed.removed,
            read_again=removed.read_again + found.read_again,
            changed=found.changed,
            gone=found.gone,
            outside=seen.outside,
            open_paths=listed.open_paths,
            findings=listed.listed,
            kept_in=_closed(self.item.record).at if outcome is model.TreeOutcome.KEPT else None,
        )

    def _stopped(self, record: CutoverRecord, why: str) -> Refused:
        return Refused(
            f"the purge of {record.tree.user} was stopped: {why}",
            cause="a precondition of removals no longer holds",
            hint="put it right, then run the same command again: it resumes",
        )


def _closed(record: CutoverRecord) -> Placed:
    """The tree in its place of the purge."""
    return Placed(tree=record.tree.path, at=join(model.purge_place(record), model.TREE_NAME))


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
    """Free the source of user trees whose users work on the target. The same call resumes after any crash.

    The caller passes file systems that were opened for this call. A dry run takes the same decisions, and changes
    nothing. Raises UsageError, Refused (no tree may be purged, or it was not confirmed), LockHeld, Interrupted,
    MigratorError; refusals of single trees are in the summary.
    """
    if request.dry_run:
        return await _purge(Call(world=world, request=request, run_id=None), _reviewed(request, world))
    with world.locks.hold(LOCK, VERB), world.files.open(VERB, world.clock.now_s()) as directory:
        # What was confirmed is purged, also if the retention of another tree ends just now.
        reviewed = _reviewed(request, world)
        if problem := confirmation_problem(request.confirm, reviewed.checksum):
            raise Refused(
                f"nothing was purged: {problem}; the plan's checksum is {reviewed.checksum}",
                cause="a purge cannot be undone, so its plan has to be reviewed first",
                hint=f"review it with --dry-run, then pass --confirm {reviewed.checksum[:12]}",
            )
        try:
            async with recorded_run(
                world.ledger.runs,
                world.clock,
                verb=VERB,
                pid=request.pid,
                directory=directory.path,
                log=LOG,
            ) as run:
                summary = await _purge(Call(world=world, request=request, run_id=run.id), reviewed)
                run.exit_code = summary.exit_code
        except asyncio.CancelledError:
            raise Interrupted(
                "the purge was interrupted",
                hint="the same command resumes; until then the source is partly freed",
            ) from None
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reviewed:
    """The trees that are purged, and those that are left for later; `checksum` is that of the former and their proofs."""

    site: SiteRecord
    capabilities: TargetCapabilities
    items: tuple[Item, ...]
    left: tuple[model.Chosen, ...]
    checksum: str


def _reviewed(request: PurgeRequest, world: PurgeWorld) -> _Reviewed:
    site = world.ledger.site.read()
    if site is None:
        raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
    if site.capabilities is None:
        raise Refused(
            "what the target keeps of a file is not known",
            cause="`migrator doctor`, which probes it, has not been run, or could not write there",
            hint="run `migrator doctor`",
        )
    items, left = _items(request, world)
    checksum = _checksum(world, site, items)
    return _Reviewed(site=site, capabilities=site.capabilities, items=items, left=left, checksum=checksum)


def _items(request: PurgeRequest, world: PurgeWorld) -> tuple[tuple[Item, ...], tuple[model.Chosen, ...]]:
    """The trees that are purged, and those that are left for later. Raises Refused if none can be purged."""
    items: list[Item] = []
    left: list[model.Chosen] = []
    for tree in (tree for _, trees in sorted(request.trees.items()) for tree in trees):
        record = world.ledger.cutovers.latest(tree.path)
        chosen = choose(tree, record, now_s=world.clock.now_s(), retain_s=request.retain_s)
        if record is None or chosen.choice not in _PURGED:
            left.append(chosen)
            continue
        known, wanted = world.ledger.verifications.of_plan(record.plan), record.notes.verification_id
        proof = next((one for one in known if one.id == wanted), None)
        items.append(Item(chosen=chosen, record=record, proof=proof, carried=_carried_proofs(world, record)))
    if left and (request.named or not items):
        raise Refused(
            f"nothing was purged: {'; '.join(one.words for one in left)}",
            cause="the source is freed of users who have worked on the target for [cutover] retain, and of no others",
            hint="see `migrator status` for where each user works",
        )
    return tuple(items), tuple(left)


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
    newer_than = record.notes.proofs_before
    return (
        None
        if found is None
        else tuple(one for one in found if counts_as_proof(one, newer_than=newer_than) and is_as_written(one))
    )


def _checksum(world: PurgeWorld, site: SiteRecord, items: Sequence[Item]) -> str:
    carried = {
        item.record.id: ",".join(one.manifest_digest or "" for one in item.carried) for item in items if item.carried
    }
    roots = percent_escape(world.source.root), percent_escape(world.target.root)
    return plan_checksum(site.site_id, *roots, [(item.record, item.proof) for item in items], carried=carried)


async def _purge(call: Call, reviewed: _Reviewed) -> model.PurgeSummary:
    world, request, site = call.world, call.request, reviewed.site
    hooks = _hooks(call, site)
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
    done = {
        one.tree.path: model.TreePurge(
            tree=one.tree, outcome=model.TreeOutcome.LATER, words=one.words, due_at_s=one.due_at_s
        )
        for one in reviewed.left
    }
    for item in reviewed.items:
        machine = TreeMachine(
            call=call, site=site, capabilities=reviewed.capabilities, item=item, hooks=hooks, pace=pace
        )
        done[item.chosen.tree.path] = await _one(call, machine)
    trees = (done[tree.path] for _, trees in sorted(request.trees.items()) for tree in trees)
    return model.PurgeSummary(
        run_id=call.run_id, dry_run=request.dry_run, checksum=reviewed.checksum, trees=tuple(trees)
    )


async def _one(call: Call, machine: TreeMachine) -> model.TreePurge:
    tree = machine.item.chosen.tree
    try:
        return await machine.run()
    except HookSkipped as skipped:
        return model.TreePurge(tree=tree, outcome=model.TreeOutcome.LATER, words=skipped.message)
    except Refused as refused:
        call.say(EventKind.GUARD_REFUSED, Severity.ERROR, tree.user, refused.message)
        return model.TreePurge(
            tree=tree, outcome=model.TreeOutcome.REFUSED, words="refused by a guard", reasons=(refused.message,)
        )
    except OSError as error:
        raise MigratorError(
            f"the purge of {tree.user} failed: {error.strerror or error}",
            cause="a file system or the state directory does not answer, or has an error",
            hint="check with `migrator doctor`, then run the same command again: it resumes",
        ) from error


def _hooks(call: Call, site: SiteRecord) -> StepHooks | None:
    world = call.world
    if world.hooks is None or call.run_id is None:
        return None
    return StepHooks(
        ports=world,
        hooks=world.hooks,
        site=site,
        source_root=world.source.root,
        target_root=world.target.root,
        run_id=call.run_id,
        say=call.say,
    )
