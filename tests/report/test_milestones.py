"""The goals of a migration in a ledger: which there are, what is reached, and why a date is unknown."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.app.ledger import MigrationLedger
from migrator.bricks.add.model import AdditionNotes, AdditionSide, TargetRoom
from migrator.bricks.retire.model import RetirementState
from migrator.report.model import ForecastSettings, Goal, Milestone
from migrator.report.report import read_report
from tests.report.serving import site_of_weeks
from tests.support.operations import (
    CHECK,
    GIVE_UP,
    HAND_OVER,
    PREPARE,
    SETTLE_ADDED,
    START,
    do,
    plan_addition,
    plan_drain,
)
from tests.support.report_world import BEGAN_S, BRICKS, DAY_S, KEPT_S, OnePlan, Weeks
from tests.support.warm_program import run_program

KEPT = ForecastSettings(retain_s=KEPT_S)
ROOM = AdditionNotes(room_before=TargetRoom(total_bytes=1, storage_targets=None))
Change = Callable[[MigrationLedger], object]


def dates(directory: Path, change: Change, *, share: float = 1.01, **world: Any) -> dict[Goal, Milestone]:
    weeks = Weeks(**({"days": 56, "moved": 24, "drained": 4, "purged": 24} | world))
    weeks.fill(directory / "ledger.db", share=share)
    with MigrationLedger.open(directory / "ledger.db") as ledger:
        change(ledger)
        facts = read_report(ledger, OnePlan(plan=weeks.plan), now_s=weeks.now_s, settings=KEPT)
    return {one.goal: one for one in facts.milestones}


def nothing(_ledger: MigrationLedger) -> None:
    """Nothing is changed."""


def add(*bricks: str) -> Change:
    def change(ledger: MigrationLedger) -> None:
        for number, brick in enumerate(bricks):
            at_s = BEGAN_S + (40 + number) * DAY_S
            record = plan_addition(ledger, (brick,), side=AdditionSide.TARGET, at_s=at_s)
            do(ledger.additions, record, PREPARE, HAND_OVER, SETTLE_ADDED, at_s=at_s, notes=ROOM)

    return change


def test_a_finished_migration_without_additions(tmp_path: Path) -> None:
    found = dates(tmp_path, nothing)
    assert list(found) == [Goal.COPIED, Goal.VERIFIED, Goal.MOVED, Goal.PURGED, Goal.CLEARED, Goal.COMPLETE]
    assert all(one.done for one in found.values())
    times = [one.at_s for one in found.values()]
    assert None not in times
    assert found[Goal.COMPLETE].at_s == max(at_s for at_s in times if at_s is not None)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_additions_to_the_target_are_a_goal_once_there_is_one(tmp_path: Path, count: int) -> None:
    found = dates(tmp_path, add(*BRICKS[:count]))
    assert (found[Goal.ADDED].done, found[Goal.COMPLETE].done) == (count == 4, count == 4)
    if count < 4:
        assert found[Goal.ADDED].at_s is not None
        assert found[Goal.COMPLETE].at_s == found[Goal.ADDED].at_s


def test_sources_are_kept_and_then_purged(tmp_path: Path) -> None:
    """An hour after the three days, as the others were; bricks are left for the last purge."""
    found = dates(tmp_path, nothing, days=38.5, purged=24, drained=1)
    assert [found[goal].done for goal in (Goal.MOVED, Goal.PURGED, Goal.CLEARED)] == [True, False, False]
    moved, purged, cleared = (found[goal].at_s for goal in (Goal.MOVED, Goal.PURGED, Goal.CLEARED))
    assert moved is not None
    assert purged == pytest.approx(moved + KEPT_S, abs=DAY_S / 4)
    assert cleared is not None
    assert cleared > moved + KEPT_S


def test_a_failed_drain_leaves_the_last_brick_without_a_date(tmp_path: Path) -> None:
    def fail(ledger: MigrationLedger) -> None:
        do(ledger.drains, plan_drain(ledger, (BRICKS[3],), at_s=BEGAN_S), CHECK, START, GIVE_UP, at_s=BEGAN_S)

    found = dates(tmp_path, fail, drained=3)
    assert BRICKS[3] in found[Goal.CLEARED].unknown
    assert found[Goal.COMPLETE].unknown == found[Goal.CLEARED].unknown


def test_a_volume_that_is_retired_has_no_bricks_left(tmp_path: Path) -> None:
    def retire(ledger: MigrationLedger) -> None:
        begun = ledger.retirements.begin(
            volume="vol1", volume_id="v", catalog="c", files=1, size_bytes=1, at_s=BEGAN_S + 50 * DAY_S
        )
        for state in (RetirementState.STOPPING, RetirementState.RETIRED):
            ledger.retirements.enter(begun.id, state, at_s=BEGAN_S + 51 * DAY_S)

        add(*BRICKS[:3])(ledger)

    found = dates(tmp_path, retire, drained=3)
    assert found[Goal.ADDED].done, "the last brick was not drained, and need not be added"
    assert found[Goal.CLEARED].done
    assert found[Goal.CLEARED].at_s == pytest.approx(BEGAN_S + 51 * DAY_S, abs=60)
    assert found[Goal.COMPLETE].done


def test_every_verb_counts_the_retention_of_the_site(tmp_path: Path) -> None:
    """Every user was moved; sources are kept for longer than this test is old."""
    weeks = Weeks(days=56, moved=24)
    file = site_of_weeks(tmp_path, weeks, share=1.01, more='[cutover]\nretain = "10000d"\n')
    found = {}
    for verb in ("status", "report", "metrics"):
        done = run_program(["--site", str(file), verb, "--json"], within_s=600.0)
        assert done.returncode == 0, done.stderr
        found[verb] = json.loads(done.stdout)
    dates = {one["goal"]: one for one in found["status"]["milestones"]}
    assert (dates["moved"]["done"], dates["purged"]["done"]) == (True, False)
    purged_at_s = dates["purged"]["at_s"]
    assert purged_at_s == pytest.approx(dates["moved"]["at_s"] + 10_000 * DAY_S, abs=10 * DAY_S)
    assert {one["goal"]: one["at_s"] for one in found["report"]["milestones"]}["purged"] == purged_at_s
    (expected,) = (one["samples"] for one in found["metrics"] if one["name"] == "migrator_expected_timestamp_seconds")
    assert purged_at_s in [one["value"] for one in expected]
