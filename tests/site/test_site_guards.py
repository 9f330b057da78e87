"""Guards over the mounts, the source's health and the room on the target."""

from dataclasses import replace

import pytest

from migrator.core.units import GIB
from migrator.fs.model import Capacity, MountIdentity
from migrator.gluster.model import Brick, SourceHealth, VolumeState
from migrator.site.rules_guards import (
    capacity_problems,
    health_problems,
    kind_problem,
    mount_problems,
    same_place_problem,
)

GLUSTER = MountIdentity(
    filesystem="fuse.glusterfs", mounted_from="gl1:/vol1", device=None, fsid=None, root_ino=1, sentinel="site-1"
)
XFS = MountIdentity(filesystem="xfs", mounted_from="/dev/sdb1", device=2065, fsid=99, root_ino=128, sentinel="site-1")


@pytest.mark.parametrize("identity", [GLUSTER, XFS])
def test_the_recorded_mount_has_no_problem(identity: MountIdentity) -> None:
    assert mount_problems(identity, identity) == ()


def test_an_empty_directory_in_place_of_the_mount_is_told() -> None:
    empty = MountIdentity(
        filesystem="ext4", mounted_from="/dev/sda1", device=2049, fsid=7, root_ino=123456, sentinel=None
    )
    (problem,) = mount_problems(GLUSTER, empty, where="the source")
    assert problem.startswith("the source is not mounted: a directory of ext4 is in its place")
    assert "fuse.glusterfs from gl1:/vol1" in problem


def test_an_empty_directory_on_the_same_kind_of_file_system_is_told_by_the_sentinel_and_the_device() -> None:
    empty = replace(XFS, device=2066, fsid=98, root_ino=555, sentinel=None)
    problems = mount_problems(XFS, empty)
    assert len(problems) == 4
    assert "no sentinel" in problems[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sentinel": None}, "no sentinel"),
        ({"sentinel": "site-2"}, "sentinel of another site (site-2)"),
        ({"device": 1}, "another device number"),
        ({"device": None}, "not known now"),
        ({"fsid": 1}, "another file system id"),
        ({"root_ino": 1}, "another inode number of the root"),
        ({"filesystem": "ext4"}, "another file system: ext4"),
        ({"filesystem": ""}, "not listed"),
    ],
)
def test_each_fact_trips_alone(change: dict[str, object], said: str) -> None:
    (problem,) = mount_problems(XFS, replace(XFS, **change))  # type: ignore[arg-type]
    assert said in problem


def test_another_server_of_the_same_volume_is_the_same_mount() -> None:
    assert mount_problems(GLUSTER, replace(GLUSTER, mounted_from="gl2:vol1")) == ()


def test_without_a_sentinel_another_volume_is_told() -> None:
    recorded = replace(GLUSTER, sentinel=None)
    assert mount_problems(recorded, replace(recorded, mounted_from="gl2:/vol1")) == ()
    (problem,) = mount_problems(recorded, replace(recorded, mounted_from="gl1:/vol2"))
    assert "gl1:/vol2" in problem


def test_a_device_name_may_change_where_the_sentinel_is_right() -> None:
    assert mount_problems(XFS, replace(XFS, mounted_from="/dev/sdc1")) == ()


def test_what_cannot_be_compared_trips() -> None:
    assert mount_problems(None, XFS)
    assert mount_problems(XFS, None)


def brick(name: str, online: bool | None = True) -> Brick:
    host, _, path = name.partition(":")
    return Brick(name=name, host=host, path=path.encode(), online=online)


STATE = VolumeState(
    volume="vol1",
    volume_id="id-1",
    type="Distribute",
    started=True,
    bricks=(brick("gl1:/b/1"), brick("gl2:/b/1")),
    options=(),
    tasks=(),
)


def health(state: VolumeState | None = STATE, *problems: str, fingerprint: str = "f") -> SourceHealth:
    return SourceHealth(problems=problems, fingerprint=fingerprint, state=state)


def test_a_healthy_source_that_stays_the_same_has_no_problem() -> None:
    assert health_problems(health(), health()) == ()
    assert health_problems(health(None), health(None)) == ()


@pytest.mark.parametrize("online", [False, None])
def test_a_brick_that_is_not_known_to_be_up_trips_on_either_side(online: bool | None) -> None:
    down = replace(STATE, bricks=(STATE.bricks[0], brick("gl2:/b/1", online)))
    for looks in ((health(down), health()), (health(), health(down)), (health(down), health(down))):
        (problem,) = health_problems(*looks)
        assert "gl2:/b/1" in problem


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (replace(STATE, bricks=STATE.bricks[:1]), "brick gl2:/b/1 left"),
        (replace(STATE, bricks=(*STATE.bricks, brick("gl3:/b/1"))), "brick gl3:/b/1 joined"),
        (replace(STATE, volume_id="id-2"), "another one"),
        (replace(STATE, started=False), "not started"),
        (replace(STATE, tasks=("Rebalance",)), "Rebalance"),
    ],
)
def test_each_change_between_two_looks_trips(after: VolumeState, said: str) -> None:
    (problem,) = health_problems(health(), health(after))
    assert said in problem


def test_a_task_before_trips_even_when_it_has_ended() -> None:
    (problem,) = health_problems(health(replace(STATE, tasks=("Remove brick",))), health())
    assert "Remove brick" in problem


def test_who_only_copies_may_go_on_beside_a_task() -> None:
    moving = health(replace(STATE, tasks=("Rebalance",)))
    assert health_problems(moving, moving, tasks_count=False) == ()
    assert health_problems(moving, health(replace(STATE, started=False)), tasks_count=False)


def test_a_changed_fingerprint_alone_trips() -> None:
    (problem,) = health_problems(health(), health(fingerprint="other"))
    assert "options changed" in problem


def test_the_adapters_own_problems_are_kept_once() -> None:
    assert health_problems(health(STATE, "gluster gave no answer"), health(STATE, "gluster gave no answer")) == (
        "gluster gave no answer",
    )


def test_a_look_that_failed_trips() -> None:
    assert health_problems(None, health())
    assert health_problems(health(), None)
    assert health_problems(None, None)
    assert "only before or only after" in health_problems(health(), health(None))[0]


ROOM = Capacity(total_bytes=100 * GIB, free_bytes=10 * GIB, total_inodes=1000, free_inodes=100)


@pytest.mark.parametrize(
    ("need_bytes", "need_inodes", "reserve_bytes", "said"),
    [
        (10 * GIB, 100, 0, ()),
        (9 * GIB, 100, GIB, ()),
        (9 * GIB + 1, 100, GIB, ("the target lacks 1 B",)),
        (11 * GIB, 0, 0, ("the target lacks 1.0 GiB",)),
        (0, 101, 0, ("the target lacks 1 inode:",)),
        (11 * GIB, 101, 0, ("the target lacks 1.0 GiB", "the target lacks 1 inode:")),
        (
            1,
            0,
            20 * GIB,
            ("the target lacks 10.0 GiB: 1 B are needed, 10.0 GiB are free, and 20.0 GiB have to stay free",),
        ),
    ],
)
def test_room(need_bytes: int, need_inodes: int, reserve_bytes: int, said: tuple[str, ...]) -> None:
    problems = capacity_problems(ROOM, need_bytes, need_inodes, reserve_bytes=reserve_bytes)
    assert len(problems) == len(said)
    for problem, beginning in zip(problems, said, strict=True):
        assert problem.startswith(beginning)


def test_unknown_inodes_trip_unless_they_are_given() -> None:
    unknown = replace(ROOM, total_inodes=None, free_inodes=None)
    (problem,) = capacity_problems(unknown, 0, 0)
    assert "unknown, not full" in problem
    assert capacity_problems(unknown, 0, 50, inodes_free_override=50) == ()
    (problem,) = capacity_problems(unknown, 0, 51, inodes_free_override=50)
    assert "lacks 1 inode:" in problem


def test_a_given_number_does_not_outweigh_what_the_file_system_says() -> None:
    (problem,) = capacity_problems(ROOM, 0, 101, inodes_free_override=10**9)
    assert "lacks 1 inode:" in problem


def test_a_read_only_target_and_an_unknown_one_trip() -> None:
    assert capacity_problems(replace(ROOM, read_only=True), 0, 0) == ("the target is mounted read-only",)
    assert capacity_problems(None, 0, 0)


def test_one_directory_mounted_twice_is_told() -> None:
    assert same_place_problem(XFS, replace(XFS, sentinel=None, mounted_from="/dev/mapper/x"))
    assert same_place_problem(GLUSTER, replace(GLUSTER, mounted_from="gl2:/vol1"))
    assert same_place_problem(XFS, replace(XFS, root_ino=129)) is None
    assert same_place_problem(XFS, replace(XFS, device=1)) is None
    assert same_place_problem(GLUSTER, replace(GLUSTER, mounted_from="gl1:/vol2")) is None
    assert same_place_problem(GLUSTER, XFS) is None


def test_what_is_mounted_is_of_the_kind_that_was_named() -> None:
    assert kind_problem(GLUSTER, "gluster", where="the source") is None
    assert kind_problem(XFS, "posix", where="the source") is None
    problem = kind_problem(XFS, "gluster", where="the source")
    assert problem is not None
    assert problem.startswith("the source is no gluster file system but xfs from /dev/sdb1")
    assert kind_problem(XFS, "beegfs", where="the target")
