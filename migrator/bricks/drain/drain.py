"""`brick drain` and `brick stop`: the bricks of one subvolume are emptied, audited, taken out of the volume, wiped and handed
over, or the drain is stopped.

Read from top to bottom: the entries, the procedure that the engine drives, the steps in their order.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct
from msgspec.structs import replace

from migrator.bricks.drain import model, rules
from migrator.bricks.drain.audit import audit_bricks
from migrator.bricks.drain.call import HOOK_STEPS, LOG, DrainCall, DrainPorts, bricks_of, hooked
from migrator.bricks.drain.leftovers import write_commands
from migrator.bricks.drain.model import DrainSnapshot
from migrator.bricks.drain.model_audit import DrainAudit
from migrator.bricks.drain.rules import next_step
from migrator.bricks.drain.rules_audit import bricks_to_audit
from migrator.bricks.drain.rules_progress import standing
from migrator.bricks.drain.snapshot import DrainSnapshots
from migrator.bricks.drain.wipe import DiskHooks, wipe_permission
from migrator.bricks.failures import FailureHooks
from migrator.bricks.model import CallEnd, CallEnding, halted, planned, stuck
from migrator.bricks.moves import BRICKS_LOCK, FileMoves
from migrator.bricks.progress import TaskSample, lost_after_s, rebalance_remedy, samples_of
from migrator.bricks.throttle import Throttle, restore_left
from migrator.bricks.volume import Membership, condition_problems, membership
from migrator.core.errors import LockHeld, Refused, ToolFailed, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.units import format_count, several
from migrator.fs.probing import probing
from migrator.gluster.model import Brick, TaskKind, TaskStatus, VolumeState, remove_brick_of
from migrator.gluster.rules import drained, volume_fingerprint
from migrator.hooks.model import HookFacts, HookState, HookStep
from migrator.ledger.locks import VOLUME, of_brick
from migrator.operations.call import Call
from migrator.operations.engine import (
    SNAPSHOT_RETRIES,
    Around,
    Done,
    OperationEnd,
    OperationEngine,
    Procedure,
    StepEvents,
    Stuck,
    reason_of,
)
from migrator.operations.model import Act, Finished, Halt

if TYPE_CHECKING:
    from migrator.bricks.drain.records import DrainRecords

# The entries.


DRAIN_VERB, STOP_VERB = "brick-drain", "brick-stop"


async def drain_bricks(request: model.DrainRequest, ports: DrainPorts) -> model.DrainSummary:
    """Drain the bricks of one subvolume. After a crash, the same call resumes, even if Gluster has continued the drain. A dry run
    makes every check and decision, and changes nothing.

    Raises UsageError, Refused (by a hook, or a wrong confirmation word), LockHeld, Interrupted, ToolFailed. The summary has the
    failed checks.
    """
    requested = await _requested_bricks(request, ports)
    if requested.known is None and all(name not in requested.names for name in requested.bricks):
        raise UsageError(
            f"volume {requested.state.volume} has no brick {', '.join(requested.bricks)}",
            hint=f"bricks are named as in `migrator brick list`: {', '.join(sorted(requested.names))}",
        )
    site = ports.ledger.site.required()
    record, word = _record(requested, ports.clock.now_s()), None
    problems: tuple[str, ...] = ()
    if request.confirm is not None or request.dry_run:
        word, problems = await wipe_permission(ports, site, record)
    if request.confirm is not None and problems:
        raise Refused(
            f"{', '.join(requested.bricks)} may not be wiped, and nothing was done: {'; '.join(problems)}",
            hint="move the other files there to another disk, or drain without --confirm and wipe by hand",
        )
    if request.confirm not in (None, word):
        raise Refused(
            "the confirmation word is not that of these bricks and their disks: nothing was done",
            hint="--dry-run prints the word",
        )
    call: DrainCall = Call(ports=ports, request=request, site=site, log=LOG)
    begins = requested.continued is None or requested.continued.state in model.UNTOUCHED_STATES
    if request.dry_run or begins:
        previewed = await _preview(call, record)
        if request.dry_run or previewed.ending is CallEnding.HALTED:
            return replace(previewed, dry_run=request.dry_run, confirm=word, wipe_problems=problems)

    def begun() -> model.DrainRecord:
        return requested.continued or ports.ledger.drains.plan(record, anew=requested.begins_anew)

    return await _recorded(DRAIN_VERB, call, begun, back=False)


async def stop_drain(request: model.DrainRequest, ports: DrainPorts) -> model.DrainSummary:
    """Stop a drain: the bricks stay in the volume, moved files stay where they are, and a fix-layout restores the layout of
    directories. May be called again. Raises as `drain_bricks`, and UsageError if this program has begun no drain of these bricks
    that can be stopped.
    """
    requested, site = await _requested_bricks(request, ports), ports.ledger.site.required()
    known = requested.known
    drained = {name for task in requested.snapshot.tasks if task.unfinished for name in task.bricks}
    if known is None or (known.state is model.DrainState.STOPPED and drained & set(requested.bricks)):
        raise UsageError(
            f"no drain of {', '.join(requested.bricks)} is in progress that this program began",
            hint="`migrator brick list` shows the tasks of Gluster; stop a drain that was begun by hand with "
            "(`gluster volume remove-brick ... stop`, then `gluster volume rebalance VOLUME fix-layout start`)",
        )
    call: DrainCall = Call(ports=ports, request=request, site=site, log=LOG)
    if request.dry_run:
        return await _preview(call, known, back=True)
    return await _recorded(STOP_VERB, call, lambda: known, back=True)


class _RequestedBricks(Struct, frozen=True, kw_only=True):
    """The bricks as the volume and the ledger have them."""

    state: VolumeState
    snapshot: DrainSnapshot
    bricks: tuple[str, ...]
    known: model.DrainRecord | None

    @property
    def names(self) -> frozenset[str]:
        """The bricks of the volume."""
        return frozenset(brick.name for brick in self.state.bricks)

    @property
    def begins_anew(self) -> bool:
        """True if the bricks are in the volume again after a drain; while they are handed over, that may be its last step."""
        known = self.known
        if known is None or known.state not in model.OUT_STATES - {model.DrainState.HANDING_OVER}:
            return False
        return set(known.bricks) <= self.names

    @property
    def continued(self) -> model.DrainRecord | None:
        """The drain that a call continues; one that has come to its very end too, while its bricks are out of the volume."""
        known = self.known
        if known is None or known.state is model.DrainState.STOPPED or self.begins_anew:
            return None
        handed_over = known.state is model.DrainState.HANDED_OVER
        return None if handed_over and self.names & set(known.bricks) else known


async def _requested_bricks(request: model.DrainRequest, ports: DrainPorts) -> _RequestedBricks:
    state, tasks = await ports.volume.state_and_tasks()
    bricks = tuple(dict.fromkeys(request.bricks))
    known = ports.ledger.drains.latest(state.volume_id, bricks)
    snapshot = DrainSnapshot(state=state, tasks=tasks)
    return _RequestedBricks(
        state=state, snapshot=snapshot, bricks=bricks if known is None else known.bricks, known=known
    )


def _record(requested: _RequestedBricks, at_s: float) -> model.DrainRecord:
    """The drain that the call continues, or that it would begin."""
    return requested.continued or model.DrainRecord(
        id=0,
        volume=requested.state.volume,
        volume_id=requested.state.volume_id,
        bricks=requested.bricks,
        attempt=1,
        state=model.DrainState.PLANNED,
        times={model.DrainState.PLANNED: at_s},
    )


async def _preview(call: DrainCall, record: model.DrainRecord, *, back: bool = False) -> model.DrainSummary:
    """The first step that the call would make. Changes neither Gluster nor the ledger."""
    if record.state in model.UNTOUCHED_STATES and not back:
        # The hooks come first in the real run: the preflight checks are made here, before anything is recorded.
        times = {**record.times, model.DrainState.PREFLIGHT: call.now_s()}
        record = replace(record, state=model.DrainState.PREFLIGHT, times=times)
    drain = DrainProcedure(call=call, back=back)
    step = drain.decide(record, await drain.snapshots.take(record))
    match step:
        case Finished():
            return drain.summary(record, CallEnd(ending=CallEnding.DONE, words=step.words))
        case Halt():
            return drain.summary(record, halted(step))
        case _:
            return drain.summary(record, planned(step))


async def _recorded(
    verb: str, call: DrainCall, record_of: Callable[[], model.DrainRecord], *, back: bool
) -> model.DrainSummary:
    ports = call.ports

    async def work(call: DrainCall) -> model.DrainSummary:
        await restore_left(call, ports.volume, ports.ledger, EventKind.DRAIN_STEP)
        return await DrainProcedure(call=call, back=back).run(record_of())

    with ports.locks.hold(f"{verb.replace('-', ' ')} {' '.join(call.request.bricks)}", BRICKS_LOCK):
        return await call.recorded(verb, work, hook_steps=HOOK_STEPS)


# The procedure.


_PATIENCE_S = 3600.0
"""How long glusterd may not respond, or a host be missing, before the watch ends."""

_HELP_S = 20.0
"""A host that is up may report no counters for this long before the admin gets a hint. After a reboot glusterd needs
about 10 s to connect to its peers and to start the rebalance process (GlusterFS 10.3).
"""

_RETRY_S = 10.0
"""A failed snapshot is retried for this long before it counts: glusterd does not answer while another command holds the
volume.
"""

_SETTLE_S = 60.0
"""After a reboot, bricks and hosts may take this long to come up. Until then a drain that broke off, or whose state is
unknown, does not wait for an admin.
"""

_RESTARTS = 3
"""Limit of automatic restarts of a failed drain in one call."""

_CLOSED_AT_THE_END = (HookStep.STOP, HookStep.COMMIT, HookStep.AUDIT, HookStep.DRAIN)
"""Hooks are also called around the whole drain. The step that began last ends first."""


_Done = Done[model.DrainState, model.DrainNotes]


@dataclass(slots=True, kw_only=True)
class DrainProcedure(Procedure[model.DrainRecord, DrainSnapshot]):
    """Takes bricks out of the volume, or (`back`) stops the drain."""

    events = StepEvents(done=EventKind.DRAIN_STEP, failed=EventKind.DRAIN_FAILED, aborting=EventKind.DRAIN_FAILED)
    waits = frozenset({model.DrainStep.WATCH, model.DrainStep.SETTLE})

    call: DrainCall
    back: bool
    snapshots: DrainSnapshots = field(init=False)
    moves: FileMoves = field(init=False)
    failures: FailureHooks[model.DrainRecord] = field(init=False)
    disks: DiskHooks = field(init=False)
    _hooks_called: bool = False
    _hand_over: bool = False
    _bricks_locked: bool = False
    _begun: bool = False
    _restarts: int = 0

    def __post_init__(self) -> None:
        call, ports, records = self.call, self.call.ports, self.records
        throttle = Throttle(call=call, rules=ports.throttle, volume=ports.volume, ledger=ports.ledger, records=records)
        self.snapshots, self.disks = DrainSnapshots(call=call), DiskHooks(call=call)
        self.failures = FailureHooks(call=call, records=records, reverts=self.back)
        self.moves = FileMoves(
            call=call,
            volume=ports.volume,
            ledger=ports.ledger,
            records=records,
            throttle=throttle,
            shields=ports.shields,
            warning=EventKind.DRAIN_DOUBTED,
        )

    async def run(self, record: model.DrainRecord) -> model.DrainSummary:
        """Drive the drain from its current state. Raises Interrupted, LockHeld, HookSkipped, Refused."""

        async def work() -> model.DrainSummary:
            if not self.back and not record.is_reverted():
                # A killed call may have left a request for a stop. It is void now.
                await self._catch_up(record, HookStep.STOP, HookState.FAILED)
            summary = await self._ended(
                await OperationEngine(self, self.call, poll_s=self.call.request.poll_s).drive(record)
            )
            await self.moves.unshield(record)
            return summary

        return await self.failures.around(record, work)

    # For the engine.

    @property
    def records(self) -> "DrainRecords":
        return self.call.ports.ledger.drains

    async def snapshot(self, record: model.DrainRecord) -> DrainSnapshot:
        self._hand_over = await self._hands_over(record)
        return await self.snapshots.take(record, hand_over=self._hand_over)

    def next_step(self, record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
        step = self.decide(record, snapshot)
        if isinstance(step, Halt) and self._restarts_failed(record, snapshot):
            self._restarts += 1
            return rules.begin_again(record, snapshot)
        if (
            isinstance(step, Act)
            and step.step is model.DrainStep.COMMIT
            and not step.seen_done
            and not self.call.request.commit
        ):
            words = f"{record.shown_bricks} is drained, and nothing is left on it; it is not committed, as requested"
            return Finished(state=record.state, words=words)
        return step

    def decide(self, record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
        """Return the next step of this call."""
        if self.back:
            return next_step(record, snapshot) if record.is_reverted() else rules.begin_stop(record, snapshot)
        if record.state is model.DrainState.FAILED and not self._begun:
            return rules.begin_again(record, snapshot)
        return next_step(record, snapshot, hand_over=self._hand_over)

    def _restarts_failed(self, record: model.DrainRecord, snapshot: DrainSnapshot) -> bool:
        """Return whether this call restarts a drain that failed during it. It does so if no preflight check fails and
        an admin would do the same: Gluster moved all but a few files, broke off, lost its rebalance process, or reports
        no counters of a host that is up. A new task examines only the remaining files.
        """
        if self.back or record.state is not model.DrainState.FAILED or self._restarts >= _RESTARTS:
            return False
        # If Gluster refuses the counters, it refuses a stop too.
        silent = bool(snapshot.silent) and snapshot.progress is not None
        return snapshot.preflight == () and (
            rules.only_few_failed(snapshot) or rules.broke_off(snapshot) or bool(snapshot.lost) or silent
        )

    def repeats_snapshot(
        self, record: model.DrainRecord, halt: Halt, snapshot: DrainSnapshot, *, tries: int, waited_s: float
    ) -> bool:
        """Return whether the next snapshot may differ without an act: a query failed, or a host or brick whose absence
        broke the drain off is coming up again.
        """
        if halt.look_again:
            return tries < SNAPSHOT_RETRIES or waited_s < (_SETTLE_S if self.snapshots.host_was_away else _RETRY_S)
        if (
            self.back
            or record.state is not model.DrainState.FAILED
            or not self.snapshots.host_was_away
            or snapshot.state is None
        ):
            return False
        settles = bool(snapshot.preflight) and set(snapshot.preflight or ()) <= set(condition_problems(snapshot.state))
        return settles and rules.broke_off(snapshot) and self._restarts < _RESTARTS and waited_s < _SETTLE_S

    async def _hands_over(self, record: model.DrainRecord) -> bool:
        """Return whether a removed brick is wiped and handed over. This needs the confirmation and hooks."""
        if self.back or record.state not in model.OUT_STATES or self.call.request.confirm is None:
            return False
        return await self.snapshots.has_next_hook(record)

    async def prepare(
        self, record: model.DrainRecord, act: model.DrainAct, snapshot: DrainSnapshot
    ) -> model.DrainNotes:
        self._begun = True
        await self.moves.unshield(record)
        await self._lock(record, act)
        notes = await self._notes_before(record, act, snapshot)
        if act.step in (model.DrainStep.WIPE, model.DrainStep.HAND_OVER):
            await self._end_hooks(record)
        if act.step is model.DrainStep.WIPE:
            notes = replace(notes, wipe_word=self.call.request.confirm)
        if act.step is model.DrainStep.START and record.state is model.DrainState.PREFLIGHT:
            await self._call_start_hooks(record)
        if act.step is model.DrainStep.STOP and self.back and not record.is_reverted():
            await self.call.hooks.before(hooked(record, HookStep.STOP), self.call.hook_facts(record.hook_facts()))
        return notes

    async def _lock(self, record: model.DrainRecord, act: model.DrainAct) -> None:
        """Nothing else is at work in the volume when a drain begins, and no stream reads its bricks from the audit to the
        commit.
        """
        if act.step is model.DrainStep.START and not act.seen_done:
            self.step_locks.enter_context(self.call.ports.locks.hold(record.subject(), VOLUME))
            return
        commits = act.step is model.DrainStep.COMMIT and not act.seen_done
        commits |= act.step is model.DrainStep.AUDIT and self.call.request.commit
        if self._bricks_locked or not commits or record.state in model.OUT_STATES:
            return
        warned = False
        while not self._bricks_locked:
            try:
                self.step_locks.enter_context(
                    self.call.ports.locks.hold(record.subject(), *map(of_brick, record.bricks))
                )
                self._bricks_locked = True
            except LockHeld as error:
                if not warned:
                    words = f"the commit waits: {error.message}"
                    self.call.emit(EventKind.DRAIN_DOUBTED, Severity.WARNING, record.subject(), words)
                warned = True
                await self.call.ports.clock.sleep(self.call.request.poll_s)

    def release(self, act: model.DrainAct) -> None:
        if act.step not in (model.DrainStep.AUDIT, model.DrainStep.COMMIT):
            self.step_locks.pop_all().close()
            self._bricks_locked = False

    async def _notes_before(
        self, record: model.DrainRecord, act: model.DrainAct, snapshot: DrainSnapshot
    ) -> model.DrainNotes:
        """Return the facts to record with the intent."""
        if act.step is not model.DrainStep.START or snapshot.state is None:
            return model.NO_DRAIN_NOTES
        notes = model.DrainNotes(
            options=self.moves.throttle.before(snapshot.state) or record.notes.options or (),
            volume_before=volume_fingerprint(snapshot.state),
            volume_after=volume_fingerprint(drained(snapshot.state, record.bricks)),
        )
        known = await self.snapshots.content(record)
        return notes if known is None else replace(notes, files=known[1].files, size_bytes=known[1].size_bytes)

    # Hooks.

    async def around(self, act: model.DrainAct, record: model.DrainRecord) -> Around | None:
        """Call the hooks around a commit and the audit before it."""
        hooked_steps = {model.DrainStep.COMMIT: HookStep.COMMIT, model.DrainStep.AUDIT: HookStep.AUDIT}
        step = hooked_steps.get(act.step)
        if step is None or (step is HookStep.AUDIT and (act.seen_done or record.state in model.OUT_STATES)):
            return None

        facts = partial(self.call.hook_facts, record.hook_facts())

        def after() -> HookFacts:
            found = self.snapshots.audit
            if step is HookStep.COMMIT or found is None:
                return facts(state=HookState.DONE if step is HookStep.COMMIT else HookState.FAILED)
            return facts(state=rules.audit_state(found), reason="; ".join(rules.audit_left(found)) or None)

        return Around(step=hooked(record, step), before=facts, after=after)

    async def _call_start_hooks(self, record: model.DrainRecord) -> None:
        """Call the hooks before a drain, which act as checks, once in every process that is about to start it. Raises
        Refused.
        """
        if not self._hooks_called:
            await self.call.hooks.before(hooked(record, HookStep.DRAIN), self.call.hook_facts(record.hook_facts()))
        self._hooks_called = True

    async def _end_hooks(self, record: model.DrainRecord) -> None:
        """Call the hooks after a drain has ended, and those that killed calls still owe. May be called again."""
        out = record.state in model.OUT_STATES
        state = HookState.DONE if out else HookState.STOPPED
        for step in _CLOSED_AT_THE_END:
            stopped = HookState.FAILED if out else HookState.DONE
            await self._catch_up(record, step, stopped if step is HookStep.STOP else state)

    async def _catch_up(self, record: model.DrainRecord, step: HookStep, state: HookState) -> None:
        await self.call.hooks.catch_up(hooked(record, step), self.call.hook_facts(record.hook_facts(), state=state))

    # Steps.

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
                return Done(message=await self.moves.throttle.restore(record))
            case _:
                assert_never(act.step)

    async def _check(self, record: model.DrainRecord) -> _Done:
        await self._call_start_hooks(record)
        return Done()

    async def _start(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        ports = self.call.ports
        await self.moves.look_up_everywhere(record)
        await self.moves.throttle.follow(record)
        if act.seen_done:
            return Done(message=f"continued: task {act.task_id}")
        if act.task_before is not None:
            await self._end_task(record)
        shielded = await self.moves.shield()
        task_id = await ports.volume.start(record.bricks)
        return Done(message=f"task {task_id}{shielded}", notes=model.DrainNotes(task_id=task_id))

    async def _watch(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        # A task that has ended is polled at once, to record its last counters.
        async with probing(self.call.ports.probing):
            moved = await self._watch_task(record)
        found = standing(record, self.records.samples(record.id))
        counters = several(found.moved_files, "file"), several(found.failures, "failure"), format_count(found.skipped)
        words = "{} moved, {}, {} skipped".format(*counters)
        return Done(message=words, result=None if moved or act.seen_done else act.intent)

    async def _watch_task(self, record: model.DrainRecord) -> bool:
        """Poll Gluster's counters, record and show them. Return True when Gluster has ended on every host that reports
        counters, also after a failure. Return False when another step is due: the task is gone or was replaced, it is
        stalled, a host that is up was silent for the stall limit, or the volume could not be read for an hour. Gluster
        continues in any case.
        """
        clock, moves = self.call.ports.clock, self.moves
        began_s = reported_s = clock.monotonic_s()
        while True:
            snapshot, now_s = await self.snapshots.take(record), clock.monotonic_s()
            task, progress = rules.own_task(record, snapshot), snapshot.progress
            own = task is not None and task.id == record.notes.task_id
            counters = () if progress is None or not own else progress.counters
            if progress is not None and counters:
                self.records.add_samples(record.id, samples_of(progress, self.call.now_s()))
                moves.show(standing(record, self.snapshots.samples), "draining", now_s - began_s)
            step, reporting = next_step(record, snapshot), len(counters) >= len(rules.hosts_of(record, snapshot.state))
            hosts, silent_s = self.snapshots.silence(record, snapshot)
            if reporting and rules.moves(snapshot) and not (snapshot.lost or snapshot.stalled):
                reported_s = now_s
                moves.warn(record, "")
            elif hosts and isinstance(step, Act) and step.step is model.DrainStep.WATCH:
                remedy = rules.way_out(record, hosts) if silent_s > _HELP_S else "waiting for it"
                moves.warn(record, f"{rules.why_silent(hosts)}; {remedy}")
            elif isinstance(step, Halt) and step.look_again and not reporting and now_s - reported_s <= _PATIENCE_S:
                moves.warn(record, "; ".join((step.words, *step.reasons)))
            else:
                return own and not rules.moves(snapshot) and (reporting or rules.ended_badly(snapshot))
            if counters:
                await moves.follow_throttle(record)
            await clock.sleep(self.call.request.poll_s)

    async def _audit(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        if act.seen_done:
            return Done()
        self.snapshots.audit = await self._audited(record)
        left = rules.audit_left(self.snapshots.audit)
        # The next snapshot decides the result. Findings do not end this step.
        return Done(message="; ".join(left) or "nothing is left", result=act.intent)

    async def _audited(self, record: model.DrainRecord) -> DrainAudit:
        """Walk every brick. Raises MigratorError."""
        found = await self.snapshots.volume()
        ports = self.call.ports
        bricks = bricks_of(record, () if found is None else found[0].bricks)
        if record.state is model.DrainState.WIPING:
            bricks = bricks_to_audit(record.state, bricks, await ports.places(bricks, record.volume_id))
        return await self._walk(record, bricks, None if found is None else found[0])

    async def _walk(self, record: model.DrainRecord, bricks: Sequence[Brick], state: VolumeState | None) -> DrainAudit:
        """Walk the bricks, and write down what to do about each leftover. Raises MigratorError."""
        ports, directory = self.call.ports, self.call.directory
        make = ports.left_list
        audit = await audit_bricks(
            bricks,
            volume_id=record.volume_id,
            walks=ports.walks,
            read_block=ports.read_block,
            clock=ports.clock,
            left=None if make is None or directory is None else make(directory),
        )
        if ports.names is None or directory is None or state is None:
            return audit
        try:
            file = await write_commands(
                directory,
                audit.leftovers,
                names=ports.names,
                blocking=ports.blocking,
                in_volume=membership(record, state) is not Membership.OUT,
                again=f"migrator brick drain {' '.join(record.bricks)}",
            )
        except (OSError, TimeoutError) as error:
            words = f"the commands for leftovers cannot be written: {reason_of(error)}"
            self.call.emit(EventKind.DRAIN_DOUBTED, Severity.WARNING, record.subject(), words)
            return audit
        return replace(audit, commands_file=file)

    async def _commit(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        if act.seen_done:
            self.snapshots.audit = None
            return Done(message="it is out of the volume")
        ports = self.call.ports
        await asyncio.to_thread(ports.back_up, f"drain-{record.id}-commit")
        await self._keep_times(record)
        # This follows the hooks and the backup, which take time.
        problems = rules.commit_problems(record, await self.snapshots.take(record))
        if problems:
            raise Refused(f"{record.shown_bricks}cannot be committed: {'; '.join(problems)}")
        await self.moves.look_up_everywhere(record)
        await ports.volume.commit(record.bricks)
        # A client may have written until now: another audit decides on a wipe, whatever the clock says.
        self.snapshots.audit = None
        return Done(message="out of the volume")

    async def _keep_times(self, record: model.DrainRecord) -> None:
        """Keep the mtimes of directories that are latest on these bricks, and record their number: if the commit fails, the
        next one finds none that are left to keep. Raises MigratorError.
        """
        ports = self.call.ports
        if ports.times is None:
            return
        state, _ = await ports.volume.state_and_tasks()
        try:
            found = await ports.times.keep(record.id, bricks_of(record, state.bricks), state)
        except (OSError, TimeoutError) as error:
            raise ToolFailed(f"the times of directories cannot be kept: {reason_of(error)}") from error
        if found.lost:
            lost = several(found.lost, "directory", "directories")
            self.call.emit(
                EventKind.DRAIN_DOUBTED,
                Severity.WARNING,
                record.subject(),
                f"{lost} will show an earlier mtime than before",
            )
        kept = (record.notes.times_kept or 0) + found.kept
        self.records.note(record.id, model.DrainNotes(times_kept=kept, times_lost=found.lost))

    async def _wipe(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        await self.disks.perform(act, record, HookStep.WIPE)
        return Done(message="an empty file system is mounted there")

    async def _hand_over_bricks(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        await self.disks.perform(act, record, HookStep.HAND_OVER)
        return Done(message="handed over")

    async def _give_up(self, record: model.DrainRecord) -> _Done:
        """If Gluster has completed, list the leftovers, since its counters name none."""
        found = await self.snapshots.volume()
        task = None if found is None else remove_brick_of(found[1], record.bricks)
        progress = None if task is None else await self.snapshots.progress(task)
        counters = () if progress is None else progress.counters
        completed = bool(counters) and all(one.status is TaskStatus.COMPLETED for one in counters)
        if found is None or self.snapshots.audit is not None or not completed:
            return Done()
        self.snapshots.named = await self._walk(record, bricks_of(record, found[0].bricks), found[0])
        return Done(message="; ".join(rules.audit_left(self.snapshots.named)) or "the audit found no leftovers")

    async def _stop(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        if act.seen_done:
            return Done()
        await self._end_task(record)
        return Done(message="files that were moved stay where they are")

    async def _end_task(self, record: model.DrainRecord) -> None:
        progress = await self.call.ports.volume.stop(record.bricks)
        self.records.add_samples(record.id, samples_of(progress, self.call.now_s()))

    async def _settle(self, act: model.DrainAct, record: model.DrainRecord) -> _Done:
        if act.seen_done:
            return Done(message="the layout is right")
        ports = self.call.ports
        await self.moves.look_up_everywhere(record)
        wanted = await self._layout_under_way(record) or await ports.volume.fix_layout()
        self.records.note(record.id, model.DrainNotes(layout_task_id=wanted))
        began_s, limit_s = ports.clock.monotonic_s(), lost_after_s(self.call.request.poll_s)
        samples: list[TaskSample] = []
        while True:
            found, now_s = await self.snapshots.volume(), self.call.now_s()
            task = None if found is None else next((task for task in found[1] if task.id == wanted), None)
            progress = None if task is None else await self.snapshots.progress(task)
            counters = () if progress is None else progress.counters
            if progress is not None and counters and not progress.moving:
                break
            if found is not None and task is None and found[0].peers_down == ():
                raise ToolFailed("the fix-layout was ended outside of this program")
            if progress is not None:
                kept = [one for one in samples if one.at_s > now_s - 3.0 * limit_s]
                samples = [*kept, *samples_of(progress, now_s)]
                request = self.call.request
                _, lost = self.snapshots.stalls.judge(
                    samples,
                    progress.task_id,
                    progress,
                    stall_s=request.stall_s,
                    poll_s=request.poll_s,
                    now_s=now_s,
                )
                if lost:
                    raise ToolFailed(f"the fix-layout does not end: {lost}; {rebalance_remedy(record.volume)}")
            shown = standing(record, self.records.samples(record.id))
            elapsed_s = ports.clock.monotonic_s() - began_s
            self.moves.show(shown, "repairing the layout after", elapsed_s)
            await ports.clock.sleep(self.call.request.poll_s)
        bad = [one for one in counters if one.status is not TaskStatus.COMPLETED or one.failures]
        if bad:
            raise ToolFailed(
                f"the fix-layout did not complete on {', '.join(one.host for one in bad)} ({bad[0].status.value})",
                hint="see Gluster's rebalance log there, then run the same command again",
            )
        return Done(message="the layout is right")

    async def _layout_under_way(self, record: model.DrainRecord) -> str | None:
        """Return the id of a running fix-layout that began before a crash, even if its id was not recorded."""
        volume = self.call.ports.volume
        _, tasks = await volume.state_and_tasks()
        for task in tasks:
            if task.kind is not TaskKind.REBALANCE or not task.unfinished:
                continue
            progress = await volume.progress(task)
            counters = () if progress is None else progress.counters
            if task.id == record.notes.layout_task_id or (counters and all(one.fix_layout for one in counters)):
                return task.id
        return None

    # The end of the call.

    async def _ended(self, ended: OperationEnd[model.DrainRecord, DrainSnapshot]) -> model.DrainSummary:
        record, out = ended.record, ended.record.state in model.OUT_STATES
        if not isinstance(ended.reason, Stuck) and (out or record.state is model.DrainState.STOPPED):
            await self._end_hooks(record)
        match ended.reason:
            case Finished() as step:
                return await self._finished(record, step)
            case Halt() as halt:
                self.call.emit(
                    EventKind.DRAIN_HALTED, Severity.ERROR, record.subject(), "; ".join((halt.words, *halt.reasons))
                )
                return self.summary(record, halted(halt))
            case Stuck():
                hosts = rules.silent_hosts(record, ended.snapshot)
                end = stuck(record, rules.way_out(record, hosts) if hosts else "fix the cause")
                self.call.emit(EventKind.DRAIN_HALTED, Severity.ERROR, record.subject(), end.words)
                return self.summary(record, end)
            case _:
                assert_never(ended.reason)

    async def _finished(self, record: model.DrainRecord, step: Finished) -> model.DrainSummary:
        if record.state in model.UNDER_WAY_STATES:
            hint = "to take it out of the volume: the same command without --no-commit"
            return self.summary(record, CallEnd(ending=CallEnding.WAITS, words=step.words, hint=hint))
        out = record.state in model.OUT_STATES
        words, hint, confirm = step.words, "", None
        if out and record.state is not model.DrainState.HANDED_OVER:
            words, hint, confirm = await self._remaining_steps(record, step.words)
        self.call.emit(EventKind.DRAIN_FINISHED, Severity.INFO, record.subject(), words)
        end = CallEnd(ending=CallEnding.DONE if out else CallEnding.TAKEN_BACK, words=words, hint=hint)
        return replace(self.summary(record, end), confirm=confirm)

    async def _remaining_steps(self, record: model.DrainRecord, words: str) -> tuple[str, str, str | None]:
        """Return the remaining options for bricks that are out of the volume and were not handed over."""
        if not await self.snapshots.has_next_hook(record):
            step = "hand-over" if record.state in (model.DrainState.WIPED, model.DrainState.HANDING_OVER) else "wipe"
            return f"{words}; there is no pre-{step} hook, so do that by hand", "", None
        word, problems = await wipe_permission(self.call.ports, self.call.site, record)
        if word is None:
            return f"{words}; hooks may not wipe it: {'; '.join(problems)}", "", None
        return words, f"to have your hooks do that: the same command with --confirm {word}", word

    def summary(self, record: model.DrainRecord, end: CallEnd) -> model.DrainSummary:
        audit, check = self.snapshots.audit or self.snapshots.named, self.snapshots.check
        return model.DrainSummary(
            volume=record.volume,
            bricks=record.bricks,
            back=self.back,
            dry_run=self.call.run_id is None,
            ending=end.ending,
            words=end.words,
            hint=end.hint,
            reasons=end.reasons,
            left_behind=() if audit is None else audit.examples,
            left_file=None if audit is None else audit.list_file,
            commands_file=None if audit is None else audit.commands_file,
            standing=standing(record, self.records.samples(record.id)),
            check=check,
        )
