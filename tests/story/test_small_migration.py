"""A whole small migration, by the commands of `make demo`: users are copied, verified and moved, one of them back and forth; brick
after brick is drained and becomes room of the target, and the volume is retired. All that anybody had is on the target then.
"""

import json
import os
from pathlib import Path

import pytest

from migrator.core.units import MIB
from tests.support.cluster.fixtures import MakeLab, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite
from tools import demo
from tools.tree_contents import Seen, everything

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]


def users_files(root: Path) -> dict[str, Seen]:
    """Everything of everybody, with its digest, owner, mode and time."""
    trees = [*sorted(one for one in (root / "home").iterdir() if one.is_dir()), root / "shared"]
    return {tree.name: everything(tree) for tree in trees}


def change(tree: Path) -> None:
    """One new file, one that has another name, and of a tree that is not small, one that is gone."""
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    (tree / "new").write_text("new")
    files[0].rename(tree / "renamed")
    if len(files) > 8:
        files[1].unlink()


def go_back_and_come_again(lab: LabHandle, site: LabSite, user: str) -> None:
    """What a user did on the target comes with him, both ways."""
    there, back = lab.target / "home" / user, lab.source / "home" / user
    change(there)
    # Who writes on the target can be seen only where all processes of the machine can be read, as in no container.
    hook, text = site.directory / "hooks" / "pre-freeze.d" / "10-vouches", site.file.read_text()
    hook.parent.mkdir(parents=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    site.file.write_text(text.replace("[cutover]\n", '[cutover]\nfreeze = "hook"\n'))
    (ended,) = site.json("rollback", "--user", user)["outcomes"]
    hook.unlink()
    site.file.write_text(text)
    assert (ended["ending"], ended["cutover"]["state"]) == ("moved", "rolled-back"), ended
    assert everything(back) == everything(there)
    (back / "again").write_text("again")
    (ended,) = site.json("cutover", "--user", user)["outcomes"]
    assert ended["ending"] == "moved", ended
    assert (there / "again").read_text() == "again"


@pytest.mark.guarantee("retire")
def test_a_source_is_emptied_brick_by_brick_and_its_disks_are_room_of_the_target(make_lab: MakeLab) -> None:
    lab = make_lab(hosts=2, bricks_per_host=1, users=2, files=60, data_bytes=MIB, odd=False)
    with_ssh(lab)
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
    on_target = {name: top for name, top in links.items() if top.is_relative_to(lab.target)}
    assert {name: everything(top) for name, top in on_target.items()} == {name: before[name] for name in on_target}
    moved = next(name for name in on_target if name != "shared")
    go_back_and_come_again(lab, site, moved)
    stays = links[next(name for name, top in links.items() if top.is_relative_to(lab.source))]
    change(stays)
    assert site.call("run", "--all", "--deltas", "1").returncode == 0
    before = {name: everything(top) for name, top in links.items()}
    assert users_files(lab.target) == before, "what changed came by a delta pass"
    refused = site.json("brick", "retire", "--confirm", "vol1", code=4)["cover"]["uncovered"]
    assert "not-moved" in refused, "the others are still on the source alone"
    demo.empty_the_source(site.file, directory)

    assert users_files(lab.target) == before
    assert (lab.target / "home" / "NOTICE").read_bytes() == notice
    links = {one.name: one.resolve() for one in (directory / "home").iterdir()}
    assert links == {name: lab.target / ("shared" if name == "shared" else f"home/{name}") for name in before}
    status = site.json("status")
    assert status["retirement"]["state"] == "retired"
    assert site.call("doctor").returncode == 0, "a finished migration is a success"
    assert [(one["side"], one["state"]) for one in status["additions"]] == [("target", "settled")]
    report = site.json("report")
    assert [(one["goal"], one["done"]) for one in report["milestones"]] == [
        ("copied", True),
        ("verified", True),
        ("moved", True),
        ("purged", True),
        ("cleared", True),
        ("added", True),
        ("complete", True),
    ]
    (week,) = report["weeks"]
    assert (week["users_moved"], week["bricks_cleared"], week["bricks_added"]) == (3, 1, 1)
    assert week["freezes"] >= 4, "one user was moved twice"
    assert (status["blocked"], status["next_steps"]) == ([], [])
    assert report["verdict"]["late_s"] is not None
    given = json.loads((directory / "given.json").read_text())
    assert len(given) == 1, "all disks but the last one"
    assert os.statvfs(lab.target).f_blocks > 1.8 * room_bytes, "the target has grown by the disk of a brick"
    assert b"Status: Stopped" in lab.gluster("volume", "info", "vol1")
