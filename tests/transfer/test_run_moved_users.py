"""`run` and `plan` over batches some of whose users were cut over, or are asked for alone, or are refused."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.core.clock import SystemClock
from migrator.core.errors import ExitCode
from migrator.ledger.locks import VOLUME, Locks, of_tree
from tests.conftest import MakeXfs
from tests.support.delta_changes import let_settle, standing, write
from tests.support.operations import FROZEN, MOVED, cut_over
from tests.support.run_site import RealSite

pytestmark = pytest.mark.needs_root

USERS = ("ann", "bob")


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[RealSite]:
    """A site of two users in one batch, of which nothing has been copied."""
    made = RealSite(scratch / "site", make_xfs(), make_xfs())
    for user in USERS:
        for name in ("stays", "goes", "deep/er/file"):
            write(made.source.path / "home" / user / name, f"{user}'s {name}")
    os.link(made.source.path / "home/ann/stays", made.source.path / "home/bob/ann's")
    let_settle()
    made.prepare()
    yield made
    made.kill_streams()


def run(site: RealSite, *options: str, code: int = 0) -> list[dict[str, Any]]:
    done = site.migrator("run", "--json", *options)
    assert done.returncode == code, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["batches"]
    return found


def seed(site: RealSite) -> None:
    run(site, "--all", "--deltas", "0")


def names(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*")} if tree.exists() else set()


def change(site: RealSite) -> None:
    for user in USERS:
        tree = site.source.path / "home" / user
        write(tree / "new", "new")
        (tree / "goes").unlink()
    let_settle()


@pytest.mark.guarantee("moved-users")
@pytest.mark.parametrize("steps", [MOVED, FROZEN], ids=["moved", "frozen"])
def test_the_tree_of_a_user_who_was_moved_is_left_alone(site: RealSite, steps: Any) -> None:
    seed(site)
    cut_over(site.ledger, "ann", steps)
    target = site.target.path / "home"
    write(target / "ann" / "new", "the user's own, on the target")
    before = standing(target / "ann")
    change(site)
    (preview,) = run(site, "--all", "--deltas", "1", "--dry-run")
    assert preview["left_alone"] == ["home/ann"]
    (batch,) = run(site, "--all", "--deltas", "1")
    assert batch["left_alone"] == ["home/ann"]
    assert [tree["tree"] for delta in batch["deltas"] for tree in delta["changes"]["trees"]] == ["home/bob"]
    assert standing(target / "ann") == before
    assert names(target / "bob") == names(site.source.path / "home" / "bob")
    with Locks(site.directory / "state" / "locks", SystemClock()).hold("purge", of_tree(b"home/ann"), shared=(VOLUME,)):
        done = site.migrator("run", "--all", "--deltas", "1")
        assert site.migrator("verify", "--all").returncode != ExitCode.LOCKED
    assert "1 user tree is left alone" in done.stderr
    assert "home/ann" in done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ["rsync", "fpsync"])
def test_a_seed_pass_gives_out_nothing_of_a_tree_that_was_moved_by_another_plan(site: RealSite, engine: str) -> None:
    if engine == "fpsync" and shutil.which("fpsync") is None:
        pytest.skip("fpsync is not installed")
    target = site.target.path / "home"
    write(target / "ann" / "stays", "what ann wrote on the target")
    cut_over(site.ledger, "ann")
    before = standing(target / "ann")
    (batch,) = run(site, "--all", "--deltas", "0", "--engine", engine)
    assert batch["left_alone"] == ["home/ann"]
    assert standing(target / "ann") == before
    assert names(target / "bob") == names(site.source.path / "home" / "bob")
    # The other name of the file lies in a tree that is ann's now: what she writes there must not appear here.
    assert (target / "bob" / "ann's").read_text() == "ann's stays"
    assert (target / "bob" / "ann's").stat().st_nlink == 1
    (again,) = run(site, "--all", "--deltas", "0", "--engine", engine)
    assert again["nothing_to_do"]


@pytest.mark.guarantee("moved-users")
def test_a_new_plan_leaves_moved_users_out(site: RealSite) -> None:
    seed(site)
    cut_over(site.ledger, "ann")
    assert site.migrator("scan").returncode == 0
    said = site.migrator("plan")
    assert "1 user tree is omitted, because the users work on the target: home/ann." in said.stdout
    done = site.migrator("plan", "--json")
    made = json.loads(done.stdout)
    assert made["left_out"] == ["home/ann"]
    assert [tree["path"] for batch in made["plan"]["batches"] for tree in batch["trees"]] == ["home/bob"]
    cut_over(site.ledger, "bob")
    nothing = site.migrator("plan")
    assert nothing.returncode == 2
    assert "nothing left to plan" in nothing.stderr


@pytest.mark.exhaustive
def test_single_users_are_brought_after_the_seed_pass_of_their_batch(site: RealSite) -> None:
    refused = site.migrator("run", "--user", "ann")
    assert refused.returncode == 4
    assert "run --user-batch 1" in refused.stderr
    assert not (site.target.path / "home").exists()
    (preview,) = run(site, "--user", "ann", "--dry-run", code=4)
    assert any(finding["guard"] == "seed pass" and finding["problems"] for finding in preview["guards"])
    seed(site)
    change(site)
    target = site.target.path / "home"
    (batch,) = run(site, "--user", "ann")
    assert [tree["tree"] for delta in batch["deltas"] for tree in delta["changes"]["trees"]] == ["home/ann"]
    assert names(target / "ann") == names(site.source.path / "home" / "ann")
    assert not (target / "bob" / "new").exists()
    assert (target / "bob" / "goes").exists()
    without = site.migrator("run", "--user", "ann", "--deltas", "0")
    assert without.returncode == 2
    # Of the other one nothing was forgotten; from then on one pass goes over both.
    (site.source.path / "home/ann/new").unlink()
    let_settle()
    (whole,) = run(site, "--all", "--deltas", "1")
    assert len(whole["deltas"]) == 2
    assert site.differences() == ""
    (one,) = run(site, "--all", "--deltas", "1")
    assert len(one["deltas"]) == 1


@pytest.fixture
def two_batches(scratch: Path, make_xfs: MakeXfs) -> Iterator[RealSite]:
    """Two users, each in a batch of his own, both seeded."""
    made = RealSite(scratch / "site", make_xfs(), make_xfs())
    for user in USERS:
        write(made.source.path / "home" / user / "file", f"{user}'s" * (9 if user == "ann" else 1))
    let_settle()
    made.prepare(transfer="[batch]\nmax_users = 1\n")
    seed(made)
    yield made
    made.kill_streams()


@pytest.mark.exhaustive
def test_a_batch_that_is_refused_does_not_end_the_run(two_batches: RealSite) -> None:
    site = two_batches
    shutil.rmtree(site.source.path / "home" / "ann")
    write(site.source.path / "home" / "bob" / "later", "later")
    let_settle()
    first, second = run(site, "--all", "--deltas", "1", code=4)
    assert first["refused"]
    assert "home/ann" in first["refusal"]["message"]
    assert second["refusal"] is None
    assert (site.target.path / "home/bob/later").read_text() == "later"
    assert (site.target.path / "home/ann/file").exists()
    said = site.migrator("run", "--all", "--deltas", "1")
    assert said.returncode == 4
    assert "batch 1 was refused, and the next one follows" in said.stderr
    assert "refused: 1" in said.stderr


@pytest.mark.guarantee("moved-users")
@pytest.mark.parametrize("glob", ["home", "home/ann/*"], ids=["around", "within"])
def test_a_tree_around_or_within_one_that_was_moved_is_refused_by_every_verb(site: RealSite, glob: str) -> None:
    seed(site)
    config = site.file.read_text()
    site.file.write_text(config.replace('"home/*"', f'"{glob}"'))
    for verb in (["scan"], ["plan", "--name", "drafted"]):
        assert site.migrator(*verb).returncode == 0
    assert site.migrator("run", "--plan", "drafted", "--all", "--deltas", "0").returncode == 0
    cut_over(site.ledger, "ann")
    target = site.target.path / "home"
    write(target / "ann/deep/er/file", "what ann wrote on the target")
    write(target / "ann/deep/new", "another")
    write(site.source.path / "home/ann/deep/er/file", "a late change on the source")
    before = standing(target)
    let_settle()
    assert site.migrator("scan").returncode == 0
    for verb in (
        ["plan"],
        ["run", "--plan", "drafted", "--all"],
        ["cutover", "--plan", "drafted", "--all"],
        ["cutover", "--plan", "drafted", "--all", "--dry-run"],
    ):
        done = site.migrator(*verb)
        assert done.returncode == 4, done.stdout + done.stderr
        assert "overlaps home/ann" in done.stderr
    assert standing(target) == before
