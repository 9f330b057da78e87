"""Whatever users change between plans, and wherever runs are killed: after exit code 0 the target has what the source has."""

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.catalog.model import SETTLED_BEFORE_SCAN_S
from tests.conftest import MakeXfs
from tests.support.run_site import RealSite
from tests.support.snapshots import snapshot

ROUNDS = 3
CHANGES = 8


@pytest.mark.needs_root
def test_a_path_that_changes_its_type_between_two_plans_stays_and_one_that_was_removed_goes(
    scratch: Path, make_xfs: MakeXfs
) -> None:
    site = RealSite(scratch / "site", make_xfs(), make_xfs())
    home = site.source.path / "home" / "ann"
    home.mkdir(parents=True)
    makers: dict[str, Callable[[Path], object]] = {
        "file": lambda path: path.write_text("thesis"),
        "link": lambda path: path.symlink_to("nowhere"),
        "fifo": os.mkfifo,
        "empty": Path.mkdir,
        "full": lambda path: (path / "in").mkdir(parents=True),
    }
    pairs = [(before, after) for before in makers for after in makers if before != after]
    for before, after in pairs:
        makers[before](home / f"{before}-{after}")
    makers["full"](home / "removed")
    planned_and_run(site)
    remove(home / "removed")
    for before, after in pairs:
        remove(home / f"{before}-{after}")
        makers[after](home / f"{before}-{after}")
    planned_and_run(site)
    assert missing(site) == {}
    assert not (site.target.path / "home" / "ann" / "removed").exists()


@pytest.mark.needs_root
@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(6))
def test_random_changes_between_plans_passes_and_kills(scratch: Path, make_xfs: MakeXfs, seed: int) -> None:
    chance = random.Random(seed)
    site = RealSite(scratch / "site", make_xfs(), make_xfs())
    home = site.source.path / "home" / "ann"
    home.mkdir(parents=True)
    for _ in range(CHANGES * 3):
        change(home, chance)
    for _ in range(ROUNDS):
        planned_and_run(site, kill=chance.random() < 0.5)
        assert missing(site) == {}
        for _ in range(CHANGES):
            change(home, chance)
        if chance.random() < 0.5:
            done = site.migrator("run", "--all")
            assert done.returncode == 0, done.stdout + done.stderr
            assert missing(site) == {}


def planned_and_run(site: RealSite, *, kill: bool = False) -> None:
    time.sleep(SETTLED_BEFORE_SCAN_S + 0.1)  # younger changes may leave no trace in ctimes
    site.prepare(transfer="max_shrink = 1.0")
    if kill:
        with site.started("--all", "--deltas", "2") as process:
            assert process.stderr is not None
            next((line for line in process.stderr if "pass" in line), None)
    done = site.migrator("run", "--all")
    assert done.returncode == 0, done.stdout + done.stderr


def missing(site: RealSite) -> dict[bytes, object]:
    """What the target lacks, or has otherwise."""
    sides = [snapshot(os.fsencode(side.path / "home" / "ann")) for side in (site.source, site.target)]
    return {path: (facts, sides[1].get(path)) for path, facts in sides[0].items() if facts != sides[1].get(path)}


def change(home: Path, chance: random.Random) -> None:
    """Remove, rename or make one path of a few, of any type."""
    directories = [home, *(path for path in home.rglob("*") if path.is_dir() and not path.is_symlink())]
    path = chance.choice(directories) / chance.choice("abcd")
    if os.path.lexists(path):
        if chance.random() < 0.4:
            free = chance.choice(directories) / chance.choice("abcd")
            if not os.path.lexists(free) and not free.is_relative_to(path):
                path.rename(free)
                return
        remove(path)
    match chance.choice(("file", "link", "fifo", "directory", "nothing")):
        case "file":
            path.write_text(str(chance.random()))
        case "link":
            path.symlink_to(str(chance.random()))
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case _:
            pass


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
