"""Looking at the world: what there is to see of bricks that are drained."""

from dataclasses import dataclass

from migrator.decide.drain import may_start
from migrator.decide.drain_facts import ended_badly, own_task
from migrator.decide.drain_preflight import failure_causes
from migrator.decide.drain_progress import stalled
from migrator.domain.brick import VolumeState
from migrator.domain.drain import OUT_STATES, DrainRecord, DrainState
from migrator.domain.drain_run import DrainCheck
from migrator.domain.drain_seen import AuditSeen, DrainSeen
from migrator.domain.errors import MigratorError
from migrator.domain.hooks import HookEvent, HookStage, HookStep
from migrator.domain.volume_tasks import TaskProgress, VolumeTask
from migrator.stages.bricks.drain_context import DrainCall, bricks_of
from migrator.stages.bricks.drain_guarding import Guarding
from migrator.stages.hooking import find_hooks

_WAYS_ON = {
    DrainState.COMMITTED: HookStep.WIPE,
    DrainState.WIPING: HookStep.WIPE,
    DrainState.WIPED: HookStep.HAND_OVER,
    DrainState.HANDING_OVER: HookStep.HAND_OVER,
}


@dataclass(slots=True, kw_only=True)
class DrainLooker:
    """Looks at the bricks of one drain. Changes nothing. `audit` is the newest one that this process has made, `check` the
    guards as they were looked at last. `named` is a walk that only names what is left, and
    decides nothing. `recovered`: this call has brought back what it could.
    """

    call: DrainCall
    guarding: Guarding
    audit: AuditSeen | None = None
    named: AuditSeen | None = None
    recovered: bool = False
    check: DrainCheck | None = None

    async def see(self, record: DrainRecord, *, hand_over: bool = False) -> DrainSeen:
        """Everything that the next step is decided by."""
        found = await self.volume()
        if found is None:
            return DrainSeen(state=None, tasks=None, audit=self.audit)
        state, tasks = found
        own = own_task(record, DrainSeen(state=state, tasks=tasks))
        progress = None if own is None else await self.progress(own)
        failed = not may_start(record) and ended_badly(DrainSeen(state=state, tasks=tasks, progress=progress))
        if may_start(record) or failed:
            self.check = await self.guarding.check(record, state, tasks)
        wants_places = hand_over and record.state in OUT_STATES
        bricks = bricks_of(record, state.bricks)
        return DrainSeen(
            state=state,
            tasks=tasks,
            progress=progress,
            layout=await self._layout(record, tasks),
            preflight=self.check.problems if self.check is not None and may_start(record) else None,
            stalled="" if own is None else self._stalled(record, own),
            causes=failure_causes(self.guarding.facts) if failed and self.guarding.facts is not None else (),
            audit=self.audit,
            may_recover=self.may_recover,
            places=await self.call.world.places(bricks, record.volume_id) if wants_places else None,
        )

    @property
    def may_recover(self) -> bool:
        """Whether what is left is still to be brought back by this call."""
        return self.call.request.recover and not self.recovered

    async def volume(self) -> tuple[VolumeState, tuple[VolumeTask, ...]] | None:
        """The volume with its tasks; None where glusterd does not tell."""
        try:
            return await self.call.world.volume.state_and_tasks()
        except MigratorError:
            return None

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """The counters of a task; None where glusterd does not tell them."""
        try:
            return await self.call.world.volume.progress(task)
        except MigratorError:
            return None

    async def goes_on(self, record: DrainRecord) -> bool:
        """Whether there are hooks that wipe a brick, or give it away, where that is next."""
        hooks, step = self.call.world.hooks, _WAYS_ON.get(record.state)
        if hooks is None or step is None:
            return False
        found = await find_hooks(hooks, self.call.world.blocking)
        return any(hook.stage == HookStage(step=step, event=HookEvent.PRE) for hook in found.hooks)

    async def _layout(self, record: DrainRecord, tasks: tuple[VolumeTask, ...]) -> TaskProgress | None:
        wanted = record.notes.layout_task_id
        task = next((task for task in tasks if task.id == wanted), None)
        return None if task is None else await self.progress(task)

    def _stalled(self, record: DrainRecord, task: VolumeTask) -> str:
        return stalled(
            self.call.world.ledger.drains.samples(record.id),
            task_id=task.id,
            now_s=self.call.now_s(),
            limit_s=self.call.request.stall_s,
        )
