"""Looking at the world: what there is to see of bricks that are drained."""

from dataclasses import dataclass

from migrator.decide.drain import may_start
from migrator.decide.drain_facts import ended_badly, own_task, parts_missing
from migrator.decide.drain_preflight import failure_causes
from migrator.decide.drain_progress import samples_of, stalled
from migrator.decide.drain_silence import silent_hosts, why_silent
from migrator.decide.lost_movers import lost_after_s, lost_movers
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
    decides nothing. `recovered`: this call has brought back what it could. `host_was_away`: a look of this call missed a host.
    `not_whole_s` is when a part of the volume was missing last, as far as this call knows (when it began, at first): what moves
    files may have been waiting for it.
    """

    call: DrainCall
    guarding: Guarding
    audit: AuditSeen | None = None
    named: AuditSeen | None = None
    recovered: bool = False
    check: DrainCheck | None = None
    host_was_away: bool = False
    not_whole_s: float = 0.0
    _silent: tuple[str, float] | None = None
    """The task that not every host tells of, and since when, by the clock of this process."""

    def __post_init__(self) -> None:
        self.not_whole_s = self.call.now_s()

    async def see(self, record: DrainRecord, *, hand_over: bool = False) -> DrainSeen:
        """Everything that the next step is decided by."""
        found = await self.volume()
        if found is None:
            return DrainSeen(state=None, tasks=None, audit=self.audit)
        state, tasks = found
        own = own_task(record, DrainSeen(state=state, tasks=tasks))
        progress = None if own is None else await self.progress(own)
        hosts, silent_s = self.silence(record, DrainSeen(state=state, tasks=tasks, progress=progress))
        failed = not may_start(record) and ended_badly(DrainSeen(state=state, tasks=tasks, progress=progress))
        if may_start(record) or failed:
            self.check = await self.guarding.check(record, state, tasks)
        wants_places = hand_over and record.state in OUT_STATES
        bricks = bricks_of(record, state.bricks)
        still, lost = ("", "") if own is None else self._standstill(record, own, progress)
        return DrainSeen(
            state=state,
            tasks=tasks,
            progress=progress,
            layout=await self._layout(record, tasks),
            preflight=self.check.problems if self.check is not None and may_start(record) else None,
            stalled=still,
            lost=lost,
            silent=why_silent(hosts, for_s=silent_s) if silent_s > self.call.request.stall_s else "",
            causes=failure_causes(self.guarding.facts) if failed and self.guarding.facts is not None else (),
            audit=self.audit,
            may_recover=self.may_recover,
            places=await self.call.world.places(bricks, record.volume_id) if wants_places else None,
        )

    @property
    def may_recover(self) -> bool:
        """Whether what is left is still to be brought back by this call."""
        return self.call.request.recover and not self.recovered

    def silence(self, record: DrainRecord, seen: DrainSeen) -> tuple[tuple[str, ...], float]:
        """Who tells no counters in a look although everything is up, and for how long the looks of this process have found
        that, in seconds.
        """
        hosts, task, now_s = silent_hosts(record, seen), own_task(record, seen), self.call.world.clock.monotonic_s()
        if not hosts or task is None:
            self._silent = None
            return (), 0.0
        if self._silent is None or self._silent[0] != task.id:
            self._silent = task.id, now_s
        return hosts, now_s - self._silent[1]

    async def volume(self) -> tuple[VolumeState, tuple[VolumeTask, ...]] | None:
        """The volume with its tasks; None where glusterd does not tell."""
        try:
            state, tasks = await self.call.world.volume.state_and_tasks()
        except MigratorError:
            self.host_was_away = True
            return None
        self.host_was_away = self.host_was_away or bool(state.peers_down)
        if parts_missing(state):
            self.not_whole_s = self.call.now_s()
        return state, tasks

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

    def _standstill(self, record: DrainRecord, task: VolumeTask, progress: TaskProgress | None) -> tuple[str, str]:
        """Why it is said to stand still, and to have lost what moves files; also by what this look tells: nobody may have
        watched for long, while files were moved.
        """
        request, now_s = self.call.request, self.call.now_s()
        names = {} if progress is None else progress.names
        newest = () if progress is None else samples_of(progress, now_s)
        samples = (*self.call.world.ledger.drains.samples(record.id), *newest)
        still = stalled(samples, task_id=task.id, now_s=now_s, limit_s=request.stall_s, names=names)
        lost_s, since_s = lost_after_s(request.poll_s), self.not_whole_s
        lost = lost_movers(samples, task_id=task.id, since_s=since_s, now_s=now_s, limit_s=lost_s, names=names)
        return still, lost
