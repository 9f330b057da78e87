"""Rooms, tasks and their counters, as a real GlusterFS 10.3 told them."""

import pytest

from migrator.core.errors import ToolFailed
from migrator.gluster import xml
from migrator.gluster.model import TaskKind, TaskStatus
from tests.gluster.test_gluster_xml import RECORDED, answer

DRAINED = "10.213.77.13:/srv/b2/data"


def test_what_a_brick_that_is_down_does_not_tell_is_not_known() -> None:
    raw = (RECORDED / "volume-status-detail-brick-down.xml").read_bytes()
    assert xml.parse_rooms(xml.parse_answer(raw), "vol1")["10.213.77.13:/srv/b1/data"].free_bytes == 1991815168
    raw = raw.replace(b"<sizeFree>1991815168</sizeFree>", b"").replace(
        b"<device>/dev/loop8</device>", b"<device>N/A</device>"
    )
    untold = xml.parse_rooms(xml.parse_answer(raw), "vol1")["10.213.77.13:/srv/b1/data"]
    assert (untold.free_bytes, untold.device, untold.filesystem) == (None, None, "xfs")


def test_bricks_on_one_device_of_a_host_share_its_room() -> None:
    raw = (RECORDED / "volume-status-detail-brick-down.xml").read_bytes()
    rooms = xml.parse_rooms(xml.parse_answer(raw), "vol1")
    (one, room), (other, _) = [(name, room) for name, room in rooms.items() if name.startswith("10.213.77.13:")]
    assert room.device is not None
    shared = raw.replace(f"<device>{rooms[other].device}</device>".encode(), f"<device>{room.device}</device>".encode())
    found = xml.parse_rooms(xml.parse_answer(shared), "vol1")
    assert found[one].total_bytes == room.total_bytes // 2  # type: ignore[operator]
    assert found[other].free_inodes == rooms[other].free_inodes // 2  # type: ignore[operator]
    # The same name on another host is another device.
    assert {name: found[name] for name in found.keys() - {one, other}} == {
        name: rooms[name] for name in rooms.keys() - {one, other}
    }


def test_what_is_not_known_is_unfinished() -> None:
    raw = (RECORDED / "tasks-rebalance-completed.xml").read_bytes()
    (task,) = xml.parse_volume_tasks(xml.parse_answer(raw.replace(b"<status>3<", b"<status>77<")), "vol1")
    assert (task.status, task.unfinished) == (TaskStatus.UNKNOWN, True)
    (task,) = xml.parse_volume_tasks(xml.parse_answer(raw.replace(b">Rebalance<", b">Reshard<")), "vol1")
    assert (task.kind, task.name) == (TaskKind.OTHER, "Reshard")


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
