"""`reap archive`, killed before every step that leaves something: the same command comes to the same end."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.reap.archives import ArchiveFrameWriter
from migrator.reap.files import HeldFolder
from migrator.reap.model import ArchiveLimits, ArchiveState, ReapRow
from migrator.reap.records import ArchiveRecords
from tests.reap.archive_world import TREE, World, restored_tree, write
from tests.support.kills import Death, Killed, ticking
from tests.support.snapshots import snapshot

FILES = 60
MEMBERS = 25
STEPS = (
    *((ArchiveRecords, name) for name in ("add", "enter")),
    (ArchiveFrameWriter, "_put"),
    (HeldFolder, "create"),
    *((os, name) for name in ("mkdir", "unlink", "rename", "fsync")),
)

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]


def archived(world: World, rows: Sequence[ReapRow], death: Death) -> bool:
    """Whether it came to its end before it was killed. Nothing that would clear away after an error does anything."""
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        for owner, name in STEPS:
            patch.setattr(owner, name, ticking(getattr(owner, name), death))
        world.archive(rows, limits=ArchiveLimits(max_members=MEMBERS, frame_bytes=1024))
    return not death.happened


@pytest.mark.parametrize("first", [1, 3])
def test_archiving_that_is_killed_again_and_again_ends_as_one_that_is_not(
    world: World, place: Path, first: int
) -> None:
    """The same tree goes on through all the kills: what one leaves, the next one takes up."""
    for number in range(FILES):
        write(world.tree + b"/%d" % number, os.urandom(200))
    before, rows = snapshot(world.tree), world.rows()
    kill_at = first
    while not archived(world, rows, Death(left=kill_at)):
        kill_at += 4
        check_what_counts(world)
        assert kill_at < 1000, "archiving never gets to its end"
    assert kill_at > 12
    proven = [one for one in world.ledger.archives.of_tree(TREE) if one.state is ArchiveState.PROVEN]
    assert sum(one.written.members for one in proven) == FILES
    assert all(one.written.members <= MEMBERS for one in proven)
    there = sorted(path.name for path in world.archives.iterdir())
    assert there == sorted(f"{one.number:06d}.{kind}" for one in proven for kind in ("parquet", "tar.zst"))
    assert world.restore(b".", to=place).restored == FILES
    assert snapshot(restored_tree(place)) == before
    assert snapshot(world.tree) == before


def check_what_counts(world: World) -> None:
    """At every moment, what the ledger counts is on the target under its name, whole."""
    for record in world.ledger.archives.of_tree(TREE):
        if record.state is ArchiveState.PROVEN:
            archive = world.archives / f"{record.number:06d}.tar.zst"
            assert archive.stat().st_size == record.written.archive_bytes
            assert archive.with_name(f"{record.number:06d}.parquet").stat().st_size == record.written.index_bytes
