"""Faithful copies of trees of every odd kind verify without a difference, and what cannot be kept is listed."""

import os
import subprocess
from pathlib import Path

import pytest

from migrator.core.entry import EntryType
from migrator.core.errors import ExitCode
from migrator.core.paths import show
from migrator.core.states import BatchState
from migrator.fs.reading import ReadingFileSystem
from migrator.fs.writing import MountedTarget
from migrator.lab.model import OddFiles
from migrator.lab.odd import odd_files
from migrator.plan.model import SurpriseKind
from migrator.verify.stage import exit_code
from tests.conftest import MakeXfs
from tests.support.beegfs_like import BEEGFS_CAPABILITIES, beegfs_like, missing_for_fuse
from tests.support.verify_world import OTHER_TREE, TREE, World, verify_world, walk_tree

pytestmark = pytest.mark.needs_root


def make_odd(world: World) -> OddFiles:
    neighbour = world.source_path / os.fsdecode(OTHER_TREE)
    world.tree.mkdir(parents=True)
    neighbour.mkdir()
    return odd_files(os.fsencode(world.tree), neighbour=os.fsencode(neighbour), source_mount=world.source_root)


def test_copied_by_descriptor_to_xfs(make_xfs: MakeXfs, scratch: Path) -> None:
    source, target = make_xfs(), make_xfs()
    with verify_world(scratch, source.path, target.path) as world:
        made = make_odd(world)
        assert not made.skipped
        world.set_trees((TREE, OTHER_TREE))
        world.copy_trees(TREE, OTHER_TREE)
        record = world.verify()
        examples = world.manifests.examples(record.manifest or "")
        assert examples.differences == ()
        assert record.expected == {}
        assert record.whole
        assert record.reasons == ()
        assert exit_code(record) is ExitCode.DONE
        assert world.batch_state() is BatchState.VERIFIED
        rows = world.manifest_rows(record)
        assert len(rows) == record.paths > 100
        files = [row for row in rows if row["type"] == "file"]
        assert record.digested_files == len(files)
        assert all(row["digest"] is not None and row["algorithm"] == "xxh3_128" for row in files)


@pytest.mark.guarantee("target-losses")
def test_copied_by_rsync_to_a_file_system_like_beegfs(make_xfs: MakeXfs, scratch: Path) -> None:
    if reason := missing_for_fuse():
        pytest.skip(f"needs FUSE: {reason}")
    source = make_xfs()
    with beegfs_like(scratch) as target, verify_world(scratch, source.path, target) as world:
        site = world.ledger.site.read()
        assert site is not None
        assert site.capabilities == BEEGFS_CAPABILITIES
        made = make_odd(world)
        assert not made.skipped
        os.setxattr(world.tree / "odd", b"user.big", b"b" * 4001)
        copy_by_rsync(world)
        record = world.verify()
        examples = world.manifests.examples(record.manifest or "")
        assert [(show(difference.path)[:200], difference.kind) for difference in examples.differences] == []
        assert record.whole, record.reasons
        assert exit_code(record) is ExitCode.DONE
        assert world.batch_state() is BatchState.VERIFIED
        assert set(record.expected) == {
            SurpriseKind.LOSS_TIME,
            SurpriseKind.LOSS_DEVICE,
            SurpriseKind.LOSS_SYMLINK_MODE,
            SurpriseKind.LOSS_XATTR_NAMESPACE,
            SurpriseKind.LOSS_XATTR_SIZE,
            SurpriseKind.HARD_LINKS_BROKEN,
        }
        assert record.expected[SurpriseKind.LOSS_DEVICE] == 2
        too_big = [loss for loss in examples.losses if loss.kind is SurpriseKind.LOSS_XATTR_SIZE]
        assert [(loss.path, loss.detail) for loss in too_big] == [(TREE + b"/odd", "user.big of 4001 bytes")]
        assert len(world.manifest_rows(record)) == record.paths


def copy_by_rsync(world: World) -> None:
    """What a run does for such a target; paths beyond what rsync can take go by descriptor, times come last."""
    world.target.make_parents(TREE, ())
    options = ["-aHAXS", "--numeric-ids", "--filter=-x! user.*", "--filter=-x user.big", "--modify-window=1"]
    subprocess.run(["rsync", *options, f"{world.tree}/.", f"{world.copy}/."], check=False, capture_output=True)
    target = MountedTarget(world.target_root, BEEGFS_CAPABILITIES)
    source = ReadingFileSystem(world.source_root)
    entries = list(walk_tree(source, TREE))
    for entry in entries:
        if target.look(entry.path) is None:
            target.copy_from(world.source_root, entry)
    for entry in reversed(entries):
        if entry.type is EntryType.DIRECTORY:
            target.copy_from(world.source_root, entry)
    target.make_parents(TREE, ())
    source.close()
    target.close()
