"""Windows over simulated clocks, units, statistics of repeated runs, and calls beside the event loop."""

import asyncio
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.paths import is_beneath, overlap
from migrator.core.statistics import factor_between
from migrator.core.tasks import DaemonThreads, SharedCall
from migrator.core.units import DAY_S, HOUR_S
from migrator.core.windows import ALWAYS, Opening, OpenTimes, Window, opening, opens_at, standings
from tests.support.run_world import in_loop

WORKDAYS = (0, 1, 2, 3, 4)
NIGHTS = Window(days=WORKDAYS, start_minute=19 * 60, end_minute=7 * 60)
WEEKEND = Window(days=(5, 6), start_minute=0, end_minute=24 * 60)


def clock_of(zone: str) -> Callable[[float], tuple[int, int]]:
    def local_time(at_s: float) -> tuple[int, int]:
        found = datetime.fromtimestamp(at_s, ZoneInfo(zone))
        return found.weekday(), found.hour * 60 + found.minute

    return local_time


BERLIN = clock_of("Europe/Berlin")


def at(text: str) -> float:
    """A time in Berlin; an hour that is there twice: the first one."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.mark.parametrize(
    ("time", "is_open"),
    [
        ("2026-11-20 18:59:59", False),  # a Friday
        ("2026-11-20 19:00:00", True),
        ("2026-11-21 06:59:59", True),  # Friday's night, on Saturday
        ("2026-11-22 23:59:59", True),
        ("2026-11-23 00:00:00", False),  # a Monday: Sunday has no night
        ("2026-11-23 19:00:00", True),
        ("2026-11-24 06:59:59", True),
        ("2026-11-24 07:00:00", False),
    ],
)
def test_edges(time: str, is_open: bool) -> None:
    assert opening((NIGHTS, WEEKEND), at(time), BERLIN).open is is_open


def test_work_waits_for_the_next_window() -> None:
    """The epoch began on a Thursday."""
    morning = Window(days=(1,), start_minute=7 * 60, end_minute=9 * 60)
    times = OpenTimes(
        windows=(morning,), local_time=lambda at_s: ((int(at_s // DAY_S) + 3) % 7, int(at_s % DAY_S // 60))
    )
    tuesday = 5 * DAY_S + 7 * HOUR_S
    assert [times.from_(at_s) for at_s in (0.0, tuesday, tuesday + 60.5)] == [tuesday, tuesday, tuesday + 60.5]
    assert times.from_(tuesday + 2 * HOUR_S) == tuesday + 7 * DAY_S
    assert (ALWAYS.is_open(0.0), ALWAYS.from_(5.5)) == (True, 5.5)


def test_without_windows_it_is_always_open() -> None:
    assert opening((), 0.0, BERLIN) == Opening(open=True)


def test_of_several_that_hold_the_smallest_limits_count() -> None:
    day = Window(days=tuple(range(7)), start_minute=0, end_minute=1440, jobs=8, bwlimit_bytes_per_s=100)
    noon = Window(days=tuple(range(7)), start_minute=720, end_minute=780, jobs=2)
    assert opening((day, noon), at("2026-11-20 12:30"), BERLIN) == Opening(open=True, jobs=2, bwlimit_bytes_per_s=100)
    assert opening((day, noon), at("2026-11-20 13:00"), BERLIN) == Opening(open=True, jobs=8, bwlimit_bytes_per_s=100)


def test_a_window_that_begins_in_the_skipped_hour_begins_after_it() -> None:
    window = (Window(days=(6,), start_minute=150, end_minute=300),)
    assert opens_at(window, at("2026-03-29 01:00"), BERLIN) == at("2026-03-29 03:00")


WINDOWS = st.builds(
    Window,
    days=st.sets(st.integers(0, 6), min_size=1).map(lambda days: tuple(sorted(days))),
    start_minute=st.integers(0, 1439),
    end_minute=st.integers(0, 1440),
).filter(lambda window: window.start_minute != window.end_minute)
FIRST = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
TIMES = st.floats(FIRST, FIRST + timedelta(days=730).total_seconds())
ZONES = st.sampled_from(("UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu"))


@given(st.lists(WINDOWS, min_size=1, max_size=3), TIMES, ZONES)
def test_it_opens_at_the_first_minute_that_a_window_holds(windows: list[Window], at_s: float, zone: str) -> None:
    local_time = clock_of(zone)
    found = standings(windows, at_s, local_time, str)
    assert any(one.holds for one in found) is opening(windows, at_s, local_time).open
    if any(one.holds for one in found):
        return
    then = opens_at(windows, at_s, local_time)
    assert then is not None
    assert then == min(one.changes_at_s for one in found if one.changes_at_s is not None)
    assert at_s < then <= at_s + timedelta(days=8).total_seconds()
    assert opening(windows, then, local_time).open
    assert not opening(windows, then - 0.001, local_time).open
    middle = at_s + (then - at_s) / 2
    assert not opening(windows, middle, local_time).open


def test_each_window_is_told_with_when_it_ends_or_begins_next() -> None:
    always = Window(days=tuple(range(7)), start_minute=0, end_minute=1440, jobs=2, bwlimit_bytes_per_s=9)
    skipped = Window(days=(6,), start_minute=130, end_minute=170)
    saturday_s = at("2026-03-28 06:59:30")
    found = standings((NIGHTS, WEEKEND, always, skipped), saturday_s, BERLIN, lambda at_s: f"{at_s:.0f}")
    assert [(one.when, one.holds) for one in found] == [
        ("Mon-Fri 19:00-07:00", True),
        ("Sat,Sun 00:00-24:00", True),
        ("00:00-24:00", True),
        ("Sun 02:10-02:50", False),
    ]
    # The last one would begin in the hour that the clock skips on the day after.
    ends = [at("2026-03-28 07:00"), at("2026-03-30 00:00"), None, at("2026-04-05 02:10")]
    assert [one.changes_at_s for one in found] == ends
    assert [one.changes for one in found] == ["" if at_s is None else f"{at_s:.0f}" for at_s in ends]
    assert [(one.jobs, one.bwlimit_bytes_per_s) for one in found][2:] == [(2, 9), (None, None)]


def test_series_of_different_times_differ_where_their_ranges_lie_apart() -> None:
    found = factor_between([1.0, 1.1, 0.9, 1.0], [3.0, 3.2, 2.9])
    assert found is not None
    assert (found.low, found.factor, found.high) == pytest.approx((2.9 / 1.1, 3.0, 3.2 / 0.9))
    assert found.beyond_noise
    assert found.count == 3
    assert factor_between([1.0], []) is None
    assert factor_between([1.0, 0.0], [1.0]) is None
    mixed = factor_between([1.0, 3.0, 2.0], [1.1, 2.9, 2.2])
    assert mixed is not None
    assert mixed.beyond_noise is False
    few = factor_between([1.0, 1.0], [9.0, 9.0, 9.0])
    assert few is not None
    assert few.beyond_noise is None


@pytest.mark.parametrize("runs", [5, 8, 12, 40])
def test_of_file_systems_that_are_alike_at_most_one_in_ten_is_told_to_differ(runs: int) -> None:
    source = random.Random(runs)
    rounds, told = 1000, 0
    for _ in range(rounds):
        burden = [source.lognormvariate(0, 1) for _ in range(runs)]
        one, two = ([each * source.lognormvariate(0, 0.2) for each in burden] for _ in range(2))
        found = factor_between(one, two)
        told += bool(found and found.beyond_noise)
    assert told / rounds < 0.12


@in_loop
async def test_a_call_that_hangs_is_given_up() -> None:
    forever = threading.Event()
    with pytest.raises(TimeoutError):
        await DaemonThreads()(forever.wait, timeout_s=0.01)
    forever.set()


@in_loop
async def test_shared_calls_begin_after_the_request() -> None:
    began: list[int] = []
    gates = [asyncio.Event() for _ in range(3)]

    beginning = asyncio.Event()

    async def call() -> int:
        number = len(began)
        began.append(number)
        beginning.set()
        await gates[number].wait()
        return number

    shared = SharedCall(call)
    first = asyncio.create_task(shared.begun_after_now())
    await beginning.wait()
    later = [asyncio.create_task(shared.begun_after_now()) for _ in range(5)]
    await asyncio.sleep(0)
    gates[0].set()
    assert await first == 0
    gates[1].set()
    assert await asyncio.gather(*later) == [1] * 5
    assert began == [0, 1]


@in_loop
async def test_an_error_reaches_all_but_who_was_cancelled() -> None:
    gate = asyncio.Event()

    async def call() -> None:
        await gate.wait()
        raise OSError(5, "injected")

    shared = SharedCall(call)
    one, *others = (asyncio.create_task(shared.begun_after_now()) for _ in range(3))
    await asyncio.sleep(0)
    one.cancel()
    gate.set()
    assert [type(end) for end in await asyncio.gather(*others, return_exceptions=True)] == [OSError] * 2
    assert one.cancelled()


PATHS = st.sets(st.sampled_from([b"", b"a", b"a/b", b"a/b/c", b"ab", b"ab/c", b"b"]), min_size=1)


@given(PATHS, PATHS)
def test_sets_of_paths_overlap_if_two_of_them_do(some: set[bytes], others: set[bytes]) -> None:
    expected = any(is_beneath(one, other) or is_beneath(other, one) for one in some for other in others)
    assert overlap(some, others) == expected
