"""`brick add`: bricks are added to the source volume, one brick replaces another, or bricks are given to the target.

Read from top to bottom: the entries, the procedure that the engine drives, the steps in their order.
"""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from migrator.bricks.add import model, rules, rules_guards
from migrator.bricks.add.audit import audit_rebalance
from migrator.bricks.add.call import HOOK_STEPS, LOG, AdditionCall, AdditionPorts, attached, hooked
from migrator.bricks.add.directories import (
    forget_directories,
    record_directories,
    restore_all_directories,
    restore_directories,
    restoring_directories,
    still_shut_directories,
)
from migrator.bricks.add.heal import until_healed
from migrator.bricks.add.model import AdditionSnapshot
from migrator.bricks.add.rules import problems_before, standing
from migrator.bricks.add.rules_guards import against
from migrator.bricks.add.snapshot import AdditionSnapshots
from migrator.bricks.failures import FailureHooks
from migrator.bricks.model import CallEnd, CallEnding, halted, planned, stuck
from migrator.bricks.moves import BRICKS_LOCK, FileMoves
from migrator.bricks.progress import samples_of
from migrator.bricks.throttle import Throttle, restore_left
from migrator.core.errors import Refused, ToolFailed, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import result_or_none
from migrator.core.units import format_duration, format_size, several
from migrator.fs.probing import probing
from migrator.gluster.model import NewPlace, TaskKind, VolumeState
from migrator.gluster.rules import disk_problems
from migrator.hooks.calls import find_hooks
from migrator.hooks.model import HookEvent, HookStage, HookState, HookStep
from migrator.hooks.rules import in_order
from migrator.ledger.locks import VOLUME
from migrator.operations.call import Call
from migrator.operations.engine import (
    Around,
    Done,
    OperationEnd,
    OperationEngine,
    Procedure,
    StepEvents,
    Stuck,
)
from migrator.operations.model import Act, Finished, Halt

if TYPE_CHECKING:
    from migrator.bricks.add.records import AdditionRecords
    from migrator.bricks.records import BrickLedger

# The entries.


VERB = "brick-add"


async def add_bricks(request: model.AdditionRequest, ports: AdditionPorts) -> model.AdditionSummary:
    """Add bricks to the source volume, replace one brick by another, or give bricks to the target. After a crash, the same call
    resumes. A dry run makes the same checks and decisions, and changes nothing.

    Raises UsageError, Refused (by a hook, or by a check after the hooks), LockHeld, Interrupted, ToolFailed. The summary
    has the failed checks of an addition that is halted.
    """
    for name in request.bricks:
        host, separator, path = name.partition(":/")
        if not host or not separator or not path or posixpath.normpath(f"/{path}") != f"/{path}":
            raise UsageError(
                f"{name} is no brick", hint="name it as HOST:/PATH, with the host as in `gluster volume info`"
            )
    site = ports.ledger.site.required()
    state, _ = await ports.volume.state_and_tasks()
    known = ports.ledger.additions.latest(state.volume_id, request.bricks, request.side)
    if known is not None and _begins_anew(known, state, request):
        known = None
    if known is not None and known.state not in model.UNTOUCHED_STATES and known.instead_of != request.instead_of:
        instead = "no brick" if known.instead_of is None else known.instead_of
        raise UsageError(
            f"{known.shown_bricks} is being added to replace {instead}",
            hint="run the same command as the first time: it resumes",
        )
    call: AdditionCall = Call(ports=ports, request=request, site=site, log=LOG)
    if request.dry_run or known is None or known.state in model.UNTOUCHED_STATES:
        previewed = await _preview(call, state, known)
        if request.dry_run or previewed.ending is CallEnding.HALTED:
            return replace(previewed, dry_run=request.dry_run)

    async def work(call: AdditionCall) -> model.AdditionSummary:
        await restore_left(call, ports.volume, ports.ledger, EventKind.ADDITION_STEP)
        known = ports.ledger.additions.latest(state.volume_id, request.bricks, request.side)
        anew = known is not None and _begins_anew(known, state, request)
        return await AdditionProcedure(call=call).run(ports.ledger.additions.plan(_planned(call, state), anew=anew))

    with ports.locks.hold(f"brick add {' '.join(request.bricks)}", BRICKS_LOCK):
        return await call.recorded(VERB, work, hook_steps=HOOK_STEPS)


def _begins_anew(known: model.AdditionRecord, state: VolumeState, request: model.AdditionRequest) -> bool:
    """True if a new attempt begins: bricks were drained since they were added, or the disk of a brick is to be exchanged again."""
    if known.state is model.AdditionState.FORGOTTEN:
        return True
    if known.state not in model.ADDITION_ENDED_STATES or known.side is model.AdditionSide.TARGET:
        return False
    if not {brick.name for brick in state.bricks}.intersection(known.bricks):
        return True
    in_place = request.instead_of in request.bricks
    if known.state is model.AdditionState.TAKEN_BACK:
        return not request.wish.take_back
    return in_place and (request.once_more or known.instead_of != request.instead_of)


def forget_addition(
    bricks: Sequence[str], side: model.AdditionSide, ledger: "BrickLedger", *, accept_hooks: bool, at_s: float
) -> model.AdditionRecord:
    """End a mistaken addition that has changed neither the volume nor the target. `accept_hooks`: also if pre-add hooks were
    called, which may have changed the host. May be called again. Raises UsageError and Refused.
    """
    shown = " ".join(bricks)
    known = [one for one in ledger.additions.all() if one.side is side and set(one.bricks) == set(bricks)]
    if not known:
        raise UsageError(
            f"no addition of {shown} to the {side.value} is known", hint="`migrator brick status` lists all additions"
        )
    record = known[-1]
    if record.state is model.AdditionState.FORGOTTEN:
        return record
    if record.state not in model.FORGETTABLE_STATES or model.AdditionState.RESETTING in record.times:
        raise Refused(
            f"the addition of {shown} is {record.state.value}, and cannot be forgotten",
            cause="it has changed the volume, the target or the brick",
            hint="`migrator brick add` with the same words resumes it",
        )
    step = ledger.hooks.latest(HookStep.ADD, hooked(record).key)
    if step is not None and ledger.hooks.of_step(step.id) and not accept_hooks:
        raise Refused(
            f"pre-add hooks were called for {shown}, and may have changed the host",
            cause="they make file systems, or give disks to the target",
            hint="look what they did there, undo it, then repeat the command with --accept-hooks",
        )
    if step is not None:
        ledger.hooks.close_step(step.id, state=model.AdditionState.FORGOTTEN.value, at_s=at_s)
    act = Act(
        step=model.AdditionStep.FORGET, intent=model.AdditionState.FORGOTTEN, result=model.AdditionState.FORGOTTEN
    )
    return ledger.additions.finish(
        ledger.additions.intend(record.id, act, at_s=at_s), model.AdditionState.FORGOTTEN, at_s=at_s
    )


def _planned(call: AdditionCall, state: VolumeState) -> model.AdditionRecord:
    return model.AdditionRecord(
        id=0,
        side=call.request.side,
        volume=state.volume,
        volume_id=state.volume_id,
        bricks=call.request.bricks,
        instead_of=call.request.instead_of,
        state=model.AdditionState.PLANNED,
        times={model.AdditionState.PLANNED: call.now_s()},
    )


async def _preview(call: AdditionCall, state: VolumeState, known: model.AdditionRecord | None) -> model.AdditionSummary:
    """The first step that the call would make. Changes neither Gluster nor the ledger."""
    record = known or _planned(call, state)
    addition = AdditionProcedure(call=call)
    snapshot = await addition.snapshots.take(record)
    step = addition.next_step(record, snapshot)
    if isinstance(step, Halt):
        return addition.summary(record, halted(step))
    if isinstance(step, Finished):
        return addition.summary(record, CallEnd(ending=CallEnding.DONE, words=step.words))
    end = planned(step)
    if step.seen_done and step.step is model.AdditionStep.ADD:
        words = f"{record.shown_bricks} is in the volume already: it would resume with the fix-layout, and what follows that"
        return addition.summary(record, replace(end, words=words))
    if step.step is not model.AdditionStep.PREPARE:
        return addition.summary(record, end)
    problems = () if snapshot is None else problems_before(record, snapshot, call.request.wish, prepared=True)
    if problems and not await _prepares(call):
        return addition.summary(record, halted(against(record, problems)))
    more = ", and the pre-add hooks have to fix these problems" if problems else ""
    return addition.summary(record, replace(end, words=end.words + more, reasons=problems))


async def _prepares(call: AdditionCall) -> bool:
    """True if there are hooks that may make file systems and mount them."""
    found = await find_hooks(call.ports.hooks, call.ports.blocking)
    return bool(in_order(found.hooks, HookStage(step=HookStep.ADD, event=HookEvent.PRE)))


# The procedure.


_PROCESS_LIMIT_S = 60.0
"""How long a process may take to end or to come up."""
_PROCESS_POLL_S = 0.5

OFFLINE_HINT = (
    "it stays offline, and its files have one copy less: exchange the disk, make a new file system and mount it there, then run "
    "the same command again; as long as nothing was wiped, the same command with --take-back restores its old content"
)

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


@dataclass(slots=True, kw_only=True)
class AdditionProcedure(Procedure[model.AdditionRecord, AdditionSnapshot | None]):
    """Brings bricks into a file system."""

    events = StepEvents(
        done=EventKind.ADDITION_STEP, failed=EventKind.ADDITION_FAILED, aborting=EventKind.ADDITION_FAILED
    )
    waits = frozenset({model.AdditionStep.WATCH, model.AdditionStep.HEAL})

    call: AdditionCall
    snapshots: AdditionSnapshots = field(init=False)
    moves: FileMoves = field(init=False)
    failures: FailureHooks[model.AdditionRecord] = field(init=False)
    _begun: bool = False

    def __post_init__(self) -> None:
        call, ports, records = self.call, self.call.ports, self.records
        throttle = Throttle(call=call, rules=ports.throttle, volume=ports.volume, ledger=ports.ledger, records=records)
        self.snapshots = AdditionSnapshots(call=call)
        self.failures = FailureHooks(call=call, records=records, reverts=call.request.wish.take_back)
        self.moves = FileMoves(
            call=call,
            volume=ports.volume,
            ledger=ports.ledger,
            records=records,
            throttle=throttle,
            shields=ports.shields,
            warning=EventKind.ADDITION_FAILED,
        )

    async def run(self, record: model.AdditionRecord) -> model.AdditionSummary:
        """Drive the addition from its current state. Raises Interrupted, LockHeld, HookSkipped, Refused."""

        async def work() -> model.AdditionSummary:
            resumed = await self._resume(record)
            summary = await self._ended(
                await OperationEngine(self, self.call, poll_s=self.call.request.poll_s).drive(resumed)
            )
            await self.moves.unshield(record)
            return summary

        return await self.failures.around(record, work)

    async def _resume(self, record: model.AdditionRecord) -> model.AdditionRecord:
        if record.state not in model.ADDITION_ENDED_STATES:
            return record
        if record.notes.doubts and self.call.ports.scan is not None:
            # Only another audit can clear them.
            _, doubts = await audit_rebalance(self.call, record, self.call.ports.scan)
            record = self.records.note(record.id, model.AdditionNotes(doubts=doubts))
        return await still_shut_directories(self.call, record)

    # For the engine.

    @property
    def records(self) -> "AdditionRecords":
        return self.call.ports.ledger.additions

    async def snapshot(self, record: model.AdditionRecord) -> AdditionSnapshot | None:
        return await self.snapshots.take(record)

    def next_step(self, record: model.AdditionRecord, snapshot: AdditionSnapshot | None) -> model.Step:
        return rules.next_step(record, snapshot, self.call.request.wish, begins=not self._begun)

    async def prepare(
        self, record: model.AdditionRecord, act: model.AdditionAct, _: AdditionSnapshot | None
    ) -> model.AdditionNotes:
        self._begun = True
        begins = act.step is model.AdditionStep.BALANCE and not act.seen_done
        await self.moves.unshield(record, begins=begins)
        if begins:
            # Moving files may take days: users who lost a directory to the new layout do not wait for it.
            await restore_all_directories(self.call, record)
        if act.step in _CHANGES and not act.seen_done:
            self.step_locks.enter_context(self.call.ports.locks.hold(record.subject(), VOLUME))
        if act.step is model.AdditionStep.HAND_OVER and record.notes.room_before is None:
            return model.AdditionNotes(room_before=await self.call.ports.target_room())
        if act.step is model.AdditionStep.BALANCE and record.notes.files is None:
            return model.AdditionNotes(files=self._files())
        if record.in_place:
            return notes_in_place(act, record, self.snapshots.places.get(record.bricks[0]))
        return model.NO_ADDITION_NOTES

    def _files(self) -> int | None:
        scans = [one for one in self.call.ports.ledger.scans.all() if one.whole and not one.scope]
        # Each host looks at all that lies on its own bricks.
        return scans[-1].files * self.snapshots.copies if scans else None

    async def around(self, act: model.AdditionAct, record: model.AdditionRecord) -> Around | None:
        if act.step is not model.AdditionStep.HAND_OVER:
            return None
        step, facts = attached(record), partial(self.call.hook_facts, record.hook_facts())
        return Around(
            step=step,
            before=facts,
            after=partial(facts, state=HookState.DONE),
            check=partial(self.call.hooks.until_worked, step, partial(self._check_disks, record, prepared=True)),
        )

    async def _check_disks(self, record: model.AdditionRecord, *, prepared: bool) -> None:
        """Check the disks again before a hook makes file systems on them, or (`prepared`) gives them away. Raises Refused."""
        problems = disk_problems(
            rules_guards.disks_to_check(await self.call.ports.disks(record.bricks), prepared=prepared)
        )
        if problems:
            raise Refused(
                f"{record.shown_bricks} may not be given to the target: {'; '.join(problems)}",
                hint="fix the problems, then run the same command again",
            )

    # Steps.

    async def perform(self, act: model.AdditionAct, record: model.AdditionRecord) -> _Done:
        if act.step is model.AdditionStep.GIVE_UP:
            await self.moves.restore_throttle(record)
        if act.seen_done or act.step is model.AdditionStep.GIVE_UP:
            return Done(message=act.reason or ("found done" if act.step is model.AdditionStep.ADD else ""))
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
        (name,), ports = record.bricks, self.call.ports
        await ports.blocking(lambda: ports.back_up(f"addition-{record.id}"), timeout_s=600.0)
        await ports.volume.take_offline(name)
        await self._until(name, online=False)
        return Done(message=f"{name} is offline: its files have one copy less until its new file system is filled")

    async def _take_back(self, record: model.AdditionRecord) -> _Done:
        """Start the brick with its old content, and wait until it is up."""
        (name,) = record.bricks
        await self.call.ports.volume.start_bricks()
        await self._until(name, online=True)
        return Done(message=f"{name} is up again with its old content")

    async def _until(self, name: str, *, online: bool) -> None:
        end_s = self.call.ports.clock.monotonic_s() + _PROCESS_LIMIT_S
        while True:
            found = await result_or_none(self.call.ports.volume.state_and_tasks())
            bricks = () if found is None else found[0].bricks
            if any(brick.name == name and brick.online is online for brick in bricks):
                return
            if self.call.ports.clock.monotonic_s() >= end_s:
                raise ToolFailed(
                    f"{name} is not {'up' if online else 'down'} after {_PROCESS_LIMIT_S:.0f} s",
                    hint="see the log of the brick on its host (/var/log/glusterfs/bricks)",
                )
            await self.call.ports.clock.sleep(_PROCESS_POLL_S)

    async def _check_again(self, record: model.AdditionRecord) -> None:
        """Repeat the preflight checks. Raises Refused if one fails."""
        snapshot = await self.snapshots.take(record)
        problems: tuple[str, ...] = ("the state of the volume is unknown",)
        if snapshot is not None:
            problems = problems_before(record, snapshot, self.call.request.wish, prepared=True)
        if problems:
            hint = OFFLINE_HINT if record.in_place else "fix the problems, then run the same command again"
            raise Refused("; ".join(problems), hint=hint)

    async def _prepare(self, record: model.AdditionRecord) -> _Done:
        call = self.call
        await call.ports.blocking(lambda: call.ports.back_up(f"addition-{record.id}"), timeout_s=600.0)
        to_target = record.side is model.AdditionSide.TARGET
        check = partial(self._check_disks, record, prepared=False) if to_target else None
        await self.call.hooks.before(hooked(record), self.call.hook_facts(record.hook_facts()), check=check)
        await self._check_again(record)
        sizes = [place.total_bytes for place in self.snapshots.places.values()]
        size_bytes = None if None in sizes else sum(one for one in sizes if one)
        shown = "" if size_bytes is None else f", {format_size(size_bytes)} in all"
        filesystem_id = self.snapshots.places[record.bricks[0]].filesystem_id if record.in_place else None
        notes = model.AdditionNotes(size_bytes=size_bytes, filesystem_id=filesystem_id)
        return Done(message=f"empty file systems are mounted{shown}", notes=notes)

    async def _add(self, record: model.AdditionRecord) -> _Done:
        # Clients create directories on the new bricks as soon as these are in the volume.
        await record_directories(self.call, record)
        if record.in_place:
            await self._check_again(record)
            (name,) = record.bricks
            marked = rules_guards.begun_to_put_in(record, self.snapshots.places[name])
            await self.call.ports.volume.put_in(name, marked=marked)
        elif record.instead_of is not None:
            await self.call.ports.volume.replace(record.instead_of, record.bricks[0])
        else:
            await self.call.ports.volume.add(record.bricks)
        return Done()

    async def _lay_out(self, record: model.AdditionRecord) -> _Done:
        await self.moves.look_up_everywhere(record)
        await restore_directories(self.call, record)
        await self.moves.throttle.follow(record)
        return self._task_begun(record, await self.call.ports.volume.fix_layout())

    async def _balance(self, record: model.AdditionRecord) -> _Done:
        await self.moves.throttle.follow(record)
        shielded = await self.moves.shield()
        return self._task_begun(record, await self.call.ports.volume.rebalance(), shielded)

    def _task_begun(self, record: model.AdditionRecord, task_id: str, shielded: str = "") -> _Done:
        self.records.note(record.id, model.AdditionNotes(task_id=task_id))
        return Done(message=f"task {task_id} is begun{shielded}")

    async def _watch(self, record: model.AdditionRecord) -> _Done:
        """Wait until the task ends, stalls or is replaced by another."""
        call, heard_s, began_s = self.call, self.call.now_s(), self.call.ports.clock.monotonic_s()
        async with probing(call.ports.probing), restoring_directories(call, record):
            while True:
                snapshot, now_s = await self.snapshots.take(record), call.now_s()
                if snapshot is not None and snapshot.progress is not None and snapshot.progress.counters:
                    heard_s, progress = now_s, snapshot.progress
                    self.records.add_samples(record.id, samples_of(progress, now_s))
                    found = standing(record, self.records.samples(record.id))
                    # A rebalance determines only while it runs which files it moves.
                    self.moves.show(
                        found, record.state.value, self.call.ports.clock.monotonic_s() - began_s, totals=False
                    )
                    if not progress.moving or snapshot.stalled or progress.task_id != record.notes.task_id:
                        return Done()
                gone = snapshot is not None and not any(task.kind is TaskKind.REBALANCE for task in snapshot.tasks)
                if gone or now_s - heard_s > _PATIENCE_S:
                    return Done()
                await self.moves.follow_throttle(record)
                await self.call.ports.clock.sleep(call.request.poll_s)

    async def _heal(self, record: model.AdditionRecord) -> _Done:
        await until_healed(self.call, record)
        return Done(message="no heals are pending")

    async def _hand_over(self, record: model.AdditionRecord) -> _Done:
        """Wait for the capacity that the hooks have given to the target."""
        call = self.call
        before, end_s = record.notes.room_before, call.ports.clock.monotonic_s() + call.request.seen_within_s
        waiting = False
        while True:
            now = await call.ports.target_room()
            if rules.grown(before, now, bricks=len(record.bricks), size_bytes=record.notes.size_bytes):
                total = "" if now.total_bytes is None else f": the target has {format_size(now.total_bytes)} now"
                return Done(message=f"the target shows the new capacity{total}")
            left_s = end_s - call.ports.clock.monotonic_s()
            if left_s <= 0:
                raise ToolFailed(
                    f"the target does not show the new capacity within {format_duration(call.request.seen_within_s)}",
                    cause="the hooks did not add it, its service is not up, or its size is unknown",
                    hint="see the output of the hooks (`migrator status`) and the list of the target's own tool",
                )
            if not waiting:
                words = f"waiting for the new capacity of the target, for at most {format_duration(left_s)}"
                self.call.emit(EventKind.ADDITION_STEP, Severity.INFO, record.subject(), words)
            waiting = True
            await call.ports.clock.sleep(min(call.request.poll_s, 10.0))

    async def _finish(self, record: model.AdditionRecord) -> _Done:
        taken_back = record.state is model.AdditionState.TAKING_BACK
        if not taken_back:
            await restore_all_directories(self.call, record)
        scan, audit, doubts = self.call.ports.scan, "", tuple[str, ...]()
        if scan is not None and record.state is model.AdditionState.BALANCED:
            audit, doubts = await audit_rebalance(self.call, record, scan)
        facts = self.call.hook_facts(record.hook_facts(), state=HookState.STOPPED if taken_back else HookState.DONE)
        await self.call.hooks.catch_up(hooked(record), facts)
        words = await self.moves.throttle.restore(record)
        forget_directories(self.call, record)
        notes = model.AdditionNotes(doubts=doubts)
        return Done(message="; ".join(said for said in (audit, words) if said), notes=notes)

    # The end of the call.

    async def _ended(self, ended: OperationEnd[model.AdditionRecord, AdditionSnapshot | None]) -> model.AdditionSummary:
        record = ended.record
        match ended.reason:
            case Finished() as step:
                return self._finished(record, step)
            case Halt() as halt:
                self.call.emit(
                    EventKind.ADDITION_HALTED, Severity.ERROR, record.subject(), "; ".join((halt.words, *halt.reasons))
                )
                return self.summary(record, halted(halt))
            case Stuck():
                end = stuck(record, "fix the cause")
                self.call.emit(EventKind.ADDITION_HALTED, Severity.ERROR, record.subject(), end.words)
                return self.summary(record, end)
            case _:
                assert_never(ended.reason)

    def _finished(self, record: model.AdditionRecord, step: Finished) -> model.AdditionSummary:
        self.call.emit(EventKind.ADDITION_FINISHED, Severity.INFO, record.subject(), step.words)
        summary = self.summary(record, CallEnd(ending=CallEnding.DONE, words=step.words))
        if summary.failures:
            left = f"{several(summary.failures, 'file')} could not be moved, and stay where they are"
            summary = replace(summary, words=f"{step.words}; {left}")
        if not record.notes.doubts:
            return summary
        hint = (
            "check these paths on the bricks and through the mount, and fix them; then the same command reads the "
            "bricks again"
        )
        return replace(summary, ending=CallEnding.DOUBTED, hint=hint, reasons=record.notes.doubts)

    def summary(self, record: model.AdditionRecord, end: CallEnd) -> model.AdditionSummary:
        samples = self.records.samples(record.id)
        moving = [one for one in samples if one.files or one.skipped or one.failures]
        last = {one.host: one for one in samples if moving and one.task_id == moving[-1].task_id}
        return model.AdditionSummary(
            side=record.side,
            volume=record.volume,
            bricks=record.bricks,
            instead_of=record.instead_of,
            dry_run=self.call.run_id is None,
            ending=end.ending,
            state=record.state,
            words=end.words,
            hint=end.hint,
            reasons=end.reasons,
            places=tuple(self.snapshots.places.values()),
            size_bytes=record.notes.size_bytes,
            moved_files=sum(one.files for one in last.values()),
            moved_bytes=sum(one.size_bytes for one in last.values()),
            failures=sum(one.failures for one in last.values()),
            skipped=sum(one.skipped for one in last.values()),
            directories=record.notes.directories or (),
        )
