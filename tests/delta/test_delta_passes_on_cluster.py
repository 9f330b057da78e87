"""Delta passes over a real volume that users go on changing, by way of the bricks and of the mount."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.core.paths import percent_unescape
from migrator.core.units import MIB
from tests.support.cluster.brick_runs import BrickRuns, brick_runs
from tests.support.cluster.fixtures import SMALL
from tests.support.cluster.handle import LabHandle, bring_up, take_down, wait_until
from tests.support.cluster.sides import assert_equal
from tests.support.delta_changes import build, change, let_settle, standing

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

WAYS = ["bricks", "mount"]
CHANGED = ("new", "grown", "rewritten", "attributes", "renamed", "vanished")
ANN = Path("home", "ann")


@pytest.fixture(scope="module")
def changing(lab_parent: Path) -> Iterator[LabHandle]:
    """A lab whose users may be let loose."""
    directory = lab_parent / "changing"
    spec = replace(SMALL, directory=os.fsencode(directory), hosts=2, users=3, files=250, data_bytes=8 * MIB)
    try:
        yield bring_up(spec)
    finally:
        take_down(directory)


@contextmanager
def seeded(lab: LabHandle, scratch: Path, via: str, *, code: tuple[int, ...] = (0,)) -> Iterator[BrickRuns]:
    """A site whose users have been copied once."""
    if via == "bricks" and not lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(lab.state.notes))
    with brick_runs(lab, scratch / "site", trees="home/*", via=via, hosts=via == "bricks") as runs:
        assert runs.site.call("scan").returncode == 0
        assert runs.site.call("plan").returncode == 0
        assert runs.site.call("run", "--all", "--deltas", "0").returncode in code
        yield runs


@contextmanager
def users_at_work(lab: LabHandle, runs: BrickRuns, journal: Path) -> Iterator[None]:
    """Users who write, rename, link and delete all the while."""
    words = ["lab", "churn", "--dir", os.fsdecode(lab.state.spec.directory), "--rate", "30", "--journal", str(journal)]
    churn = subprocess.Popen(
        runs.site.argv(*words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: journal.exists() and journal.stat().st_size > 1000, "the users are at work")
        yield
        assert churn.poll() is None, "they worked until the end"
    finally:
        churn.terminate()
        churn.wait()


def deltas_of(summary: Any) -> list[dict[str, Any]]:
    return [delta for batch in summary["batches"] for delta in batch["deltas"]]


def changed(delta: dict[str, Any], *kinds: str) -> int:
    found = [tree["by_kind"].get(kind, {"paths": 0})["paths"] for tree in delta["changes"]["trees"] for kind in kinds]
    return sum(found)


def of_the_past(files: dict[str, tuple[int, int, int]]) -> dict[str, tuple[int, int, int]]:
    return {path: facts for path, facts in files.items() if facts[1] < time.time_ns()}


def assert_proven(lab: LabHandle, runs: BrickRuns) -> None:
    runs.assert_equal()
    trees = [os.fsdecode(percent_unescape(tree["tree"]["path"])) for tree in runs.site.json("status")["trees"]]
    assert trees
    assert_equal(lab.source, runs.site.target, trees)


@pytest.mark.parametrize("via", WAYS)
def test_what_users_change_all_the_while_arrives_when_they_stop(changing: LabHandle, scratch: Path, via: str) -> None:
    journal = scratch / "journal"
    with seeded(changing, scratch, via, code=(0, 3)) as runs:
        # How much users at work take away between two passes depends on how long these take.
        site = runs.site.file.read_text()
        assert "[transfer]\n" in site
        runs.site.file.write_text(site.replace("[transfer]\n", '[transfer]\nmax_shrink = "100%"\n'))
        with users_at_work(changing, runs, journal):
            done = runs.site.call("run", "--all", "--deltas", "3", "--json")
            assert done.returncode in (0, 3), done.stderr
            written = journal.stat().st_size
            wait_until(lambda: journal.stat().st_size > written + 2000, "they went on after the last pass")
        let_settle()
        last = deltas_of(runs.run("--deltas", "1"))
        assert sum(changed(delta, *CHANGED) for delta in last)
        assert_proven(changing, runs)
        ways = {way for (way,) in runs.rows("select via from scans")}
        assert ways == {via}
        owed = runs.rows(
            "SELECT path, reason FROM attention WHERE kind = 'changed' AND pass_id = (SELECT max(id) FROM passes)"
        )
        if owed:
            # A directory that could not be renamed on the target: the next pass sends its whole tree, to be sure.
            runs.run("--deltas", "1")
        # Nothing changes any more: nothing is done. (Files whose times lie in the future may be sent to be sure.)
        before = of_the_past(standing(runs.site.target / "home"))
        for delta in deltas_of(runs.run("--deltas", "1")):
            assert changed(delta, *CHANGED) == 0
        now = of_the_past(standing(runs.site.target / "home"))
        again = sorted(path for path, facts in before.items() if now.get(path) != facts)
        assert not again, (len(again), again[:5], owed, runs.rows("SELECT kind, message FROM events ORDER BY id"))
        assert now == before


@pytest.mark.parametrize("via", WAYS)
def test_every_kind_of_change_arrives_and_renamed_directories_are_not_sent_again(
    changing: LabHandle, scratch: Path, via: str
) -> None:
    tree = changing.source / ANN
    try:
        build(tree)
        let_settle()
        with seeded(changing, scratch, via) as runs:
            many = standing(runs.site.target / ANN / "many")
            change(tree)
            let_settle()
            made = deltas_of(runs.run("--deltas", "1"))
            assert standing(runs.site.target / ANN / "new" / "moved along") == many
            assert max(delta["size_bytes"] for delta in made) < 20_000
            assert sum(changed(delta, "renamed") for delta in made) >= 5
            assert_proven(changing, runs)
            vanished = list(runs.site.target.glob(f".migrator-trash/*/{ANN}/vanishes/inner/deep"))
            assert [path.read_text() for path in vanished] == ["goes with it"]
    finally:
        shutil.rmtree(tree)


@pytest.mark.guarantee("delta-deletions")
@pytest.mark.parametrize("via", WAYS)
def test_a_brick_that_is_down_deletes_nothing(changing: LabHandle, scratch: Path, via: str) -> None:
    tree = changing.source / ANN
    try:
        build(tree)
        let_settle()
        with seeded(changing, scratch, via) as runs:
            before = standing(runs.site.target / "home")
            (tree / "files" / "vanished").unlink()
            with changing.brick_down(changing.bricks[1]):
                refused = runs.site.call("run", "--all", "--deltas", "1")
                assert refused.returncode == 4, refused.stderr
                assert changing.bricks[1].name in refused.stderr
                assert standing(runs.site.target / "home") == before
            runs.run("--deltas", "1")
            assert not (runs.site.target / ANN / "files" / "vanished").exists()
            assert_proven(changing, runs)
    finally:
        shutil.rmtree(tree)
