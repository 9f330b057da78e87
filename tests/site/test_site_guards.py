"""Guards over the mounts, the source's health, the room on the target, and who may change what the program believes."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.errors import Refused, UsageError
from migrator.core.units import GIB
from migrator.fs.model import Capacity, MountIdentity, SourceHealth
from migrator.gluster.model import VolumeHealth, VolumeState
from migrator.site.load import load_site
from migrator.site.rules_guards import capacity_problems, health_problems, mount_problems, same_place_problem
from tests.support.volumes import brick, volume

GLUSTER = MountIdentity(
    filesystem="fuse.glusterfs", mounted_from="gl1:/vol1", device=None, fsid=None, root_ino=1, sentinel="site-1"
)
XFS = MountIdentity(filesystem="xfs", mounted_from="/dev/sdb1", device=2065, fsid=99, root_ino=128, sentinel="site-1")


NO_SENTINEL = replace(GLUSTER, sentinel=None)
LOCAL = MountIdentity(filesystem="ext4", mounted_from="/dev/sda1", device=2049, fsid=7, root_ino=12, sentinel=None)


@pytest.mark.parametrize(
    ("recorded", "current", "said"),
    [
        (GLUSTER, LOCAL, ("the source is not mounted: a directory of ext4", "fuse.glusterfs from gl1:/vol1")),
        (NO_SENTINEL, replace(NO_SENTINEL, mounted_from="gl1:/vol2"), ("gl1:/vol2",)),
        (None, XFS, ("never recorded",)),
        (XFS, None, ("cannot be read",)),
    ],
)
def test_another_mount(recorded: MountIdentity | None, current: MountIdentity | None, said: tuple[str, ...]) -> None:
    (problem,) = mount_problems(recorded, current, where="the source")
    assert all(words in problem for words in said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sentinel": None}, "no sentinel"),
        ({"sentinel": "site-2"}, "sentinel of another site (site-2)"),
        ({"device": 1}, "another device number"),
        ({"device": None}, "unknown now"),
        ({"fsid": 1}, "another file system id"),
        ({"root_ino": 1}, "another inode number of the root"),
        ({"filesystem": "ext4"}, "another file system: ext4"),
        ({"filesystem": ""}, "not listed"),
    ],
)
def test_each_fact_trips_alone(change: dict[str, object], said: str) -> None:
    (problem,) = mount_problems(XFS, replace(XFS, **change))
    assert said in problem


STATE = volume("gl1:/b/1", "gl2:/b/1")


def health(state: VolumeState | None = STATE, *problems: str, fingerprint: str = "f") -> SourceHealth:
    if state is None:
        return SourceHealth(problems=problems, fingerprint=fingerprint)
    return VolumeHealth(problems=problems, fingerprint=fingerprint, state=state)


@pytest.mark.parametrize("online", [False, None])
def test_a_brick_that_is_not_known_to_be_up_trips_on_either_side(online: bool | None) -> None:
    down = replace(STATE, bricks=(STATE.bricks[0], brick("gl2:/b/1", online=online)))
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


def test_looks_at_the_source_are_compared() -> None:
    moving = health(replace(STATE, tasks=("Remove brick",)))
    silent = health(STATE, "gluster gave no answer")
    for before, after, said in (
        (health(), health(), None),
        (health(None), health(None), None),
        (moving, health(), "Remove brick"),
        (health(), health(fingerprint="other"), "options changed"),
        (silent, silent, "gluster gave no answer"),
        (None, health(), "unknown"),
        (health(), None, "unknown"),
        (None, None, "unknown"),
        (health(), health(None), "only before or only after"),
    ):
        problems = health_problems(before, after)
        assert len(problems) == (said is not None)
        assert said is None or said in problems[0]
    # Verbs that only copy may go on beside a task.
    assert health_problems(moving, moving, tasks_count=False) == ()
    assert health_problems(moving, health(replace(STATE, started=False)), tasks_count=False)


ROOM = Capacity(total_bytes=100 * GIB, free_bytes=10 * GIB, total_inodes=1000, free_inodes=100)


@pytest.mark.parametrize(
    ("need_bytes", "need_inodes", "reserve_bytes", "said"),
    [
        (10 * GIB, 100, 0, ()),
        (9 * GIB + 1, 100, GIB, ("the target lacks 1 B",)),
        (11 * GIB, 101, 0, ("the target lacks 1.0 GiB", "the target lacks 1 inode:")),
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
    # A given number does not outweigh a reported one.
    (problem,) = capacity_problems(ROOM, 0, 101, inodes_free_override=10**9)
    assert "lacks 1 inode:" in problem
    assert capacity_problems(replace(ROOM, read_only=True), 0, 0) == ("the target is mounted read-only",)
    assert capacity_problems(None, 0, 0)


def test_one_directory_mounted_twice_is_told() -> None:
    assert same_place_problem(XFS, replace(XFS, sentinel=None, mounted_from="/dev/mapper/x"))
    assert same_place_problem(GLUSTER, replace(GLUSTER, mounted_from="gl2:/vol1"))
    assert same_place_problem(XFS, replace(XFS, root_ino=129)) is None
    assert same_place_problem(XFS, replace(XFS, device=1)) is None
    assert same_place_problem(GLUSTER, replace(GLUSTER, mounted_from="gl1:/vol2")) is None
    assert same_place_problem(GLUSTER, XFS) is None


OTHER_USER = 4711


@pytest.fixture
def site(scratch: Path) -> Path:
    directory = scratch / "site"
    (directory / "state").mkdir(parents=True)
    tool = directory / "tool"
    tool.touch(mode=0o755)
    file = directory / "site.toml"
    file.write_text(
        f'[site]\nname = "a"\n[source]\nkind = "gluster"\nvolume = "v"\nmount = "/mnt/gl"\ngluster = "{tool}"\n'
        '[target]\nkind = "posix"\nmount = "/mnt/t"\n[users]\ntrees = ["home/*"]\n'
    )
    return file


def give_away(path: Path) -> None:
    os.chown(path, OTHER_USER, 0)


def open_up(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def lead_elsewhere(path: Path) -> None:
    """Through a symlink of another user."""
    path.rename(path.with_name("real"))
    path.symlink_to("real")
    os.lchown(path, OTHER_USER, 0)


@pytest.mark.needs_root
@pytest.mark.guarantee("trusted-files")
@pytest.mark.parametrize("change", [give_away, open_up, lead_elsewhere])
@pytest.mark.parametrize("name", ["site.toml", "state", "tool", ""])
def test_files_that_other_users_can_change_are_refused(site: Path, name: str, change: Callable[[Path], None]) -> None:
    assert load_site(site).site.name == "a"
    path = site.parent / name if name else site.parent
    change(path)
    with pytest.raises(Refused, match=f"is not used: .*{path.name}") as refused:
        load_site(site)
    assert path.name in refused.value.hint


@pytest.mark.parametrize("kind", ["fifo", "device", "large", "nested", "number"])
def test_invalid_site_files_are_refused_at_once(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "site.toml"
    match kind:
        case "fifo":
            os.mkfifo(file)
        case "device":
            file = Path("/dev/zero")
        case "large":
            file.write_bytes(b"#" * (1 << 21))
        case "nested":
            file.write_text("a = " + "[" * 100_000)
        case _:
            file.write_text("a = " + "9" * 5_000)
    with pytest.raises(UsageError, match=r"not a site file|nested too deeply|a number that is too long"):
        load_site(file)
