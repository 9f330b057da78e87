"""Probing beside something else: rounds, one process at a time, mounts that hang, and what is left at the end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from migrator.core.clock import SystemClock
from migrator.core.probe import PROBE_LOCK, Probe, ProbeSide, ProbeTimes
from migrator.core.tasks import DaemonThreads
from migrator.fs.probing import ProbeWorld, probing
from migrator.ledger.locks import Locks

TIMES = ProbeTimes(create_s=0.01, write_s=0.02, sync_s=0.03, stat_s=0.04, unlink_s=0.05, readdir_s=0.06)


@dataclass
class Mount:
    """A file system that answers while it is let."""

    answers: threading.Event = field(default_factory=threading.Event)
    error: OSError | None = None
    numbers: list[int] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    cleaned: int = 0

    def probe(self, number: int) -> ProbeTimes:
        self.numbers.append(number)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.answers.wait()
        self.at_once -= 1
        if self.error is not None:
            raise self.error
        return TIMES

    def clean(self) -> None:
        self.cleaned += 1


@dataclass
class Site:
    """Both sides, and what was kept of them."""

    locks: Locks
    source: Mount = field(default_factory=Mount)
    target: Mount = field(default_factory=Mount)
    kept: list[Probe] = field(default_factory=list)
    no_answer_s: float = 60.0
    """Shorter where one hangs, and long enough for the other, whose thread may have to wait for a processor."""

    @property
    def world(self) -> ProbeWorld:
        return ProbeWorld(
            probers={ProbeSide.SOURCE: self.source, ProbeSide.TARGET: self.target},  # type: ignore[dict-item]
            keep=self.kept.append,
            locks=self.locks,
            clock=SystemClock(),
            blocking=DaemonThreads(),
            interval_s=0.005,
            no_answer_s=self.no_answer_s,
        )

    def of(self, side: ProbeSide) -> list[Probe]:
        return [one for one in self.kept if one.side is side]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(locks=Locks(tmp_path / "locks", SystemClock()))
    found.source.answers.set()
    found.target.answers.set()
    yield found
    for mount in (found.source, found.target):
        mount.answers.set()


async def seen(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - threads change it
        await asyncio.sleep(0.002)


@asynccontextmanager
async def until(condition: Callable[[], bool], world: ProbeWorld) -> AsyncIterator[None]:
    async with probing(world), asyncio.timeout(120.0):
        await seen(condition)
        yield


def test_only_one_of_several_probes_and_another_takes_over(site: Site) -> None:
    other = Site(locks=site.locks)
    other.source.answers.set()
    other.target.answers.set()

    async def work() -> None:
        async with until(lambda: len(site.kept) >= 4, site.world):
            first = asyncio.create_task(_through(other))
            known = len(site.kept)
            await seen(lambda: len(site.kept) >= known + 6)
            assert other.kept == []
        await first

    async def _through(of: Site) -> None:
        async with until(lambda: bool(of.kept), of.world):
            pass

    asyncio.run(work())

    assert other.source.cleaned == 1


def test_a_side_that_hangs_is_told_each_round_and_asked_once_and_the_other_goes_on(site: Site) -> None:
    site.source.answers.clear()
    site.no_answer_s = 2.0

    async def work() -> None:
        async with until(
            lambda: len(site.of(ProbeSide.SOURCE)) >= 3 and len(site.of(ProbeSide.TARGET)) >= 3, site.world
        ):
            assert site.source.numbers == [0]
            hung = [one.waited_s for one in site.of(ProbeSide.SOURCE)]
            assert None not in hung
            assert hung == sorted(hung, key=lambda waited_s: waited_s or 0.0)
            assert all(one.times == TIMES for one in site.of(ProbeSide.TARGET))
            site.source.answers.set()
            await seen(lambda: len(site.source.numbers) >= 3)

    asyncio.run(work())

    assert site.source.most_at_once == 1
    assert site.of(ProbeSide.SOURCE)[-1].times == TIMES


def test_the_end_does_not_wait_for_a_side_that_hangs_and_cleans_the_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.fs.probing.CLEANING_S", 0.01)
    site.source.answers.clear()
    site.no_answer_s = 2.0

    async def work() -> None:
        async with until(lambda: bool(site.of(ProbeSide.SOURCE)), site.world):
            pass
        async with asyncio.timeout(120.0):  # it is not waited for any longer, and goes on in its thread
            await seen(lambda: bool(site.target.cleaned))

    asyncio.run(work())

    assert (site.source.cleaned, site.target.cleaned) == (0, 1)


def test_a_failure_is_kept_with_its_reason_and_probing_goes_on(site: Site) -> None:
    site.target.error = OSError(30, "Read-only file system")

    async def work() -> None:
        async with until(lambda: len(site.of(ProbeSide.TARGET)) >= 2, site.world):
            pass

    asyncio.run(work())

    assert {one.failure for one in site.of(ProbeSide.TARGET)} == {"Read-only file system"}
    assert {one.times for one in site.of(ProbeSide.TARGET)} == {None}


def test_the_error_of_the_block_is_raised_and_the_lock_is_free_afterwards(site: Site) -> None:
    async def work() -> None:
        async with until(lambda: bool(site.kept), site.world):
            raise RuntimeError("of the block")

    with pytest.raises(RuntimeError, match="of the block"):
        asyncio.run(work())

    with site.locks.hold(PROBE_LOCK, "test"):
        assert site.source.cleaned == 1
