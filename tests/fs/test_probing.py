"""Probes: on a real file system, in the ledger, and beside other work."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from migrator.app.ledger import MigrationLedger
from migrator.core.clock import SystemClock
from migrator.core.probe import ENTRIES, PROBE_LOCK, PROBE_NAME, Probe, ProbeSide, ProbeTimes
from migrator.core.tasks import DaemonThreads
from migrator.core.units import HOUR_S
from migrator.fs.model import SENTINEL_NAME
from migrator.fs.probing import DirectoryProber, ProbePorts, probing
from migrator.ledger.locks import Locks
from migrator.transfer.records_measures import ALL_KEPT_S, KEPT_S
from tests.support.run_world import in_loop

TIMES = ProbeTimes(create_s=0.01, write_s=0.02, sync_s=0.03, stat_s=0.04, unlink_s=0.05, readdir_s=0.06)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "mount"
    found.mkdir()
    (found / os.fsdecode(SENTINEL_NAME)).write_text("site one\n")
    return found


def prober(root: Path) -> DirectoryProber:
    return DirectoryProber(os.fsencode(root), time.monotonic)


def own(root: Path) -> Path:
    return root / os.fsdecode(PROBE_NAME)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_only_the_entries_stay_and_they_are_made_once(root: Path) -> None:
    for number in range(3):
        prober(root).probe(number)
    inodes = {path.name: path.stat().st_ino for path in own(root).iterdir()}
    prober(root).probe(ENTRIES + 1)

    assert len(inodes) == ENTRIES + 1
    assert {path.name: path.stat().st_ino for path in own(root).iterdir()} == inodes
    assert own(root).stat().st_mode & 0o777 == 0o700


def test_leftovers_of_a_killed_probe_are_reused(root: Path) -> None:
    own(root).mkdir(mode=0o700)
    for name in ("probe-05", "entry-00", "entry-01"):
        (own(root) / name).write_text("left")

    prober(root).probe(5)

    assert sum(path.name.startswith("entry-") for path in own(root).iterdir()) == ENTRIES
    assert not (own(root) / "probe-05").exists()
    (own(root) / "probe-09").write_text("left")
    prober(root).clean()
    assert not own(root).exists()


def test_a_directory_without_a_sentinel_is_left_alone(root: Path) -> None:
    (root / os.fsdecode(SENTINEL_NAME)).unlink()

    for call in (lambda: prober(root).probe(0), prober(root).clean):
        with pytest.raises(OSError, match="sentinel"):
            call()

    assert names(root) == []


def test_a_symlink_and_a_directory_that_others_may_write_to_are_refused(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    own(root).symlink_to(elsewhere)
    for call in (lambda: prober(root).probe(0), prober(root).clean):
        with pytest.raises(OSError, match="directory"):
            call()
    assert list(elsewhere.iterdir()) == []

    own(root).unlink()
    own(root).mkdir()
    own(root).chmod(0o777)
    (own(root) / "probe-00").write_text("somebody's")
    for call in (lambda: prober(root).probe(0), prober(root).clean):
        with pytest.raises(OSError, match="not its own"):
            call()
    assert [path.name for path in own(root).iterdir()] == ["probe-00"]


def test_old_probes_are_thinned_out_and_removed_at_last(ledger: MigrationLedger) -> None:
    now_s = 100.0 * KEPT_S
    for side in ProbeSide:
        for age_s in (KEPT_S + HOUR_S, *(ALL_KEPT_S + 2 * HOUR_S + minute * 60.0 for minute in range(59))):
            ledger.probes.add(Probe(side=side, at_s=now_s - age_s, times=TIMES))
    for number in range(20):
        ledger.probes.add(Probe(side=ProbeSide.SOURCE, at_s=now_s + number, times=TIMES))

    left = ledger.probes.since(ProbeSide.SOURCE, 0.0)

    assert len([one for one in left if one.at_s >= now_s]) == 20
    old = [one for one in left if one.at_s < now_s]
    assert 1 <= len(old) <= 2
    assert min(one.at_s for one in old) >= now_s - KEPT_S
    assert 1 <= len(ledger.probes.since(ProbeSide.TARGET, 0.0)) <= 2


def test_later_probes_are_known_by_number_not_by_clock(ledger: MigrationLedger) -> None:
    assert ledger.probes.last() == 0
    early = Probe(side=ProbeSide.TARGET, at_s=5000.0, times=TIMES)
    ledger.probes.add(early)
    begin = ledger.probes.last()
    assert list(ledger.probes.after(begin)) == []
    later = [Probe(side=side, at_s=100.0, times=TIMES) for side in ProbeSide]
    for probe in later:
        ledger.probes.add(probe)
    found = ledger.probes.after(begin)
    assert [probe for _, probe in found] == later
    assert [number for number, _ in found] == sorted(number for number, _ in found)
    assert ledger.probes.last() == found[-1][0]
    assert [probe for _, probe in ledger.probes.after(0)] == [early, *later]


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
    def world(self) -> ProbePorts:
        return ProbePorts(
            probers={ProbeSide.SOURCE: self.source, ProbeSide.TARGET: self.target},  # type: ignore[dict-item]
            keep=self.kept.append,
            alone=partial(self.locks.hold, "probes", PROBE_LOCK),
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
async def until(condition: Callable[[], bool], world: ProbePorts) -> AsyncIterator[None]:
    async with probing(world), asyncio.timeout(120.0):
        await seen(condition)
        yield


@in_loop
async def test_only_one_of_several_probes_and_another_takes_over(site: Site) -> None:
    other = Site(locks=site.locks)
    other.source.answers.set()
    other.target.answers.set()

    async def take_over() -> None:
        async with until(lambda: bool(other.kept), other.world):
            pass

    async with until(lambda: len(site.kept) >= 4, site.world):
        waiting = asyncio.create_task(take_over())
        known = len(site.kept)
        await seen(lambda: len(site.kept) >= known + 6)
        assert other.kept == []
    await waiting
    assert other.source.cleaned == 1


@in_loop
async def test_a_side_that_hangs_is_told_each_round_and_asked_once_and_the_other_goes_on(site: Site) -> None:
    site.source.answers.clear()
    site.no_answer_s = 2.0

    async with until(lambda: min(len(site.of(side)) for side in ProbeSide) >= 3, site.world):
        assert site.source.numbers == [0]
        hung = [one.waited_s for one in site.of(ProbeSide.SOURCE)]
        assert None not in hung
        assert hung == sorted(hung, key=lambda waited_s: waited_s or 0.0)
        assert all(one.times == TIMES for one in site.of(ProbeSide.TARGET))
        site.source.answers.set()
        await seen(lambda: len(site.source.numbers) >= 3)
    assert site.source.most_at_once == 1
    assert site.of(ProbeSide.SOURCE)[-1].times == TIMES


@in_loop
async def test_the_end_does_not_wait_for_a_side_that_hangs_and_cleans_the_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.fs.probing.CLEANING_S", 0.01)
    site.source.answers.clear()
    site.no_answer_s = 2.0

    async with until(lambda: bool(site.of(ProbeSide.SOURCE)), site.world):
        pass
    async with asyncio.timeout(120.0):  # it is not waited for any longer, and goes on in its thread
        await seen(lambda: bool(site.target.cleaned))
    assert (site.source.cleaned, site.target.cleaned) == (0, 1)


@in_loop
async def test_a_failure_is_kept_with_its_reason_and_probing_goes_on(site: Site) -> None:
    site.target.error = OSError(30, "Read-only file system")

    async with until(lambda: len(site.of(ProbeSide.TARGET)) >= 2, site.world):
        pass
    assert {one.failure for one in site.of(ProbeSide.TARGET)} == {"Read-only file system"}
    assert {one.times for one in site.of(ProbeSide.TARGET)} == {None}


@in_loop
async def test_the_error_of_the_block_is_raised_and_the_lock_is_free_afterwards(site: Site) -> None:
    with pytest.raises(RuntimeError, match="of the block"):
        async with until(lambda: bool(site.kept), site.world):
            raise RuntimeError("of the block")
    with site.locks.hold("test", PROBE_LOCK):
        assert site.source.cleaned == 1
