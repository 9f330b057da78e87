"""What a new site.toml says, from what is mounted."""

import pytest

from migrator.core.errors import UsageError
from migrator.fs.model import Mount
from migrator.site.init import ProposedSite, propose_site

ROOT = Mount(point=b"/", filesystem="ext4", source=b"/dev/sda1")
GLUSTER = Mount(point=b"/mnt/gl", filesystem="fuse.glusterfs", source=b"gl1:/vol1")
BEEGFS = Mount(point=b"/mnt/beegfs", filesystem="beegfs", source=b"beegfs_nodev")
XFS = Mount(point=b"/data", filesystem="xfs", source=b"/dev/sdb1")


def test_the_only_ones_are_taken() -> None:
    assert propose_site([ROOT, GLUSTER, XFS, BEEGFS]) == ProposedSite(
        name="vol1-to-beegfs",
        source_kind="gluster",
        source_mount=b"/mnt/gl",
        volume="vol1",
        target_kind="beegfs",
        target_mount=b"/mnt/beegfs",
        target_path=b"",
    )


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        ([ROOT, BEEGFS], "no GlusterFS file system is mounted here that could be the source"),
        ([ROOT, GLUSTER], "no BeeGFS file system is mounted here that could be the target"),
        (
            [GLUSTER, Mount(point=b"/g2", filesystem="fuse.glusterfs", source=b"gl1:/v2"), BEEGFS],
            "/mnt/gl (gl1:/vol1), /g2 (gl1:/v2)",
        ),
    ],
)
def test_what_is_not_clear_is_asked_for(mounts: list[Mount], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        propose_site(mounts)
    assert said in caught.value.message
    assert "-mount DIR" in caught.value.hint


def test_what_is_named_counts_and_its_kind_is_found() -> None:
    proposed = propose_site([ROOT, GLUSTER, BEEGFS, XFS], source=b"/mnt/gl/home", target=b"/data/new")
    assert (proposed.source_kind, proposed.source_mount, proposed.volume) == ("gluster", b"/mnt/gl/home", "vol1")
    assert (proposed.target_kind, proposed.target_mount, proposed.target_path) == ("posix", b"/data/new", b"")


def test_a_directory_below_a_beegfs_is_its_path() -> None:
    proposed = propose_site([ROOT, BEEGFS], source=b"/srv/old data", target=b"/mnt/beegfs/a/b")
    assert (proposed.target_kind, proposed.target_mount, proposed.target_path) == ("beegfs", b"/mnt/beegfs", b"a/b")
    assert (proposed.source_kind, proposed.volume, proposed.name) == ("posix", None, "old-data-to-beegfs")


def test_of_two_mounts_at_one_place_the_last_is_seen() -> None:
    over = Mount(point=b"/mnt/gl", filesystem="xfs", source=b"/dev/sdc1")
    assert propose_site([ROOT, GLUSTER, over], source=b"/mnt/gl", target=b"/data").source_kind == "posix"
    assert propose_site([ROOT, over, GLUSTER], source=b"/mnt/gl", target=b"/data").source_kind == "gluster"


def test_a_name_that_only_begins_alike_is_another_place() -> None:
    assert propose_site([ROOT, GLUSTER], source=b"/mnt/gluster", target=b"/data").source_kind == "posix"
