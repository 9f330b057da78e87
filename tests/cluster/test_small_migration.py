"""A whole small migration, by the commands of `make demo`: users move, brick after brick becomes room of the target, and the volume is
retired. All that anybody had is on the target then.
"""

import json
import os
from pathlib import Path

import pytest

from migrator.domain.units import MIB
from tests.cluster.conftest import MakeLab
from tests.cluster.site import LabSite
from tools import demo
from tools.tree_contents import Seen, everything

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]


def users_files(root: Path) -> dict[str, Seen]:
    """Everything of everybody, with its digest, owner, mode and time."""
    trees = [*sorted(one for one in (root / "home").iterdir() if one.is_dir()), root / "shared"]
    return {tree.name: everything(tree) for tree in trees}


def test_a_source_is_emptied_brick_by_brick_and_its_disks_are_room_of_the_target(make_lab: MakeLab) -> None:
    lab = make_lab(hosts=2, bricks_per_host=1, users=2, files=60, data_bytes=MIB, odd=False)
    if not lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(lab.state.notes))
    directory = Path(os.fsdecode(lab.state.spec.directory))
    site = LabSite(directory=directory, source=lab.source, target=lab.target)
    demo.prepare(site.file, directory)
    # Two batches, and nobody is cached: the small ones need not wait.
    text = (
        site.file.read_text()
        .replace("max_users = 3", "max_users = 2")
        .replace("[cutover]\n", '[cutover]\nsettle = "0s"\n')
    )
    site.file.write_text(text + '\n[drain]\nthrottle = "aggressive"\npoll = "0.2s"\n')
    before, notice = users_files(lab.source), (lab.source / "home" / "NOTICE").read_bytes()
    assert len(before) == 3
    assert all(before.values())
    room_bytes = os.statvfs(lab.target).f_blocks

    demo.move_users(site.file, directory, "gluster")
    links = {one.name: one.resolve() for one in (directory / "home").iterdir()}
    assert {top.is_relative_to(lab.target) for top in links.values()} == {True, False}, "one batch works on the target"
    demo.empty_the_source(site.file, directory)

    assert users_files(lab.target) == before
    assert (lab.target / "home" / "NOTICE").read_bytes() == notice
    links = {one.name: one.resolve() for one in (directory / "home").iterdir()}
    assert links == {name: lab.target / ("shared" if name == "shared" else f"home/{name}") for name in before}
    status = site.json("status")
    assert status["retirement"]["state"] == "retired"
    assert [(one["side"], one["state"]) for one in status["additions"]] == [("target", "settled")]
    given = json.loads((directory / "given.json").read_text())
    assert len(given) == 1, "all disks but the last one"
    assert os.statvfs(lab.target).f_blocks > 1.8 * room_bytes, "the target has grown by the disk of a brick"
    assert b"Status: Stopped" in lab.gluster("volume", "info", "vol1")
