"""Gluster's answers, as a real GlusterFS 10.3 gave them."""

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from migrator.core.errors import ToolFailed
from migrator.gluster import xml
from migrator.gluster.volume import connection_problems

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
        ("volume-status-tasks-none.xml", ()),
        (
            "volume-status-tasks-removebrick-inprogress.xml",
            ("Remove brick (in progress) of 10.213.77.13:/srv/b2/data",),
        ),
        ("volume-status-tasks-removebrick-completed.xml", ("Remove brick (completed) of 10.213.77.13:/srv/b2/data",)),
        ("volume-status-tasks-removebrick-committed.xml", ()),
        ("tasks-removebrick-failed.xml", ("Remove brick (failed) of 10.213.77.13:/srv/b2/data",)),
        ("tasks-removebrick-stopped.xml", ()),
        ("tasks-rebalance-inprogress.xml", ("Rebalance (in progress)",)),
        ("tasks-rebalance-completed.xml", ()),
        ("tasks-rebalance-stopped.xml", ()),
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
def test_what_is_no_successful_answer_is_never_taken_for_one(raw: bytes) -> None:
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


def test_what_waits_to_be_healed() -> None:
    clean = xml.parse_heals(answer("heal-info-summary-clean.xml"))
    assert [(heal.status, heal.entries) for heal in clean] == [("Connected", 0)] * 6
    pending = xml.parse_heals(answer("heal-info-summary-pending.xml"))
    assert [heal.entries for heal in pending] == [2, None, 2, 0, 0, 0]
    assert "Transport endpoint is not connected" in pending[1].status
