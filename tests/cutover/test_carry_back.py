"""A user who works on the target changes everything, and goes back: the source becomes what the target is."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.errors import MigratorError, Refused
from migrator.core.units import MIB
from migrator.cutover.files import MountedTops
from migrator.fs.writing import MountedTarget
from tests.conftest import MakeXfs
from tests.support.back_world import OWNER, TREE, BackWorld, opened
from tests.support.delta_changes import MANY, MANY_BYTES, VANISHED, build, change, let_settle, standing, write
from tests.support.run_site import RealSite

pytestmark = pytest.mark.needs_root


@pytest.fixture
def world(scratch: Path, make_xfs: MakeXfs) -> Iterator[BackWorld]:
    """A user who was copied, proven and switched a moment ago."""
    made = RealSite(scratch / "site", make_xfs(), make_xfs())
    build(made.source.path / "home" / "ann")
    let_settle()
    made.prepare()
    seeded = made.run()
    assert seeded.returncode == 0, seeded.stderr
    switched = BackWorld(made)
    switched.switch()
    yield switched
    made.kill_streams()


@pytest.mark.guarantee("rollback")
def test_every_kind_of_change_comes_back_and_nothing_else_is_sent(world: BackWorld) -> None:
    kept, many = standing(world.source / "kept"), standing(world.source / "many")
    change(world.target)
    world.freeze_target()
    carried = world.carry()
    world.proves()
    assert carried.seen == world.seen()[0]
    assert standing(world.source / "kept") == kept
    moved = standing(world.source / "new" / "moved along")
    assert {path: facts[:2] for path, facts in moved.items()} == {path: facts[:2] for path, facts in many.items()}
    assert len(moved) == MANY
    assert {f"home/ann/{path}" for path in VANISHED} <= world.trashed()
    assert carried.changes == world.changes()
    assert carried.changes.gone >= len(VANISHED)
    assert 0 < carried.changes.size_bytes < MANY_BYTES * 10
    assert 10 < carried.changes.files < 50


@pytest.mark.guarantee("rollback")
def test_what_the_target_cannot_keep_stays_as_it_was_on_the_source(scratch: Path, make_xfs: MakeXfs) -> None:
    """The target is made to keep less, as BeeGFS does: the file that nobody touched keeps what only the source has."""
    site = RealSite(scratch / "site", make_xfs(), make_xfs())
    world = BackWorld(site)
    build(world.source)
    rich, touched = world.source / "kept" / "0", world.source / "kept" / "1"
    for path in (rich, touched):
        os.setxattr(path, "security.rich", b"only here")
    let_settle()
    site.prepare()
    forget_security_attributes(site)
    assert site.run().returncode == 0
    for path in (world.target / "kept" / "0", world.target / "kept" / "1"):
        if "security.rich" in os.listxattr(path):
            os.removexattr(path, "security.rich")
    world.switch()
    with (world.target / "kept" / "1").open("a") as grown:
        grown.write("more")
    world.freeze_target()
    world.carry()
    proof = world.verify()
    assert proof.whole
    assert proof.differences == 0, world.why()
    assert os.getxattr(rich, "security.rich") == b"only here"
    assert touched.read_text().endswith("more")
    site.kill_streams()


def forget_security_attributes(site: RealSite) -> None:
    from migrator.fs.model import TargetCapabilities
    from migrator.ledger.ledger import open_ledger

    with open_ledger(site.ledger) as ledger:
        ledger.site.record_capabilities(TargetCapabilities(keeps_security_xattrs=False), 11.0)


@pytest.mark.exhaustive
def test_a_directory_that_became_a_symlink_leads_nowhere(world: BackWorld, scratch: Path) -> None:
    outside = scratch / "outside"
    write(outside / "0", "not the user's")
    shutil.rmtree(world.target / "kept")
    (world.target / "kept").symlink_to(outside)
    write(world.target / "vanishes" / "inner" / "deep", "changed")
    world.freeze_target()
    world.carry()
    world.proves()
    assert (outside / "0").read_text() == "not the user's"
    assert (world.source / "kept").is_symlink()
    assert "home/ann/kept/0" in world.trashed()


def test_a_tree_that_shrank_by_more_than_is_believed_is_refused_and_nothing_is_touched(world: BackWorld) -> None:
    shutil.rmtree(world.target / "many")
    write(world.target / "later", "later")
    world.freeze_target()
    before = standing(world.source)
    for _ in range(2):
        with pytest.raises(Refused, match="has lost"):
            world.carry()
    assert standing(world.source) == before
    assert not (world.source / "later").exists()
    world.site.write(transfer='max_shrink = "100%"')
    world.carry()
    world.proves()
    assert "home/ann/many/sub-0/5" in world.trashed()


@pytest.mark.exhaustive
def test_a_full_source_stops_it_with_the_reason_and_room_lets_it_go_on(world: BackWorld) -> None:
    filler = world.site.source.path / "filler"
    free = os.statvfs(world.site.source.path)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max((free.f_bavail * free.f_frsize) - 20 * MIB, MIB))
    (world.target / "big").write_bytes(os.urandom(40 * MIB))
    world.freeze_target()
    with pytest.raises(MigratorError, match=r"lacks|full"):
        world.carry()
    copied, _ = world.seen()
    assert copied is None or copied.finished_at_s is None
    filler.unlink()
    world.carry()
    world.proves()


def test_without_the_proof_of_the_switch_nothing_is_touched(world: BackWorld) -> None:
    change(world.target)
    world.freeze_target()
    before = standing(world.source)
    (manifest,) = (world.site.directory / "state" / "manifests").glob("*/manifest.parquet")
    content = manifest.read_bytes()
    manifest.write_bytes(content[:-1] + b"?")
    with pytest.raises(Refused, match="is not the one that the cutover was proven with"):
        world.carry()
    assert standing(world.source) == before
    manifest.write_bytes(content)
    world.carry()
    world.proves()


@pytest.mark.exhaustive
def test_the_top_gets_what_the_user_made_of_it_on_the_target(world: BackWorld) -> None:
    before = replace(MountedTops(world.site.source.root).read_top(TREE.path), uid=OWNER, mode=0o2750)
    world.target.chmod(0o2711)
    os.setxattr(world.target, "user.note", b"of the top")
    os.utime(world.target, ns=(1_000_000_000, 1_234_567_890_123_456_789))
    there = MountedTops(world.site.target.root).read_top(TREE.path)
    write(world.target / "later", "later")
    written = world.target.stat().st_mtime_ns
    world.freeze_target()
    world.carry()
    source = MountedTarget(world.site.source.root)
    for _ in range(2):
        with opened(world.site.file) as (back, record):
            source.open_tree(TREE.path, back.top(record, source_before=before, target_before=there))
        facts = world.source.stat()
        assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o7777) == (OWNER, OWNER, 0o2711)
        assert facts.st_mtime_ns == written
        assert os.getxattr(world.source, "user.note") == b"of the top"
    source.close()
