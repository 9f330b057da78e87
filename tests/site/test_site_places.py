"""Judging the places that a site names, and drafting a site.toml from what is mounted."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.errors import UsageError
from migrator.core.events import FindingStatus
from migrator.doctor import rules as doctor_rules
from migrator.fs.model import Mount, MountIdentity
from migrator.site import rules_guards as site_rules_guards
from migrator.site.init import draft_site
from migrator.site.render import SiteDraft
from tests.support.making import made

GLUSTER = made(MountIdentity, filesystem="fuse.glusterfs", mounted_from="gl1:/vol1")
LOCAL = MountIdentity(filesystem="ext4", mounted_from="/dev/sda1", device=1, fsid=1, root_ino=9, sentinel=None)
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
        ("gluster", "vol1", None, "unknown: the source cannot be read", None),
        ("gluster", "vol1", LOCAL, "unknown: the source is not mounted", "mount the source first: volume vol1"),
        ("gluster", "vol1", GLUSTER, None, None),
        ("gluster", "vol1", replace(GLUSTER, mounted_from="gl1:/vol1/below"), None, None),
        ("posix", None, LOCAL, None, None),
    ],
)
def test_a_source_that_is_not_what_site_toml_says(
    kind: str, volume: str | None, mounted: MountIdentity | None, message: str | None, fix: str | None
) -> None:
    finding = doctor_rules.unusable_source(kind, volume, mounted)
    assert (finding and finding.message) == message
    assert finding is None or finding.status is FindingStatus.FAILURE
    assert fix is None or (finding is not None and finding.fix == fix)


def test_a_catalog_of_other_trees_is_told() -> None:
    assert doctor_rules.check_catalog_trees("c", (b"a", b"b"), (b"b", b"a")) is None
    finding = doctor_rules.check_catalog_trees("c", (b"a", b"gone"), (b"a", b"b", b"d", b"e", b"f"))
    assert finding is not None
    assert finding.message.endswith("it has not b, d, e, and 1 more; it has besides gone")
    assert "migrator scan" in finding.fix


ROOT = Mount(point=b"/", filesystem="ext4", source=b"/dev/sda1")
GLUSTER_MOUNT = Mount(point=b"/mnt/gl", filesystem="fuse.glusterfs", source=b"gl1:/vol1")
BEEGFS = Mount(point=b"/mnt/beegfs", filesystem="beegfs", source=b"beegfs_nodev")
OVER = Mount(point=b"/mnt/gl", filesystem="xfs", source=b"/dev/sdc1")
XFS = Mount(point=b"/data", filesystem="xfs", source=b"/dev/sdb1")


def draft(mounts: list[Mount], source: str | None = None, target: str | None = None) -> SiteDraft:
    named = {"source_mount": source, "target_mount": target}
    return draft_site(mounts, **{side: Path(path) for side, path in named.items() if path})  # type: ignore[arg-type]


def test_the_only_ones_are_taken() -> None:
    assert draft([ROOT, GLUSTER_MOUNT, XFS, BEEGFS]) == SiteDraft(
        name="vol1-to-beegfs",
        source_kind="gluster",
        source_mount=Path("/mnt/gl"),
        volume="vol1",
        target_kind="beegfs",
        target_mount=Path("/mnt/beegfs"),
    )
    named = draft([ROOT, BEEGFS], "/srv/old data", "/mnt/beegfs/a/b")
    assert (named.name, named.source_kind, named.target_kind) == ("old-data-to-beegfs", "posix", "beegfs")
    assert (named.target_mount, named.target_path) == (Path("/mnt/beegfs"), "a/b")
    # Of two mounts at one place the last is seen.
    assert draft([ROOT, GLUSTER_MOUNT, OVER], "/mnt/gl", "/data").source_kind == "xfs"


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        ([ROOT, BEEGFS], "no GlusterFS file system is mounted on this machine for the source"),
        ([ROOT, GLUSTER_MOUNT], "no BeeGFS file system is mounted on this machine for the target"),
        (
            [GLUSTER_MOUNT, Mount(point=b"/g2", filesystem="fuse.glusterfs", source=b"gl1:/v2"), BEEGFS],
            "/mnt/gl (gl1:/vol1), /g2 (gl1:/v2)",
        ),
    ],
)
def test_ambiguous_mounts_are_refused(mounts: list[Mount], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        draft(mounts)
    assert said in caught.value.message
    assert "-mount DIR" in caught.value.hint
