"""Judging the places that a site names."""

from dataclasses import replace

import pytest

from migrator.core.events import FindingStatus
from migrator.fs.model import Mount, MountIdentity
from migrator.site import rules_guards as site_rules_guards

GLUSTER = MountIdentity(
    filesystem="fuse.glusterfs", mounted_from="gl1:/vol1", device=None, fsid=None, root_ino=1, sentinel=None
)
LOCAL = MountIdentity(filesystem="ext4", mounted_from="/dev/sda1", device=1, fsid=1, root_ino=9, sentinel=None)
MOUNTS = (
    Mount(point=b"/", filesystem="ext4", source=b"/dev/sda1"),
    Mount(point=b"/mnt/gl", filesystem="fuse.glusterfs", source=b"gl1:/vol1"),
    Mount(point=b"/mnt/xfs", filesystem="xfs", source=b"/dev/sdb1"),
)
ROOTS = (("source", b"/mnt/gl"), ("target", b"/mnt/xfs/new"))


@pytest.mark.parametrize(
    ("key", "directory", "said"),
    [
        ("state_dir", b"/mnt/gl/state", "lies on the source"),
        ("plans_dir", b"/mnt/gl", "[site] plans_dir /mnt/gl lies on the source"),
        ("state_dir", b"/mnt/xfs/new/state", "lies on the target"),
        ("state_dir", b"/mnt/xfs/newer", None),
        ("state_dir", b"/mnt/glx", None),
        ("state_dir", b"/mnt", None),
    ],
)
def test_directories_of_the_program_lie_on_neither_side(key: str, directory: bytes, said: str | None) -> None:
    problem = site_rules_guards.misplaced([("plans_dir", b"/elsewhere"), (key, directory)], ROOTS)
    assert (problem is None) == (said is None)
    assert said is None or (problem is not None and said in problem)
    assert site_rules_guards.misplaced([(key, directory)], [("source", b"/")]) is not None


@pytest.mark.parametrize(
    ("kind", "volume", "mounted", "message", "fix"),
    [
        (
            "gluster",
            "vol2",
            GLUSTER,
            "[source] volume is vol2, but the mount is of vol1 (gl1:/vol1)",
            'put [source] volume = "vol1" into site.toml, or mount volume vol2',
        ),
        ("gluster", "vol1", None, "not known: the source cannot be read", None),
        ("gluster", "vol1", LOCAL, "not known: the source is not mounted", "mount the source first: volume vol1"),
        ("gluster", "vol1", GLUSTER, None, None),
        ("gluster", "vol1", replace(GLUSTER, mounted_from="gl1:/vol1/below"), None, None),
        ("posix", None, LOCAL, None, None),
    ],
)
def test_a_source_that_is_not_what_site_toml_says(
    kind: str, volume: str | None, mounted: MountIdentity | None, message: str | None, fix: str | None
) -> None:
    finding = site_rules_guards.unusable_source(kind, volume, mounted)
    assert (finding and finding.message) == message
    assert finding is None or finding.status is FindingStatus.FAILURE
    assert fix is None or (finding is not None and finding.fix == fix)


def test_a_catalog_of_other_trees_is_told() -> None:
    assert site_rules_guards.check_catalog_trees("c", (b"a", b"b"), (b"b", b"a")) is None
    finding = site_rules_guards.check_catalog_trees("c", (b"a", b"gone"), (b"a", b"b", b"d", b"e", b"f"))
    assert finding is not None
    assert finding.message.endswith("it has not b, d, e, ...; it has besides gone")
    assert "migrator scan" in finding.fix
