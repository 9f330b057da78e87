"""Snapshots of a volume, and of the places of new bricks, for an addition."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator.bricks.add import model
from migrator.bricks.add.call import AdditionCall
from migrator.bricks.add.model import AdditionSnapshot
from migrator.bricks.add.rules import may_add
from migrator.bricks.progress import StallWatch, samples_of
from migrator.bricks.strange_files import strange_now
from migrator.bricks.volume import host_of
from migrator.core.tasks import result_or_none
from migrator.gluster.model import NewPlace, TaskKind, TaskProgress, VolumeState, VolumeTask


@dataclass(slots=True, kw_only=True)
class AdditionSnapshots:
    """Takes the snapshots for one call. It keeps the last places and counters, which are shown to the admin."""

    call: AdditionCall
    places: dict[str, NewPlace] = field(default_factory=dict)
    progress: TaskProgress | None = None
    copies: int = 1
    stalls: StallWatch = field(init=False)

    def __post_init__(self) -> None:
        self.stalls = StallWatch(incomplete_s=self.call.now_s())

    async def take(self, record: model.AdditionRecord) -> AdditionSnapshot | None:
        """Query only the facts that this state needs. Return None if Gluster does not answer."""
        ports = self.call.ports
        found = await result_or_none(ports.volume.state_and_tasks())
        if found is None:
            return None
        state, tasks = found
        self.copies = max(state.replica_count, 1)
        if record.side is model.AdditionSide.TARGET or may_add(record):
            return await self._before(record, state, tasks)
        task = next((one for one in tasks if one.kind is TaskKind.REBALANCE), None)
        self.progress = None if task is None else await result_or_none(ports.volume.progress(task))
        still = "" if task is None else self._stalled(record, state, task)
        return AdditionSnapshot(state=state, tasks=tasks, progress=self.progress, stalled=still)

    async def _before(
        self, record: model.AdditionRecord, state: VolumeState, tasks: tuple[VolumeTask, ...]
    ) -> AdditionSnapshot:
        ports, ledger = self.call.ports, self.call.ports.ledger
        self.places = dict(await ports.places(record.bricks))
        to_target = record.side is model.AdditionSide.TARGET
        over = model.ADDITION_ENDED_STATES | model.UNTOUCHED_STATES
        # Only one drain or addition may change a side at a time. An addition to the target moves nothing on the source.
        others = [
            one
            for one in ledger.additions.all()
            if one.id != record.id
            and one.state not in over
            and (one.side is record.side or (not to_target and set(one.bricks) & set(record.bricks)))
        ]
        hosts = {brick.host for brick in state.bricks} | {host_of(name) for name in record.bricks}
        return AdditionSnapshot(
            state=state,
            tasks=tasks,
            owners=await result_or_none(ports.volume.owners()),
            places=self.places,
            disks=await ports.disks(record.bricks) if to_target else {},
            rooms=await result_or_none(ports.volume.rooms()) if state.started else {},
            versions=None if to_target else await ports.versions(sorted(hosts)),
            drains=tuple(one.shown_bricks for one in ledger.drains.under_way()),
            additions=tuple(one.shown_bricks for one in others),
            target=await ports.target_room() if to_target else None,
            strange=() if to_target else await strange_now(ledger.scans, ports.strange, state.bricks, state.volume_id),
            blamed=await self._blamed(record, state),
        )

    async def _blamed(self, record: model.AdditionRecord, state: VolumeState) -> Mapping[str, int] | None:
        blamed = self.call.ports.blamed
        if not record.in_place or record.state in model.IN_STATES or blamed is None:
            return None
        return await blamed(state, record.bricks[0])

    def _stalled(self, record: model.AdditionRecord, state: VolumeState, task: VolumeTask) -> str:
        request, now_s = self.call.request, self.call.now_s()
        newest = () if self.progress is None else samples_of(self.progress, now_s)
        samples = (*self.call.ports.ledger.additions.samples(record.id), *newest)
        self.stalls.note(state, now_s)
        stalled, lost = self.stalls.judge(
            samples, task.id, self.progress, stall_s=request.stall_s, poll_s=request.poll_s, now_s=now_s
        )
        return lost or stalled
