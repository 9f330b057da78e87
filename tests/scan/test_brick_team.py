"""The walks of all bricks side by side: proven before they go, named when they are lost, never waited for in vain."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.catalog.ports import CatalogTotals
from migrator.fs.model import ScanProblem
from migrator.gluster.model import Brick, BrickRules, Mark
from migrator.gluster.walks import BrickHello, BrickListener, BrickLost, BrickTotals, WalkProblems
from migrator.scan.bricks import BrickTeam
from tests.support.fakes import VirtualClock
from tests.support.volumes import volume

VOLUME_ID = "f9855758-fe85-4982-b480-bec8dcb39254"
RULES = BrickRules(times_from_mdata=True, distributed=True)
STATE = volume("h1:/b", "h2:/b", volume_id=VOLUME_ID)
BRICKS = STATE.bricks
HELLO = BrickHello(volume_id=VOLUME_ID.upper(), root_gfid=bytes(15) + b"\1", device=7)
Walk = Callable[[BrickListener], Awaitable[BrickTotals]]


async def well(listener: BrickListener) -> BrickTotals:
    """Two blocks, and one problem of each sort."""
    await listener.hello(HELLO)
    await listener.rows(memoryview(b"abc"))
    await listener.directories(memoryview(b"de"))
    problem = ScanProblem(path=b"p", operation="open", errno=13, reason="Permission denied")
    marked = replace(problem, operation=Mark.PENDING)
    await listener.problems(
        WalkProblems(unreadable=(problem,), to_ask=(problem,), strange=(problem,), marked=(marked,))
    )
    return BrickTotals(rows=3, directories=2, problems=2)


class Walks:
    """What each brick's walk does, by host."""

    hosts: Collection[str] = ("h1", "h2")

    def __init__(self, **walks: Walk) -> None:
        self._walks = walks

    async def reach(self, host: str) -> None:
        """All are there."""

    async def walk(self, brick: Brick, *, listener: BrickListener, **how: Any) -> BrickTotals:
        assert how == {"trees": [b"home/a"], "only_trees": True, "rules": RULES, "marks_only": False}
        return await self._walks.get(brick.host, well)(listener)


class Written:
    """A catalog that counts bytes as rows."""

    def __init__(self, error: OSError | None = None) -> None:
        self.done: list[str] = []
        self.noted: list[ScanProblem] = []
        self._error = error

    def add_rows(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        if self._error is not None:
            raise self._error
        assert device == HELLO.device
        return CatalogTotals(rows=len(payload))

    def add_directories(self, brick: str, device: int, payload: memoryview) -> CatalogTotals:
        return CatalogTotals(directories=len(payload))

    def brick_done(self, brick: str) -> None:
        self.done.append(brick)

    def note(self, problems: Sequence[ScanProblem]) -> None:
        self.noted.extend(problems)


def run(walks: Walks, then: Callable[[BrickTeam, tuple[str, ...]], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        team = BrickTeam(walks, BRICKS, STATE, rules=RULES, clock=VirtualClock())  # type: ignore[arg-type]
        try:
            await then(team, await team.greet([b"home/a"], only_trees=True))
        finally:
            await team.stop()

    asyncio.run(all_of_it())


def test_all_go_when_all_have_proven_what_they_are() -> None:
    written = Written()

    async def go(team: BrickTeam, reasons: tuple[str, ...]) -> None:
        assert reasons == ()
        assert [walker.entries for walker in team.walkers] == [0, 0]
        await team.go(written)  # type: ignore[arg-type]
        assert [(walk.rows, walk.directories, walk.whole) for walk in (walker.facts() for walker in team.walkers)] == [
            (3, 2, True)
        ] * 2
        assert team.rows == 6
        assert (team.problems, len(written.noted), team.to_ask) == (2, 2, [b"p", b"p"])
        # What one brick has past Gluster nobody is asked for, whatever the others say of it.
        assert team.may_be_asked([b"q", *team.to_ask, b"a"]) == [b"a", b"q"]
        assert [(one.brick, one.files, one.paths) for one in team.strange()] == [
            (brick.name, 1, (b"p",)) for brick in BRICKS
        ]
        assert team.marks.paths == {b"p"}
        assert all(progress.ended for progress in team.progress())

    run(Walks(), go)
    assert sorted(written.done) == ["h1:/b", "h2:/b"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"volume_id": "another"}, "h2:/b is a brick of another volume"),
        ({"volume_id": None}, "h2:/b is no root of a brick"),
        ({"root_gfid": b""}, "h2:/b is no root of a brick"),
        (None, "host h2 has no python3"),
    ],
)
def test_one_that_is_no_brick_of_the_volume_or_is_lost_before_holds_all(
    changes: dict[str, Any] | None, said: str
) -> None:
    async def other(listener: BrickListener) -> BrickTotals:
        if changes is None:
            raise BrickLost(said)
        facts = {"volume_id": VOLUME_ID, "root_gfid": HELLO.root_gfid, "device": 7, **changes}
        await listener.hello(BrickHello(**facts))
        raise AssertionError("it was let go")

    async def refused(team: BrickTeam, reasons: tuple[str, ...]) -> None:
        (reason,) = reasons
        assert said in reason

    run(Walks(h2=other), refused)


@pytest.mark.parametrize("failure", ["it broke off", "of 6 entries 5 arrived"])
def test_one_that_is_lost_in_the_middle_is_named_and_the_others_go_on(failure: str) -> None:
    async def lost(listener: BrickListener) -> BrickTotals:
        await well(listener)
        if failure == "it broke off":
            raise BrickLost(failure)
        return BrickTotals(rows=4, directories=2, problems=0)

    async def go(team: BrickTeam, _: tuple[str, ...]) -> None:
        await team.go(Written())  # type: ignore[arg-type]
        assert [walker.failure for walker in team.walkers] == [None, failure]
        assert [walker.facts().whole for walker in team.walkers] == [True, False]

    run(Walks(h2=lost), go)


def test_a_catalog_that_cannot_be_written_ends_all() -> None:
    async def go(team: BrickTeam, _: tuple[str, ...]) -> None:
        with pytest.raises(OSError, match="No space"):
            await team.go(Written(OSError(28, "No space left on device")))  # type: ignore[arg-type]

    run(Walks(), go)


def test_one_that_hangs_is_given_up() -> None:
    async def hangs(listener: BrickListener) -> BrickTotals:
        await listener.hello(HELLO)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def go(team: BrickTeam, _: tuple[str, ...]) -> None:
        going = asyncio.ensure_future(team.go(Written()))  # type: ignore[arg-type]
        while team.walkers[0].ended_s is None or team.walkers[1].began_s is None:  # noqa: ASYNC110 -- no event tells
            await asyncio.sleep(0)
        team.end_stalled()
        assert not going.done()
        assert isinstance(team.clock, VirtualClock)
        team.clock.at_s += 4000.0
        team.end_stalled()
        await going
        assert "sent nothing for" in (team.walkers[1].failure or "")
        assert team.walkers[0].failure is None

    run(Walks(h2=hangs), go)
