"""A tree that is set apart from a delta pass stays unchanged on the target; the other trees of its batch proceed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.site.rules_guards import SHRINK_FLOOR_NAMES
from tests.conftest import MakeXfs
from tests.support.delta_changes import let_settle, standing, write
from tests.support.run_site import RealSite
from tests.support.xfs import run_tool, unmount

pytestmark = pytest.mark.needs_root

USERS = ("ann", "ben", "cay")
MANY = 2 * SHRINK_FLOOR_NAMES


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[RealSite]:
    """One batch of three users, seeded: `ann` and `ben` have many files, `cay` has three."""
    made = RealSite(scratch / "site", make_xfs(), make_xfs())
    for user in USERS:
        home = made.source.path / "home" / user
        for name in ("first", "second", "third"):
            write(home / name, f"{name} of {user}")
        for number in range(MANY if user != "cay" else 0):
            write(home / "many" / f"{number}", f"{user} {number}")
    let_settle()
    made.prepare()
    done = made.run("--deltas", "0")
    assert done.returncode == 0, done.stderr
    yield made
    made.kill_streams()
    if (hidden := made.source.path / "home" / "ben" / "many").is_mount():
        unmount(hidden)


def run(site: RealSite, code: int) -> dict[str, Any]:
    done = site.run("--json", "--deltas", "5")
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["batches"][0]
    return found


def apart(batch: dict[str, Any]) -> list[str]:
    return [one["tree"] for one in batch["set_apart"]]


def swap_all(home: Path, number: int) -> None:
    """New files under other names, as of a program that rotates its output."""
    shutil.rmtree(home / "many")
    for name in range(MANY):
        write(home / "many" / f"{number} {name}", f"again {name}")


@pytest.mark.guarantee("delta-deletions")
def test_only_the_tree_that_shrank_is_set_apart(site: RealSite) -> None:
    home, target = site.source.path / "home", site.target.path / "home"
    there = standing(target / "ann")
    shutil.rmtree(home / "ann" / "many")
    write(home / "ann" / "later", "later")
    (home / "ben" / "first").unlink()
    (home / "ben" / "second").rename(home / "ben" / "has another name")
    for name in ("first", "second"):
        (home / "cay" / name).unlink()
    let_settle()
    batch = run(site, 3)
    assert apart(batch) == ["home/ann"]
    assert batch["refused"] is False
    assert standing(target / "ann") == there
    assert {path.name for path in (target / "ben").iterdir()} == {"has another name", "third", "many"}
    assert {path.name for path in (target / "cay").iterdir()} == {"third"}, "a small loss is no reason to stop"
    # The trees have different bases now, and nothing is left to do but the tree that is set apart.
    batch = run(site, 3)
    assert apart(batch) == ["home/ann"]
    assert [delta["outcome"] for delta in batch["deltas"]] == ["nothing-changed"]
    assert standing(target / "ann") == there
    # The remedy.
    site.file.write_text(site.file.read_text().replace("[transfer]\n", '[transfer]\nmax_shrink = "100%"\n'))
    assert apart(run(site, 0)) == []
    assert site.differences() == ""


def test_a_tree_whose_names_change_all_the_time_holds_up_no_other_tree(site: RealSite) -> None:
    home, target = site.source.path / "home", site.target.path / "home"
    for number in range(2):
        swap_all(home / "ann", number)
        (home / "ben" / "many" / f"{number}").unlink()
        let_settle()
        batch = run(site, 3)
        assert apart(batch) == ["home/ann"]
        assert not (target / "ben" / "many" / f"{number}").exists()


def test_a_batch_of_which_every_tree_shrank_is_refused(site: RealSite) -> None:
    before = standing(site.target.path)
    for user in ("ann", "ben"):
        shutil.rmtree(site.source.path / "home" / user / "many")
    for name in ("first", "second", "third"):
        (site.source.path / "home" / "cay" / name).unlink()
    let_settle()
    for _ in range(2):
        assert site.run("--deltas", "5").returncode == 4
        assert standing(site.target.path) == before


def test_passes_end_when_nothing_changed_but_a_tree_is_set_apart(site: RealSite) -> None:
    run_tool("mount", "-t", "tmpfs", "none", str(site.source.path / "home" / "ben" / "many"))
    for _ in range(2):
        batch = run(site, 3)
        assert apart(batch) == ["home/ben"]
        assert [delta["outcome"] for delta in batch["deltas"]] == ["nothing-changed"]
        assert batch["set_apart"][0]["reason"]
