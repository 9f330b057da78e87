"""The pool of streams over the chunks of one step: as many workers for each lane as it may have streams."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from migrator.domain.errors import MigratorError
from migrator.domain.states import ChunkKind
from migrator.ports.lanes import Lane
from migrator.stages.run.chunks import ChunkQueue
from migrator.stages.run.context import PassUnderWay
from migrator.stages.run.governor import Governor
from migrator.stages.run.meter import Meter, cancel_and_wait
from migrator.stages.run.routes import Routes
from migrator.stages.run.worker import Worker


async def run_step(under_way: PassUnderWay, routes: Routes, step: Sequence[ChunkKind]) -> None:
    """Bring all chunks of these kinds to their end, side by side, or to a stop (`under_way.stop_found`).

    Raises what a worker raises; CancelledError after every stream has ended.
    """
    ledger, alone = under_way.world.ledger, under_way.left_alone
    kinds = [kind for kind in step if ledger.passes.pending(under_way.pass_id, kind.value, 1, but_trees=alone)]
    if not kinds:
        return
    governor = under_way.governor
    queue = ChunkQueue(
        ledger.passes,
        under_way.world.clock,
        under_way.pass_id,
        kinds,
        routes,
        but_trees=alone,
        governor=governor,
    )
    meter = Meter(under_way, kinds, ledger.passes.totals(under_way.pass_id))
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(meter.watch())
            counts: Counter[str] = Counter()

            def employ() -> None:
                """As many workers for each lane as it may have streams; one too many waits for its turn."""
                for lane in routes.lanes:
                    while counts[lane.host] < _streams(lane, governor):
                        counts[lane.host] += 1
                        worker = Worker(under_way, routes, queue, meter, lane=lane, slot=counts.total())
                        under_way.workers.add(group.create_task(worker.work()))

            def allowed_anew() -> None:
                employ()
                queue.wake()

            employ()
            with _following(governor, allowed_anew):
                while at_work := [worker for worker in under_way.workers if not worker.done()]:
                    await asyncio.wait(at_work)
            await cancel_and_wait(watching)
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from group_error
    finally:
        under_way.workers.clear()
        now_s = under_way.world.clock.monotonic_s()
        meter.sample(now_s)
    meter.show(now_s)


def _streams(lane: Lane, governor: Governor | None) -> int:
    """How many streams a lane may have by the limits that hold now."""
    return lane.jobs if governor is None else governor.ceilings.get(lane.host, lane.jobs)


@contextmanager
def _following(governor: Governor | None, call: Callable[[], None]) -> Iterator[None]:
    """Call it whenever the governor allows something else, until the end of the block."""
    end = governor.on_change(call) if governor is not None else (lambda: None)
    try:
        yield
    finally:
        end()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell people: one of the program's own where there is one."""
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if isinstance(leaf, MigratorError)), leaves[0])
