"""The promise, the dates against it, and the reports that are kept to compare with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.plan.model import ThroughputPoint
from migrator.plan.schedule.model import Obstacle, ObstacleKind, Schedule, ScheduleOutcome
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.report import model, rules_promise
from migrator.report.kept_reports import KeptReports
from migrator.report.model import EarlierReports, Goal, Milestone, Punctuality, ReportFacts
from migrator.report.report import read_report
from tests.support.making import made
from tests.support.report_world import BEGAN_S, DAY_S, PLANNED_DAYS, OnePlan, Weeks

# --- The report to compare with

NOW_S = 100 * DAY_S


def kept(days_ago: float, *marks: str) -> model.KeptReport:
    name = f"{days_ago}"
    return model.KeptReport(
        name=name, at_s=NOW_S - days_ago * DAY_S, sent="sent" in marks, baseline="baseline" in marks
    )


@pytest.mark.parametrize(
    ("found", "compared"),
    [
        ([], []),
        ([kept(14, "sent"), kept(7, "sent"), kept(1)], ["7", "14"]),
        ([kept(9), kept(2), kept(0.2), kept(0.1)], ["2", "9", "0.2", "0.1"]),
        ([kept(0.2), kept(0.1)], ["0.2", "0.1"]),
        # The clock was set back.
        ([kept(3), kept(-1, "sent")], ["3"]),
    ],
)
def test_the_last_sent_report_comes_first(found: list[model.KeptReport], compared: list[str]) -> None:
    assert [one.name for one in rules_promise.earlier_reports(found, now_s=NOW_S)] == compared


# --- The verdict

PROMISE = model.Promise(
    at_s=0.0,
    plan="p",
    baseline=False,
    total_bytes=1000,
    left_bytes=1000,
    left_files=10,
    busy_s=20 * DAY_S,
    copied_at_s=20 * DAY_S,
    moved_at_s=20 * DAY_S,
    cleared_at_s=30 * DAY_S,
)
OPEN = Milestone(goal=Goal.COPIED, promised_at_s=PROMISE.copied_at_s, unknown="too little was copied for a forecast")
COPIED = replace(OPEN, done=True, at_s=19.5 * DAY_S)
MOVED = Milestone(goal=Goal.MOVED, promised_at_s=PROMISE.moved_at_s, unknown="there is no schedule")
CLEARED = Milestone(goal=Goal.CLEARED, promised_at_s=PROMISE.cleared_at_s, at_s=36 * DAY_S)


def judged(*dates: Milestone, now_day: float = 10.0, **facts: Any) -> model.PromiseVerdict:
    given: dict[str, Any] = {
        "overall": made(model.ProgressCounts, total_bytes=1000),
        "began_s": 0.0,
        "work": None,
        "since": None,
    }
    return rules_promise.verdict(PROMISE, dates, **(given | {"now_s": now_day * DAY_S} | facts))


@pytest.mark.parametrize(
    ("dates", "now_day", "standing", "late_days"),
    [
        ((replace(OPEN, at_s=20.9 * DAY_S), MOVED), 10, Punctuality.AS_EXPECTED, 0.9),
        ((replace(OPEN, at_s=29 * DAY_S), MOVED), 10, Punctuality.BEHIND, 9),
        ((replace(OPEN, at_s=15 * DAY_S), MOVED), 10, Punctuality.AHEAD, -5),
        ((OPEN, MOVED), 10, Punctuality.UNKNOWN, None),
        # Without a forecast it is at least late since the promised day.
        ((OPEN, MOVED), 23, Punctuality.BEHIND, 3),
        # The next date counts as soon as one is reached.
        ((COPIED, MOVED, CLEARED), 19.8, Punctuality.UNKNOWN, None),
        ((COPIED, MOVED, CLEARED), 24, Punctuality.BEHIND, 4),
        ((COPIED, replace(MOVED, done=True, at_s=19.9 * DAY_S), CLEARED), 24, Punctuality.BEHIND, 6),
        ((COPIED, replace(MOVED, done=True, at_s=20.1 * DAY_S)), 90, Punctuality.AS_EXPECTED, 0.1),
        # The bricks were cleared before the last user was moved.
        (
            (COPIED, replace(MOVED, done=True, at_s=29 * DAY_S), replace(CLEARED, done=True, at_s=18 * DAY_S)),
            90,
            Punctuality.AS_EXPECTED,
            -1,
        ),
    ],
)
def test_the_first_open_date_counts(
    dates: tuple[Milestone, ...], now_day: float, standing: Punctuality, late_days: float | None
) -> None:
    found = judged(*dates, now_day=now_day)
    assert found.standing is standing
    assert found.late_s == (None if late_days is None else pytest.approx(late_days * DAY_S))
    assert found.at_least == (found.standing is Punctuality.BEHIND and now_day in (23, 24) and dates[1] is MOVED)


def work(busy_days: float, size_bytes: int, files: int) -> ThroughputPoint:
    busy_s = busy_days * DAY_S
    return ThroughputPoint(
        at_s=10 * DAY_S, span_s=10 * DAY_S, busy_s=busy_s, streams=8.0, files=files, size_bytes=size_bytes
    )


@pytest.mark.parametrize(
    ("facts", "reasons"),
    [
        ({"work": work(4, 200, 2)}, ["streams ran 40 % of the time"]),
        ({"work": work(10, 250, 2)}, ["the rate was"]),
        # Small files: few bytes, and as many files as planned.
        ({"work": work(10, 250, 5)}, []),
        ({"work": work(10, 500, 5), "began_s": None}, ["no files were copied yet"]),
        ({"work": work(5, 250, 3), "began_s": 5 * DAY_S}, ["copying began 5 days after the plan"]),
        (
            {"work": work(10, 500, 5), "overall": made(model.ProgressCounts, total_bytes=1500)},
            ["the plan grew by 500 B"],
        ),
        ({"work": None}, ["streams ran 0 % of the time"]),
    ],
)
def test_reasons_of_a_delay(facts: dict[str, Any], reasons: list[str]) -> None:
    found = judged(replace(OPEN, at_s=29 * DAY_S), MOVED, **facts).reasons
    assert [one[: len(reason)] for one, reason in zip(found, reasons, strict=True)] == reasons


# --- With a ledger

WEEKS = Weeks()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MigrationLedger]:
    file = tmp_path_factory.mktemp("weeks") / "ledger.db"
    WEEKS.fill(file, share=0.6)
    with MigrationLedger.open(file, read_only=True) as opened:
        yield opened


def read(ledger: MigrationLedger, now_s: float = WEEKS.now_s, against: EarlierReports | None = None) -> ReportFacts:
    return read_report(ledger, OnePlan(plan=WEEKS.plan), now_s=now_s, against=against or EarlierReports())


def test_the_first_plan_is_the_promise_until_a_report_is_the_baseline(ledger: MigrationLedger, tmp_path: Path) -> None:
    facts = read(ledger)
    assert facts.promise is not None
    assert facts.verdict is not None
    assert facts.verdict.standing is Punctuality.BEHIND
    assert facts.promise.copied_at_s == pytest.approx(BEGAN_S - 3600 + PLANNED_DAYS * DAY_S)
    assert facts.milestones[0].at_s == facts.milestones[0].promised_at_s + facts.verdict.late_s  # type: ignore[operator]
    reports = KeptReports(directory=tmp_path)
    place = reports.keep(facts, asked=True)
    assert place is not None
    reports.mark_baseline(place)
    now_s = WEEKS.now_s + 3600.0
    later = read(ledger, now_s, reports.comparisons(now_s=now_s))
    assert later.promise is not None
    assert (later.promise.baseline, later.promise.at_s) == (True, WEEKS.now_s)
    dates = {one.goal: one.at_s for one in facts.milestones}
    assert (later.promise.moved_at_s, later.promise.cleared_at_s) == (dates[Goal.MOVED], dates[Goal.CLEARED])
    assert later.verdict is not None
    assert later.verdict.standing is Punctuality.AS_EXPECTED
    assert later.since is not None
    assert later.since.earlier.at_s == WEEKS.now_s


def test_a_later_plan_is_no_new_promise(ledger: MigrationLedger, tmp_path: Path) -> None:
    WEEKS.fill(tmp_path / "ledger.db", share=0.6)
    with MigrationLedger.open(tmp_path / "ledger.db") as opened:
        second = replace(WEEKS.plan, name="week5", created_at_s=WEEKS.now_s, forecast_s=90 * DAY_S, schedule=None)
        opened.plans.record(second, path="plans/week5.json", checksum="c")
        opened.plans.activate("week5", WEEKS.now_s)

        class Two(OnePlan, frozen=True, kw_only=True):
            def read(self, name: str) -> Any:
                return (second if name == "week5" else WEEKS.plan), "c"

        facts = read_report(opened, Two(plan=WEEKS.plan), now_s=WEEKS.now_s)
    assert facts.plan == second
    assert facts.promise == read(ledger).promise


def test_a_broken_report_is_passed_over(ledger: MigrationLedger, tmp_path: Path) -> None:
    reports = KeptReports(directory=tmp_path)
    good = reports.keep(read(ledger, WEEKS.now_s - 60), asked=True)
    broken = reports.keep(read(ledger), asked=True)
    assert good is not None
    assert broken is not None
    assert reports.keep(read(ledger, WEEKS.now_s + 60), asked=False) is None
    (broken / "report.json").write_text("{")
    for place in (good, broken):
        reports.mark_sent(place)
    found = reports.comparisons(now_s=WEEKS.now_s + 120)
    assert found.earlier is not None
    assert found.earlier.at_s == WEEKS.now_s - 60


OBSTACLE = Obstacle(kind=ObstacleKind.TARGET_BYTES, day=3.0)


def scheduled(**changed: Any) -> Schedule:
    assert WEEKS.plan.schedule is not None
    assert WEEKS.plan.schedule.outcome is not None
    return replace(WEEKS.plan.schedule, outcome=replace(WEEKS.plan.schedule.outcome, **changed))


def outcome() -> ScheduleOutcome:
    found = scheduled_outcome(WEEKS.plan)
    assert found is not None
    return found


NEVER = tuple(replace(one, cleared_day=None) for one in outcome().subvolumes)


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        made(Schedule, problem="no brick was scanned"),
        scheduled(obstacle=OBSTACLE, done_day=None, subvolumes=NEVER),
    ],
    ids=("none", "problem", "obstacle"),
)
def test_drained_bricks_are_not_all_bricks(ledger: MigrationLedger, schedule: Schedule | None) -> None:
    """Without a schedule that ends, nothing says when the others are cleared."""
    plan = replace(WEEKS.plan, schedule=schedule)
    facts = read_report(ledger, OnePlan(plan=plan), now_s=WEEKS.now_s)
    assert "committed" in {one.state for one in facts.bricks}
    dates = {one.goal: one for one in facts.milestones}
    for goal in (Goal.CLEARED, Goal.COMPLETE):
        assert (dates[goal].done, dates[goal].at_s) == (False, None)
        assert "the plan" in dates[goal].unknown
    assert dates[Goal.MOVED].at_s is not None, "users move at their own pace"


def test_a_migration_that_was_left_alone_for_a_year_has_no_expected_end(ledger: MigrationLedger) -> None:
    facts = read(ledger, WEEKS.now_s + 365 * DAY_S)
    assert facts.status.forecast is None
    assert facts.verdict is not None
    assert (facts.verdict.standing, facts.verdict.at_least) == (Punctuality.BEHIND, True)
    assert facts.verdict.reasons
