"""What a new site.toml says, from what is mounted."""

from pathlib import Path

import pytest

from migrator.core.errors import UsageError
from migrator.fs.model import Mount
from migrator.site.init import draft_site
from migrator.site.render import SiteDraft

ROOT = Mount(point=b"/", filesystem="ext4", source=b"/dev/sda1")
GLUSTER = Mount(point=b"/mnt/gl", filesystem="fuse.glusterfs", source=b"gl1:/vol1")
BEEGFS = Mount(point=b"/mnt/beegfs", filesystem="beegfs", source=b"beegfs_nodev")
OVER = Mount(point=b"/mnt/gl", filesystem="xfs", source=b"/dev/sdc1")
XFS = Mount(point=b"/data", filesystem="xfs", source=b"/dev/sdb1")


def draft(mounts: list[Mount], source: str | None = None, target: str | None = None) -> SiteDraft:
    named = {"source_mount": source, "target_mount": target}
    return draft_site(mounts, **{side: Path(path) for side, path in named.items() if path})  # type: ignore[arg-type]


def test_the_only_ones_are_taken() -> None:
    assert draft([ROOT, GLUSTER, XFS, BEEGFS]) == SiteDraft(
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
    assert draft([ROOT, GLUSTER, OVER], "/mnt/gl", "/data").source_kind == "posix"


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
        draft(mounts)
    assert said in caught.value.message
    assert "-mount DIR" in caught.value.hint
