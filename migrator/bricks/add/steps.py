"""The steps of an addition, each of which may be repeated after a crash."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from migrator.bricks.add import model, rules, rules_guards, stage
from migrator.bricks.add.directories import (
    forget_directories,
    keeping_right,
    know_directories,
    look_at_listed,
    put_right,
    put_right_everywhere,
)
from migrator.bricks.add.rules import problems_before, standing
from migrator.bricks.call import BrickMachine
from migrator.bricks.model import Ending
from migrator.bricks.progress import samples_of
from migrator.core.errors import Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import told
from migrator.core.units import format_duration, format_size, several
from migrator.fs.probing import probing
from migrator.gluster.model import NewPlace, TaskKind
from migrator.gluster.rules import disk_problems
from migrator.hooks.model import HookState, HookStep
from migrator.ledger.locks import VOLUME
from migrator.operations.engine import Around, Done, StepEvents
from migrator.operations.model import Act, Finished

if TYPE_CHECKING:
    from migrator.bricks.add.records import AdditionRecords

# Steps of a brick that gets a new disk at its own path.


_LIMIT_S = 60.0
"""How long a process may take to end or to come up."""
_POLL_S = 0.5

OFFLINE_HINT = (
    "it stays offline meanwhile, and its files have a copy less: exchange the disk, make a new file system and mount it there, then "
    "run the same command again; as long as nothing was wiped, the same command with --take-back has it serve again what it held"
)


def notes_in_place(
    act: Act[model.AdditionStep, model.AdditionState], record: model.AdditionRecord, place: NewPlace | None
) -> model.AdditionNotes:
    """Which file system lies there when a step begins."""
    if place is None or place.unread or not place.own or not place.filesystem_id:
        return model.NO_ADDITION_NOTES
    # Later resets may find a new one already.
    first_reset = act.step is model.AdditionStep.RESET and model.AdditionState.RESETTING not in record.times
    if first_reset and place.volume_id:
        return model.AdditionNotes(filesystem_before=place.filesystem_id)
    if act.step is model.AdditionStep.ADD and act.seen_done:
        return model.AdditionNotes(filesystem_id=place.filesystem_id)
    return model.NO_ADDITION_NOTES


# Locks and steps of every addition, for the engine.


_CHANGES = frozenset(
    {
        model.AdditionStep.RESET,
        model.AdditionStep.ADD,
        model.AdditionStep.BALANCE,
        model.AdditionStep.TAKE_BACK,
    }
)
_PATIENCE_S = 3600.0
"""How long a task may report no counters before the next decision."""


_Done = Done[model.AdditionState, model.AdditionNotes]


@dataclass(slots=True, kw_only=True)
class AdditionMachine(BrickMachine[model.AdditionRecord, model.AdditionSeen | None, model.AdditionSummary]):
    """Brings bricks into a file system."""

    events = StepEvents(
        done=EventKind.ADDITION_STEP, failed=EventKind.ADDITION_FAILED, aborting=EventKind.ADDITION_FAILED
    )
    waits = frozenset({model.AdditionStep.WATCH, model.AdditionStep.HEAL})
    halting, doubting = EventKind.ADDITION_HALTED, EventKind.ADDITION_FAILED
    unreported = model.FORGETTABLE_STATES
    """Waiting for an admin to replace a disk is not a failure."""
    failed_steps = HookStep.ADD, HookStep.ADD

    call: stage.AdditionCall
    looker: stage.AdditionLooker
    _begun: bool = False

    @property
    def records(self) -> "AdditionRecords":
        return self.call.world.ledger.additions

    async def resume(self, record: model.AdditionRecord) -> model.AdditionRecord:
        if record.state not in model.ADDITION_ENDED_STATES:
            return record
        if record.notes.doubts and self.call.world.scan is not None:
            # Only another audit can clear them.
            _, doubts = await stage.audit_bricks_after(self.call, record, self.call.world.scan)
            record = self.records.note(record.id, model.AdditionNotes(doubts=doubts))
        return await look_at_listed(self.call, record)

    def reverted(self, record: model.AdditionRecord) -> bool:
        return record.state is model.AdditionState.TAKING_BACK

    async def snapshot(self, record: model.AdditionRecord) -> model.AdditionSeen | None:
        return await self.looker.see(record)

    def next_step(self, record: model.AdditionRecord, seen: model.AdditionSeen | None) -> model.Step:
        return rules.next_step(record, seen, self.call.request.wish, begins=not self._begun)

    async def around(self, act: model.AdditionAct, record: model.AdditionRecord) -> Around | None:
        if act.step is not model.AdditionStep.HAND_OVER:
            return None
        step = stage.attached(record)
        return Around(
            step=step,
            before=partial(self.call.facts, record),
            after=partial(self.call.facts, record, state=HookState.DONE),
            check=partial(self.hooks.until_worked, step, partial(self._check_disks, record, prepared=True)),
        )

    async def _check_disks(self, record: model.AdditionRecord, *, prepared: bool) -> None:
        """Check the disks again before a hook makes file systems on them, or (`prepared`) gives them away. Raises Refused."""
        problems = disk_problems(
            rules_guards.disks_to_check(await self.call.world.disks(record.bricks), prepared=prepared)
        )
        if problems:
            raise Refused(
                f"{record.shown_bricks} may not be given to the target: {'; '.join(problems)}",
                hint="solve it, then run the same command again",
            )

    async def prepare(
        self, record: model.AdditionRecord, act: model.AdditionAct, _: model.AdditionSeen | None
    ) -> model.AdditionNotes:
        self._begun = True
        begins = act.step is model.AdditionStep.BALANCE and not act.seen_done
        await self.unshield(record, begins=begins)
        if begins:
            # Moving files may take days: users who lost a directory to the new layout do not wait for it.
            await put_right_everywhere(self.call, record)
        if act.step in _CHANGES and not act.seen_done:
            self.step_locks.enter_context(self.call.world.locks.hold(record.subject, VOLUME))
        if act.step is model.AdditionStep.HAND_OVER and record.notes.room_before is None:
            return model.AdditionNotes(room_before=await self.call.world.target_room())
        if act.step is model.AdditionStep.BALANCE and record.notes.files is None:
            return model.AdditionNotes(files=self._files())
        if record.in_place:
            return notes_in_place(act, record, self.looker.places.get(record.bricks[0]))
        return model.NO_ADDITION_NOTES

    def _files(self) -> int | None:
        scans = [one for one in self.call.world.ledger.scans.all() if one.whole and not one.scope]
        # Each host looks at all that lies on its own bricks.
        return scans[-1].files * self.looker.copies if scans else None

    async def finished(self, record: model.AdditionRecord, step: Finished) -> model.AdditionSummary:
        words = step.words
        self.emit(EventKind.ADDITION_FINISHED, Severity.INFO, record, words)
        summary = self.summary(record, Ending.DONE, words)
        if summary.failures:
            left = f"{several(summary.failures, 'file')} could not be moved, and stay where they are"
            summary = replace(summary, words=f"{words}; {left}")
        if not record.notes.doubts:
            return summary
        hint = (
            "look at these paths on the bricks and through the mount, and put them right; then the same command reads the "
            "bricks again"
        )
        return replace(summary, ending=Ending.DOUBTED, hint=hint, reasons=record.notes.doubts)

    def summary(
        self, record: model.AdditionRecord, ending: Ending, words: str, hint: str = ""
    ) -> model.AdditionSummary:
        samples = self.call.world.ledger.additions.samples(record.id)
        moving = [one for one in samples if one.files or one.skipped or one.failures]
        last = {one.host: one for one in samples if moving and one.task_id == moving[-1].task_id}
        return model.AdditionSummary(
            side=record.side,
            volume=record.volume,
            bricks=record.bricks,
            instead_of=record.instead_of,
            dry_run=self.call.run_id is None,
            ending=ending,
            state=record.state,
            words=words,
            hint=hint,
            places=tuple(self.looker.places.values()),
            size_bytes=record.notes.size_bytes,
            moved_files=sum(one.files for one in last.values()),
            moved_bytes=sum(one.size_bytes for one in last.values()),
            failures=sum(one.failures for one in last.values()),
            skipped=sum(one.skipped for one in last.values()),
            directories=record.notes.directories or (),
        )

    # Steps.

    async def perform(self, act: model.AdditionAct, record: model.AdditionRecord) -> _Done:
        if act.step is model.AdditionStep.GIVE_UP:
            await self.throttled(record, self.throttle.restore)
        if act.seen_done or act.step is model.AdditionStep.GIVE_UP:
            return Done(words=act.reason or ("seen to be done" if act.step is model.AdditionStep.ADD else ""))
        deeds = {
            model.AdditionStep.RESET: self._reset,
            model.AdditionStep.TAKE_BACK: self._take_back,
            model.AdditionStep.PREPARE: self._prepare,
            model.AdditionStep.ADD: self._add,
            model.AdditionStep.LAY_OUT: self._lay_out,
            model.AdditionStep.BALANCE: self._balance,
            model.AdditionStep.HEAL: self._heal,
            model.AdditionStep.WATCH: self._watch,
            model.AdditionStep.HAND_OVER: self._hand_over,
            model.AdditionStep.FINISH: self._finish,
        }
        return await deeds[act.step](record)

    async def _reset(self, record: model.AdditionRecord) -> _Done:
        """End the brick's process, and wait until Gluster lists it as offline."""
        (name,), world = record.bricks, self.call.world
        await world.blocking(lambda: world.back_up(f"addition-{record.id}"), timeout_s=600.0)
        await world.volume.take_offline(name)
        await self._until(name, online=False)
        return Done(words=f"{name} is offline: until its new file system is filled, its files have a copy less")

    async def _take_back(self, record: model.AdditionRecord) -> _Done:
        """Start the brick with its old content, and wait until it is up."""
        (name,) = record.bricks
        await self.call.world.volume.start_bricks()
        await self._until(name, online=True)
        return Done(words=f"{name} is up again with what it held")

    async def _until(self, name: str, *, online: bool) -> None:
        end_s = self.call.world.clock.monotonic_s() + _LIMIT_S
        while True:
            found = await told(self.call.world.volume.state_and_tasks())
            bricks = () if found is None else found[0].bricks
            if any(brick.name == name and brick.online is online for brick in bricks):
                return
            if self.call.world.clock.monotonic_s() >= end_s:
                raise ToolFailed(
                    f"{name} is not {'up' if online else 'down'} after {_LIMIT_S:.0f} s",
                    hint="see the log of the brick on its host (/var/log/glusterfs/bricks)",
                )
            await self.call.world.clock.sleep(_POLL_S)

    async def _look_once_more(self, record: model.AdditionRecord) -> None:
        """Repeat the preflight checks. Raises Refused if one fails."""
        seen = await self.looker.see(record)
        problems: tuple[str, ...] = ("the state of the volume is not known",)
        if seen is not None:
            problems = problems_before(record, seen, self.call.request.wish, prepared=True)
        if problems:
            hint = OFFLINE_HINT if record.in_place else "solve it, then run the same command again"
            raise Refused("; ".join(problems), hint=hint)

    async def _prepare(self, record: model.AdditionRecord) -> _Done:
        call = self.call
        await call.world.blocking(lambda: call.world.back_up(f"addition-{record.id}"), timeout_s=600.0)
        to_target = record.side is model.AdditionSide.TARGET
        check = partial(self._check_disks, record, prepared=False) if to_target else None
        await self.hooks.before(stage.hooked(record), self.call.facts(record), check=check)
        await self._look_once_more(record)
        sizes = [place.total_bytes for place in self.looker.places.values()]
        size_bytes = None if None in sizes else sum(one for one in sizes if one)
        shown = "" if size_bytes is None else f", {format_size(size_bytes)} in all"
        filesystem_id = self.looker.places[record.bricks[0]].filesystem_id if record.in_place else None
        notes = model.AdditionNotes(size_bytes=size_bytes, filesystem_id=filesystem_id)
        return Done(words=f"empty file systems are mounted{shown}", notes=notes)

    async def _add(self, record: model.AdditionRecord) -> _Done:
        # Clients create directories on the new bricks as soon as these are in the volume.
        await know_directories(self.call, record)
        if record.in_place:
            await self._look_once_more(record)
            (name,) = record.bricks
            marked = rules_guards.begun_to_put_in(record, self.looker.places[name])
            await self.call.world.volume.put_in(name, marked=marked)
        elif record.instead_of is not None:
            await self.call.world.volume.replace(record.instead_of, record.bricks[0])
        else:
            await self.call.world.volume.add(record.bricks)
        return Done()

    async def _lay_out(self, record: model.AdditionRecord) -> _Done:
        await self.look_everywhere(record)
        await put_right(self.call, record)
        await self.throttle.follow(record)
        return self._task_begun(record, await self.call.world.volume.fix_layout())

    async def _balance(self, record: model.AdditionRecord) -> _Done:
        await self.throttle.follow(record)
        shielded = await self.shield()
        return self._task_begun(record, await self.call.world.volume.rebalance(), shielded)

    def _task_begun(self, record: model.AdditionRecord, task_id: str, shielded: str = "") -> _Done:
        self.call.world.ledger.additions.note(record.id, model.AdditionNotes(task_id=task_id))
        return Done(words=f"task {task_id} is begun{shielded}")

    async def _watch(self, record: model.AdditionRecord) -> _Done:
        """Wait until the task ends, stalls or is replaced by another."""
        call, heard_s, began_s = self.call, self.call.now_s(), self.call.world.clock.monotonic_s()
        async with probing(call.world.probing), keeping_right(call, record):
            while True:
                seen, now_s = await self.looker.see(record), call.now_s()
                if seen is not None and seen.progress is not None and seen.progress.counters:
                    heard_s, progress = now_s, seen.progress
                    self.records.add_samples(record.id, samples_of(progress, now_s))
                    found = standing(record, self.records.samples(record.id))
                    # A rebalance determines only while it runs which files it moves.
                    self.show(found, record.state.value, self.call.world.clock.monotonic_s() - began_s, totals=False)
                    if not progress.moving or seen.stalled or progress.task_id != record.notes.task_id:
                        return Done()
                gone = seen is not None and not any(task.kind is TaskKind.REBALANCE for task in seen.tasks)
                if gone or now_s - heard_s > _PATIENCE_S:
                    return Done()
                await self.throttled(record, self.throttle.follow)
                await self.call.world.clock.sleep(call.request.poll_s)

    async def _heal(self, record: model.AdditionRecord) -> _Done:
        await stage.until_healed(self.call, record)
        return Done(words="nothing waits to be healed")

    async def _hand_over(self, record: model.AdditionRecord) -> _Done:
        """Wait for the capacity that the hooks have given to the target."""
        call = self.call
        before, end_s = record.notes.room_before, call.world.clock.monotonic_s() + call.request.seen_within_s
        waiting = False
        while True:
            now = await call.world.target_room()
            if rules.grown(before, now, bricks=len(record.bricks), size_bytes=record.notes.size_bytes):
                total = "" if now.total_bytes is None else f": the target has {format_size(now.total_bytes)} now"
                return Done(words=f"the new capacity is seen{total}")
            left_s = end_s - call.world.clock.monotonic_s()
            if left_s <= 0:
                raise ToolFailed(
                    f"the target does not show the new capacity within {format_duration(call.request.seen_within_s)}",
                    cause="the hooks did not add it, its service is not up, or its size is not known",
                    hint="see what the hooks said (`migrator status`) and what the target's own tool lists",
                )
            if not waiting:
                words = f"waiting until the target shows the new capacity, for at most {format_duration(left_s)}"
                self.emit(EventKind.ADDITION_STEP, Severity.INFO, record, words)
            waiting = True
            await call.world.clock.sleep(min(call.request.poll_s, 10.0))

    async def _finish(self, record: model.AdditionRecord) -> _Done:
        taken_back = record.state is model.AdditionState.TAKING_BACK
        if not taken_back:
            await put_right_everywhere(self.call, record)
        scan, audit, doubts = self.call.world.scan, "", tuple[str, ...]()
        if scan is not None and record.state is model.AdditionState.BALANCED:
            audit, doubts = await stage.audit_bricks_after(self.call, record, scan)
        facts = self.call.facts(record, state=HookState.STOPPED if taken_back else HookState.DONE)
        await self.hooks.catch_up(stage.hooked(record), facts)
        words = await self.throttle.restore(record)
        forget_directories(self.call, record)
        notes = model.AdditionNotes(doubts=doubts)
        return Done(words="; ".join(said for said in (audit, words) if said), notes=notes)
