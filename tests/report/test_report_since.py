"""Whether a migration is ahead of an earlier report, and why."""

from dataclasses import replace

import pytest

from migrator.core.units import DAY_S, GIB
from migrator.report.model import ConePoint, CopyForecast, EarlierReport, SinceReport, Standing, Tally, ThroughputPoint
from migrator.report.rules import best_and_worst, expected_bytes, since_report

THEN_S, NOW_S = 1e9, 1e9 + 7 * DAY_S


def earlier(*, likely_s: float | None = THEN_S + 20 * DAY_S, plan: str = "p", total: int = 1000 * GIB) -> EarlierReport:
    cone = tuple(
        ConePoint(at_s=THEN_S + day * DAY_S, left_bytes=(800 - 40 * day) * GIB, least_bytes=0, most_bytes=0)
        for day in range(21)
    )
    return EarlierReport(
        at_s=THEN_S,
        plan=plan,
        total_bytes=total,
        done_bytes=200 * GIB,
        total_files=100,
        done_files=20,
        likely_at_s=likely_s,
        earliest_at_s=None,
        latest_at_s=None,
        cone=() if likely_s is None else cone,
    )


def forecast(likely_s: float) -> CopyForecast:
    return CopyForecast(
        made_at_s=NOW_S,
        likely_at_s=likely_s,
        earliest_at_s=likely_s,
        latest_at_s=likely_s,
        share=0.8,
        history_s=1.0,
        by_day=True,
        by_weekday=True,
        basis=(),
        cone=(),
    )


def work(days: float, *, busy: float, gib_per_day: float, files: int = 1000) -> ThroughputPoint:
    span_s = days * DAY_S
    return ThroughputPoint(
        at_s=0.0,
        span_s=span_s,
        busy_s=busy * span_s,
        streams=4.0,
        files=files,
        size_bytes=round(gib_per_day * days * GIB),
    )


def compared(
    before: EarlierReport,
    *,
    done_gib: int = 480,
    total: int = 1000 * GIB,
    likely_s: float = THEN_S + 20 * DAY_S,
    was: ThroughputPoint | None = None,
    since: ThroughputPoint | None = None,
) -> SinceReport:
    return since_report(
        before,
        now_s=NOW_S,
        plan="p",
        overall=Tally(total_bytes=total, done_bytes=done_gib * GIB, total_files=100, done_files=50),
        forecast=forecast(likely_s),
        before=was or work(5, busy=0.9, gib_per_day=40),
        after=since or work(7, busy=0.9, gib_per_day=40),
    )


class TestStanding:
    @pytest.mark.parametrize(
        ("days", "standing"),
        [(20.0, Standing.AS_EXPECTED), (20.9, Standing.AS_EXPECTED), (21.5, Standing.BEHIND), (18.5, Standing.AHEAD)],
    )
    def test_by_how_far_the_end_has_moved(self, days: float, standing: Standing) -> None:
        found = compared(earlier(), likely_s=THEN_S + days * DAY_S)
        assert found.standing is standing
        assert found.end_moved_s == pytest.approx((days - 20) * DAY_S)

    def test_an_earlier_report_without_a_forecast(self) -> None:
        found = compared(earlier(likely_s=None))
        assert (found.standing, found.end_moved_s, found.expected_bytes) == (Standing.UNKNOWN, None, None)
        assert found.reasons[0] == "in the 7 d since then 280.0 GiB were copied"

    def test_a_clock_that_was_set_back_since_says_so_and_compares_nothing(self) -> None:
        later = replace(earlier(), at_s=NOW_S + 60.0)
        found = compared(later)
        assert found.standing is Standing.UNKNOWN
        (reason,) = found.reasons
        assert reason.startswith("the report is later than the clock of this machine")

    def test_when_all_is_done_the_end_is_now(self) -> None:
        found = since_report(
            earlier(),
            now_s=NOW_S,
            plan="p",
            overall=Tally(total_bytes=10, done_bytes=10, total_files=1, done_files=1),
            forecast=None,
            before=None,
            after=None,
        )
        assert found.standing is Standing.AHEAD
        assert found.end_moved_s == pytest.approx(-13 * DAY_S)
        assert "no stream has run since then" in found.reasons


class TestReasons:
    def test_what_was_expected(self) -> None:
        assert expected_bytes(earlier(), THEN_S + 2.5 * DAY_S) == pytest.approx(100 * GIB)
        assert expected_bytes(earlier(), THEN_S + 90 * DAY_S) == pytest.approx(800 * GIB)
        found = compared(earlier(), done_gib=340)
        assert found.reasons[0] == "in the 7 d since then 140.0 GiB were copied, 50 % of the expected 280.0 GiB"

    def test_what_came_after_everything_was_copied_is_no_progress_and_no_delay(self) -> None:
        over = replace(earlier(likely_s=None), done_bytes=1000 * GIB, done_files=100)
        found = compared(
            over, done_gib=1000, was=work(7, busy=0.9, gib_per_day=1), since=work(7, busy=0.1, gib_per_day=9)
        )
        assert found.reasons == (
            "everything in the plan had been copied by then; later passes copied what users changed",
        )

    def test_the_plan_has_grown(self) -> None:
        found = compared(earlier(), total=1200 * GIB)
        assert found.planned_more_bytes == 200 * GIB
        assert "the plan grew by 200.0 GiB" in found.reasons

    def test_another_plan(self) -> None:
        found = compared(earlier(plan="other"))
        assert found.expected_bytes is None
        assert "the plan changed from other to p" in found.reasons[0]

    def test_pauses(self) -> None:
        found = compared(earlier(), since=work(7, busy=0.3, gib_per_day=13.3))
        assert "streams ran for less of the time: 30 % instead of 90 %" in found.reasons

    def test_slower_because_of_small_files(self) -> None:
        slow = work(7, busy=0.9, gib_per_day=10, files=1_000_000)
        found = " ".join(compared(earlier(), since=slow).reasons)
        assert "while running they were slower" in found
        assert "the files are smaller" in found


def test_the_best_and_the_worst_day_are_whole_ones() -> None:
    days = [
        ThroughputPoint(at_s=day * DAY_S, span_s=DAY_S, busy_s=1.0, streams=1.0, files=1, size_bytes=size)
        for day, size in enumerate((9, 5, 3, 7, 1))
    ]
    found = best_and_worst(days)
    assert found is not None
    assert [day.size_bytes for day in found] == [7, 3]
    assert best_and_worst(days[:3]) is None
