"""Decisions behind status and report, and their pages: the first one, and a plan's."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from migrator.bricks.drain.model import DrainStanding, DrainState
from migrator.bricks.retire.model import Retirement, RetirementState
from migrator.catalog.model import StrangeFiles
from migrator.core.blocker import Blocker
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode
from migrator.core.events import EventKind, Severity
from migrator.core.states import BatchState, ChunkKind, ChunkState, PassState
from migrator.core.units import DAY_S, GIB
from migrator.cutover.model import CutoverState
from migrator.cutover.rules_freezes import FrozenUser
from migrator.plan.model import Plan, PlannedTree, ThroughputPoint
from migrator.plan.schedule.model import Schedule, ScheduleOutcome, SubvolumeStep
from migrator.plan.view import plan_document
from migrator.render.document import Document, Table, first_page
from migrator.render.html import to_html
from migrator.render.terminal import print_document
from migrator.render.text import to_markdown
from migrator.report import model, rules, rules_blockers, rules_history, rules_incidents, rules_outlook
from migrator.report.view import report_document
from migrator.report.view_status import status_document
from tests.support import records
from tests.support.facts import report, verification
from tests.support.making import made
from tests.support.plans import small_plan
from tests.support.watch_facts import DRAIN

DONE, FAILED, PENDING, SPLIT = ChunkState.DONE, ChunkState.FAILED, ChunkState.PENDING, ChunkState.SPLIT
REPORT = report()
[BATCH] = REPORT.status.batches
SEED = replace(BATCH.passes[0], state=PassState.RUNNING)
ENDED = replace(SEED, state=PassState.DONE)


def planned(path: bytes = b"t", user: str = "u", **reaped: int) -> PlannedTree:
    tree = UserTree(path=path, user=user)
    return PlannedTree(tree=tree, batch=1, rank=1, size_bytes=1000, files=10, **reaped)


def chunk(
    state: ChunkState, size_bytes: int = 500, kind: ChunkKind = ChunkKind.FILES, tree: bytes = b"t"
) -> model.ChunkSum:
    return model.ChunkSum(tree=tree, kind=kind, state=state, chunks=1, files=5, size_bytes=size_bytes)


def tree_of(*sums: model.ChunkSum, state: BatchState = BatchState.SEEDING, over: bool = False) -> model.TreeStatus:
    [facts] = rules.tree_status([planned()], sums, state, ENDED if over else SEED, "p")
    return facts


# --- Progress


TIMES = chunk(PENDING, 0, ChunkKind.DIRECTORY_TIMES)


@pytest.mark.parametrize(
    ("sums", "batch", "over", "state"),
    [
        ([chunk(DONE), TIMES], BatchState.SEEDING, False, model.TreeState.COPYING),
        ([chunk(DONE)], BatchState.SEEDING, False, model.TreeState.COPIED),
        ([chunk(DONE)], BatchState.VERIFIED, False, model.TreeState.VERIFIED),
        ([chunk(FAILED)], BatchState.VERIFIED, True, model.TreeState.ATTENTION),
        ([chunk(FAILED), chunk(DONE)], BatchState.SEEDED, True, model.TreeState.ATTENTION),
        ([chunk(FAILED), chunk(PENDING)], BatchState.SEEDING, False, model.TreeState.COPYING),
        ([], BatchState.SEEDING, False, model.TreeState.COPYING),
        ([], BatchState.SEEDED, True, model.TreeState.COPIED),
    ],
)
def test_the_state_of_a_tree(sums: list[model.ChunkSum], batch: BatchState, over: bool, state: model.TreeState) -> None:
    found = tree_of(*sums, state=batch, over=over)
    assert found.state is state
    assert found.tally.done_users == (state in (model.TreeState.COPIED, model.TreeState.VERIFIED))


def test_reaped_files_split_chunks_and_directories_are_not_counted() -> None:
    [facts] = rules.tree_status([planned(reaped_bytes=700, reaped_files=9)], (), BatchState.PLANNED, None, "p")
    assert facts.tally == model.ProgressCounts(total_bytes=300, total_files=1, total_users=1)
    directories = chunk(DONE, 7, ChunkKind.DIRECTORIES)
    found = tree_of(chunk(SPLIT, 800), chunk(DONE, 300), chunk(PENDING), directories, chunk(DONE, 9, tree=b"other"))
    assert found.tally == model.ProgressCounts(
        total_bytes=800, done_bytes=300, total_files=10, done_files=5, total_users=1
    )


def test_a_user_is_done_when_all_their_trees_are() -> None:
    trees = rules.tree_status(
        [planned(b"a", "ann"), planned(b"b", "ann"), planned(b"c", "cem")],
        [chunk(DONE, tree=b"a"), chunk(ChunkState.RUNNING, tree=b"b"), chunk(DONE, tree=b"c")],
        BatchState.SEEDING,
        SEED,
        "p",
    )
    tally = rules.add_up(trees)
    assert (tally.total_users, tally.done_users) == (2, 1)
    assert (tally.total_bytes, tally.done_bytes, tally.left_bytes) == (1500, 1000, 500)
    none = rules.add_up(trees, counts=frozenset({model.TreeState.VERIFIED}))
    assert (none.done_bytes, none.done_users) == (0, 0)


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_only_everything_is_a_hundred_percent(one: int, other: int) -> None:
    done, total = sorted((one, other))
    share = model.ProgressCounts(total_bytes=total, done_bytes=done).percent_bytes
    assert (share is None) == (total == 0)
    assert share is None or (0 <= share <= 100 and (share == 100) == (done == total))


T, C = model.TreeState, CutoverState


@pytest.mark.parametrize(
    ("states", "cutover", "found"),
    [
        ([T.PLANNED], None, (T.PLANNED, "2")),
        # A new plan changes nothing on the target: the earlier one counts until this one has come as far.
        ([T.PLANNED, T.VERIFIED], None, (T.VERIFIED, "1")),
        ([T.COPYING, T.COPIED], None, (T.COPIED, "1")),
        ([T.COPIED, T.VERIFIED], None, (T.COPIED, "2")),
        ([T.COPYING, T.COPYING], None, (T.COPYING, "2")),
        ([T.PLANNED, T.PLANNED], C.ROLLED_BACK, (T.PLANNED, "2")),
        ([T.ATTENTION], C.THAWED, (T.MOVED, "2")),
        # Only the earlier plan has it: moved users are in no new plan.
        ([None, T.VERIFIED], C.RETAINED, (T.MOVED, "1")),
        ([None, T.VERIFIED], C.PURGED, (T.PURGED, "1")),
        ([None, T.VERIFIED], C.FROZEN, (T.VERIFIED, "1")),
        ([None, T.VERIFIED], C.REVERTED, (T.EXCLUDED, "1")),
        ([None, T.VERIFIED], None, (T.EXCLUDED, "1")),
    ],
)
def test_the_state_of_a_tree_in_the_whole_migration(
    states: list[model.TreeState | None], cutover: CutoverState | None, found: tuple[model.TreeState, str]
) -> None:
    tally = model.ProgressCounts(total_bytes=9, done_bytes=3, total_files=2, done_files=1, total_users=1)
    facts = replace(tree_of(), tally=tally)
    by_plan = [
        [] if state is None else [replace(facts, plan=plan, state=state)]
        for plan, state in zip("21", states, strict=False)
    ]
    [one] = rules.over_all_plans(by_plan, {} if cutover is None else {b"t": cutover})
    assert (one.state, one.plan) == found
    done = {T.MOVED: 9, T.PURGED: 9, T.EXCLUDED: 0}.get(one.state, 3)
    assert (rules.add_up([one]).done_bytes, rules.add_up([one]).total_bytes) == (done, 9 if done else 0)
    assert rules.add_up([one], counts=rules.MOVED).done_users == int(one.state in rules.MOVED)


# --- Content that was compared


@pytest.mark.parametrize(("compared_bytes", "shown_bytes"), [(800, 1000), (400, 500), (0, 0)])
def test_content_is_the_share_that_the_verification_compared(compared_bytes: int, shown_bytes: int) -> None:
    """It counts files with several names once: 800 bytes of 1,000 are all of them."""
    tree = replace(tree_of(), state=T.VERIFIED, tally=model.ProgressCounts(total_bytes=1000, done_bytes=1000))
    proof = records.verification(id=1, size_bytes=800, digested_bytes=compared_bytes)
    assert rules.verified_content_bytes([tree], {tree.tree.path: proof}) == shown_bytes


# --- Blockers


SCAN, PLAN = REPORT.status.scan, REPORT.status.plan
RUN = replace(REPORT.status.runs[0], pid=4, silent_s=90.0, life=model.RunLife.ENDED, started_at_s=0.0)


def blocked(**facts: Any) -> list[tuple[str, str, str]]:
    assert SCAN is not None
    given: dict[str, Any] = {"scan": replace(SCAN, finished_at_s=1.0, whole=True), "plan": PLAN}
    found = rules_blockers.blockers(**(given | {"batches": [], "runs": []} | facts))
    return [(one.subject, one.on, one.hint) for one in found]


def test_files_that_were_put_on_bricks_past_gluster() -> None:
    [(subject, on, hint)] = blocked(strange=(StrangeFiles(brick="gl1:/b", files=2, paths=(b"home/placed",)),))
    assert subject == "drains and additions: gl1:/b"
    assert "2 files without a gfid" in on
    assert "migrator scan --via bricks" in hint


DELTA = "migrator run --user-batch 1`"


@pytest.mark.parametrize(
    ("differences", "said", "not_said"),
    [
        ({"missing": 1, "mode": 0}, (DELTA,), ("target only",)),
        ({"content": 2}, (DELTA,), ("target only",)),
        ({"extra": 3}, (DELTA, "3 paths are on the target only"), ()),
        ({"changed-while-read": 1}, ("migrator verify --user-batch 1",), ("migrator run",)),
        ({}, (), ("migrator",)),
    ],
)
def test_advice_on_differences(differences: dict[str, int], said: tuple[str, ...], not_said: tuple[str, ...]) -> None:
    hint = rules_blockers.after_differences(replace(verification(), differences=differences))
    assert all(words in hint for words in said)
    assert not any(words in hint for words in not_said)


def run(life: model.RunLife, exit_code: int | None = None, verb: str = "run", **changed: Any) -> model.RunStatus:
    return replace(RUN, life=life, exit_code=exit_code, verb=verb, **changed)


@pytest.mark.parametrize(("verb", "undoing"), [("brick-drain", "brick-stop"), ("cutover", "rollback")])
def test_an_undone_command_does_not_have_to_be_repeated(verb: str, undoing: str) -> None:
    failed = run(model.RunLife.ENDED, int(ExitCode.INTERRUPTED), verb)
    undone = run(model.RunLife.ENDED, 0, undoing, started_at_s=5.0)
    assert blocked(runs=[undone, failed]) == []
    assert len(blocked(runs=[replace(undone, exit_code=4), failed])) == 2
    assert len(blocked(runs=[replace(failed, started_at_s=9.0), undone])) == 1


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([run(model.RunLife.ENDED, 0), run(model.RunLife.ENDED, 1)], []),
        ([run(model.RunLife.ENDED, 3), run(model.RunLife.AT_WORK, verb="scan")], []),
        ([run(model.RunLife.KILLED)], ["process 4 was killed: it is gone and recorded no end"]),
        ([run(model.RunLife.SILENT)], ["process 4 has had no heartbeat for 1 min 30 s: it hangs"]),
        ([run(model.RunLife.ENDED, 130)], ["it ended with exit code 130 (interrupted, resumable)"]),
        ([run(model.RunLife.ENDED, 77)], ["it ended with exit code 77 (unknown)"]),
    ],
)
def test_the_newest_run_of_each_verb_counts(runs: list[model.RunStatus], said: list[str]) -> None:
    assert [on for _, on, _ in blocked(runs=runs)] == said


# --- Incidents


K, INFO, WARNING = EventKind, Severity.INFO, Severity.WARNING


def group(kind: EventKind, subject: str, at_s: float, severity: Severity = WARNING) -> model.Incident:
    return made(model.Incident, kind=kind, severity=severity, subject=subject, last_at_s=at_s)


def test_all_runs_at_work_and_the_newest_of_each_verb_are_shown() -> None:
    lives = {
        9: ("run", model.RunLife.KILLED),
        8: ("scan", model.RunLife.ENDED),
        7: ("run", model.RunLife.AT_WORK),
        6: ("scan", model.RunLife.ENDED),
    }
    runs = [made(model.RunStatus, id=number, verb=verb, life=life) for number, (verb, life) in lives.items()]
    assert [one.id for one in rules.newest_runs(runs)] == [9, 8, 7]


@pytest.mark.parametrize(
    ("kind", "subject", "ending", "resolution"),
    [
        (K.HOST_LOST, "host a", group(K.HOST_FOUND, "host a", 20.0), "the host is back"),
        (K.HOST_LOST, "host b", group(K.HOST_FOUND, "host a", 20.0), ""),
        (K.HOST_LOST, "host a", group(K.HOST_FOUND, "host a", 9.0), ""),
        (K.RUN_INTERRUPTED, "run of batch 1", group(K.RUN_FINISHED, "plan p", 20.0), "a later run finished"),
        (K.BATCH_REFUSED, "batch 1", group(K.RUN_FINISHED, "plan p", 20.0), ""),
        (K.BATCH_REFUSED, "batch 1", group(K.RUN_FINISHED, "plan p", 20.0, INFO), "a later run finished"),
        (K.BATCH_REFUSED, "batch 1", group(K.PASS_STARTED, "batch 1", 20.0, INFO), "a later pass began"),
        (K.POOL_STOPPED, "batch 1", group(K.PASS_FINISHED, "batch 1", 20.0), ""),
        (K.POOL_STOPPED, "batch 1", group(K.PASS_STARTED, "batch 2", 20.0, INFO), ""),
        (K.POOL_STOPPED, "batch 1", group(K.PASS_STARTED, "batch 1", 20.0, INFO), "a later pass began"),
        (K.CHUNK_FAILED, "batch 1: chunk 7", group(K.PASS_FINISHED, "batch 1", 20.0), "the pass finished"),
        (K.CHUNK_FAILED, "batch 11", group(K.PASS_FINISHED, "batch 1", 20.0), ""),
        (K.LIMITS_SET, "pause", group(K.LIMITS_SET, "pause", 20.0, INFO), "resumed"),
        (K.LIMITS_SET, "pause", group(K.LIMITS_SET, "governor", 20.0, INFO), ""),
        (
            K.GUARD_REFUSED,
            "ann: rollback",
            group(K.CUTOVER_FINISHED, "ann: rollback", 20.0),
            "a later attempt finished",
        ),
        (K.DRAIN_HALTED, "drain of h:/b", group(K.DRAIN_STEP, "drain of h:/b", 20.0, INFO), "the drain continued"),
        (K.SCAN_FINISHED, "scan-1", group(K.SCAN_FINISHED, "scan-2", 20.0, INFO), "a later scan is whole"),
        (K.SOURCE_UNHEALTHY, "scan", group(K.SCAN_FINISHED, "scan-2", 20.0), ""),
        (K.VERIFY_FINISHED, "b", group(K.VERIFY_FINISHED, "b", 20.0, INFO), "a later verification found no difference"),
        (K.VERIFY_FINISHED, "b", group(K.VERIFY_FINISHED, "b", 20.0), ""),
    ],
)
def test_incidents_are_resolved(kind: EventKind, subject: str, ending: model.Incident, resolution: str) -> None:
    never = group(K.HOST_LOST, "host z", 5.0)
    said = rules_incidents.incidents([group(kind, subject, 10.0), never], [ending])
    [one] = [one for one in said if one.subject == subject]
    assert (one.resolution, one.resolved_at_s) == (resolution, ending.last_at_s if resolution else None)
    assert said[-1 if resolution else 0] is one


# --- Bricks, servers, room, reaped files


def drain(state: DrainState, *, left_s: float | None = None) -> DrainStanding:
    made = replace(DRAIN, files=10, size_bytes=100, moved_files=4, moved_bytes=30)
    return replace(made, bricks=("a:/1", "b:/1"), state=state, since_s=500.0, left_s=left_s)


def scheduled() -> Plan:
    step = SubvolumeStep(
        subvolume=0, bricks=("a:/1", "c:/1"), drain_begins_day=1.0, cleared_day=2.0, moved_bytes=70, retired=False
    )
    outcome = ScheduleOutcome(done_day=3.0, obstacle=None, batches=(), subvolumes=(step,), hosts=())
    schedule = Schedule(problem=None, outcome=outcome)
    return replace(small_plan(), created_at_s=1000.0, schedule=schedule)


SCHEDULED = scheduled()
CLEARED_S = 1000.0 + 2 * DAY_S
RETIRED = made(Retirement, state=RetirementState.RETIRED, times={RetirementState.RETIRED: 700.0})
Brick = tuple[str, int | None, float | None]
"""The state of a brick, the bytes left on it, and when it is free."""
PLANNED: Brick = ("in the volume", 70, CLEARED_S)
WIPED: Brick = ("wiped", 0, 500.0)


@pytest.mark.parametrize(
    ("state", "retirement", "now_s", "bricks"),
    [
        # A drain in progress precedes the schedule.
        (DrainState.DRAINING, None, 9.0, [("draining", 70, 69.0), ("draining", 70, 69.0), PLANNED]),
        (DrainState.COMMITTED, None, 9.0, [("committed", 0, 500.0), ("committed", 0, 500.0), PLANNED]),
        (DrainState.STOPPED, None, 9.0, [PLANNED, ("stopped", 70, None), PLANNED]),
        # The schedule's own date has passed.
        (DrainState.WIPED, None, CLEARED_S - 1, [WIPED, WIPED, PLANNED]),
        # The last brick leaves with the volume.
        (DrainState.WIPED, RETIRED, 9.0, [WIPED, WIPED, ("retired", 0, 700.0)]),
        (DrainState.WIPED, replace(RETIRED, state=RetirementState.GIVEN_UP), 9.0, [WIPED, WIPED, PLANNED]),
    ],
)
def test_bricks_are_free_by_their_drain_the_schedule_or_the_end_of_the_volume(
    state: DrainState, retirement: Retirement | None, now_s: float, bricks: list[Brick]
) -> None:
    cleared = model.Milestone(goal=model.Goal.CLEARED, at_s=CLEARED_S)
    found = rules_outlook.brick_outlooks(
        (drain(state, left_s=60.0),), SCHEDULED, now_s=now_s, retirement=retirement, cleared=cleared
    )
    told = {one.brick: (one.state, one.left_bytes, one.free_at_s) for one in found}
    assert told == dict(zip(("a:/1", "b:/1", "c:/1"), bricks, strict=True))


@pytest.mark.parametrize(
    ("today", "out", "days"),
    [
        # On schedule: the dates of the schedule, stretched to the expected one of the last brick.
        (10.0, [], [20.0, 30.0, 50.0]),
        (25.0, ["a:/1"], [None, 31.0, 55.0]),
        # The schedule is ahead: the first brick was to be cleared on the 20th day.
        (40.0, [], [60.0, 70.0, 90.0]),
        (40.0, ["a:/1"], [None, 40.0 + 40.0 / 3, 80.0]),
    ],
)
def test_bricks_are_free_in_the_order_of_the_schedule_and_the_last_one_when_all_are(
    today: float, out: list[str], days: list[float | None]
) -> None:
    steps = tuple(
        made(SubvolumeStep, subvolume=number, bricks=(brick,), cleared_day=day)
        for number, (brick, day) in enumerate((("a:/1", 20.0), ("b:/1", 30.0), ("c:/1", 50.0)))
    )
    outcome = ScheduleOutcome(done_day=50.0, obstacle=None, batches=(), subvolumes=steps, hosts=())
    schedule = Schedule(problem=None, outcome=outcome)
    plan = replace(SCHEDULED, created_at_s=0.0, schedule=schedule)
    drains = [replace(drain(DrainState.COMMITTED), bricks=(brick,)) for brick in out]
    last = max(day for day in days if day is not None)
    cleared = model.Milestone(goal=model.Goal.CLEARED, at_s=last * DAY_S)
    found = rules_outlook.brick_outlooks(drains, plan, now_s=today * DAY_S, cleared=cleared)
    free = {one.brick: one.free_at_s for one in found if one.state == "in the volume"}
    expected = {
        brick: day * DAY_S for brick, day in zip(("a:/1", "b:/1", "c:/1"), days, strict=True) if day is not None
    }
    assert free == pytest.approx(expected)


def servers(*bricks: model.BrickOutlook, plan: Plan = SCHEDULED) -> dict[str, model.ServerOutlook]:
    return {one.server: one for one in rules_outlook.server_outlooks(bricks, plan)}


def test_a_server_is_free_with_the_last_of_its_bricks() -> None:
    bricks = rules_outlook.brick_outlooks((drain(DrainState.COMMITTED),), SCHEDULED, now_s=9.0, retirement=RETIRED)
    more = replace(bricks[0], brick="a:/2", state="in the volume", free_at_s=9000.0, basis="the schedule")
    never = replace(more, brick="b:/2", free_at_s=None, basis="nothing")
    found = servers(*bricks, more, never)
    told = [(one.bricks, one.free_bricks, one.free_at_s) for one in found.values()]
    assert told == [(2, 1, 9000.0), (2, 1, None), (1, 1, 700.0)]
    assert (found["a"].basis, found["b"].basis) == ("the schedule", "nothing")
    # Without a schedule other bricks of a server are not known.
    assert servers(*bricks, plan=small_plan()) == {}


# --- Since the report before


THEN_S, NOW_S = 1e9, 1e9 + 7 * DAY_S
EARLIER = model.EarlierReport(
    at_s=THEN_S,
    plan="p",
    total_bytes=1000 * GIB,
    done_bytes=200 * GIB,
    total_files=100,
    done_files=20,
    likely_at_s=THEN_S + 20 * DAY_S,
)
NO_FORECAST = replace(EARLIER, likely_at_s=None)


def work(days: float, *, busy: float = 0.9, gib_per_day: float = 40) -> ThroughputPoint:
    size = round(gib_per_day * days * GIB)
    return ThroughputPoint(
        at_s=0.0, span_s=days * DAY_S, busy_s=busy * days * DAY_S, streams=4.0, files=1000, size_bytes=size
    )


def compared(
    earlier: model.EarlierReport = EARLIER,
    *,
    done_gib: int = 480,
    total_gib: int = 1000,
    likely_s: float | None = THEN_S + 20 * DAY_S,
    since: ThroughputPoint | None = work(7),  # noqa: B008 - frozen
) -> model.SinceReport:
    assert REPORT.status.forecast is not None
    left = 0 if likely_s is None else 50
    return rules_history.since_report(
        earlier,
        now_s=NOW_S,
        plan="p",
        overall=model.ProgressCounts(
            total_bytes=total_gib * GIB, done_bytes=done_gib * GIB, total_files=100, done_files=100 - left
        ),
        forecast=None if likely_s is None else replace(REPORT.status.forecast, likely_at_s=likely_s),
        before=work(5),
        after=since,
    )


@pytest.mark.parametrize(
    ("earlier", "likely_days", "standing", "moved_days"),
    [
        (EARLIER, 20.0, model.Punctuality.AS_EXPECTED, 0.0),
        (EARLIER, 20.9, model.Punctuality.AS_EXPECTED, 0.9),
        (EARLIER, 21.5, model.Punctuality.BEHIND, 1.5),
        (EARLIER, 18.5, model.Punctuality.AHEAD, -1.5),
        # Everything is copied: the end is now.
        (EARLIER, None, model.Punctuality.AHEAD, -13.0),
        (NO_FORECAST, 20.0, model.Punctuality.UNKNOWN, None),
    ],
)
def test_the_standing_is_how_far_the_end_has_moved(
    earlier: model.EarlierReport, likely_days: float | None, standing: model.Punctuality, moved_days: float | None
) -> None:
    found = compared(earlier, likely_s=None if likely_days is None else THEN_S + likely_days * DAY_S)
    assert found.standing is standing
    assert found.end_moved_s == (None if moved_days is None else pytest.approx(moved_days * DAY_S))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (compared(NO_FORECAST), "in the 7 d since then 280.0 GiB were copied"),
        (compared(done_gib=340), "in the 7 d since then 140.0 GiB were copied, 50 % of the expected 280.0 GiB"),
        (compared(since=None), "no stream has run since then"),
        (compared(total_gib=1200), "the plan grew by 200.0 GiB"),
        (compared(replace(EARLIER, plan="other")), "the plan changed from other to p, so amounts are not comparable"),
        (compared(since=work(7, busy=0.3, gib_per_day=13.3)), "streams ran for less of the time: 30 % instead of 90 %"),
        (compared(since=work(7, gib_per_day=10)), "while running they were slower: 134.8 KiB/s instead of 539.4 KiB/s"),
    ],
)
def test_reasons(found: model.SinceReport, reason: str) -> None:
    assert reason in found.reasons


def test_expected_progress_since_an_earlier_forecast() -> None:
    assert rules_history.expected_bytes(EARLIER, THEN_S + 2.5 * DAY_S) == pytest.approx(100 * GIB)
    assert rules_history.expected_bytes(EARLIER, THEN_S + 90 * DAY_S) == pytest.approx(800 * GIB)


STATUS = REPORT.status

# --- The first page


MANY = tuple(Blocker(subject=f"batch {number}", on="it is not verified", hint="migrator verify") for number in range(9))
BLOCKED = replace(STATUS, blocked=MANY)


def printed(document: Document, *, width: int = 132) -> str:
    stream = io.StringIO()
    print_document(Console(file=stream, width=width), document)
    return stream.getvalue().rstrip()


def test_the_first_page_is_short_and_further_blockers_are_details() -> None:
    document = report_document(replace(REPORT, status=BLOCKED))
    flags = [section.first_page for section in document.sections]
    assert flags == sorted(flags, reverse=True)
    shown = printed(first_page(document, "migrator report --details"))
    assert len(shown.splitlines()) <= 70
    assert shown.endswith("Details: migrator report --details")
    assert "41.3 % of the bytes copied" in shown
    found = {section.title: section for section in document.sections}
    tables = [block for title in ("Blocked", "Also blocked") for block in found[title].blocks]
    rows = [row[0] for block in tables if isinstance(block, Table) for row in block.rows]
    assert rows == [one.subject for one in MANY]
    assert not found["Also blocked"].first_page
    # On paper the details begin on a page of their own, with a table of contents.
    page, text = to_html(document), to_markdown(document)
    assert page.count('class="first page-end"') == 1
    details = [section.title for section in document.sections if not (section.first_page or section.overview)]
    links = re.findall(r'<li><a href="#(section-\d+)">([^<]+)</a>', page)
    assert [title.replace("&#39;", "'") for _, title in links] == details
    for number, title in links:
        assert f'<h2 id="{number}">{title}</h2>' in page
    behind = [section.title for section in document.sections if not section.first_page]
    assert f"## Details\n\n{', '.join(behind)}." in text


LONG = "lengthy " * 60 + "end"
FROZEN = made(FrozenUser, tree=UserTree(path=b"home/x", user=LONG), at_work=False, hint=LONG)
WORST = replace(
    STATUS,
    blocked=tuple(replace(one, subject=LONG, hint=LONG) for one in MANY),
    next_steps=(model.NextStep(subject=LONG, state=LONG, hint=LONG),) * 5,
    at_work=(),
    runs=tuple(replace(STATUS.runs[0], pid=number, verb=LONG) for number in range(9)),
    overall=model.ProgressCounts(total_bytes=999 * 2**40, done_bytes=998 * 2**40, total_files=10**9, total_users=5000),
    verified=model.ProgressCounts(total_bytes=999 * 2**40, done_bytes=998 * 2**40),
    moved=model.ProgressCounts(total_bytes=999 * 2**40, done_bytes=998 * 2**40),
    verified_content_bytes=2**40,
)


@pytest.mark.parametrize("frozen", [(), (FROZEN,) * 30], ids=("nobody-frozen", "frozen"))
@pytest.mark.parametrize("blocked", [(), WORST.blocked], ids=("nothing-blocked", "blocked"))
def test_status_fits_on_a_small_screen(frozen: tuple[FrozenUser, ...], blocked: tuple[Blocker, ...]) -> None:
    document = status_document(replace(WORST, frozen=frozen, blocked=blocked))
    lines = printed(first_page(document, "migrator status --details"), width=80).splitlines()
    # One line is left for the prompt.
    assert len(lines) <= 23
    assert any(line.startswith("Next steps") for line in lines) == (not (frozen and blocked))
    titles = [section.title for section in document.sections if section.first_page]
    assert titles[0].startswith("Frozen users" if frozen else "In short")
    text = to_markdown(document)
    assert text.count(LONG) >= len(blocked) + len(frozen)


def test_a_plan_begins_with_one_screen() -> None:
    problems = tuple(f"user {number} would exceed their limit" for number in range(9))
    document = plan_document(replace(small_plan(), problems=problems, catalog_whole=False))
    assert [section.first_page for section in document.sections].index(False) == 1
    shown = printed(first_page(document, "migrator report --plan plan --details"))
    assert len(shown.splitlines()) <= 40
    assert "The scan behind this plan is not whole" in shown
    for said in ("1.5 KiB in 15 files", "1 min 30 s with 4 streams", "alice", "for every batch"):
        assert said in shown
    assert shown.endswith("Details: migrator report --plan plan --details")
    every = to_markdown(document)
    assert all(problem in every for problem in problems)
