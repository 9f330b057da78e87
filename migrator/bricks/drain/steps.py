"""The steps of a drain. Each may be repeated after a crash."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from migrator.bricks.call import BrickMachine
from migrator.bricks.drain import model, rules
from migrator.bricks.drain.audit import audit_bricks
from migrator.bricks.drain.leftovers import write_commands
from migrator.bricks.drain.rules import next_step
from migrator.bricks.drain.rules_progress import standing, wipe_word
from migrator.bricks.drain.stage import DrainCall, DrainLooker, DrainWorld, bricks_of, hooked
from migrator.bricks.model import Ending
from migrator.bricks.progress import TaskSample, lost_after_s, rebalance_remedy, samples_of
from migrator.bricks.volume import Membership, condition_problems, membership
from migrator.core.errors import LockHeld, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.units import format_count, several
from migrator.fs.probing import probing
from migrator.gluster.model import Brick, PlaceSeen, TaskKind, TaskStatus, VolumeState, remove_brick_of
from migrator.gluster.rules import disk_problems, drained, volume_fingerprint
from migrator.hooks.model import HookFacts, HookState, HookStep
from migrator.ledger.locks import VOLUME, of_brick
from migrator.ledger.model import SiteRecord
from migrator.operations.engine import SNAPSHOT_RETRIES, Around, Done, StepEvents, reason_of
from migrator.operations.model import Act, Finished, Halt

if TYPE_CHECKING:
    from migrator.bricks.drain.records import DrainRecords

# Polling Gluster's counters until the rebalance processes have ended. Each poll is recorded and shown.


_PATIENCE_S = 3600.0
"""How long glusterd may not respond, or a host be missing, before the watch ends."""

_HELP_S = 20.0
"""A host that is up may report no counters for this long before the admin gets a hint. After a reboot glusterd needs
about 10 s to connect to its peers and to start the rebalance process (GlusterFS 10.3).
"""


async def watch(machine: "DrainMachine", record: model.DrainRecord) -> bool:
    """Return True when Gluster has ended on every host that reports counters, also after a failure. Return False when
    another step is due: the task is gone or was replaced, it is stalled, a host that is up was silent for the stall
    limit, or the volume could not be read for an hour. Gluster continues in any case.
    """
    call, looker = machine.call, machine.looker
    world, poll_s = call.world, call.request.poll_s
    began_s = reported_s = world.clock.monotonic_s()
    doubt = partial(machine.doubt, record)

    while True:
        seen, now_s = await looker.see(record), world.clock.monotonic_s()
        task, progress = rules.own_task(record, seen), seen.progress
        own = task is not None and task.id == record.notes.task_id
        counters = () if progress is None or not own else progress.counters
        if progress is not None and counters:
            world.ledger.drains.add_samples(record.id, samples_of(progress, call.now_s()))
            machine.show(standing(record, looker.samples), "draining", now_s - began_s)
        step, reporting = next_step(record, seen), len(counters) >= len(rules.hosts_of(record, seen.state))
        hosts, silent_s = looker.silence(record, seen)
        if reporting and rules.moves(seen) and not (seen.lost or seen.stalled):
            reported_s = now_s
            doubt("")
        elif hosts and isinstance(step, Act) and step.step is model.DrainStep.WATCH:
            help_words = rules.way_out(record, hosts) if silent_s > _HELP_S else "waiting for it"
            doubt(f"{rules.why_silent(hosts)}; {help_words}")
        elif isinstance(step, Halt) and step.look_again and not reporting and now_s - reported_s <= _PATIENCE_S:
            doubt("; ".join((step.words, *step.reasons)))
        else:
            return own and not rules.moves(seen) and (reporting or rules.ended_badly(seen))
        if counters:
            await machine.throttled(record, machine.throttle.follow)
        await world.clock.sleep(poll_s)


# Locks, hooks and steps of a drain, for the engine.


_LOOKS_S = 10.0
"""A failed snapshot is retried for this long before it counts: glusterd does not answer while another command holds the
volume.
"""

_SETTLE_S = 60.0
"""After a reboot, bricks and hosts may take this long to come up. Until then a drain that broke off, or whose state is
unknown, does not wait for an admin.
"""

_AGAIN = 3
"""Limit of automatic restarts of a failed drain in one call."""

_WIPED = (PlaceSeen.EMPTY, PlaceSeen.UNMOUNTED)
_CLOSED_AT_THE_END = (HookStep.STOP, HookStep.COMMIT, HookStep.AUDIT, HookStep.DRAIN)
"""Hooks are also called around the whole drain. The step that began last ends first."""


_Done = Done[model.DrainState, model.DrainNotes]


async def wipe_permission(
    world: DrainWorld, site: SiteRecord, record: model.DrainRecord
) -> tuple[str | None, tuple[str, ...]]:
    """Return the word that allows hooks to wipe these bricks, or the problems that forbid it. A wipe that has begun
    keeps its word.
    """
    if record.notes.wipe_word is not None:
        return record.notes.wipe_word, ()
    disks = await world.disks(record.bricks)
    problems = disk_problems(disks)
    return None if problems else wipe_word(site.site_id, record.volume_id, disks), problems


@dataclass(slots=True, kw_only=True)
class DrainMachine(BrickMachine[model.DrainRecord, model.DrainSeen, model.DrainSummary]):
    """Takes bricks out of the volume, or (`back`) stops the drain."""

    events = StepEvents(done=EventKind.DRAIN_STEP, failed=EventKind.DRAIN_FAILED, aborting=EventKind.DRAIN_FAILED)
    waits = frozenset({model.DrainStep.WATCH, model.DrainStep.SETTLE})
    halting, doubting = EventKind.DRAIN_HALTED, EventKind.DRAIN_DOUBTED
    unreported = model.UNTOUCHED_STATES
    failed_steps = HookStep.DRAIN, HookStep.STOP

    call: DrainCall
    looker: DrainLooker
    _asked: bool = False
    _hand_over: bool = False
    _locked: bool = False
    _begun: bool = False
    _again: int = 0
    _mounted: dict[str, str] = field(default_factory=dict)
    """Where the file system of each brick was mounted when this call first checked its disk."""

    @property
    def records(self) -> "DrainRecords":
        return self.call.world.ledger.drains

    async def perform(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        match act.step:
            case model.DrainStep.CHECK:
                return await self._check(record)
            case model.DrainStep.START:
                return await self._start(act, record)
            case model.DrainStep.WATCH:
                return await self._watch(act, record)
            case model.DrainStep.AUDIT:
                return await self._audit(act, record)
            case model.DrainStep.COMMIT:
                return await self._commit(act, record)
            case model.DrainStep.WIPE:
                return await self._wipe(act, record)
            case model.DrainStep.HAND_OVER:
                return await self._hand_over_bricks(act, record)
            case model.DrainStep.GIVE_UP:
                return await self._give_up(record)
            case model.DrainStep.STOP:
                return await self._stop(act, record)
            case model.DrainStep.SETTLE:
                return await self._settle(act, record)
            case model.DrainStep.RESTORE:
                return Done(words=await self.throttle.restore(record))
            case _:
                assert_never(act.step)

    async def resume(self, record: model.DrainRecord) -> model.DrainRecord:
        if not self.back and not rules.taken_back(record.state):
            # A killed call may have left a request for a stop. It is void now.
            await self._catch_up(record, HookStep.STOP, HookState.FAILED)
        return record

    async def snapshot(self, record: model.DrainRecord) -> model.DrainSeen:
        self._hand_over = await self._hands_over(record)
        return await self.looker.see(record, hand_over=self._hand_over)

    def next_step(self, record: model.DrainRecord, seen: model.DrainSeen) -> model.Step:
        step = self.decide(record, seen)
        if isinstance(step, Halt) and self._tries_again(record, seen):
            self._again += 1
            return rules.begin_again(record, seen)
        if (
            isinstance(step, Act)
            and step.step is model.DrainStep.COMMIT
            and not step.seen_done
            and not self.call.request.commit
        ):
            words = f"{record.shown_bricks} is drained, and nothing is left on it; it is not committed, as requested"
            return Finished(state=record.state, words=words)
        return step

    def decide(self, record: model.DrainRecord, seen: model.DrainSeen) -> model.Step:
        """Return the next step of this call."""
        if self.back:
            return next_step(record, seen) if rules.taken_back(record.state) else rules.begin_stop(record, seen)
        if record.state is model.DrainState.FAILED and not self._begun:
            return rules.begin_again(record, seen)
        return next_step(record, seen, hand_over=self._hand_over)

    def _tries_again(self, record: model.DrainRecord, seen: model.DrainSeen) -> bool:
        """Return whether this call restarts a drain that failed during it. It does so if no preflight check fails and
        an admin would do the same: Gluster moved all but a few files, broke off, lost its rebalance process, or reports
        no counters of a host that is up. A new task examines only the remaining files.
        """
        if self.back or record.state is not model.DrainState.FAILED or self._again >= _AGAIN:
            return False
        # If Gluster refuses the counters, it refuses a stop too.
        silent = bool(seen.silent) and seen.progress is not None
        return seen.preflight == () and (
            rules.only_few_failed(seen) or rules.broke_off(seen) or bool(seen.lost) or silent
        )

    def repeats_snapshot(
        self, record: model.DrainRecord, halt: Halt, snapshot: model.DrainSeen, *, tries: int, waited_s: float
    ) -> bool:
        """Return whether the next snapshot may differ without an act: a query failed, or a host or brick whose absence
        broke the drain off is coming up again.
        """
        if halt.look_again:
            return tries < SNAPSHOT_RETRIES or waited_s < (_SETTLE_S if self.looker.host_was_away else _LOOKS_S)
        if (
            self.back
            or record.state is not model.DrainState.FAILED
            or not self.looker.host_was_away
            or snapshot.state is None
        ):
            return False
        settles = bool(snapshot.preflight) and set(snapshot.preflight or ()) <= set(condition_problems(snapshot.state))
        return settles and rules.broke_off(snapshot) and self._again < _AGAIN and waited_s < _SETTLE_S

    async def _hands_over(self, record: model.DrainRecord) -> bool:
        """Return whether a removed brick is wiped and handed over. This needs the confirmation and hooks."""
        if self.back or record.state not in model.OUT_STATES or self.call.request.confirm is None:
            return False
        return await self.looker.goes_on(record)

    async def prepare(self, record: model.DrainRecord, act: model.DrainAct, seen: model.DrainSeen) -> model.DrainNotes:
        self._begun = True
        await self.unshield(record)
        await self._lock(record, act)
        notes = await self._notes_before(record, act, seen)
        if act.step in (model.DrainStep.WIPE, model.DrainStep.HAND_OVER):
            await self._end_hooks(record)
        if act.step is model.DrainStep.WIPE:
            notes = replace(notes, wipe_word=self.call.request.confirm)
        if act.step is model.DrainStep.START and record.state is model.DrainState.PREFLIGHT:
            await self._ask(record)
        if act.step is model.DrainStep.STOP and self.back and not rules.taken_back(record.state):
            await self.hooks.before(hooked(record, HookStep.STOP), self.call.facts(record))
        return notes

    async def _lock(self, record: model.DrainRecord, act: model.DrainAct) -> None:
        """Nothing else is at work in the volume when a drain begins, and no stream reads its bricks from the audit to the
        commit.
        """
        if act.step is model.DrainStep.START and not act.seen_done:
            self.step_locks.enter_context(self.call.world.locks.hold(record.subject, VOLUME))
            return
        commits = act.step is model.DrainStep.COMMIT and not act.seen_done
        commits |= act.step is model.DrainStep.AUDIT and self.call.request.commit
        if self._locked or not commits or record.state in model.OUT_STATES:
            return
        told = False
        while not self._locked:
            try:
                self.step_locks.enter_context(self.call.world.locks.hold(record.subject, *map(of_brick, record.bricks)))
                self._locked = True
            except LockHeld as error:
                if not told:
                    words = f"the commit waits: {error.message}"
                    self.emit(EventKind.DRAIN_DOUBTED, Severity.WARNING, record, words)
                told = True
                await self.call.world.clock.sleep(self.call.request.poll_s)

    def release(self, act: model.DrainAct) -> None:
        if act.step not in (model.DrainStep.AUDIT, model.DrainStep.COMMIT):
            self.step_locks.pop_all().close()
            self._locked = False

    async def _notes_before(
        self, record: model.DrainRecord, act: model.DrainAct, seen: model.DrainSeen
    ) -> model.DrainNotes:
        """Return the facts to record with the intent."""
        if act.step is not model.DrainStep.START or seen.state is None:
            return model.NO_DRAIN_NOTES
        notes = model.DrainNotes(
            options=self.throttle.before(seen.state) or record.notes.options or (),
            volume_before=volume_fingerprint(seen.state),
            volume_after=volume_fingerprint(drained(seen.state, record.bricks)),
        )
        known = await self.looker.content(record)
        return notes if known is None else replace(notes, files=known[1].files, size_bytes=known[1].size_bytes)

    async def finished(self, record: model.DrainRecord, step: Finished) -> model.DrainSummary:
        if record.state is model.DrainState.AUDITED:
            hint = "to take it out of the volume: the same command without --no-commit"
            return self.summary(record, Ending.WAITS, step.words, hint)
        out = record.state in model.OUT_STATES
        words, hint, confirm = step.words, "", None
        if out and record.state is not model.DrainState.HANDED_OVER:
            words, hint, confirm = await self._way_on(record, step.words)
        self.emit(EventKind.DRAIN_FINISHED, Severity.INFO, record, words)
        ending = Ending.DONE if out else Ending.TAKEN_BACK
        return replace(self.summary(record, ending, words, hint), confirm=confirm)

    async def _way_on(self, record: model.DrainRecord, words: str) -> tuple[str, str, str | None]:
        """Return the remaining options for bricks that are out of the volume and were not handed over."""
        if not await self.looker.goes_on(record):
            step = "hand-over" if record.state in (model.DrainState.WIPED, model.DrainState.HANDING_OVER) else "wipe"
            return f"{words}; there is no pre-{step} hook, so do that by hand", "", None
        word, problems = await wipe_permission(self.call.world, self.call.site, record)
        if word is None:
            return f"{words}; hooks may not wipe it: {'; '.join(problems)}", "", None
        return words, f"to have your hooks do that: the same command with --confirm {word}", word

    async def end(self, record: model.DrainRecord) -> None:
        if record.state in model.OUT_STATES | {model.DrainState.STOPPED}:
            await self._end_hooks(record)

    def way_out(self, record: model.DrainRecord, seen: model.DrainSeen) -> str:
        hosts = rules.silent_hosts(record, seen)
        return rules.way_out(record, hosts) if hosts else "put that right"

    def reverted(self, record: model.DrainRecord) -> bool:
        return rules.taken_back(record.state)

    def summary(self, record: model.DrainRecord, ending: Ending, words: str, hint: str = "") -> model.DrainSummary:
        audit, check = self.looker.audit or self.looker.named, self.looker.check
        return model.DrainSummary(
            volume=record.volume,
            bricks=record.bricks,
            back=self.back,
            dry_run=self.call.run_id is None,
            ending=ending,
            words=words,
            hint=hint,
            left_behind=() if audit is None else audit.examples,
            left_file=None if audit is None else audit.list_file,
            commands_file=None if audit is None else audit.commands_file,
            standing=standing(record, self.call.world.ledger.drains.samples(record.id)),
            check=check,
        )

    # Hooks.

    async def around(self, act: model.DrainAct, record: model.DrainRecord) -> Around | None:
        """Call the hooks around a commit and the audit before it."""
        hooked_steps = {model.DrainStep.COMMIT: HookStep.COMMIT, model.DrainStep.AUDIT: HookStep.AUDIT}
        facts, step = self.call.facts, hooked_steps.get(act.step)
        if step is None or (step is HookStep.AUDIT and (act.seen_done or record.state in model.OUT_STATES)):
            return None

        def after() -> HookFacts:
            found = self.looker.audit
            if step is HookStep.COMMIT or found is None:
                return facts(record, state=HookState.DONE if step is HookStep.COMMIT else HookState.FAILED)
            return facts(record, state=rules.audit_state(found), reason="; ".join(rules.audit_left(found)) or None)

        return Around(step=hooked(record, step), before=lambda: facts(record), after=after)

    async def _ask(self, record: model.DrainRecord) -> None:
        """Call the hooks before a drain, which act as checks, once in every process that is about to start it. Raises
        Refused.
        """
        if not self._asked:
            await self.hooks.before(hooked(record, HookStep.DRAIN), self.call.facts(record))
        self._asked = True

    async def _end_hooks(self, record: model.DrainRecord) -> None:
        """Call the hooks after a drain has ended, and those that killed calls still owe. May be called again."""
        out = record.state in model.OUT_STATES
        state = HookState.DONE if out else HookState.STOPPED
        for step in _CLOSED_AT_THE_END:
            stopped = HookState.FAILED if out else HookState.DONE
            await self._catch_up(record, step, stopped if step is HookStep.STOP else state)

    async def _catch_up(self, record: model.DrainRecord, step: HookStep, state: HookState) -> None:
        await self.hooks.catch_up(hooked(record, step), self.call.facts(record, state=state))

    async def _do(self, act: model.DrainAct, record: model.DrainRecord, step: HookStep) -> None:
        """Run a step that its `pre` hooks perform, one brick after the other, and check a wipe. The disk is checked right
        before each hook that may wipe it. Hooks that give it away write to it, so it is checked until the first of them
        has worked. Raises HookSkipped, Refused, ToolFailed.
        """
        hooking = self.hooks

        async def work(name: str) -> None:
            if step is HookStep.WIPE:
                await self._check_wiped(record, name)

        def after(facts: HookFacts, _: None) -> HookFacts:
            return self.call.facts(record, brick=facts.brick, state=HookState.DONE)

        for name in record.bricks:
            place, facts = hooked(record, step, name), self.call.facts(record, brick=name)
            if act.seen_done:
                await hooking.catch_up(place, after(facts, None))
                continue
            check = partial(self._check_disk, record, name, step)
            if step is HookStep.HAND_OVER:
                check = partial(hooking.until_worked, place, check)
            await hooking.around(place, partial(work, name), facts=facts, after=after, check=check)

    # Steps.

    async def _check(self, record: model.DrainRecord) -> _Done:
        await self._ask(record)
        return Done()

    async def _start(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        world = self.call.world
        await self.look_everywhere(record)
        await self.throttle.follow(record)
        if act.seen_done:
            return Done(words=f"continued: task {act.task_id}")
        if act.task_before is not None:
            await self._end_task(record)
        shielded = await self.shield()
        task_id = await world.volume.start(record.bricks)
        return Done(words=f"task {task_id}{shielded}", notes=model.DrainNotes(task_id=task_id))

    async def _watch(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        # A task that has ended is polled at once, to record its last counters.
        async with probing(self.call.world.probing):
            moved = await watch(self, record)
        found = standing(record, self.call.world.ledger.drains.samples(record.id))
        counters = several(found.moved_files, "file"), several(found.failures, "failure"), format_count(found.skipped)
        words = "{} moved, {}, {} skipped".format(*counters)
        return Done(words=words, result=None if moved or act.seen_done else act.intent)

    async def _audit(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        if act.seen_done:
            return Done()
        self.looker.audit = await self._audited(record)
        left = rules.audit_left(self.looker.audit)
        # The next snapshot decides the result. Findings do not end this step.
        return Done(words="; ".join(left) or "nothing is left", result=act.intent)

    async def _audited(self, record: model.DrainRecord) -> model.AuditSeen:
        """Walk every brick. Raises MigratorError."""
        found = await self.looker.volume()
        world = self.call.world
        bricks = bricks_of(record, () if found is None else found[0].bricks)
        if record.state is model.DrainState.WIPING:
            # Bricks that were being wiped at a crash are no longer bricks, and were audited before.
            places = await world.places(bricks, record.volume_id)
            bricks = tuple(brick for brick in bricks if places.get(brick.name) not in _WIPED)
        return await self._walk(record, bricks, None if found is None else found[0])

    async def _walk(
        self, record: model.DrainRecord, bricks: Sequence[Brick], state: VolumeState | None
    ) -> model.AuditSeen:
        """Walk the bricks, and write down what to do about each leftover. Raises MigratorError."""
        world, directory = self.call.world, self.call.directory
        audit = await audit_bricks(
            bricks,
            volume_id=record.volume_id,
            walks=world.walks,
            read_block=world.read_block,
            clock=world.clock,
            left=self.call.left_list(),
        )
        if world.names is None or directory is None or state is None:
            return audit
        try:
            file = await write_commands(
                directory,
                audit.leftovers,
                names=world.names,
                blocking=world.blocking,
                in_volume=membership(record, state) is not Membership.OUT,
                again=f"migrator brick drain {' '.join(record.bricks)}",
            )
        except (OSError, TimeoutError) as error:
            words = f"the commands for leftovers cannot be written: {reason_of(error)}"
            self.emit(EventKind.DRAIN_DOUBTED, Severity.WARNING, record, words)
            return audit
        return replace(audit, commands_file=file)

    async def _commit(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        if act.seen_done:
            self.looker.audit = None
            return Done(words="it is out of the volume")
        world = self.call.world
        await asyncio.to_thread(world.back_up, f"drain-{record.id}-commit")
        await self._keep_times(record)
        # This follows the hooks and the backup, which take time.
        problems = rules.commit_problems(record, await self.looker.see(record))
        if problems:
            raise Refused(f"{record.shown_bricks} may not be committed: {'; '.join(problems)}")
        await self.look_everywhere(record)
        await world.volume.commit(record.bricks)
        # A client may have written until now: another audit decides on a wipe, whatever the clock says.
        self.looker.audit = None
        return Done(words="out of the volume")

    async def _keep_times(self, record: model.DrainRecord) -> None:
        """Keep the mtimes of directories that are latest on these bricks, and record their number: if the commit fails, the
        next one finds none that are left to keep. Raises MigratorError.
        """
        world = self.call.world
        if world.times is None:
            return
        state, _ = await world.volume.state_and_tasks()
        try:
            found = await world.times.keep(record.id, bricks_of(record, state.bricks), state)
        except (OSError, TimeoutError) as error:
            raise ToolFailed(f"the times of directories cannot be kept: {reason_of(error)}") from error
        if found.lost:
            lost = several(found.lost, "directory", "directories")
            self.emit(
                EventKind.DRAIN_DOUBTED, Severity.WARNING, record, f"{lost} will show an earlier mtime than before"
            )
        kept = (record.notes.times_kept or 0) + found.kept
        self.records.note(record.id, model.DrainNotes(times_kept=kept, times_lost=found.lost))

    async def _wipe(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        await self._do(act, record, HookStep.WIPE)
        return Done(words="an empty file system is mounted there")

    async def _hand_over_bricks(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        await self._do(act, record, HookStep.HAND_OVER)
        return Done(words="handed over")

    async def _check_disk(self, record: model.DrainRecord, name: str, step: HookStep) -> None:
        """Check the disk of a brick again before a hook wipes it or gives it away. Raises Refused.

        If a hook has unmounted the file system already, there is nothing to check: the path is on the one above then.
        """
        disks = await self.call.world.disks(record.bricks)
        disk, mounted = disks[name], self._mounted.setdefault(name, disks[name].mount)
        unmounted = not disk.mount or mounted.startswith(disk.mount.rstrip("/") + "/")
        if unmounted and not disk.unread:
            return
        problems = disk_problems({name: disk})
        if not problems and all(one.mount for one in disks.values()):
            word = wipe_word(self.call.site.site_id, record.volume_id, disks)
            problems = () if word == self.call.request.confirm else ("another disk is mounted there now",)
        if problems:
            raise Refused(
                f"{name} may not be {'wiped' if step is HookStep.WIPE else 'given away'}: {'; '.join(problems)}",
                hint="move it elsewhere, or do that by hand; the drain itself is complete",
            )

    async def _check_wiped(self, record: model.DrainRecord, name: str) -> None:
        bricks = tuple(brick for brick in bricks_of(record, ()) if brick.name == name)
        place = (await self.call.world.places(bricks, record.volume_id))[name]
        if place is not PlaceSeen.EMPTY:
            raise ToolFailed(
                f"no empty file system is mounted at {name} after the pre-wipe hooks (found: {place.value})",
                cause="no hook wipes it, or the hook failed without an exit code, or it did not mount it again",
                hint="make the file system and mount it as /etc/fstab says, then run the same command again",
            )

    async def _give_up(self, record: model.DrainRecord) -> _Done:
        """If Gluster has completed, list the leftovers, since its counters name none."""
        found = await self.looker.volume()
        task = None if found is None else remove_brick_of(found[1], record.bricks)
        progress = None if task is None else await self.looker.progress(task)
        counters = () if progress is None else progress.counters
        completed = bool(counters) and all(one.status is TaskStatus.COMPLETED for one in counters)
        if found is None or self.looker.audit is not None or not completed:
            return Done()
        self.looker.named = await self._walk(record, bricks_of(record, found[0].bricks), found[0])
        return Done(words="; ".join(rules.audit_left(self.looker.named)) or "nothing is left all the same")

    async def _stop(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        if act.seen_done:
            return Done()
        await self._end_task(record)
        return Done(words="files that were moved stay where they are")

    async def _end_task(self, record: model.DrainRecord) -> None:
        progress = await self.call.world.volume.stop(record.bricks)
        self.call.world.ledger.drains.add_samples(record.id, samples_of(progress, self.call.now_s()))

    async def _settle(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        if act.seen_done:
            return Done(words="the layout is right")
        world = self.call.world
        await self.look_everywhere(record)
        wanted = await self._layout_under_way(record) or await world.volume.fix_layout()
        world.ledger.drains.note(record.id, model.DrainNotes(layout_task_id=wanted))
        began_s, limit_s = world.clock.monotonic_s(), lost_after_s(self.call.request.poll_s)
        samples: list[TaskSample] = []
        while True:
            found, now_s = await self.looker.volume(), self.call.now_s()
            task = None if found is None else next((task for task in found[1] if task.id == wanted), None)
            progress = None if task is None else await self.looker.progress(task)
            counters = () if progress is None else progress.counters
            if progress is not None and counters and not progress.moving:
                break
            if found is not None and task is None and found[0].peers_down == ():
                raise ToolFailed("the fix-layout was ended outside of this program")
            if progress is not None:
                kept = [one for one in samples if one.at_s > now_s - 3.0 * limit_s]
                samples = [*kept, *samples_of(progress, now_s)]
                _, lost = self.looker.standstill(samples, progress.task_id, progress, self.call.request)
                if lost:
                    raise ToolFailed(f"the fix-layout does not end: {lost}; {rebalance_remedy(record.volume)}")
            shown = standing(record, world.ledger.drains.samples(record.id))
            elapsed_s = world.clock.monotonic_s() - began_s
            self.show(shown, "repairing the layout after", elapsed_s)
            await world.clock.sleep(self.call.request.poll_s)
        bad = [one for one in counters if one.status is not TaskStatus.COMPLETED or one.failures]
        if bad:
            raise ToolFailed(
                f"the fix-layout did not complete on {', '.join(one.host for one in bad)} ({bad[0].status.value})",
                hint="see Gluster's rebalance log there, then run the same command again",
            )
        return Done(words="the layout is right")

    async def _layout_under_way(self, record: model.DrainRecord) -> str | None:
        """Return the id of a running fix-layout that began before a crash, even if its id was not recorded."""
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
