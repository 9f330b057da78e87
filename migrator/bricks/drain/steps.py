"""The steps of a drain, each of which may be repeated after a crash."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from migrator.bricks.drain.audit import audit_bricks
from migrator.bricks.drain.model import (
    NO_DRAIN_NOTES,
    OUT_STATES,
    AuditSeen,
    DrainAct,
    DrainEnding,
    DrainNotes,
    DrainRecord,
    DrainSample,
    DrainSeen,
    DrainStanding,
    DrainState,
    DrainStep,
    DrainSummary,
    Finished,
    Halt,
    PlaceSeen,
    Step,
    last_counts,
)
from migrator.bricks.drain.rules import (
    audit_left,
    begin_again,
    begin_stop,
    broke_off,
    can_recover,
    commit_problems,
    ended_badly,
    hosts_of,
    lost_after_s,
    lost_movers,
    next_step,
    only_few_failed,
    own_task,
    rebalance_way_out,
    silent_hosts,
    taken_back,
    way_out,
    why_silent,
)
from migrator.bricks.drain.rules_preflight import health_problems
from migrator.bricks.drain.rules_progress import MOST_EXAMPLES, samples_of, stalled, standing, wipe_word
from migrator.bricks.drain.stage import DrainCall, DrainHooks, DrainLooker, Throttle, bricks_of, recovery_of
from migrator.bricks.shared import look_everywhere
from migrator.core.errors import Interrupted, LockHeld, MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.progress import DrainProgress
from migrator.core.units import format_count, several
from migrator.fs.probing import probing
from migrator.gluster.model import TaskKind, TaskProgress, TaskStatus
from migrator.hooks.model import HookStep

# ---
# Watching what Gluster does by itself: its counters are kept and shown until it has come to an end.


_PATIENCE_S = 3600.0
"""How long glusterd may be silent, or a host be missing, before that is told as the end of the watch."""

_HELP_S = 20.0
"""So long a host that is up may tell nothing before people are told what helps: after a reboot glusterd needs some 10 s
to meet the others, and to begin what moves files (GlusterFS 10.3).
"""


@dataclass(slots=True, kw_only=True)
class Watch:
    """One watch over one drain. Gluster goes on whether somebody watches or not."""

    call: DrainCall
    looker: DrainLooker
    throttle: Throttle
    _doubted: str = ""
    _heard_s: float = 0.0
    _samples: list[DrainSample] = field(default_factory=list)

    async def until_moved(self, record: DrainRecord) -> bool:
        """Return when Gluster has come to an end on every host (True; also where it has failed on all that tell), or when what is
        seen needs another decision: the task is gone or another one, it stands still, a host that is up is silent for as
        long as a drain may stand still, or nothing could be seen for an hour.
        """
        call, began_s = self.call, self.call.world.clock.monotonic_s()
        self._samples = list(call.world.ledger.drains.samples(record.id))
        self._heard_s = call.now_s()
        while True:
            seen = await self._look(record)
            ended = self._unseen() if seen is None else self._ended(record, seen)
            if seen is not None and seen.progress is not None and seen.progress.counters:
                self._show(record, call.world.clock.monotonic_s() - began_s)
                if ended is None:
                    await self._follow_throttle(record)
            if ended is not None:
                return ended
            await call.world.clock.sleep(call.request.poll_s)

    def _unseen(self) -> bool | None:
        """What ends the watch where nothing could be seen; None where it goes on."""
        return False if self._doubted == "gone" or self._is_over() else None

    def _ended(self, record: DrainRecord, seen: DrainSeen) -> bool | None:
        """What ends the watch, by a look at a drain that is listed; None where it goes on."""
        task, progress, now_s = own_task(record, seen), seen.progress, self.call.now_s()
        if task is None or task.id != record.notes.task_id:
            return False
        counters = () if progress is None else progress.counters
        if progress is not None:
            self._keep(record, samples_of(progress, now_s), now_s)
        hosts, silent_s = self.looker.silence(record, seen)
        if len(counters) < len(hosts_of(record, seen.state)):
            return self._untold(record, seen, hosts, silent_s)
        self._heard_s, self._doubted = now_s, ""
        if all(one.status not in _MOVING for one in counters):
            return True
        request = self.call.request
        lost = lost_movers(
            self._samples,
            task_id=task.id,
            since_s=self.looker.not_whole_s,
            now_s=now_s,
            limit_s=lost_after_s(request.poll_s),
            names={},
        )
        still = stalled(self._samples, task_id=task.id, now_s=now_s, limit_s=request.stall_s, names={})
        return False if lost or still else None

    def _untold(self, record: DrainRecord, seen: DrainSeen, hosts: tuple[str, ...], silent_s: float) -> bool | None:
        """Not every host tells its counters: `hosts` although they are up, otherwise because something is missing."""
        if hosts:
            help_words = way_out(record, hosts) if silent_s > _HELP_S else "that is waited for"
            self._doubt(record, f"{why_silent(hosts)}; {help_words}")
            waits = silent_s <= self.call.request.stall_s
        else:
            self._doubt(record, "not every host tells its counters: glusterd or a brick is down")
            waits = not self._is_over()
        if ended_badly(seen):
            # Whoever is silent: what could not be moved stays so.
            return True
        return None if waits else False

    def _is_over(self) -> bool:
        return self.call.now_s() - self._heard_s > _PATIENCE_S

    async def _look(self, record: DrainRecord) -> DrainSeen | None:
        found = await self.looker.volume()
        if found is None:
            self._doubt(record, "glusterd does not answer: Gluster may go on all the same, and is asked again")
            return None
        seen = DrainSeen(state=found[0], tasks=found[1])
        task = own_task(record, seen)
        if task is None:
            if found[0].peers_down == ():
                self._doubted = "gone"
            else:
                self._doubt(record, "the drain is not listed while hosts are missing; it is looked for again")
            return None
        if task.id == record.notes.task_id:
            seen = replace(seen, progress=await self.looker.progress(task))
        return seen

    def _doubt(self, record: DrainRecord, words: str) -> None:
        """Told once, until it has cleared."""
        if self._doubted != words:
            self._doubted = words
            self.call.say(EventKind.DRAIN_DOUBTED, Severity.WARNING, f"drain of {record.shown_bricks}", words)

    def _keep(self, record: DrainRecord, samples: Sequence[DrainSample], now_s: float) -> None:
        self.call.world.ledger.drains.add_samples(record.id, samples)
        # The last counters of earlier tasks add up with those of this one; of this one the past counts as far as the limits.
        kept_s = now_s - 2.0 * max(self.call.request.stall_s, 3600.0)
        counted = {id(one) for one in last_counts(self._samples)}
        old = [one for one in self._samples if one.at_s >= kept_s or id(one) in counted]
        self._samples = [*old, *samples]

    async def _follow_throttle(self, record: DrainRecord) -> None:
        try:
            await self.throttle.follow(record)
        except MigratorError as error:
            self._doubt(record, f"the throttle could not be changed: {error.message}")

    def _show(self, record: DrainRecord, elapsed_s: float) -> None:
        found = standing(record, self._samples)
        self.call.world.progress.show(progress_of(found, "draining", elapsed_s))


def progress_of(found: DrainStanding, step: str, elapsed_s: float) -> DrainProgress:
    """A standing as it is shown while somebody waits."""
    return DrainProgress(
        bricks=found.bricks,
        step=step,
        elapsed_s=elapsed_s,
        files=found.moved_files,
        size_bytes=found.moved_bytes,
        total_files=found.files,
        total_bytes=found.size_bytes,
        failures=found.failures,
        skipped=found.skipped,
        files_per_s=found.files_per_s,
        bytes_per_s=found.bytes_per_s,
        left_s=found.left_s,
    )


# ---
# The steps of a drain, each as far as it is to be carried out. Every one may be carried out again after a crash.


_WIPED = (PlaceSeen.EMPTY, PlaceSeen.UNMOUNTED)
_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a step ended: `result` None means that of the act."""

    words: str = ""
    notes: DrainNotes = NO_DRAIN_NOTES
    result: DrainState | None = None


@dataclass(slots=True, kw_only=True)
class DrainActor:
    """Carries steps out, for one drain. `left_alone`: a recovery of this call has not brought everything back."""

    call: DrainCall
    looker: DrainLooker
    throttle: Throttle
    hooks: DrainHooks
    left_alone: bool = False

    async def notes_before(self, act: DrainAct, record: DrainRecord, seen: DrainSeen) -> DrainNotes:
        """What has to be written down with the intent."""
        if act.step is not DrainStep.START or seen.state is None:
            return NO_DRAIN_NOTES
        notes = self.throttle.notes(seen.state)
        known = await self.looker.guarding.content(record)
        if known is None:
            return notes
        return DrainNotes(options=notes.options, files=known[1].files, size_bytes=known[1].size_bytes)

    async def carry_out(self, act: DrainAct, record: DrainRecord) -> Done:
        """One step. Raises MigratorError, OSError."""
        deeds: Mapping[DrainStep, Callable[[DrainAct, DrainRecord], Awaitable[Done]]] = {
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

    async def _check(self, _: DrainAct, record: DrainRecord) -> Done:
        await self.hooks.ask(record)
        return Done()

    async def _start(self, act: DrainAct, record: DrainRecord) -> Done:
        world = self.call.world
        await self._look_everywhere(record)
        await self.throttle.follow(record)
        if act.seen_done:
            return Done(words=f"gone on with: task {act.task_id}")
        if act.task_before is not None:
            await self._end_task(record)
        task_id = await world.volume.start(record.bricks)
        return Done(words=f"task {task_id}", notes=DrainNotes(task_id=task_id))

    async def _watch(self, act: DrainAct, record: DrainRecord) -> Done:
        watch = Watch(call=self.call, looker=self.looker, throttle=self.throttle)
        # What has come to its end is looked at once: the last counters are kept so.
        async with probing(self.call.world.probing):
            moved = await watch.until_moved(record)
        found = standing(record, self.call.world.ledger.drains.samples(record.id))
        counters = several(found.moved_files, "file"), several(found.failures, "failure"), format_count(found.skipped)
        words = "{} moved, {}, {} skipped".format(*counters)
        return Done(words=words, result=None if moved or act.seen_done else act.intent)

    async def _audit(self, act: DrainAct, record: DrainRecord) -> Done:
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

    async def _recover(self, _: DrainAct, record: DrainRecord) -> Done:
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

    async def _commit(self, act: DrainAct, record: DrainRecord) -> Done:
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

    async def _wipe(self, act: DrainAct, record: DrainRecord) -> Done:
        await self.hooks.do(record, HookStep.WIPE, self._wiped, seen_done=act.seen_done)
        return Done(words="an empty file system is mounted there")

    async def _hand_over(self, act: DrainAct, record: DrainRecord) -> Done:
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

    async def _give_up(self, _: DrainAct, record: DrainRecord) -> Done:
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

    async def _stop(self, act: DrainAct, record: DrainRecord) -> Done:
        if act.seen_done:
            return Done()
        await self._end_task(record)
        return Done(words="files that were moved stay where they are")

    async def _end_task(self, record: DrainRecord) -> None:
        progress = await self.call.world.volume.stop(record.bricks)
        self.call.world.ledger.drains.add_samples(record.id, samples_of(progress, self.call.now_s()))

    async def _settle(self, act: DrainAct, record: DrainRecord) -> Done:
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

    async def _restore(self, _: DrainAct, record: DrainRecord) -> Done:
        return Done(words=await self.throttle.restore(record))


# ---
# Bringing bricks through the steps of a drain: look, decide, write the intent, act, write the result, look again.


_LOOKS = 3
_LOOKS_S = 10.0
"""A look that fails is made again so often, and for so long, before it counts: glusterd answers nothing while another
command has the volume.
"""

_SETTLE_S = 60.0
"""So long bricks and hosts may take to be up after a reboot, before a drain that broke off by it, or cannot be told of, waits
for people.
"""

_AGAIN = 3
"""So often one call begins a drain anew by itself."""

RUN_LOCK = "run"
"""Of everything that writes to either side: held only while a drain is begun, and from its last audit to its commit."""

_WAITS = frozenset({DrainStep.WATCH, DrainStep.SETTLE})
"""What Gluster does by itself: nothing has failed when nobody watches any more."""


@dataclass(slots=True, kw_only=True)
class DrainMachine:
    """Brings bricks out of the volume, or (`back`) back into it."""

    call: DrainCall
    looker: DrainLooker
    actor: DrainActor
    hooks: DrainHooks
    back: bool = False
    _locked: bool = False
    _begun: bool = False
    _again: int = 0
    _locks: ExitStack = field(default_factory=ExitStack)

    async def bring(self, record: DrainRecord) -> DrainSummary:
        """From wherever it is. Raises Interrupted, LockHeld, HookSkipped, Refused."""
        await self.hooks.tell_failure(record, None, back=self.back)
        if not self.back:
            await self.hooks.goes_on(record)
        try:
            with self._locks:
                summary = await self._bring(record)
        except Interrupted:
            raise
        except MigratorError:
            await self._tell_failure(record, None)
            raise
        await self._tell_failure(record, summary)
        return summary

    async def _tell_failure(self, record: DrainRecord, ended: DrainSummary | None) -> None:
        """At the end of the call: what it has put right itself is told to nobody."""
        await self.hooks.tell_failure(self.call.world.ledger.drains.read(record.id), ended, back=self.back)

    async def _bring(self, record: DrainRecord) -> DrainSummary:
        failed: DrainStep | None = None
        looks, since_s = 0, self.call.world.clock.monotonic_s()
        while True:
            hand_over = await self._hands_over(record)
            seen = await self.looker.see(record, hand_over=hand_over)
            step = self.decide(record, seen, hand_over=hand_over)
            if isinstance(step, Halt) and self._tries_again(record, seen):
                self._again += 1
                step = begin_again(record, seen)
            waited_s = self.call.world.clock.monotonic_s() - since_s
            if isinstance(step, Halt) and self._looks_again(record, step, seen, looks=looks, waited_s=waited_s):
                looks += 1
                await self.call.world.clock.sleep(self.call.request.poll_s)
                continue
            if isinstance(step, Finished):
                return await self._finished(record, step)
            if isinstance(step, Halt):
                return await self._halted(record, step)
            if failed is step.step:
                return self._stuck(record, seen)
            if step.step is DrainStep.COMMIT and not step.seen_done and not self.call.request.commit:
                return self._waits(record)
            # What follows a recovery is decided as at the beginning: a drain that had failed is gone on with.
            looks, self._begun = 0, step.step is not DrainStep.RECOVER
            await self._lock(record, step)
            record, went_well = await self._act(record, step, seen)
            since_s = self.call.world.clock.monotonic_s()
            failed = None if went_well else step.step
            if step.step not in (DrainStep.AUDIT, DrainStep.COMMIT):
                self._unlock()

    def decide(self, record: DrainRecord, seen: DrainSeen, *, hand_over: bool = False) -> Step:
        """What is done next by this call."""
        if self.back:
            return next_step(record, seen) if taken_back(record.state) else begin_stop(record, seen)
        if record.state is DrainState.FAILED and (not self._begun or can_recover(seen)):
            return begin_again(record, seen)
        return next_step(record, seen, hand_over=hand_over)

    def _tries_again(self, record: DrainRecord, seen: DrainSeen) -> bool:
        """Whether this call begins a drain anew that has failed under it, which people would do as well: nothing speaks
        against it, and Gluster could move all but a few files, broke off, has lost the process that moves files, or tells no
        counters of a host that is up. A new task looks at what is left only.
        """
        # What a recovery has left alone waits for people: Gluster has failed on it, and would again.
        if self.back or self.actor.left_alone or record.state is not DrainState.FAILED or self._again >= _AGAIN:
            return False
        # Where the counters are refused, so is a stop.
        silent = bool(seen.silent) and seen.progress is not None
        return seen.preflight == () and (only_few_failed(seen) or broke_off(seen) or bool(seen.lost) or silent)

    def _looks_again(self, record: DrainRecord, step: Halt, seen: DrainSeen, *, looks: int, waited_s: float) -> bool:
        """Whether the next look may say something else by itself: one failed, or what broke a drain off is coming up again."""
        if step.look_again:
            return looks < _LOOKS or waited_s < (_SETTLE_S if self.looker.host_was_away else _LOOKS_S)
        if self.back or record.state is not DrainState.FAILED or not self.looker.host_was_away or seen.state is None:
            return False
        settles = bool(seen.preflight) and set(seen.preflight or ()) <= set(health_problems(seen.state))
        return settles and broke_off(seen) and self._again < _AGAIN and waited_s < _SETTLE_S

    async def _hands_over(self, record: DrainRecord) -> bool:
        """Whether a brick that is out is wiped and given away: where that was allowed, and there are hooks for it."""
        if self.back or record.state not in OUT_STATES or self.call.request.confirm != self.word(record):
            return False
        return await self.looker.goes_on(record)

    def word(self, record: DrainRecord) -> str:
        """The word that allows it."""
        return wipe_word(self.call.site.site_id, record.volume_id, record.bricks)

    async def _lock(self, record: DrainRecord, act: DrainAct) -> None:
        """Passes must not read bricks while a drain begins, nor see the volume change at its commit."""
        commits = act.step is DrainStep.AUDIT and self.call.request.commit and record.state not in OUT_STATES
        begins = act.step in (DrainStep.START, DrainStep.RECOVER) and not act.seen_done
        if self._locked or not (commits or begins or (act.step is DrainStep.COMMIT and not act.seen_done)):
            return
        told = False
        while True:
            try:
                self._locks.enter_context(self.call.world.locks.hold(RUN_LOCK, f"drain of {record.shown_bricks}"))
            except LockHeld as error:
                if begins:
                    raise
                if not told:
                    words = f"the commit waits: {error.message}"
                    self.call.say(EventKind.DRAIN_DOUBTED, Severity.WARNING, _subject(record), words)
                told = True
                await self.call.world.clock.sleep(self.call.request.poll_s)
            else:
                self._locked = True
                return

    def _unlock(self) -> None:
        self._locks.pop_all().close()
        self._locked = False

    async def _act(self, record: DrainRecord, act: DrainAct, seen: DrainSeen) -> tuple[DrainRecord, bool]:
        """The record afterwards, and whether the step came to its end."""
        drains, call = self.call.world.ledger.drains, self.call
        notes = await self.actor.notes_before(act, record, seen)
        if act.step in (DrainStep.WIPE, DrainStep.HAND_OVER):
            await self.hooks.end(record)
        if act.step is DrainStep.START and record.state is DrainState.PREFLIGHT:
            await self.hooks.ask(record)
        if act.step is DrainStep.STOP and self.back and not taken_back(record.state):
            await self.hooks.ask_back(record)
        if act.reason:
            call.say(EventKind.DRAIN_FAILED, Severity.WARNING, _subject(record), f"{act.step.value}: {act.reason}")
        step_id = drains.intend(record.id, act, at_s=call.now_s(), notes=notes)
        record = drains.read(record.id)
        try:
            done = await self.actor.carry_out(act, record)
        except (asyncio.CancelledError, Interrupted) as error:
            if act.step in _WAITS:
                drains.finish(step_id, act.intent, at_s=call.now_s(), message="the command ended, and Gluster goes on")
            else:
                drains.fail(step_id, "it was interrupted", at_s=call.now_s())
            raise _interrupted(record, act) from error
        except (MigratorError, OSError, TimeoutError) as error:
            reason = _reason(error)
            call.say(EventKind.DRAIN_FAILED, Severity.ERROR, _subject(record), f"{act.step.value} failed: {reason}")
            record = drains.fail(step_id, reason, at_s=call.now_s())
            if isinstance(error, MigratorError) and error.exit_code is not MigratorError.exit_code:
                # A hook or a guard said no: that is no failure of the step.
                raise
            return record, False
        return self._record(step_id, act, done), True

    def _record(self, step_id: int, act: DrainAct, done: Done) -> DrainRecord:
        state = act.result if done.result is None else done.result
        call = self.call
        record = call.world.ledger.drains.finish(
            step_id, state, at_s=call.now_s(), notes=done.notes, message=done.words
        )
        words = f"{act.step.value}: {done.words}" if done.words else act.step.value
        call.say(EventKind.DRAIN_STEP, Severity.INFO, _subject(record), words)
        return record

    async def _finished(self, record: DrainRecord, step: Finished) -> DrainSummary:
        out = record.state in OUT_STATES
        await self.hooks.end(record)
        words, hint, confirm = step.words, "", None
        if out and record.state is not DrainState.HANDED_OVER:
            words, hint, confirm = await self._way_on(record, step.words)
        self.call.say(EventKind.DRAIN_FINISHED, Severity.INFO, _subject(record), words)
        ending = DrainEnding.DONE if out else DrainEnding.TAKEN_BACK
        return replace(self.summary(record, ending, words, hint), confirm=confirm)

    async def _way_on(self, record: DrainRecord, words: str) -> tuple[str, str, str | None]:
        """What can be done with bricks that are out and were not given away."""
        if not await self.looker.goes_on(record):
            step = "hand-over" if record.state in (DrainState.WIPED, DrainState.HANDING_OVER) else "wipe"
            return f"{words}; there is no pre-{step} hook, so that is left to you", "", None
        word = self.word(record)
        return words, f"to have your hooks go on with it: the same command with --confirm {word}", word

    async def _halted(self, record: DrainRecord, step: Halt) -> DrainSummary:
        if record.state in OUT_STATES:
            await self.hooks.end(record)
        words = "; ".join((step.words, *step.reasons))
        self.call.say(EventKind.DRAIN_HALTED, Severity.ERROR, _subject(record), words)
        return self.halted(record, step)

    def halted(self, record: DrainRecord, step: Halt) -> DrainSummary:
        """Why it does not go on."""
        return replace(self.summary(record, DrainEnding.HALTED, step.words, step.hint), reasons=step.reasons)

    def _stuck(self, record: DrainRecord, seen: DrainSeen) -> DrainSummary:
        words = f"{record.shown_bricks} is {record.state.value}: {record.failure}"
        self.call.say(EventKind.DRAIN_HALTED, Severity.ERROR, _subject(record), words)
        hosts = silent_hosts(record, seen)
        right = way_out(record, hosts) if hosts else "put that right"
        hint = f"{right}, then run the same command again: it goes on from there"
        return self.summary(record, DrainEnding.STUCK, words, hint)

    def _waits(self, record: DrainRecord) -> DrainSummary:
        words = f"{record.shown_bricks} is drained, and nothing is left on it; it was not to be committed"
        return self.summary(
            record, DrainEnding.WAITS, words, "to take it out of the volume: the same without --no-commit"
        )

    def summary(self, record: DrainRecord, ending: DrainEnding, words: str, hint: str = "") -> DrainSummary:
        """The result, with all that this process knows."""
        audit, check = self.looker.audit or self.looker.named, self.looker.check
        return DrainSummary(
            volume=record.volume,
            bricks=record.bricks,
            back=self.back,
            dry_run=self.call.run_id is None,
            ending=ending,
            words=words,
            hint=hint,
            left_behind=() if audit is None else audit.examples,
            left_file=None if audit is None else audit.list_file,
            standing=standing(record, self.call.world.ledger.drains.samples(record.id)),
            check=check,
        )


def _subject(record: DrainRecord) -> str:
    return f"drain of {record.shown_bricks}"


def _interrupted(record: DrainRecord, act: DrainAct) -> Interrupted:
    goes_on = " Gluster goes on by itself." if act.step in _WAITS else ""
    return Interrupted(
        f"interrupted while {record.shown_bricks} was {act.intent.value}.{goes_on}",
        hint="the same command goes on with it; `migrator brick status` shows how far it is",
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, MigratorError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error) or "no answer"
    return "no answer"
