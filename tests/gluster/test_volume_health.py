"""Is the volume's mount to be trusted?"""

from dataclasses import replace

from migrator.fs.model import MountIdentity
from migrator.gluster.model import Brick, VolumeState
from migrator.gluster.rules import volume_fingerprint, volume_problems, wrong_volume_problem

BRICKS = tuple(
    Brick(name=f"h{number}:/srv/b/data", host=f"h{number}", path=b"/srv/b/data", online=True) for number in (1, 2, 3)
)
STATE = VolumeState(
    volume="vol1",
    volume_id="f9855758",
    type="Distribute",
    started=True,
    bricks=BRICKS,
    options=(("features.ctime", "on"),),
    tasks=(),
)
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
    begun = replace(STATE, options=(*STATE.options, ("performance.client-io-threads", "on")))
    assert volume_fingerprint(begun) == volume_fingerprint(STATE)
    # Facts that are cut elsewhere do not look the same.
    one, other = replace(STATE, options=(("a", "b"), ("c", "d"))), replace(STATE, options=(("a", "bc=d"),))
    assert volume_fingerprint(one) != volume_fingerprint(other)


def test_only_a_mount_of_the_volume_itself_will_do() -> None:
    assert wrong_volume_problem(MOUNT, "vol1") is None
    assert wrong_volume_problem(replace(MOUNT, mounted_from="h1,h2:vol1"), "vol1") is None
    assert wrong_volume_problem(replace(MOUNT, mounted_from="h1:/vol1/below"), "vol1") is None
    assert wrong_volume_problem(replace(MOUNT, mounted_from="h1:/vol10"), "vol1") is not None
    assert wrong_volume_problem(replace(MOUNT, filesystem="xfs", mounted_from="/dev/sda1"), "vol1") is not None
