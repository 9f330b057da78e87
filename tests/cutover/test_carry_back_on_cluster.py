"""Carrying back onto a real volume: what a user changed on the target since the switch comes to the bricks."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.errors import MigratorError
from tests.support.back_world import BackWorld
from tests.support.cluster.brick_runs import BrickRuns, brick_runs
from tests.support.cluster.handle import LabHandle
from tests.support.delta_changes import build, change, let_settle, standing
from tests.support.run_site import RealSite
from tests.support.xfs import XfsMount

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

USER = "ann"


class VolumeWorld(BackWorld):
    """The same as over two local file systems; the program is called as the lab wants it."""

    def __init__(self, runs: BrickRuns) -> None:
        site = RealSite(runs.site.directory, XfsMount(runs.lab.source, ""), XfsMount(runs.site.target, ""))
        super().__init__(site)
        self.runs = runs

    def switch(self) -> None:
        let_settle()
        done = self.runs.site.call("verify", "--all", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)[0]["differences"] == {}
        os.chown(self.source, 0, -1)
        self.source.chmod(0o500)
        self.target.chmod(0o755)


@pytest.fixture
def world(lab: LabHandle, scratch: Path) -> Iterator[VolumeWorld]:
    tree = lab.source / "home" / USER
    try:
        build(tree)
        let_settle()
        with brick_runs(lab, scratch / "site", trees=f"home/{USER}", via="mount", hosts=False) as runs:
            for words in (("scan",), ("plan",), ("run", "--all", "--deltas", "0")):
                done = runs.site.call(*words)
                assert done.returncode == 0, done.stderr
            made = VolumeWorld(runs)
            made.switch()
            yield made
    finally:
        shutil.rmtree(tree)
        shutil.rmtree(lab.source / ".migrator-trash", ignore_errors=True)


def test_every_kind_of_change_comes_back_to_the_volume(world: VolumeWorld) -> None:
    kept, many = standing(world.source / "kept"), standing(world.source / "many")
    change(world.target)
    let_settle()
    world.freeze_target()
    carried = world.carry()
    assert carried.changes.files > 10
    world.proves()
    assert standing(world.source / "kept") == kept
    moved = standing(world.source / "new" / "moved along")
    assert {path: facts[:2] for path, facts in moved.items()} == {path: facts[:2] for path, facts in many.items()}
    assert "home/ann/vanishes/inner/deep" in world.trashed()


def test_with_a_brick_down_nothing_is_carried_back(world: VolumeWorld, lab: LabHandle) -> None:
    change(world.target)
    let_settle()
    world.freeze_target()
    with lab.brick_down(lab.bricks[1]), pytest.raises(MigratorError, match="down"):
        world.carry()
    world.carry()
    world.proves()
