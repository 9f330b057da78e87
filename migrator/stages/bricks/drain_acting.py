"""The steps of a drain, each as far as it is to be carried out. Every one may be carried out again after a crash."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from migrator.decide.drain import commit_problems
from migrator.decide.drain_audit import MOST_EXAMPLES
from migrator.decide.drain_facts import own_task
from migrator.decide.drain_out import audit_left
from migrator.decide.drain_preflight import health_problems
from migrator.decide.drain_progress import samples_of
from migrator.decide.drain_standing import standing
from migrator.decide.lost_movers import lost_after_s, lost_movers, rebalance_way_out
from migrator.domain.drain import NO_NOTES, OUT_STATES, DrainNotes, DrainRecord, DrainSample, DrainState, DrainStep
from migrator.domain.drain_seen import Act, AuditSeen, DrainSeen, PlaceSeen
from migrator.domain.errors import Refused, ToolFailed
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookStep
from migrator.domain.units import format_count, several
from migrator.domain.volume_tasks import TaskKind, TaskProgress, TaskStatus
from migrator.stages.bricks.audit import audit_bricks
from migrator.stages.bricks.drain_context import DrainCall, bricks_of
from migrator.stages.bricks.drain_hooking import DrainHooks
from migrator.stages.bricks.drain_recovering import recovery_of
from migrator.stages.bricks.drain_seeing import DrainLooker
from migrator.stages.bricks.drain_throttle import Throttle
from migrator.stages.bricks.drain_watching import Watch, progress_of
from migrator.stages.bricks.lookups import look_everywhere
from migrator.stages.probing import probing

_WIPED = (PlaceSeen.EMPTY, PlaceSeen.UNMOUNTED)
_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a step ended: `result` None means that of the act."""

    words: str = ""
    notes: DrainNotes = NO_NOTES
    result: DrainState | None = None


@dataclass(slots=True, kw_only=True)
class DrainActor:
    """Carries steps out, for one drain. `left_alone`: a recovery of this call has not brought everything back."""

    call: DrainCall
    looker: DrainLooker
    throttle: Throttle
    hooks: DrainHooks
    left_alone: bool = False

    async def notes_before(self, act: Act, record: DrainRecord, seen: DrainSeen) -> DrainNotes:
        """What has to be written down with the intent."""
        if act.step is not DrainStep.START or seen.state is None:
            return NO_NOTES
        notes = self.throttle.notes(seen.state)
        known = await self.looker.guarding.content(record)
        if known is None:
            return notes
        return DrainNotes(options=notes.options, files=known[1].files, size_bytes=known[1].size_bytes)

    async def carry_out(self, act: Act, record: DrainRecord) -> Done:
        """One step. Raises MigratorError, OSError."""
        deeds: Mapping[DrainStep, Callable[[Act, DrainRecord], Awaitable[Done]]] = {
            DrainStep.CHECK: self._check,
            DrainStep.START: self._start,
            DrainStep.WATCH: self._watch,
            DrainStep.AUDIT: self._audit,
            DrainStep.RECOVER: self._recover,
            DrainStep.COMMIT: self._commit,
            DrainStep.WIPE: self._wipe,
            DrainStep.HAND_OVER: self._hand_over,
            DrainStep.GIVE_UP: self._give_up,
            DrainStep.STOP: self._stop,
            DrainStep.SETTLE: self._settle,
            DrainStep.RESTORE: self._restore,
        }
        return await deeds[act.step](act, record)

    async def _check(self, _: Act, record: DrainRecord) -> Done:
        await self.hooks.ask(record)
        return Done()

    async def _start(self, act: Act, record: DrainRecord) -> Done:
        world = self.call.world
        await self._look_everywhere(record)
        await self.throttle.follow(record)
        if act.seen_done:
            return Done(words=f"gone on with: task {act.task_id}")
        if act.task_before is not None:
            await self._end_task(record)
        task_id = await world.volume.start(record.bricks)
        return Done(words=f"task {task_id}", notes=DrainNotes(task_id=task_id))

    async def _watch(self, act: Act, record: DrainRecord) -> Done:
        watch = Watch(call=self.call, looker=self.looker, throttle=self.throttle)
        # What has come to its end is looked at once: the last counters are kept so.
        async with probing(self.call.world.probing):
            moved = await watch.until_moved(record)
        found = standing(record, self.call.world.ledger.drains.samples(record.id))
        counters = several(found.moved_files, "file"), several(found.failures, "failure"), format_count(found.skipped)
        words = "{} moved, {}, {} skipped".format(*counters)
        return Done(words=words, result=None if moved or act.seen_done else act.intent)

    async def _audit(self, act: Act, record: DrainRecord) -> Done:
        if act.seen_done:
            return Done()
        if record.state in OUT_STATES:
            self.looker.audit = await self._audited(record)
        else:
            self.looker.audit = await self.hooks.around_audit(record, lambda: self._audited(record))
        left = audit_left(self.looker.audit)
        kept = self.looker.audit.explained
        nothing = f"nothing is left but {several(kept, 'name')} of what the volume has" if kept else "nothing is left"
        # The result is decided by the next look: what was found is no end of this step.
        return Done(words="; ".join(left) or nothing, result=act.intent)

    async def _audited(self, record: DrainRecord) -> AuditSeen:
        """Every brick walked, with what is proven just now. Raises MigratorError."""
        found = await self.looker.volume()
        world = self.call.world
        bricks = bricks_of(record, () if found is None else found[0].bricks)
        if record.state is DrainState.WIPING:
            # Those that were being wiped at a crash are no bricks any more, and were audited before.
            places = await world.places(bricks, record.volume_id)
            bricks = tuple(brick for brick in bricks if places.get(brick.name) not in _WIPED)
        recovery = recovery_of(self.call, record, found)
        if recovery is not None:
            recovery.bricks = bricks
        return await audit_bricks(
            bricks,
            volume_id=record.volume_id,
            walks=world.walks,
            read_block=world.read_block,
            clock=world.clock,
            explained=None if recovery is None else await recovery.proven(),
            left=self.call.left_list(),
        )

    async def _recover(self, _: Act, record: DrainRecord) -> Done:
        found = await self.looker.volume()
        recovery = recovery_of(self.call, record, found)
        if recovery is None or found is None:
            raise ToolFailed("what is left cannot be brought back now: the volume does not tell its state")
        if problems := health_problems(found[0]):
            # A name on a brick that is down looks free, and one copy of a set may be an old one.
            raise ToolFailed(f"what is left cannot be brought back now: {'; '.join(problems)}")
        # Once in a call, also where it fails: what it could not do then, people have to look at.
        self.looker.recovered = True
        summary = await recovery.bring_back()
        self.looker.audit = None
        self.left_alone = bool(summary.problems)
        for problem in summary.problems[:MOST_EXAMPLES]:
            self.call.say(EventKind.DRAIN_DOUBTED, Severity.WARNING, f"drain of {record.shown_bricks}", problem)
        words = f"{several(summary.recovered, 'file')} brought back under {several(summary.names, 'name')}"
        left = f"; {several(len(summary.problems), 'problem')}" if summary.problems else ""
        return Done(words=words + left)

    async def _commit(self, act: Act, record: DrainRecord) -> Done:
        if act.seen_done:
            await self.hooks.after_commit(record)
            return Done(words="it is out of the volume")
        await self.hooks.around_commit(record, lambda: self._really_commit(record))
        return Done(words="out of the volume")

    async def _really_commit(self, record: DrainRecord) -> None:
        world = self.call.world
        await asyncio.to_thread(world.back_up, f"drain-{record.id}-commit")
        if self.looker.audit is not None and self.looker.audit.explained:
            # An original that stays behind may have been written to meanwhile: hooks take as long as they like.
            self.looker.audit = await self._audited(record)
        # After the hooks and the backup: what speaks against it now.
        problems = commit_problems(record, await self.looker.see(record))
        if problems:
            raise Refused(f"{record.shown_bricks} may not be committed: {'; '.join(problems)}")
        await self._look_everywhere(record)
        await world.volume.commit(record.bricks)

    async def _look_everywhere(self, record: DrainRecord) -> None:
        def say(words: str) -> None:
            self.call.say(EventKind.OPTION_SET, Severity.WARNING, f"drain of {record.shown_bricks}", words)

        await look_everywhere(self.call.world.volume, say)

    async def _wipe(self, act: Act, record: DrainRecord) -> Done:
        await self.hooks.do(record, HookStep.WIPE, self._wiped, seen_done=act.seen_done)
        return Done(words="an empty file system is mounted there")

    async def _hand_over(self, act: Act, record: DrainRecord) -> Done:
        async def nothing_more(_record: DrainRecord, _name: str) -> None:
            """Where it goes is the hooks' own business, and they answer for it."""

        await self.hooks.do(record, HookStep.HAND_OVER, nothing_more, seen_done=act.seen_done)
        return Done(words="given to where it goes")

    async def _wiped(self, record: DrainRecord, name: str) -> None:
        bricks = tuple(brick for brick in bricks_of(record, ()) if brick.name == name)
        place = (await self.call.world.places(bricks, record.volume_id))[name]
        if place is not PlaceSeen.EMPTY:
            raise ToolFailed(
                f"no empty file system is mounted at {name} after the pre-wipe hooks (found: {place.value})",
                cause="there is no hook that wipes it, it failed without saying so, or it did not mount it again",
                hint="make the file system and mount it as /etc/fstab says, then run the same command again",
            )

    async def _give_up(self, _: Act, record: DrainRecord) -> Done:
        """Where Gluster has come to its end, what it left is named: its counters name nothing."""
        found, world = await self.looker.volume(), self.call.world
        task = None if found is None else own_task(record, DrainSeen(state=found[0], tasks=found[1]))
        progress = None if task is None else await self.looker.progress(task)
        if found is None or self.looker.audit is not None or progress is None:
            return Done()
        if not progress.counters or any(one.status is not TaskStatus.COMPLETED for one in progress.counters):
            return Done()
        self.looker.named = await audit_bricks(
            bricks_of(record, found[0].bricks),
            volume_id=record.volume_id,
            walks=world.walks,
            read_block=world.read_block,
            clock=world.clock,
            left=self.call.left_list(),
        )
        return Done(words="; ".join(audit_left(self.looker.named)) or "nothing is left all the same")

    async def _stop(self, act: Act, record: DrainRecord) -> Done:
        if act.seen_done:
            return Done()
        await self._end_task(record)
        return Done(words="files that were moved stay where they are")

    async def _end_task(self, record: DrainRecord) -> None:
        progress = await self.call.world.volume.stop(record.bricks)
        self.call.world.ledger.drains.add_samples(record.id, samples_of(progress, self.call.now_s()))

    async def _settle(self, act: Act, record: DrainRecord) -> Done:
        if act.seen_done:
            return Done(words="the layout is right")
        world = self.call.world
        await self._look_everywhere(record)
        wanted = await self._layout_under_way(record) or await world.volume.fix_layout()
        world.ledger.drains.note(record.id, DrainNotes(layout_task_id=wanted))
        began_s = world.clock.monotonic_s()
        looks: tuple[DrainSample, ...] = ()
        while True:
            found = await self.looker.volume()
            task = None if found is None else next((task for task in found[1] if task.id == wanted), None)
            progress = None if task is None else await self.looker.progress(task)
            if (
                progress is not None
                and progress.counters
                and all(one.status not in _MOVING for one in progress.counters)
            ):
                break
            if found is not None and task is None and found[0].peers_down == ():
                raise ToolFailed("the fix-layout was ended by somebody else")
            if progress is not None:
                looks = self._goes_on(record, progress, looks)
            shown = standing(record, world.ledger.drains.samples(record.id))
            world.progress.show(
                progress_of(shown, "putting the layout right after", world.clock.monotonic_s() - began_s)
            )
            await world.clock.sleep(self.call.request.poll_s)
        bad = [one for one in progress.counters if one.status is not TaskStatus.COMPLETED or one.failures]
        if bad:
            raise ToolFailed(
                f"the fix-layout did not come to its end on {', '.join(one.host for one in bad)} ({bad[0].status.value})",
                hint="see Gluster's rebalance log there, then run the same command again",
            )
        return Done(words="the layout is right")

    def _goes_on(
        self, record: DrainRecord, progress: TaskProgress, looks: tuple[DrainSample, ...]
    ) -> tuple[DrainSample, ...]:
        """The looks at a fix-layout, with this one. Raises ToolFailed where it would be waited for in vain."""
        now_s, limit_s = self.call.now_s(), lost_after_s(self.call.request.poll_s)
        kept = tuple(one for one in looks if one.at_s > now_s - 3.0 * limit_s)
        looks = (*kept, *samples_of(progress, now_s))
        lost = lost_movers(
            looks,
            task_id=progress.task_id,
            since_s=self.looker.not_whole_s,
            now_s=now_s,
            limit_s=limit_s,
            names=progress.names,
        )
        if lost:
            raise ToolFailed(f"the fix-layout does not come to its end: {lost}; {rebalance_way_out(record.volume)}")
        return looks

    async def _layout_under_way(self, record: DrainRecord) -> str | None:
        """The id of a fix-layout that goes on: one that was begun before a crash, also where its id was not written down."""
        volume = self.call.world.volume
        _, tasks = await volume.state_and_tasks()
        for task in tasks:
            if task.kind is not TaskKind.REBALANCE or not task.unfinished:
                continue
            progress = await volume.progress(task)
            counters = () if progress is None else progress.counters
            if task.id == record.notes.layout_task_id or (counters and all(one.fix_layout for one in counters)):
                return task.id
        return None

    async def _restore(self, _: Act, record: DrainRecord) -> Done:
        return Done(words=await self.throttle.restore(record))
