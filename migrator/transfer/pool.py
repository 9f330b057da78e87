"""The pool of lanes over one queue of work: one worker for each stream that a lane may have."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from migrator.core.errors import MigratorError
from migrator.core.tasks import task_group
from migrator.transfer.governor import Governor
from migrator.transfer.ports import BrickRefused
from migrator.transfer.queue import W, Work, WorkQueue
from migrator.transfer.routes import HostLane, Routes

_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0
_HELD_S = 5.0

W_contra = TypeVar("W_contra", bound=Work, contravariant=True)


class WorkKind(Protocol[W_contra]):
    """The treatment of one kind of work."""

    @property
    def stopped(self) -> bool:
        """Whether no further piece may start, for a reason that concerns all of them."""

    def held(self) -> bool:
        """Whether no piece may start at present. Asked every few seconds while it is."""

    async def carry_out(self, piece: W_contra, lane: HostLane, slot: int, /) -> float | None:
        """Do one piece. Returns its delay if it has to wait again; None: it is done, or its backlog has it again.

        Records with the routes what prevents the lane from doing it. Raises only what ends the whole pool, and
        CancelledError after every process of the piece has ended.
        """


async def run_pool(
    kind: WorkKind[W],
    queue: WorkQueue[W],
    routes: Routes,
    *,
    governor: Governor | None,
    workers: set[asyncio.Task[None]],
) -> None:
    """Do all work of a queue concurrently, until it is finished or the kind stops. `workers` holds the tasks that run,
    which a stop cancels.

    Raises the errors of workers; CancelledError after every worker has ended.
    """
    counts: Counter[str] = Counter()
    try:
        async with task_group() as group:

            def employ() -> None:
                """Start as many workers for each lane as it may have streams; surplus ones wait."""
                ceilings = {} if governor is None else governor.ceilings
                for lane in routes.lanes:
                    while counts[lane.host] < ceilings.get(lane.host, lane.jobs):
                        counts[lane.host] += 1
                        worker = _Worker(kind=kind, queue=queue, routes=routes, lane=lane, slot=counts.total())
                        workers.add(group.create_task(worker.work()))

            def allowed_anew() -> None:
                employ()
                queue.wake()

            employ()
            unfollow = governor.on_change(allowed_anew) if governor is not None else None
            try:
                while at_work := [worker for worker in workers if not worker.done()]:
                    await asyncio.wait(at_work)
            finally:
                if unfollow is not None:
                    unfollow()
    finally:
        workers.clear()


@dataclass(slots=True, kw_only=True)
class _Worker(Generic[W]):
    """Does one piece after the other, also after a loss of its host, until none is left or the kind stops."""

    kind: WorkKind[W]
    queue: WorkQueue[W]
    routes: Routes
    lane: HostLane
    slot: int

    async def work(self) -> None:
        while not self.kind.stopped and not self.queue.finished.is_set():
            if self.routes.given_up(self.lane):
                self.queue.wake()
                return
            if self.lane.host in self.routes.lost:
                await self._reach_again()
                continue
            if self.routes.unwatched(self.lane):
                await self._watch_volume()
                continue
            if self.kind.held():
                await self.queue.pause(_HELD_S)
                continue
            piece = await self.queue.take(self.lane)
            if piece is None:
                continue
            again_after_s: float | None = None
            try:
                again_after_s = await self.kind.carry_out(piece, self.lane, self.slot)
            finally:
                self.queue.release(piece, again_after_s)

    async def _reach_again(self) -> None:
        """Wait until the host answers again or is given up, or the queue is finished."""
        pause_s = _FIRST_PAUSE_S
        while not (self.queue.finished.is_set() or self.kind.stopped or self.routes.given_up(self.lane)):
            await self.queue.pause(pause_s)
            if self.lane.host not in self.routes.lost:
                return
            brick = self.queue.brick_for(self.lane)
            if brick is None and not self.routes.reads_without_brick(self.lane):
                continue
            try:
                await self.lane.end_orphans(())
                with suppress(BrickRefused):
                    # A host that answers may still be unusable.
                    await self.lane.connect(brick)
            except MigratorError:
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            self.routes.find_again(self.lane)
            self.queue.wake()
            return

    async def _watch_volume(self) -> None:
        """Poll the volume until the bricks may be read again, or never in this run, or the queue is finished."""
        pause_s = _FIRST_PAUSE_S
        self.routes.watched = True
        try:
            while self.routes.unfit and not self.routes.lasting and not self.kind.stopped:
                await self.queue.pause(pause_s)
                await self.queue.unless_finished(self.routes.quiet_now())
                if self.queue.finished.is_set():
                    return
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        finally:
            self.routes.watched = False
            self.queue.wake()
