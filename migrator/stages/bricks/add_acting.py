"""What each step of an addition does. Every one may be done again after a crash."""

from dataclasses import dataclass, field

from migrator.decide.addition import grown, problems_before
from migrator.decide.addition_standing import standing
from migrator.decide.drain_progress import samples_of
from migrator.domain.addition import (
    NO_NOTES,
    AdditionNotes,
    AdditionRecord,
    AdditionSide,
    AdditionState,
    AdditionStep,
)
from migrator.domain.addition_seen import Act
from migrator.domain.errors import MigratorError, Refused, ToolFailed
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookState
from migrator.domain.progress import DrainProgress
from migrator.domain.units import format_duration, format_size
from migrator.domain.volume_tasks import TaskKind, TaskProgress, TaskStatus
from migrator.stages.bricks.add_audit import audit_bricks_after
from migrator.stages.bricks.add_context import AdditionCall, hooked, subject_of
from migrator.stages.bricks.add_directories import (
    forget_directories,
    keeping_right,
    know_directories,
    put_right,
    put_right_everywhere,
)
from migrator.stages.bricks.add_healing import until_healed
from migrator.stages.bricks.add_in_place import OFFLINE_HINT, notes_in_place, put_in, serve_again, take_offline
from migrator.stages.bricks.add_seeing import AdditionLooker, told
from migrator.stages.bricks.add_throttle import AdditionThrottle
from migrator.stages.bricks.lookups import look_everywhere
from migrator.stages.probing import probing

_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)
_PATIENCE_S = 3600.0
"""How long nothing may be seen of a task before it is decided anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a step came to."""

    words: str = ""
    notes: AdditionNotes = NO_NOTES


@dataclass(slots=True, kw_only=True)
class AdditionActor:
    """Carries out steps for one call. `doubts` is what the audit of a rebalance has left open."""

    call: AdditionCall
    looker: AdditionLooker
    throttle: AdditionThrottle = field(init=False)
    doubts: tuple[str, ...] = ()
    _doubted: str = ""

    def __post_init__(self) -> None:
        self.throttle = AdditionThrottle(call=self.call)

    async def notes_before(self, act: Act, record: AdditionRecord) -> AdditionNotes:
        """What has to be known before a step begins."""
        if act.step is AdditionStep.HAND_OVER and record.notes.room_before is None:
            return AdditionNotes(room_before=await self.call.world.target_room())
        if act.step is AdditionStep.BALANCE and record.notes.files is None:
            return AdditionNotes(files=self._files())
        if record.in_place:
            return notes_in_place(act, record, self.looker.places.get(record.bricks[0]))
        return NO_NOTES

    def _files(self) -> int | None:
        scans = [one for one in self.call.world.ledger.scans.all() if one.whole and not one.scope]
        # Each host looks at all that lies on its own bricks.
        return scans[-1].files * self.looker.copies if scans else None

    async def carry_out(self, act: Act, record: AdditionRecord) -> Done:
        """Do it. Raises MigratorError, OSError, TimeoutError."""
        if act.step is AdditionStep.GIVE_UP:
            await self._put_back(record)
        if act.seen_done or act.step is AdditionStep.GIVE_UP:
            return Done(words=act.reason or ("seen to be done" if act.step is AdditionStep.ADD else ""))
        deeds = {
            AdditionStep.RESET: self._reset,
            AdditionStep.TAKE_BACK: self._take_back,
            AdditionStep.PREPARE: self._prepare,
            AdditionStep.ADD: self._add,
            AdditionStep.LAY_OUT: self._lay_out,
            AdditionStep.BALANCE: self._balance,
            AdditionStep.HEAL: self._heal,
            AdditionStep.WATCH: self._watch,
            AdditionStep.HAND_OVER: self._hand_over,
            AdditionStep.FINISH: self._finish,
        }
        return await deeds[act.step](record)

    async def _reset(self, record: AdditionRecord) -> Done:
        return Done(words=await take_offline(self.call, record))

    async def _take_back(self, record: AdditionRecord) -> Done:
        return Done(words=await serve_again(self.call, record))

    async def _prepare(self, record: AdditionRecord) -> Done:
        call = self.call
        if record.side is AdditionSide.TARGET:
            return Done(words=f"{record.shown_bricks} belongs to no volume")
        await call.world.blocking(lambda: call.world.back_up(f"addition-{record.id}"), timeout_s=600.0)
        await self._call_hooks(record)
        seen = await self.looker.see(record)
        if problems := problems_before(record, seen, call.request.wish, prepared=True):
            hint = OFFLINE_HINT if record.in_place else "put it right, then run the same command again"
            raise Refused("; ".join(problems), hint=hint)
        sizes = [place.total_bytes for place in self.looker.places.values()]
        size_bytes = None if None in sizes else sum(one for one in sizes if one)
        shown = "" if size_bytes is None else f", {format_size(size_bytes)} in all"
        filesystem_id = self.looker.places[record.bricks[0]].filesystem_id if record.in_place else None
        notes = AdditionNotes(size_bytes=size_bytes, filesystem_id=filesystem_id)
        return Done(words=f"empty file systems are mounted{shown}", notes=notes)

    async def _call_hooks(self, record: AdditionRecord) -> None:
        hooking = self.call.hooking()
        if hooking is not None:
            await hooking.before(hooked(record), self.call.facts(record))

    async def _add(self, record: AdditionRecord) -> Done:
        # Clients make directories on the new bricks as soon as these are there.
        await know_directories(self.call, record)
        if record.in_place:
            await put_in(self.call, self.looker, record)
        elif record.instead_of is not None:
            await self.call.world.volume.replace(record.instead_of, record.bricks[0])
        else:
            await self.call.world.volume.add(record.bricks)
        return Done()

    async def _lay_out(self, record: AdditionRecord) -> Done:
        def say(words: str) -> None:
            self.call.say(EventKind.OPTION_SET, Severity.WARNING, subject_of(record), words)

        await look_everywhere(self.call.world.volume, say)
        await put_right(self.call, record)
        await self.throttle.follow(record)
        return self._begun(record, await self.call.world.volume.fix_layout())

    async def _balance(self, record: AdditionRecord) -> Done:
        # Moving files may take days: whoever lost a directory to the new layout does not wait for it.
        await put_right_everywhere(self.call, record)
        await self.throttle.follow(record)
        return self._begun(record, await self.call.world.volume.rebalance())

    def _begun(self, record: AdditionRecord, task_id: str) -> Done:
        self.call.world.ledger.additions.note(record.id, AdditionNotes(task_id=task_id))
        return Done(words=f"task {task_id} is begun")

    async def _watch(self, record: AdditionRecord) -> Done:
        """Until the task does not move any more, or what is seen needs another decision."""
        async with probing(self.call.world.probing), keeping_right(self.call, record):
            return await self._until_moved(record)

    async def _until_moved(self, record: AdditionRecord) -> Done:
        call, heard_s, began_s = self.call, self.call.now_s(), self.call.world.clock.monotonic_s()
        while True:
            found = await told(call.world.volume.state_and_tasks())
            tasks = () if found is None else found[1]
            task = next((one for one in tasks if one.kind is TaskKind.REBALANCE), None)
            progress = None if task is None else await told(call.world.volume.progress(task))
            now_s = call.now_s()
            if progress is not None and progress.counters:
                heard_s = now_s
                call.world.ledger.additions.add_samples(record.id, samples_of(progress, now_s))
                self.looker.progress = progress
                self._show(record, progress, call.world.clock.monotonic_s() - began_s)
                moving = any(one.status in _MOVING for one in progress.counters)
                if not moving or progress.task_id != record.notes.task_id:
                    return Done()
            if (found is not None and task is None) or now_s - heard_s > _PATIENCE_S:
                return Done()
            await self._follow_throttle(record)
            await call.world.clock.sleep(call.request.poll_s)
            if (await self.looker.see(record)).stalled:
                return Done()

    def _show(self, record: AdditionRecord, progress: TaskProgress, elapsed_s: float) -> None:
        samples = self.call.world.ledger.additions.samples(record.id)
        told_so_far = standing(record, samples)
        self.call.world.progress.show(
            DrainProgress(
                bricks=record.bricks,
                step=record.state.value,
                elapsed_s=elapsed_s,
                files=progress.files,
                size_bytes=progress.size_bytes,
                # Which files a rebalance will move, it finds out on its way.
                total_files=None,
                total_bytes=None,
                failures=progress.failures,
                skipped=progress.skipped,
                files_per_s=told_so_far.files_per_s,
                bytes_per_s=told_so_far.bytes_per_s,
                left_s=told_so_far.left_s,
            )
        )

    async def _heal(self, record: AdditionRecord) -> Done:
        await until_healed(self.call, record)
        return Done()

    async def _own_bytes(self, record: AdditionRecord) -> int | None:
        """How large the file systems of the bricks are together; None where one has none of its own now."""
        places = await self.call.world.places(record.bricks)
        sizes = [place.total_bytes if place.own else None for place in places.values()]
        return None if None in sizes else sum(one for one in sizes if one)

    async def _hand_over(self, record: AdditionRecord) -> Done:
        call = self.call
        # The hooks make file systems, or take away what was mounted there: then what is seen is what it was mounted on.
        before_bytes = await self._own_bytes(record)
        await self._call_hooks(record)
        known = [size for size in (before_bytes, await self._own_bytes(record), record.notes.size_bytes) if size]
        size_bytes = min(known, default=None)
        record = call.world.ledger.additions.note(record.id, AdditionNotes(size_bytes=size_bytes))
        before, end_s = record.notes.room_before, call.world.clock.monotonic_s() + call.request.seen_within_s
        while True:
            now = await call.world.target_room()
            if grown(before, now, bricks=len(record.bricks), size_bytes=record.notes.size_bytes):
                total = "" if now.total_bytes is None else f": the target has {format_size(now.total_bytes)} now"
                return Done(words=f"the new capacity is seen{total}")
            if call.world.clock.monotonic_s() >= end_s:
                raise ToolFailed(
                    f"the target does not show the new capacity within {format_duration(call.request.seen_within_s)}",
                    cause="the hooks did not add it, its service is not up, or its size is not known",
                    hint="see what the hooks said (`migrator status`) and what the target's own tool lists",
                )
            await call.world.clock.sleep(min(call.request.poll_s, 10.0))

    async def _finish(self, record: AdditionRecord) -> Done:
        taken_back = record.state is AdditionState.TAKING_BACK
        if not taken_back:
            await put_right_everywhere(self.call, record)
        scan, audit = self.call.world.scan, ""
        if scan is not None and record.state is AdditionState.BALANCED:
            audit, self.doubts = await audit_bricks_after(self.call, record, scan)
        hooking, state = self.call.hooking(), HookState.STOPPED if taken_back else HookState.DONE
        if hooking is not None:
            await hooking.catch_up(hooked(record), self.call.facts(record, state=state))
        words = await self.throttle.restore(record)
        forget_directories(self.call, record)
        return Done(words="; ".join(said for said in (audit, words) if said))

    async def _follow_throttle(self, record: AdditionRecord) -> None:
        try:
            await self.throttle.follow(record)
        except MigratorError as error:
            self._doubt(record, f"the throttle could not be changed: {error.message}")

    async def _put_back(self, record: AdditionRecord) -> None:
        """What cannot be put back now is by the next call, whatever it adds."""
        try:
            await self.throttle.restore(record)
        except MigratorError as error:
            self._doubt(record, f"the throttle could not be put back: {error.message}")

    def _doubt(self, record: AdditionRecord, words: str) -> None:
        """Told once."""
        if self._doubted != words:
            self._doubted = words
            self.call.say(EventKind.ADDITION_FAILED, Severity.WARNING, subject_of(record), words)
