"""Gluster's answers, as a real GlusterFS 10.3 gave them, and whether the mount is to be trusted."""

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from msgspec.structs import replace

from migrator.core.errors import ToolFailed
from migrator.fs.model import MountIdentity
from migrator.gluster import xml
from migrator.gluster.model import TaskKind, TaskStatus
from migrator.gluster.rules import drained, volume_fingerprint, volume_problems, wrong_volume_problem
from migrator.gluster.volume import connection_problems
from tests.support.volumes import brick, volume

RECORDED = Path(__file__).parents[1] / "fixtures" / "gluster"


def answer(name: str) -> Element:
    return xml.parse_answer((RECORDED / name).read_bytes())


def test_a_distributed_volume() -> None:
    state = xml.parse_volume_info(answer("volume-info-distribute.xml"), "vol1")
    assert (state.type, state.started, len(state.bricks)) == ("Distribute", True, 6)
    assert state.bricks[0].name == "10.213.77.11:/srv/b1/data"
    assert (state.bricks[0].host, state.bricks[0].path) == ("10.213.77.11", b"/srv/b1/data")
    assert {brick.online for brick in state.bricks} == {None}
    assert ("nfs.disable", "on") in state.options
    assert list(state.options) == sorted(state.options)


def test_another_volumes_answer_is_not_taken_for_this_ones() -> None:
    with pytest.raises(ToolFailed, match="does not describe"):
        xml.parse_volume_info(answer("volume-info-distribute.xml"), "vol2")
    assert xml.parse_online(answer("volume-status-detail.xml"), "vol2") == {}
    assert xml.parse_volume_tasks(answer("tasks-rebalance-inprogress.xml"), "vol2") == ()


def test_bricks_of_a_host_whose_glusterd_is_down_are_unknown() -> None:
    state = xml.parse_volume_info(answer("volume-info-distribute.xml"), "vol1")
    joined, _ = xml.with_status(state, answer("volume-status-detail-peer-down.xml"))
    assert [brick.host for brick in joined.bricks if brick.online is None] == ["10.213.77.13"] * 2
    assert [brick.online for brick in joined.bricks].count(True) == 4


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        # It says the same after a commit or a stop.
        ("volume-status-tasks-none.xml", ()),
        (
            "volume-status-tasks-removebrick-inprogress.xml",
            ("Remove brick (in progress) of 10.213.77.13:/srv/b2/data",),
        ),
        ("volume-status-tasks-removebrick-completed.xml", ("Remove brick (completed) of 10.213.77.13:/srv/b2/data",)),
        ("tasks-removebrick-failed.xml", ("Remove brick (failed) of 10.213.77.13:/srv/b2/data",)),
        ("tasks-rebalance-inprogress.xml", ("Rebalance (in progress)",)),
        ("tasks-rebalance-completed.xml", ()),
        ("tasks-fixlayout.xml", ("Rebalance (in progress)",)),
        ("tasks-fixlayout-done.xml", ()),
    ],
)
def test_tasks_that_are_not_over(name: str, tasks: tuple[str, ...]) -> None:
    state, listed = xml.with_status(xml.parse_volume_info(answer("volume-info-distribute.xml"), "vol1"), answer(name))
    assert state.tasks == tasks
    assert state.task_ids == tuple(task.id for task in listed)
    assert all(len(task_id) == 36 for task_id in state.task_ids)


def test_quotas() -> None:
    assert xml.parse_quotas(answer("quota-list.xml")) == ((b"d", 10485760), (b"speed", 524288000))
    with pytest.raises(xml.GlusterFailed) as caught:
        answer("quota-list-disabled.xml")
    assert xml.is_quota_disabled(caught.value)


def test_failures_are_told_apart() -> None:
    with pytest.raises(xml.GlusterBusy, match="Locking failed"):
        answer("volume-status-lock-conflict.xml")
    with pytest.raises(xml.GlusterFailed, match="does not exist") as missing:
        answer("volume-nosuch.xml")
    assert not xml.is_quota_disabled(missing.value)
    with pytest.raises(ToolFailed, match="Connection failed") as dead:
        answer("volume-info-glusterd-down.xml")
    assert dead.value.hint


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"<cliOutput>",
        b"<cliOutput/>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><cliOutput><opRet>0</opRet></cliOutput>',
    ],
)
def test_only_a_successful_answer_is_taken_for_one(raw: bytes) -> None:
    with pytest.raises(ToolFailed):
        xml.parse_answer(raw)


def test_a_client_that_lost_a_brick_or_never_knew_it() -> None:
    bricks = xml.parse_volume_info(answer("volume-info-distribute.xml"), "vol1").bricks
    connected = {brick.name: True for brick in bricks}
    assert connection_problems(bricks, connected) == ()
    connected["10.213.77.12:/srv/b1/data"] = False
    del connected["10.213.77.13:/srv/b1/data"]
    lost, unknown = connection_problems(bricks, connected)
    assert "is not connected to brick 10.213.77.12:/srv/b1/data" in lost
    assert "does not know brick 10.213.77.13:/srv/b1/data" in unknown


def test_how_many_copies_and_pieces_a_volume_keeps() -> None:
    def counts(name: str, volume: str) -> tuple[int, int, int]:
        state = xml.parse_volume_info(answer(name), volume)
        return state.replica_count, state.disperse_count, state.stripe_count

    assert counts("volume-info-distribute.xml", "vol1") == (1, 0, 1)
    assert counts("volume-info-distributed-replicate.xml", "drep") == (3, 0, 1)
    assert counts("volume-info-arbiter.xml", "arb") == (3, 0, 1)
    assert counts("volume-info-disperse.xml", "ec") == (1, 3, 1)
    sharded = xml.parse_volume_info(answer("volume-info-sharded.xml"), "shard")
    assert ("features.shard", "on") in sharded.options


def test_hosts_of_the_pool_that_are_gone() -> None:
    assert xml.parse_peers_down(answer("pool-list.xml")) == ()
    assert xml.parse_peers_down(answer("pool-list-peer-down.xml")) == ("10.213.77.13",)


def test_pending_heals_are_counted_by_brick() -> None:
    clean = xml.parse_heals(answer("heal-info-summary-clean.xml"))
    assert [(heal.status, heal.entries) for heal in clean] == [("Connected", 0)] * 6
    pending = xml.parse_heals(answer("heal-info-summary-pending.xml"))
    assert [heal.entries for heal in pending] == [2, None, 2, 0, 0, 0]
    assert "Transport endpoint is not connected" in pending[1].status


DRAINED = "10.213.77.13:/srv/b2/data"


def test_the_facts_of_a_brick_that_is_down_are_unknown() -> None:
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


def test_an_unknown_task_status_counts_as_unfinished() -> None:
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


def test_a_started_task_has_an_id() -> None:
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


BRICKS = tuple(brick(f"h{number}:/srv/b/data") for number in (1, 2, 3))
STATE = volume(*BRICKS, volume_id="f9855758", options=(("features.ctime", "on"),))
MOUNT = MountIdentity(
    filesystem="fuse.glusterfs", mounted_from="h1:/vol1", device=None, fsid=None, root_ino=1, sentinel=None
)


def test_only_what_is_down_or_missing_is_a_problem_of_the_volume() -> None:
    assert volume_problems(STATE) == ()
    assert volume_problems(replace(STATE, tasks=("Rebalance (in progress)",))) == ()
    bricks = (replace(BRICKS[0], online=False), replace(BRICKS[1], online=None), BRICKS[2])
    down, unknown = volume_problems(replace(STATE, bricks=bricks))
    assert "h1:/srv/b/data is down" in down
    assert "h2:/srv/b/data may be down" in unknown
    assert volume_problems(replace(STATE, started=False))[0] == "volume vol1 is not started"
    assert volume_problems(replace(STATE, bricks=())) == ("volume vol1 has no bricks",)


def test_the_fingerprint_changes_with_bricks_and_options_only() -> None:
    changed = [
        replace(STATE, bricks=BRICKS[:2]),
        replace(STATE, bricks=BRICKS[::-1]),
        replace(STATE, bricks=(replace(BRICKS[0], arbiter=True), *BRICKS[1:])),
        replace(STATE, options=(("features.ctime", "off"),)),
        replace(STATE, volume_id="other"),
        replace(STATE, started=False),
    ]
    fingerprints = {volume_fingerprint(state) for state in (STATE, *changed)}
    assert len(fingerprints) == 1 + len(changed)
    one_down = replace(STATE, bricks=(replace(BRICKS[0], online=False), *BRICKS[1:]))
    assert volume_fingerprint(one_down) == volume_fingerprint(STATE)
    # `remove-brick start` writes this option down (seen with 10.3 on a distributed volume).
    begun = replace(
        STATE, options=(*STATE.options, ("performance.client-io-threads", "on"), ("cluster.rebal-throttle", "lazy"))
    )
    assert volume_fingerprint(begun) == volume_fingerprint(STATE)
    sets = replace(
        STATE, type="Distributed-Replicate", replica_count=2, bricks=(*BRICKS[:2], brick("a:/b"), brick("b:/b"))
    )
    left = replace(
        sets, type="Replicate", bricks=BRICKS[:2], options=(*STATE.options, ("cluster.lookup-optimize", "off"))
    )
    assert volume_fingerprint(drained(sets, ("a:/b", "b:/b"))) == volume_fingerprint(left)
    # Facts that are cut elsewhere do not look the same.
    one, other = replace(STATE, options=(("a", "b"), ("c", "d"))), replace(STATE, options=(("a", "bc=d"),))
    assert volume_fingerprint(one) != volume_fingerprint(other)


def test_only_a_mount_of_the_volume_itself_will_do() -> None:
    assert wrong_volume_problem(MOUNT, "vol1") is None
    assert wrong_volume_problem(replace(MOUNT, mounted_from="h1,h2:vol1"), "vol1") is None
    assert wrong_volume_problem(replace(MOUNT, mounted_from="h1:/vol1/below"), "vol1") is None
    assert wrong_volume_problem(replace(MOUNT, mounted_from="h1:/vol10"), "vol1") is not None
    assert wrong_volume_problem(replace(MOUNT, filesystem="xfs", mounted_from="/dev/sda1"), "vol1") is not None
