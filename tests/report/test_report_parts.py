"""Bricks, room, what was reaped, and what became of incidents."""

from dataclasses import replace

import pytest

from migrator.bricks.drain.model import DrainStanding, DrainState
from migrator.bricks.retire.model import RetirementRecord, RetirementState
from migrator.core.entry import UserTree
from migrator.core.events import EventKind, Severity
from migrator.core.units import DAY_S
from migrator.fs.model import CapacitySample, Side
from migrator.plan.model import Plan
from migrator.reap.model import ArchiveRecord, ArchiveState, PlanReap, ReapAction, ReapedTree, Savings, WrittenArchive
from migrator.report.model import EventGroup, Tally
from migrator.report.rules import brick_outlooks, incidents, reaped_facts, server_outlooks, target_outlook
from migrator.schedule.model import OrderSchedule, Outcome, Schedule, ScheduleOrder, SubvolumeStep
from tests.support.plans import small_plan


def group(kind: EventKind, subject: str, at_s: float, *, first_s: float | None = None) -> EventGroup:
    return EventGroup(
        kind=kind,
        severity=Severity.WARNING,
        subject=subject,
        count=1,
        first_at_s=at_s if first_s is None else first_s,
        last_at_s=at_s,
        message="m",
    )


class TestIncidents:
    def test_the_end_is_that_of_the_same_subject(self) -> None:
        lost = [group(EventKind.HOST_LOST, "host a", 10.0), group(EventKind.HOST_LOST, "host b", 11.0)]
        found = incidents(lost, [group(EventKind.HOST_FOUND, "host a", 12.0)])
        assert [(one.subject, one.resolved_at_s, one.resolution) for one in found] == [
            ("host b", None, ""),
            ("host a", 12.0, "the host is back"),
        ]

    def test_what_came_back_before_it_was_lost_again_is_not_over(self) -> None:
        (found,) = incidents(
            [group(EventKind.HOST_LOST, "host a", 20.0, first_s=1.0)], [group(EventKind.HOST_FOUND, "host a", 12.0)]
        )
        assert found.resolved_at_s is None

    def test_a_later_run_ends_an_interruption_whatever_it_was_of(self) -> None:
        (found,) = incidents(
            [group(EventKind.RUN_INTERRUPTED, "run of batch 1", 10.0)], [group(EventKind.RUN_FINISHED, "plan p", 20.0)]
        )
        assert (found.resolved_at_s, found.resolution) == (20.0, "a later run finished")

    @pytest.mark.parametrize(
        ("subject", "over"), [("batch 1", True), ("batch 1: chunk 7", True), ("batch 11", False), ("batch 2", False)]
    )
    def test_what_is_part_of_what_has_ended(self, subject: str, over: bool) -> None:
        (found,) = incidents(
            [group(EventKind.CHUNK_FAILED, subject, 1.0)], [group(EventKind.PASS_FINISHED, "batch 1", 2.0)]
        )
        assert (found.resolved_at_s is not None) is over


def drain(state: DrainState, *, left_s: float | None = None) -> DrainStanding:
    return DrainStanding(
        id=1,
        volume="v",
        bricks=("a:/1", "b:/1"),
        attempt=1,
        state=state,
        since_s=500.0,
        started_at_s=1.0,
        files=10,
        size_bytes=100,
        moved_files=4,
        moved_bytes=30,
        failures=0,
        skipped=0,
        files_per_s=None,
        bytes_per_s=None,
        left_s=left_s,
        looked_at_s=None,
        failure="",
        changed_options=(),
    )


def scheduled() -> Plan:
    step = SubvolumeStep(
        subvolume=0, bricks=("a:/1", "c:/1"), drain_begins_day=1.0, cleared_day=2.0, moved_bytes=70, retired=False
    )
    outcome = Outcome(done_day=3.0, obstacle=None, batches=(), subvolumes=(step,), hosts=())
    schedule = Schedule(problem=None, orders=(OrderSchedule(order=ScheduleOrder.PLANNED, outcome=outcome),))
    return replace(small_plan(), created_at_s=1000.0, schedule=schedule)


class TestBricks:
    def test_a_drain_at_work_knows_better_than_the_schedule(self) -> None:
        found = {
            one.brick: one for one in brick_outlooks((drain(DrainState.DRAINING, left_s=60.0),), scheduled(), now_s=9.0)
        }
        assert (found["a:/1"].left_bytes, found["a:/1"].left_files, found["a:/1"].free_at_s) == (70, 6, 69.0)
        assert (found["c:/1"].state, found["c:/1"].free_at_s) == ("in the volume", 1000.0 + 2 * DAY_S)

    def test_a_date_that_has_gone_by_is_none(self) -> None:
        found = brick_outlooks((), scheduled(), now_s=1000.0 + 2 * DAY_S + 1)
        assert {(one.state, one.free_at_s) for one in found} == {("in the volume", None)}
        assert all(one.basis.startswith("late: ") for one in found)
        assert {one.free_at_s for one in server_outlooks(found, scheduled())} == {None}

    def test_what_is_out_is_free_since_then(self) -> None:
        found = brick_outlooks((drain(DrainState.COMMITTED),), None, now_s=9.0)
        assert [(one.brick, one.left_bytes, one.free_at_s) for one in found] == [("a:/1", 0, 500.0), ("b:/1", 0, 500.0)]

    def test_what_was_taken_back_is_scheduled_again(self) -> None:
        found = {one.brick: one for one in brick_outlooks((drain(DrainState.STOPPED),), scheduled(), now_s=9.0)}
        assert (found["a:/1"].state, found["b:/1"].state) == ("in the volume", "stopped")

    def test_the_last_brick_leaves_with_the_volume(self) -> None:
        drains = (drain(DrainState.WIPED),)
        record = RetirementRecord(
            id=1,
            volume="v",
            volume_id="i",
            state=RetirementState.RETIRED,
            intended_at_s=600.0,
            ended_at_s=700.0,
            catalog="c",
            files=1,
            size_bytes=2,
        )
        found = brick_outlooks(drains, scheduled(), now_s=9.0, retirement=record)
        told = {one.brick: (one.state, one.free_at_s, one.left_bytes) for one in found}
        assert told == {"a:/1": ("wiped", 500.0, 0), "b:/1": ("wiped", 500.0, 0), "c:/1": ("retired", 700.0, 0)}
        servers = {one.server: (one.free_bricks, one.free_at_s) for one in server_outlooks(found, scheduled())}
        assert servers["c"] == (1, 700.0)
        given_up = replace(record, state=RetirementState.GIVEN_UP)
        (last,) = brick_outlooks(drains, scheduled(), now_s=9.0, retirement=given_up)[2:]
        assert last.state == "in the volume"


class TestServers:
    def test_a_server_is_free_with_the_last_of_its_bricks(self) -> None:
        schedule = scheduled()
        bricks = brick_outlooks((drain(DrainState.COMMITTED),), schedule, now_s=9.0)
        more = replace(bricks[0], brick="a:/2", state="in the volume", free_at_s=9000.0, basis="the schedule")
        never = replace(more, brick="c:/2", free_at_s=None, basis="nothing")
        found = {one.server: one for one in server_outlooks((*bricks, more, never), schedule)}
        assert (found["a"].bricks, found["a"].free_bricks, found["a"].free_at_s) == (2, 1, 9000.0)
        assert found["a"].basis == "the schedule"
        assert (found["b"].free_bricks, found["b"].free_at_s) == (1, 500.0)
        assert (found["c"].bricks, found["c"].free_at_s, found["c"].basis) == (2, None, "nothing")

    def test_without_a_schedule_other_bricks_of_a_server_are_not_known(self) -> None:
        bricks = brick_outlooks((drain(DrainState.COMMITTED),), None, now_s=9.0)
        assert server_outlooks(bricks, small_plan()) == ()


class TestRoom:
    def test_what_is_left_comes_on_top_of_what_was_seen_last(self) -> None:
        samples = [
            CapacitySample(side=side, at_s=at_s, total_bytes=100, free_bytes=free, total_inodes=50, free_inodes=40)
            for side, at_s, free in ((Side.TARGET, 1.0, 90), (Side.TARGET, 2.0, 60), (Side.SOURCE, 3.0, 5))
        ]
        left = Tally(total_bytes=80, done_bytes=30, total_files=9, done_files=4)
        found = target_outlook(samples, left, None, now_s=7.0)
        assert found is not None
        assert (found.at_s, found.used_bytes, found.used_inodes, found.full) == (7.0, 90, 15, False)
        more = target_outlook(samples, replace(left, total_bytes=100), None, now_s=7.0)
        assert more is not None
        assert more.full


class TestReaped:
    def test_only_proven_archives_count(self) -> None:
        written = WrittenArchive(
            members=3, content_bytes=30, archive_bytes=10, index_bytes=1, archive_digest="", index_digest=""
        )
        archives = [
            ArchiveRecord(id=turn, plan="p", batch=1, tree=b"t", number=turn, written=written, state=state, at_s=1.0)
            for turn, state in enumerate((ArchiveState.PROVEN, ArchiveState.VOID, ArchiveState.WRITTEN))
        ]
        trees = tuple(
            ReapedTree(
                tree=UserTree(path=b"t", user="u"),
                action=action,
                rule="r",
                files=2,
                inodes=2,
                size_bytes=size,
                allocated_bytes=size,
                oldest_ns=0,
            )
            for action, size in ((ReapAction.ARCHIVE, 100), (ReapAction.SKIP, 7), (ReapAction.LIST, 9000))
        )
        reap = PlanReap(reap_list="l", digest="d", trees=trees, saved=Savings(), listed=Savings())
        found = reaped_facts(reap, archives, 2)
        assert found is not None
        assert (found.to_archive_bytes, found.skipped_bytes, found.archives, found.archived_files) == (100, 7, 1, 3)
