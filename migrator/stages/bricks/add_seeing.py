"""One look at everything that an addition decides from. Changes nothing, and never raises for what cannot be seen."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from migrator.decide.addition import may_add
from migrator.decide.drain_facts import parts_missing
from migrator.decide.drain_progress import samples_of, stalled
from migrator.decide.lost_movers import lost_after_s, lost_movers
from migrator.domain.addition import ENDED_STATES, IN_STATES, UNTOUCHED_STATES, AdditionRecord, AdditionSide
from migrator.domain.addition_seen import AdditionSeen, NewPlace
from migrator.domain.brick import VolumeState
from migrator.domain.errors import MigratorError
from migrator.domain.volume_tasks import TaskKind, TaskProgress, VolumeTask
from migrator.stages.bricks.add_context import AdditionCall
from migrator.stages.bricks.strange import strange_now

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class AdditionLooker:
    """Looks for one call; keeps the last look at places and counters, which people want to see. `not_whole_s` is when a part of the
    volume was missing last, as far as this call knows (when it began, at first): what moves files may have been waiting for it.
    """

    call: AdditionCall
    places: dict[str, NewPlace] = field(default_factory=dict)
    progress: TaskProgress | None = None
    copies: int = 1
    not_whole_s: float = 0.0

    def __post_init__(self) -> None:
        self.not_whole_s = self.call.now_s()

    async def see(self, record: AdditionRecord) -> AdditionSeen:
        """Only what this state needs is asked."""
        world = self.call.world
        found = await told(world.volume.state_and_tasks())
        if found is None:
            return AdditionSeen(state=None, tasks=None)
        state, tasks = found
        self.copies = max(state.replica_count, 1)
        if record.side is AdditionSide.TARGET or may_add(record):
            return await self._before(record, state, tasks)
        task = next((one for one in tasks if one.kind is TaskKind.REBALANCE), None)
        self.progress = None if task is None else await told(world.volume.progress(task))
        still = "" if task is None else self._stalled(record, state, task)
        return AdditionSeen(state=state, tasks=tasks, progress=self.progress, stalled=still)

    async def _before(self, record: AdditionRecord, state: VolumeState, tasks: tuple[VolumeTask, ...]) -> AdditionSeen:
        world, ledger = self.call.world, self.call.world.ledger
        self.places = dict(await world.places(record.bricks))
        over = ENDED_STATES | UNTOUCHED_STATES
        others = [one for one in ledger.additions.all() if one.id != record.id and one.state not in over]
        if record.side is AdditionSide.TARGET:
            others = [one for one in others if one.side is AdditionSide.TARGET]
        else:
            # What fills and empties one side at a time: an addition to the target moves nothing on the source.
            others = [one for one in others if one.side is AdditionSide.SOURCE or set(one.bricks) & set(record.bricks)]
        return AdditionSeen(
            state=state,
            tasks=tasks,
            owners=await told(world.volume.owners()),
            places=self.places,
            rooms=await told(world.volume.rooms()) if state.started else {},
            versions=await world.versions(sorted({brick.host for brick in state.bricks} | _hosts_of(record)))
            if record.side is AdditionSide.SOURCE
            else None,
            drains=tuple(one.shown_bricks for one in ledger.drains.under_way()),
            additions=tuple(one.shown_bricks for one in others),
            target=await world.target_room() if record.side is AdditionSide.TARGET else None,
            strange=await strange_now(ledger.scans, world.strange, state.bricks, state.volume_id)
            if record.side is AdditionSide.SOURCE
            else (),
            blamed=await self._blamed(record, state),
        )

    async def _blamed(self, record: AdditionRecord, state: VolumeState) -> Mapping[str, int] | None:
        blamed = self.call.world.blamed
        if not record.in_place or record.state in IN_STATES or blamed is None:
            return None
        return await blamed(state, record.bricks[0])

    def _stalled(self, record: AdditionRecord, state: VolumeState, task: VolumeTask) -> str:
        request, now_s = self.call.request, self.call.now_s()
        newest = () if self.progress is None else samples_of(self.progress, now_s)
        samples = (*self.call.world.ledger.additions.samples(record.id), *newest)
        names = {} if self.progress is None else self.progress.names
        if parts_missing(state):
            self.not_whole_s = now_s
        lost_s, since_s = lost_after_s(request.poll_s), self.not_whole_s
        lost = lost_movers(samples, task_id=task.id, since_s=since_s, now_s=now_s, limit_s=lost_s, names=names)
        return lost or stalled(samples, task_id=task.id, now_s=now_s, limit_s=request.stall_s, names=names)


def _hosts_of(record: AdditionRecord) -> set[str]:
    return {name.partition(":/")[0] for name in record.bricks}


async def told(asked: Awaitable[T]) -> T | None:
    """None where it is not told: every guard takes that for a reason against."""
    try:
        return await asked
    except MigratorError:
        return None
