"""`kill -9` of `reap archive` before every step that leaves something: the same command comes to the same end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.reap.model import ArchiveState
from tests.reap.archive_child import MEMBERS
from tests.reap.archive_world import TREE, archive_world, write
from tests.support.snapshots import snapshot

REPOSITORY = Path(__file__).parents[2]
FILES = 60

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]


def run_child(directory: Path, kill_at: int) -> bool:
    """Whether it came to its end before it was killed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.reap.archive_child", str(directory), str(kill_at)],
        capture_output=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert done.returncode in (0, -9), done.stderr.decode()
    return done.stdout == b"done\n"


@pytest.mark.parametrize("first", [1, 3])
def test_archiving_that_is_killed_again_and_again_ends_as_one_that_is_not(tmp_path: Path, first: int) -> None:
    """The same tree goes on through all the kills: what one leaves, the next one takes up."""
    with archive_world(tmp_path) as world:
        for number in range(FILES):
            write(world.tree + b"/%d" % number, os.urandom(200))
        before = snapshot(world.tree)
        kill_at = first
        while not run_child(tmp_path, kill_at):
            kill_at += 4
            _check_what_counts(world.archives, world.ledger.archives.of_tree(TREE))
            assert kill_at < 1000, "archiving never gets to its end"
        assert kill_at > 12
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        proven = [one for one in world.ledger.archives.of_tree(TREE) if one.state is ArchiveState.PROVEN]
        assert sum(one.written.members for one in proven) == FILES
        assert all(one.written.members <= MEMBERS for one in proven)
        there = sorted(path.name for path in world.archives.iterdir())
        assert there == sorted(f"{one.number:06d}.{kind}" for one in proven for kind in ("parquet", "tar.zst"))
        assert world.restore(b".", to=elsewhere).restored == FILES
        assert snapshot(os.fsencode(elsewhere) + b"/" + TREE) == before
        assert snapshot(world.tree) == before


def _check_what_counts(directory: Path, records: object) -> None:
    """At every moment, what the ledger counts is on the target under its name, whole."""
    for record in records:  # type: ignore[attr-defined]
        if record.state is ArchiveState.PROVEN:
            assert (directory / f"{record.number:06d}.tar.zst").stat().st_size == record.written.archive_bytes
            assert (directory / f"{record.number:06d}.parquet").stat().st_size == record.written.index_bytes
