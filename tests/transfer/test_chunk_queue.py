"""Which chunk is given out next."""

import asyncio
from collections.abc import Collection
from typing import cast

from migrator.core.clock import Clock
from migrator.core.states import ChunkKind, ChunkState
from migrator.ledger.ledger import PassRecords
from migrator.transfer.lanes import Routes
from migrator.transfer.model import ChunkRecord
from migrator.transfer.pool import ChunkQueue
from migrator.transfer.ports import Lane

ONE, TWO = "gl1:/b1", "gl1:/b2"


class Waiting:
    """What the queue asks of the ledger, over chunks of files that all wait until they are taken off the list."""

    def __init__(self, *chunks: ChunkRecord) -> None:
        self.left = {chunk.id: chunk for chunk in chunks}
        self.asked = 0

    def bricks(self, _: int) -> frozenset[str | None]:
        return frozenset(chunk.brick for chunk in self.left.values())

    def pending(
        self,
        _: int,
        kind: str,
        limit: int,
        *,
        bricks: Collection[str | None] | None = None,
        but_trees: Collection[bytes] = (),
    ) -> list[ChunkRecord]:
        self.asked += 1
        assert kind == ChunkKind.FILES.value
        found = [chunk for chunk in self.left.values() if bricks is None or chunk.brick in bricks]
        found = [chunk for chunk in found if chunk.tree not in but_trees]
        return sorted(found, key=lambda chunk: (-chunk.size_bytes, chunk.number))[:limit]


class AllBricks:
    """Routes over one lane that reads every brick."""

    version = 0
    lost: tuple[str, ...] = ()

    def eligible(self, _: Lane, bricks: Collection[str | None]) -> frozenset[str | None]:
        return frozenset(bricks)


class Still:
    """A clock that stands still."""

    host = "gl1"

    def monotonic_s(self) -> float:
        return 0.0


def chunk(number: int, size_bytes: int, brick: str | None) -> ChunkRecord:
    return ChunkRecord(
        id=number,
        pass_id=1,
        number=number,
        kind=ChunkKind.FILES,
        tree=b"home/anna",
        files=1,
        size_bytes=size_bytes,
        state=ChunkState.PENDING,
        tries=0,
        list_path=None,
        brick=brick,
    )


def queue_over(waiting: Waiting) -> ChunkQueue:
    return ChunkQueue(
        cast("PassRecords", waiting), cast("Clock", Still()), 1, (ChunkKind.FILES,), cast("Routes", AllBricks())
    )


def take(queue: ChunkQueue) -> ChunkRecord:
    found = asyncio.run(queue.take(cast("Lane", Still())))
    assert found is not None
    return found


def test_the_bricks_of_a_host_are_read_evenly_each_from_its_largest_chunk() -> None:
    """By size alone all streams would read the first brick to its end, and then the second one."""
    waiting = Waiting(*(chunk(n, 100 - n, ONE) for n in (1, 2, 3, 4)), *(chunk(n, 50 - n, TWO) for n in (5, 6, 7, 8)))
    queue = queue_over(waiting)
    assert [take(queue).number for _ in range(4)] == [1, 5, 2, 6]


def test_a_stream_that_ends_is_followed_by_one_on_the_same_brick() -> None:
    waiting = Waiting(*(chunk(n, 100, ONE) for n in (1, 2, 3)), *(chunk(n, 10, TWO) for n in (5, 6, 7)))
    queue = queue_over(waiting)
    first, second = take(queue), take(queue)
    assert (first.brick, second.brick) == (ONE, TWO)
    del waiting.left[second.id]
    queue.confirm(second)
    assert take(queue).brick == TWO
    queue.give_back(second)
    del waiting.left[first.id]
    queue.give_back(first)
    assert take(queue).brick == ONE
