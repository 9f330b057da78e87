"""`purge`: guards, confirmation, one tree after the other."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from migrator.core.errors import Interrupted, LedgerCorrupt, MigratorError, Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join, percent_escape, show
from migrator.core.units import format_size, several
from migrator.cutover.model import NO_CUTOVER_NOTES, CutoverNotes, CutoverRecord, CutoverState, PurgeSum
from migrator.cutover.rules import why_not_frozen
from migrator.fs.model import TargetCapabilities
from migrator.fs.ports import FileSystem
from migrator.gluster.model import SourceHealth
from migrator.hooks.model import HookFacts, HookState, HookStep
from migrator.hooks.stage import CutoverPlace, HookSkipped, StepHooks, hook_world
from migrator.ledger.call import recorded_run
from migrator.ledger.model import SiteRecord
from migrator.purge.model import (
    PURGE_NAME,
    TREE_NAME,
    Choice,
    Chosen,
    ManifestSum,
    Position,
    PurgeSummary,
    TreeOutcome,
    TreePurge,
    purge_place,
)
from migrator.purge.ports import TreeProofs
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
    RemovalBrake,
    Skipped,
    Survey,
    archive_problems,
    archive_sizes,
    in_thread,
    kept_words,
    open_words,
    released_words,
)
from migrator.purge.rules import (
    choose,
    confirmation_problem,
    counts_as_proof,
    plan_checksum,
    purge_act,
    purge_problems,
    shrink_problem,
)
from migrator.site.rules_guards import health_problems, mount_problems
from migrator.verify.model import VerificationRecord

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger

# Facts for the guards of one tree. None means unknown, and fails its guard.


LOOK_TIMEOUT_S = 120.0

T = TypeVar("T")


def where_it_lies(record: CutoverRecord, position: Position | None) -> Placed:
    """The current location of a tree."""
    at = record.tree.path
    if position is Position.CLOSED:
        at = purge_place(record) + b"/" + TREE_NAME
    return Placed(tree=record.tree.path, at=at)


def verification_of(ledger: "Ledger", record: CutoverRecord) -> VerificationRecord | None:
    """The verification that the cutover is based on."""
    wanted = record.notes.verification_id
    return next((one for one in ledger.verifications.of_plan(record.plan) if one.id == wanted), None)


def carried_proofs(world: PurgeWorld, record: CutoverRecord) -> tuple[VerificationRecord, ...] | None:
    """The proofs of paths that a rollback carried to the source before it was given up, oldest first; None if nothing
    was carried. Unreadable manifests prove nothing.
    """
    try:
        found = world.carried(record)
    except MigratorError:
        return ()
    if found is None:
        return None
    newer_than = record.notes.proofs_before
    return tuple(one for one in found if counts_as_proof(one, newer_than=newer_than) and _is_as_written(world, one))


def _is_as_written(world: PurgeWorld, found: VerificationRecord) -> bool:
    try:
        return world.manifests.digest(found.manifest or "") == found.manifest_digest
    except MigratorError:
        return False


class Examination:
    """Collects the facts for all guards of one tree."""

    def __init__(self, call: Call, site: SiteRecord, record: CutoverRecord, proof: VerificationRecord | None) -> None:
        self._call = call
        self._world = call.world
        self._site = site
        self._record = record
        self._proof = proof

    async def position(self) -> Position | None:
        """Where the tree lies; None if unknown."""
        closed = purge_place(self._record) + b"/" + TREE_NAME
        places = self._world.places
        stands = await self._seen(lambda: (places.stands(self._record.tree.path), places.stands(closed)))
        if stands is None:
            return None
        return {
            (True, False): Position.IN_PLACE,
            (False, True): Position.CLOSED,
            (True, True): Position.BOTH,
            (False, False): Position.GONE,
        }[stands]

    async def outside_problems(self, before: SourceHealth | None = None) -> tuple[str, ...]:
        """Problems of mounts, bricks and tasks that forbid any removal now."""
        now = await self._world.source.health()
        return (*await self._mounts(), *health_problems(before or now, now))

    async def writing(self, path: bytes) -> tuple[str, ...]:
        """Who can still write below a path."""
        found = await self._world.writers.find_writers((path,))
        return why_not_frozen(found, vouched=self._call.request.vouched)

    async def problems(
        self, position: Position | None, placed: Placed, total: ManifestSum | None, before: SourceHealth
    ) -> tuple[str, ...]:
        """Every reason against freeing the tree. `total` is None if the manifest cannot be read."""
        record, world = self._record, self._world
        tree = record.tree
        return purge_problems(
            record,
            position=position,
            top=await self._seen(lambda: world.source.look(tree.path)) if position is Position.IN_PLACE else None,
            target_top=await self._seen(lambda: world.target.look(tree.path)),
            target_names=await self._seen(lambda: _count(world.target, tree.path)),
            leads_to=await self._seen(lambda: world.link(tree)),
            verification=self._proof,
            manifest_digest=await self._manifest_digest(),
            without_digest=None if total is None else total.without_digest,
            manifest_names=None if total is None else total.names,
            scan_whole=self._scan_whole(),
            mounts=await self._mounts(),
            health=health_problems(before, before),
            storage=await world.storage.problems(),
            writers=await self.writing(placed.at),
            backup=world.backup(record),
        )

    async def _mounts(self) -> tuple[str, ...]:
        source = await self._seen(self._world.source.identity)
        target = await self._seen(self._world.target.identity)
        capacity = await self._seen(self._world.source.capacity)
        return (
            *mount_problems(self._site.source, source, where="the source"),
            *mount_problems(self._site.target, target, where="the target"),
            *(("the source is mounted read-only",) if capacity is not None and capacity.read_only else ()),
        )

    async def _manifest_digest(self) -> str | None:
        manifest = None if self._proof is None else self._proof.manifest
        if manifest is None:
            return None
        try:
            return await self._seen(lambda: self._world.manifests.digest(manifest))
        except MigratorError:
            return None

    def _scan_whole(self) -> bool | None:
        """Whether the scan of the final pass was whole."""
        pass_id = self._record.notes.final_pass_id
        if pass_id is None:
            return None
        try:
            catalog = self._world.ledger.passes.read(pass_id).catalog
        except LedgerCorrupt:
            return None
        scans: Sequence[bool] = [
            scan.whole and scan.finished_at_s is not None
            for scan in self._world.ledger.scans.all()
            if scan.name == catalog and scan.covers((self._record.tree.path,))
        ]
        return scans[-1] if scans else None

    async def _seen(self, look: Callable[[], T]) -> T | None:
        try:
            return await self._world.blocking(look, timeout_s=LOOK_TIMEOUT_S)
        except (OSError, TimeoutError):
            return None


def _count(target: FileSystem, tree: bytes) -> int:
    """The number of names in the first block of the tree: 0 if it is empty. Raises OSError."""
    for block in target.read_directory(tree, block_entries=1):
        if block.problems:
            raise OSError(block.problems[0].errno or 0, block.problems[0].reason, tree)
        return len(block.entries)
    return 0


# Freeing the source of one tree


class PurgeOfTree:
    """One tree. A new one resumes after a stop or a crash at any step."""

    def __init__(
        self,
        call: Call,
        *,
        site: SiteRecord,
        capabilities: TargetCapabilities,
        record: CutoverRecord,
        proof: VerificationRecord | None,
        carried: tuple[VerificationRecord, ...] | None,
        hooking: StepHooks | None,
        pace: Pace,
    ) -> None:
        self._call = call
        self._world = call.world
        self._capabilities = capabilities
        self._record = record
        self._proof = proof
        self._carried = carried
        self._hooking = hooking
        self._pace = pace
        self._examination = Examination(call, site, record, proof)

    async def run(self) -> TreePurge:
        """Free the tree, or return the reasons against it. Raises errors that stop the whole purge."""
        position = await self._examination.position()
        if position is Position.GONE and self._record.state is CutoverState.PURGING:
            return await self._finish_gone()
        placed = where_it_lies(self._record, position)
        manifest = None if self._proof is None else self._proof.manifest
        if manifest is None:
            return await self._refuse_early(position, placed)
        rows = await in_thread(lambda: self._world.skipped(self._record))
        opened = self._world.manifest.open(
            manifest,
            self._record.tree.path,
            archives=archive_sizes(self._world.ledger, self._record.tree),
            skipped=rows,
            newer=[one.manifest or "" for one in self._carried or ()],
        )
        try:
            proofs = await in_thread(opened.__enter__)
        except Refused:
            return await self._refuse_early(position, placed)
        try:
            return await self._judge_and_free(position, placed, proofs)
        finally:
            opened.__exit__(None, None, None)

    async def _refuse_early(self, position: Position | None, placed: Placed) -> TreePurge:
        before = await self._world.source.health()
        return self._refused(await self._examination.problems(position, placed, None, before))

    async def _finish_gone(self) -> TreePurge:
        """Finish a purge that was killed before its result was recorded. A missing mount would look the same."""
        if reasons := await self._examination.outside_problems():
            return self._refused(reasons)
        if self._call.request.dry_run:
            return self._result(TreeOutcome.WOULD_PURGE, words="nothing of it is left on the source")
        return await self._hooked(self._finish)

    async def _judge_and_free(self, position: Position | None, placed: Placed, proofs: TreeProofs) -> TreePurge:
        examination = self._examination
        before = await self._world.source.health()
        total = await in_thread(proofs.total)
        if reasons := await examination.problems(position, placed, total, before):
            return self._refused(reasons)
        if reasons := await in_thread(lambda: archive_problems(self._world.archived(), self._record.tree)):
            return self._refused(reasons)
        found: Found | None = None
        if position is Position.IN_PLACE or self._call.request.dry_run:
            found = await self._survey(placed, proofs, total.names)
            if refusal := await self._speaks_against(found, placed, proofs):
                return refusal
            if reasons := await examination.outside_problems(before):
                return self._refused(reasons)
            if self._call.request.dry_run:
                words = f"may be freed{released_words(found.released)}"
                return self._with(found, proofs, self._result(TreeOutcome.WOULD_PURGE, words=words))
        return await self._hooked(lambda: self._free(placed, proofs, found, total.names))

    def _skipped(self, placed: Placed, proofs: TreeProofs) -> Skipped:
        return Skipped(self._record.tree, proofs.skipped, self._world.ledger.releases, closed=placed.moved)

    async def _survey(self, placed: Placed, proofs: TreeProofs, names: int) -> Found:
        top = await in_thread(lambda: self._world.source.look(placed.at))
        if top is None:
            raise Refused(
                f"{show(placed.at)} has gone from the source just now",
                cause="another process moved or removed it",
                hint="find out who did, then run the same command again",
            )
        survey = Survey(
            self._call,
            placed,
            self._world.source,
            proofs,
            judge=self._judge(placed),
            skipped=self._skipped(placed, proofs),
        )
        return await survey.run(top, user=self._record.tree.user, total=names)

    async def _speaks_against(self, found: Found, placed: Placed, proofs: TreeProofs) -> TreePurge | None:
        if found.open_paths and not placed.moved:
            lacking = found.open_paths - found.skipped
            reasons = open_words(
                self._record.tree,
                lacking,
                found.skipped,
                carried=self._carried is not None,
                verified=bool(self._carried),
            )
            return self._with(found, proofs, self._refused(reasons))
        lost = shrink_problem(
            self._record.tree, gone=found.gone, names=found.names, max_shrink=self._call.request.max_shrink
        )
        if lost is not None:
            return self._with(found, proofs, self._refused((lost,)))
        return None

    async def _free(self, placed: Placed, proofs: TreeProofs, found: Found | None, names: int) -> TreePurge:
        tree, world, record = self._record.tree, self._world, self._record
        whole, outside = (record.notes.purge, 0) if found is None else found.sum(proofs)
        await in_thread(lambda: world.back_up(f"purge-{record.own_name}"))
        notes = NO_CUTOVER_NOTES if found is None else CutoverNotes(purge=whole)
        step = world.ledger.cutovers.intend(record.id, purge_act(), at_s=world.clock.now_s(), notes=notes)
        try:
            closed = await self._put(placed)
            self._say(
                Severity.INFO,
                EventKind.PURGE_STARTED,
                f"the source of {tree.user} is being freed: {self._sum_words(whole)}",
            )
            removed = await self._remove(closed, proofs, names)
        except MigratorError as error:
            world.ledger.cutovers.fail(step, error.message, at_s=world.clock.now_s())
            raise
        if removed.open_paths:
            words = kept_words(removed, closed)
            world.ledger.cutovers.fail(step, words, at_s=world.clock.now_s())
            self._say(Severity.WARNING, EventKind.PURGE_KEPT, f"the source of {tree.user} is not free: {words}")
            result = self._result(TreeOutcome.KEPT, words=words, sum=whole)
        else:
            await self._put_away(closed)
            message = f"the source of {tree.user} is free: {self._sum_words(whole)}{released_words(removed.released)}"
            world.ledger.cutovers.finish(step, CutoverState.PURGED, at_s=world.clock.now_s(), message=message)
            self._say(Severity.INFO, EventKind.PURGE_FINISHED, message)
            result = self._result(TreeOutcome.PURGED, words=message, sum=whole)
        return replace(
            result,
            removed=removed.removed,
            read_again=removed.read_again + (found.read_again if found else 0),
            changed=found.changed if found else 0,
            gone=found.gone if found else 0,
            outside=outside,
            open_paths=removed.open_paths,
            findings=removed.listed,
            kept_in=closed.at if removed.open_paths else None,
        )

    async def _put(self, placed: Placed) -> Placed:
        """Move the tree into its place, and search for processes with open files in it once more."""
        tree, place = self._record.tree.path, purge_place(self._record)
        closed = Placed(tree=tree, at=join(place, TREE_NAME))
        if not placed.moved:
            top = await in_thread(lambda: self._world.source.look(tree))
            if top is None:
                raise self._stopped(f"{show(tree)} has gone from the source just now")
            try:
                await in_thread(lambda: self._world.places.put(tree, place, ino=top.ino))
            except OSError as error:
                raise self._stopped(
                    f"{show(tree)} cannot be moved to {show(place)}: {error.strerror or error}"
                ) from error
            if reasons := await self._examination.writing(closed.at):
                raise self._stopped("; ".join(reasons))
        return closed

    async def _remove(self, closed: Placed, proofs: TreeProofs, names: int) -> Found:
        async def watch() -> None:
            if reasons := await self._examination.outside_problems():
                raise self._stopped("; ".join(reasons))

        removal = Removal(
            self._call,
            closed,
            source=self._world.source,
            places=self._world.places,
            proofs=proofs,
            judge=self._judge(closed),
            skipped=self._skipped(closed, proofs),
            pace=self._pace,
            watch=watch,
        )
        found = await removal.run(user=self._record.tree.user, total=names)
        await watch()
        return found

    async def _put_away(self, closed: Placed) -> None:
        places = self._world.places
        try:
            if await in_thread(lambda: places.stands(closed.at)):
                raise self._stopped(f"{show(closed.at)} is still there, although everything in it is gone")
            await in_thread(lambda: places.remove_directory(purge_place(self._record)))
            await in_thread(places.flush)
            # Fails until the last place is removed.
            with suppress(OSError):
                await in_thread(lambda: places.remove_directory(PURGE_NAME))
        except OSError as error:
            raise self._stopped(f"the end of the purge cannot be seen: {error.strerror or error}") from error

    async def _finish(self) -> TreePurge:
        ledger, clock = self._world.ledger, self._world.clock
        step = ledger.cutovers.intend(self._record.id, purge_act(), at_s=clock.now_s())
        await self._put_away(where_it_lies(self._record, Position.CLOSED))
        message = f"the source of {self._record.tree.user} is free: {self._sum_words(self._record.notes.purge)}"
        ledger.cutovers.finish(step, CutoverState.PURGED, at_s=clock.now_s(), message=message)
        self._say(Severity.INFO, EventKind.PURGE_FINISHED, message)
        return self._result(TreeOutcome.PURGED, words=message, sum=self._record.notes.purge)

    async def catch_up(self) -> None:
        """Call the pending post hooks of a tree that is purged already."""
        if self._hooking is not None:
            facts = replace(self._facts(), state=HookState.DONE)
            await self._hooking.catch_up(self._step.hooked, facts)

    async def _hooked(self, work: Callable[[], Awaitable[TreePurge]]) -> TreePurge:
        if self._hooking is None:
            return await work()
        return await self._hooking.around(self._step.hooked, work, facts=self._facts(), after=_after)

    @property
    def _step(self) -> CutoverPlace:
        return CutoverPlace(step=HookStep.PURGE, record=self._record)

    def _facts(self) -> HookFacts:
        record, world = self._record, self._world
        return HookFacts(
            run_id=self._call.run_id or 0,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=record.notes.link,
            old_path=join(world.source.root, record.tree.path),
            new_path=join(world.target.root, record.tree.path),
            started_at_s=world.clock.now_s(),
        )

    def _judge(self, placed: Placed) -> Judge:
        again_s = self._record.times[CutoverState.THAWED]
        let_in_s = self._record.thawed_at_s
        return Judge(
            placed,
            self._world.source,
            self._world.target,
            capabilities=self._capabilities,
            let_in_s=again_s if let_in_s is None else let_in_s,
            let_in_again_s=again_s,
            closed_uid=os.geteuid(),
            reread=self._call.request.reread,
        )

    def _result(self, outcome: TreeOutcome, *, words: str = "", sum: PurgeSum | None = None) -> TreePurge:  # noqa: A002
        return TreePurge(tree=self._record.tree, outcome=outcome, words=words, sum=sum)

    def _refused(self, reasons: Sequence[str]) -> TreePurge:
        self._say(
            Severity.ERROR,
            EventKind.GUARD_REFUSED,
            f"the source of {self._record.tree.user} stays: {'; '.join(reasons)}",
        )
        return replace(self._result(TreeOutcome.REFUSED, words="refused by a guard"), reasons=tuple(reasons))

    def _with(self, found: Found | None, proofs: TreeProofs, result: TreePurge) -> TreePurge:
        if found is None:
            return result
        whole, outside = found.sum(proofs)
        return replace(
            result,
            sum=whole,
            read_again=found.read_again,
            changed=found.changed,
            gone=found.gone,
            outside=outside,
            open_paths=found.open_paths,
            findings=found.listed,
        )

    def _say(self, severity: Severity, kind: EventKind, message: str) -> None:
        self._call.say(kind, severity, self._record.tree.user, message)

    def _stopped(self, why: str) -> Refused:
        return Refused(
            f"the purge of {self._record.tree.user} was stopped: {why}",
            cause="a precondition of removals no longer holds",
            hint="put it right, then run the same command again: it resumes",
        )

    @staticmethod
    def _sum_words(whole: PurgeSum | None) -> str:
        if whole is None:
            return "how much is not known"
        return f"{format_size(whole.size_bytes)} in {several(whole.names, 'name')}, {several(whole.inodes, 'inode')}"


async def _after(facts: HookFacts, result: TreePurge) -> HookFacts:
    state = HookState.DONE if result.outcome is TreeOutcome.PURGED else HookState.FAILED
    whole = result.sum
    if whole is None:
        return replace(facts, state=state)
    return replace(facts, state=state, files=whole.names, size_bytes=whole.size_bytes)


# The verb


VERB = "purge"
LOCK = "run"
"""Held by every verb that writes to either side."""

_PURGED = (Choice.PURGE, Choice.GO_ON, Choice.PURGED)
"""The trees of a plan. A resumed one counts, so that the checksum stays the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    chosen: Chosen
    record: CutoverRecord | None
    proof: VerificationRecord | None
    carried: tuple[VerificationRecord, ...] | None = None


async def purge(request: PurgeRequest, world: PurgeWorld) -> PurgeSummary:
    """Free the source of user trees whose users work on the target. The same call resumes after any crash.

    The caller passes file systems that were opened for this call. A dry run takes the same decisions, and changes
    nothing. Raises UsageError, Refused (no tree may be purged, or it was not confirmed), LockHeld, Interrupted,
    MigratorError; refusals of single trees are in the summary.
    """
    if request.dry_run:
        return await _purge(Call(world=world, request=request, run_id=None))
    with world.locks.hold(LOCK, VERB), world.files.open(VERB, world.clock.now_s()) as directory:
        _check(request, world)
        try:
            async with recorded_run(
                world.ledger.runs,
                world.clock,
                verb=VERB,
                pid=request.pid,
                directory=directory.path,
                log=LOG,
                heartbeat_interval_s=request.heartbeat_interval_s,
            ) as run:
                summary = await _purge(Call(world=world, request=request, run_id=run.id))
                run.exit_code = summary.exit_code
        except asyncio.CancelledError:
            raise Interrupted(
                "the purge was interrupted",
                hint="the same command resumes; until then the source is partly freed",
            ) from None
    return summary


def _check(request: PurgeRequest, world: PurgeWorld) -> None:
    """Raise Refused without a valid confirmation, before anything is recorded."""
    site, _ = _site(world)
    checksum = _checksum(world, site, _items(request, world))
    if problem := confirmation_problem(request.confirm, checksum):
        raise Refused(
            f"nothing was purged: {problem}; the plan's checksum is {checksum}",
            cause="a purge cannot be undone, so its plan has to be reviewed first",
            hint=f"review it with --dry-run, then pass --confirm {checksum[:12]}",
        )


def _items(request: PurgeRequest, world: PurgeWorld) -> tuple[_Item, ...]:
    """The trees of the request. Raises Refused if none can be purged."""
    items: list[_Item] = []
    for tree in (tree for _, trees in sorted(request.trees.items()) for tree in trees):
        record = world.ledger.cutovers.latest(tree.path)
        chosen = choose(tree, record, now_s=world.clock.now_s(), retain_s=request.retain_s)
        proof = None if record is None else verification_of(world.ledger, record)
        carried = None if record is None or chosen.choice not in _PURGED else carried_proofs(world, record)
        items.append(_Item(chosen=chosen, record=record, proof=proof, carried=carried))
    left = [item.chosen for item in items if item.chosen.choice not in _PURGED]
    if left and (request.named or len(left) == len(items)):
        raise Refused(
            f"nothing was purged: {'; '.join(one.words for one in left)}",
            cause="the source is freed of users who have worked on the target for [cutover] retain, and of no others",
            hint="see `migrator status` for where each user works",
        )
    return tuple(items)


def _checksum(world: PurgeWorld, site: SiteRecord, items: Sequence[_Item]) -> str:
    trees = [(item.record, item.proof) for item in items if item.record is not None and item.chosen.choice in _PURGED]
    carried = {
        item.record.id: ",".join(one.manifest_digest or "" for one in item.carried)
        for item in items
        if item.record is not None and item.carried
    }
    roots = percent_escape(world.source.root), percent_escape(world.target.root)
    return plan_checksum(site.site_id, *roots, trees, carried=carried)


def _site(world: PurgeWorld) -> tuple[SiteRecord, TargetCapabilities]:
    site = world.ledger.site.read()
    if site is None:
        raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
    if site.capabilities is None:
        raise Refused(
            "what the target keeps of a file is not known",
            cause="`migrator doctor`, which probes it, has not been run, or could not write there",
            hint="run `migrator doctor`",
        )
    return site, site.capabilities


async def _purge(call: Call) -> PurgeSummary:
    world, request = call.world, call.request
    site, capabilities = _site(world)
    items = _items(request, world)
    hooking = _hooking(call, site)
    if hooking is not None:
        await hooking.begin((HookStep.PURGE,))
    pace = Pace(world.clock, _brake(call).names_per_s)
    done: list[TreePurge] = []
    for item in items:
        if item.record is None or item.chosen.choice not in _PURGED:
            done.append(
                TreePurge(
                    tree=item.chosen.tree,
                    outcome=TreeOutcome.LATER,
                    words=item.chosen.words,
                    due_at_s=item.chosen.due_at_s,
                )
            )
            continue
        one = PurgeOfTree(
            call,
            site=site,
            capabilities=capabilities,
            record=item.record,
            proof=item.proof,
            carried=item.carried,
            hooking=hooking,
            pace=pace,
        )
        done.append(await _one(call, item, one))
    return PurgeSummary(
        run_id=call.run_id, dry_run=request.dry_run, checksum=_checksum(world, site, items), trees=tuple(done)
    )


def _brake(call: Call) -> RemovalBrake:
    world, request = call.world, call.request

    def say(warning: bool, message: str) -> None:
        call.say(EventKind.THROTTLE_SET, Severity.WARNING if warning else Severity.INFO, VERB, message)

    return RemovalBrake(
        probes=world.ledger.probes,
        controls=world.ledger.controls,
        clock=world.clock,
        most=request.names_per_s,
        max_latency_s=request.max_latency_s,
        say=say,
    )


async def _one(call: Call, item: _Item, one: PurgeOfTree) -> TreePurge:
    tree = item.chosen.tree
    if item.chosen.choice is Choice.PURGED:
        await one.catch_up()
        freed = None if item.record is None else item.record.notes.purge
        return TreePurge(tree=tree, outcome=TreeOutcome.DONE_BEFORE, words=item.chosen.words, sum=freed)
    try:
        return await one.run()
    except HookSkipped as skipped:
        return TreePurge(tree=tree, outcome=TreeOutcome.LATER, words=skipped.message)
    except Refused as refused:
        call.say(EventKind.GUARD_REFUSED, Severity.ERROR, tree.user, refused.message)
        return TreePurge(tree=tree, outcome=TreeOutcome.REFUSED, words="refused by a guard", reasons=(refused.message,))
    except OSError as error:
        raise MigratorError(
            f"the purge of {tree.user} failed: {error.strerror or error}",
            cause="a file system or the state directory does not answer, or has an error",
            hint="check with `migrator doctor`, then run the same command again: it resumes",
        ) from error


def _hooking(call: Call, site: SiteRecord) -> StepHooks | None:
    world = call.world
    if world.hooks is None or call.run_id is None:
        return None
    return StepHooks(
        world=hook_world(
            world,
            world.hooks,
            site,
            source_root=world.source.root,
            target_root=world.target.root,
            run_id=call.run_id,
            say=call.say,
        )
    )
