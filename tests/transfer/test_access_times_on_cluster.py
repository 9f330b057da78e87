"""Access times of a real volume that keeps its own: carried over from the bricks, and left alone by copying and verifying."""

import os
from pathlib import Path

import pytest

from tests.support.cluster.brick_runs import WORK, brick_runs, work_trees
from tests.support.cluster.fixtures import with_ssh
from tests.support.cluster.handle import LabHandle

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

FIRST_ATIME_NS = 1_400_000_001_123_456_789


def files_of(root: Path) -> list[Path]:
    return sorted(path for path in (root / WORK).rglob("*") if path.is_file())


def atimes_of(root: Path) -> dict[Path, int]:
    return {path.relative_to(root): path.stat().st_atime_ns for path in files_of(root)}


def give_atimes(lab: LabHandle) -> None:
    """Every file has one of its own, and another one on its brick."""
    for number, path in enumerate(files_of(lab.source)):
        os.utime(path, ns=(FIRST_ATIME_NS + number * 10**9, path.stat().st_mtime_ns))
    for brick in lab.bricks:
        for path in files_of(lab.brick_directory(brick)):
            os.utime(path, ns=(5, path.stat().st_mtime_ns))


def test_they_are_carried_over_from_the_bricks(lab: LabHandle, scratch: Path) -> None:
    with_ssh(lab)
    with work_trees(lab), brick_runs(lab, scratch / "site") as runs:
        runs.site.file.write_text(runs.site.file.read_text().replace("[transfer]", "[transfer]\natimes = true"))
        give_atimes(lab)
        wanted = atimes_of(lab.source)
        plan = runs.prepare()
        runs.run()
        runs.site.json("verify", "--all", "--reread")
        assert {engine for _, engine, _ in runs.attempts()} == {"direct"}
        assert atimes_of(runs.site.target) == wanted
        assert atimes_of(lab.source) == wanted
        # By default a volume counts no reading: `ctime.noatime` is on.
        assert "loss-access-time" in {one["kind"] for one in plan["surprises"]}
