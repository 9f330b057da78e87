"""Final passes over one tree of a batch on real file systems, and the passes over the batch that follow them."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.core.states import BatchState, PassKind, PassState
from migrator.delta import moving
from migrator.ledger.ledger import open_ledger
from migrator.transfer.pool import run_step
from tests.conftest import MakeXfs
from tests.support.delta_changes import let_settle, write
from tests.support.run_site import RealSite
from tests.transfer.final_pass import Killed, final_pass

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[RealSite]:
    """A site whose two users, in one batch, have been copied by a seed pass."""
    made = RealSite(scratch / "site", make_xfs(), make_xfs())
    for user in ("ann", "bob"):
        tree = made.source.path / "home" / user
        for name in ("stays", "changes", "goes", "old name", "deep/er/file"):
            write(tree / name, f"{user}'s {name}")
    let_settle()
    made.prepare()
    seeded = made.run("--deltas", "0")
    assert seeded.returncode == 0, seeded.stderr
    yield made
    made.kill_streams()


def change(tree: Path, words: str) -> None:
    """Something of every kind; `words` has to be another one each time."""
    write(tree / "changes", words)
    write(tree / f"new {words}", words)
    let_settle()


def names(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*")}


def delta(site: RealSite) -> dict[str, Any]:
    done = site.run("--json", "--deltas", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["batches"][0]
    return found


def batch_state(site: RealSite) -> BatchState:
    ledger = open_ledger(site.ledger)
    try:
        record = ledger.plans.latest()
        assert record is not None
        return record.batches[1]
    finally:
        ledger.close()


def test_brings_what_changed_in_its_tree_and_nothing_of_the_other(site: RealSite) -> None:
    source, target = site.source.path / "home", site.target.path / "home"
    before = names(target / "bob")
    for user in ("ann", "bob"):
        change(source / user, "at last")
        (source / user / "goes").unlink()
        (source / user / "old name").rename(source / user / "new name")
    made = final_pass(site, ["ann"])
    assert (made.record.kind, made.record.number, made.record.state) == (PassKind.FINAL, 1, PassState.DONE)
    assert made.record.chunk_list.endswith("batch-0001-final-0001.parquet")
    assert (made.facts.changed, made.facts.vanished, made.facts.failed) == (0, 0, 0)
    assert names(source / "ann") == names(target / "ann")
    assert (target / "ann" / "changes").read_text() == "at last"
    assert names(target / "bob") == before
    assert (target / "bob" / "changes").read_text() == "bob's changes"
    (place,) = (site.target.path / ".migrator-trash").iterdir()
    assert place.name.endswith("-batch-0001-final-0001")
    assert batch_state(site) is BatchState.SEEDED


def die_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr("migrator.transfer.passes.run_step", die)


def die_moving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is taken out of its place, and nothing put under its new name."""

    def die(*_: object) -> None:
        os._exit(1)

    monkeypatch.setattr(moving._Carrying, "_put", die)


@pytest.mark.exhaustive
@pytest.mark.parametrize("die", [die_copying, die_moving], ids=lambda die: die.__name__)
@pytest.mark.parametrize("follows", ["final", "delta"])
def test_one_that_was_cut_off_is_not_gone_on_with_and_nothing_of_it_is_lost(
    site: RealSite, monkeypatch: pytest.MonkeyPatch, die: Callable[[pytest.MonkeyPatch], None], follows: str
) -> None:
    source, target = site.source.path / "home" / "ann", site.target.path / "home" / "ann"
    change(source, "in the freeze")
    (source / "old name").rename(source / "new name")
    (source / "goes").unlink()
    with monkeypatch.context() as patched:
        die(patched)
        with pytest.raises(Killed):
            final_pass(site, ["ann"])
    # The user works again for a while, and takes some of it back.
    (source / "new name").rename(source / "old name")
    write(source / "later", "later")
    let_settle()
    if follows == "final":
        made = final_pass(site, ["ann"])
        assert (made.record.number, made.record.state) == (2, PassState.DONE)
        assert made.facts.failed == 0
    else:
        delta(site)
    assert site.differences() == ""
    assert names(source) == names(target)
    ledger = open_ledger(site.ledger)
    try:
        plan = ledger.plans.latest()
        assert plan is not None
        first = next(one for one in ledger.passes.of_batch(plan.name, 1) if one.kind is PassKind.FINAL)
        assert first.state is PassState.STOPPED
    finally:
        ledger.close()


@pytest.mark.exhaustive
def test_tells_what_changes_and_vanishes_while_it_copies(site: RealSite, monkeypatch: pytest.MonkeyPatch) -> None:
    source = site.source.path / "home" / "ann"
    for number in range(4):
        write(source / f"vanishing {number}", "there at the scan")
    let_settle()

    async def vanish(*arguments: Any) -> None:
        for number in range(3):
            (source / f"vanishing {number}").unlink(missing_ok=True)
        await run_step(*arguments)

    monkeypatch.setattr("migrator.transfer.passes.run_step", vanish)
    made = final_pass(site, ["ann"])
    assert (made.facts.vanished, made.facts.changed) == (3, 0)
    assert made.record.state is PassState.DONE


def test_what_seems_to_have_vanished_from_its_tree_is_guarded(site: RealSite) -> None:
    from migrator.core.errors import Refused

    tree = site.source.path / "home" / "ann"
    for path in list(tree.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = names(site.target.path)
    with pytest.raises(Refused, match="is empty now"):
        final_pass(site, ["ann"])
    assert names(site.target.path) == before
    assert os.listdir(tree) == []
