"""Rooms, tasks and their counters, as a real GlusterFS 10.3 told them."""

import pytest

from migrator.bricks.model import BrickRoom
from migrator.core.errors import ToolFailed
from migrator.gluster import xml
from migrator.gluster.model import TaskKind, TaskStatus, VolumeTask, remove_brick_of
from tests.gluster.test_gluster_xml import RECORDED, answer

DRAINED = "10.213.77.13:/srv/b2/data"


def test_the_room_on_every_brick() -> None:
    rooms = xml.parse_rooms(answer("volume-status-detail.xml"), "vol1")
    assert len(rooms) == 6
    assert rooms["10.213.77.11:/srv/b1/data"] == BrickRoom(
        device="/dev/loop4",
        filesystem="xfs",
        mount_options="rw,relatime,inode64,logbufs=8,logbsize=32k,noquota",
        total_bytes=2080374784,
        free_bytes=2021904384,
        total_inodes=1048576,
        free_inodes=1045310,
    )
    assert xml.parse_rooms(answer("volume-status-detail.xml"), "vol2") == {}
    # Bricks of a host whose glusterd is down have none.
    rooms = xml.parse_rooms(answer("volume-status-detail-peer-down.xml"), "vol1")
    assert len(rooms) == 4
    assert not any(name.startswith("10.213.77.13:") for name in rooms)


def test_what_a_brick_that_is_down_does_not_tell_is_not_known() -> None:
    raw = (RECORDED / "volume-status-detail-brick-down.xml").read_bytes()
    assert xml.parse_rooms(xml.parse_answer(raw), "vol1")["10.213.77.13:/srv/b1/data"].free_bytes == 1991815168
    raw = raw.replace(b"<sizeFree>1991815168</sizeFree>", b"").replace(
        b"<device>/dev/loop8</device>", b"<device>N/A</device>"
    )
    untold = xml.parse_rooms(xml.parse_answer(raw), "vol1")["10.213.77.13:/srv/b1/data"]
    assert (untold.free_bytes, untold.device, untold.filesystem) == (None, None, "xfs")


@pytest.mark.parametrize(
    ("name", "kind", "status", "bricks", "unfinished"),
    [
        ("volume-status-removebrick-inprogress.xml", TaskKind.REMOVE_BRICK, TaskStatus.IN_PROGRESS, (DRAINED,), True),
        (
            "volume-status-tasks-removebrick-completed.xml",
            TaskKind.REMOVE_BRICK,
            TaskStatus.COMPLETED,
            (DRAINED,),
            True,
        ),
        ("tasks-removebrick-failed.xml", TaskKind.REMOVE_BRICK, TaskStatus.FAILED, (DRAINED,), True),
        ("tasks-fixlayout.xml", TaskKind.REBALANCE, TaskStatus.IN_PROGRESS, (), True),
        ("tasks-rebalance-completed.xml", TaskKind.REBALANCE, TaskStatus.COMPLETED, (), False),
    ],
)
def test_a_drain_is_unfinished_until_its_commit_and_a_rebalance_stays_listed(
    name: str, kind: TaskKind, status: TaskStatus, bricks: tuple[str, ...], unfinished: bool
) -> None:
    (task,) = xml.parse_volume_tasks(answer(name), "vol1")
    assert (task.kind, task.status, task.bricks, task.unfinished) == (kind, status, bricks, unfinished)


def test_what_is_not_known_is_unfinished() -> None:
    raw = (RECORDED / "tasks-rebalance-completed.xml").read_bytes()
    (task,) = xml.parse_volume_tasks(xml.parse_answer(raw.replace(b"<status>3<", b"<status>77<")), "vol1")
    assert (task.status, task.unfinished) == (TaskStatus.UNKNOWN, True)
    (task,) = xml.parse_volume_tasks(xml.parse_answer(raw.replace(b">Rebalance<", b">Reshard<")), "vol1")
    assert (task.kind, task.name) == (TaskKind.OTHER, "Reshard")


@pytest.mark.parametrize(
    "name",
    [
        "volume-status-tasks-none.xml",
        "tasks-rebalance-stopped.xml",
        "tasks-removebrick-stopped.xml",
        "volume-status-tasks-removebrick-committed.xml",
    ],
)
def test_no_task_is_left_after_stop_and_commit(name: str) -> None:
    assert xml.parse_volume_tasks(answer(name), "vol1") == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("remove-brick-status-inprogress-later.xml", [("10.213.77.13", TaskStatus.IN_PROGRESS, 5715, 0)]),
        ("remove-brick-status-completed-failures.xml", [("10.213.78.12", TaskStatus.COMPLETED, 8, 21)]),
        (
            "remove-brick-status-replica-completed.xml",
            [
                ("10.213.78.12", TaskStatus.COMPLETED, 259, 0),
                ("10.213.78.13", TaskStatus.COMPLETED, 232, 0),
                ("localhost", TaskStatus.COMPLETED, 239, 1),
            ],
        ),
        # A host whose glusterd is down has no counters, rather than zeros.
        ("remove-brick-status-peer-glusterd-down.xml", []),
        # The reply to a stop has the last counters.
        ("remove-brick-stop-inprogress.xml", [("10.213.77.13", TaskStatus.STOPPED, 289, 0)]),
    ],
)
def test_every_host_has_counters_of_its_own(name: str, expected: list[tuple[str, TaskStatus, int, int]]) -> None:
    progress = xml.parse_progress(answer(name))
    assert [(one.host, one.status, one.files, one.failures) for one in progress.counters] == expected
    assert progress.files == sum(files for _, _, files, _ in expected)
    assert progress.failures == sum(failures for *_, failures in expected)


def test_the_counters_of_a_drain() -> None:
    progress = xml.parse_progress(answer("remove-brick-status-inprogress-later.xml"))
    (one,) = progress.counters
    assert (progress.size_bytes, progress.skipped, one.lookups, one.runtime_s) == (30359921, 0, 9849, 75.0)
    assert progress.task_id == "ad62fd37-9f42-4344-961b-171c87ffb9b3"
    assert xml.parse_progress(answer("remove-brick-stop-inprogress.xml")).size_bytes == 55364853


def test_a_fix_layout_is_told_from_a_rebalance() -> None:
    found = xml.parse_progress(answer("rebalance-fixlayout-status-done.xml")).counters
    assert {(one.status, one.fix_layout) for one in found} == {(TaskStatus.COMPLETED, True)}
    killed = xml.parse_progress(answer("rebalance-status-process-killed.xml")).counters
    assert (killed[0].status, killed[0].fix_layout, killed[0].runtime_s) == (TaskStatus.IN_PROGRESS, False, 0.0)


def test_what_was_begun_has_an_id() -> None:
    assert xml.parse_task_id(answer("remove-brick-start.xml")) == "ad62fd37-9f42-4344-961b-171c87ffb9b3"
    assert len(xml.parse_task_id(answer("rebalance-fixlayout-start.xml"))) == 36
    with pytest.raises(ToolFailed, match="no task"):
        xml.parse_task_id(answer("volume-info-distribute.xml"))


@pytest.mark.parametrize(
    ("name", "no_task"),
    [
        ("remove-brick-status-never.xml", True),
        ("rebalance-status-never.xml", True),
        ("volume-status-stopped.xml", False),
        ("volume-nosuch.xml", False),
    ],
)
def test_a_missing_task_is_told_from_a_failure_of_another_kind(name: str, no_task: bool) -> None:
    with pytest.raises(xml.GlusterFailed) as caught:
        answer(name)
    assert xml.is_not_started(caught.value) is no_task


@pytest.mark.parametrize("counter", ["failures", "skipped", "files", "size"])
def test_a_counter_that_cannot_be_read_is_never_taken_for_zero(counter: str) -> None:
    raw = (RECORDED / "remove-brick-status-completed.xml").read_bytes()
    start = raw.index(b"<%s>" % counter.encode())
    end = raw.index(b"</%s>" % counter.encode())
    for value in (b"", b"-1", b"many"):
        with pytest.raises(ToolFailed, match=counter):
            xml.parse_progress(xml.parse_answer(raw[: start + len(counter) + 2] + value + raw[end:]))


def test_which_drain_a_brick_is_part_of() -> None:
    tasks = xml.parse_volume_tasks(answer("tasks-remove-brick-replica.xml"), "drep")
    assert remove_brick_of(tasks, ("10.213.78.12:/srv/b2/data",)) == tasks[0]
    assert remove_brick_of(tasks, ("10.213.78.12:/srv/b1/data",)) is None
    other = VolumeTask(kind=TaskKind.REBALANCE, name="", id="", status=TaskStatus.IN_PROGRESS, bricks=tasks[0].bricks)
    assert remove_brick_of((other,), tasks[0].bricks) is None
