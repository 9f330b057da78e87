"""Delta passes scan the trees of their batch and no others, and begin from a catalog that covers them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from migrator.core.errors import LedgerCorrupt
from migrator.core.states import PassKind
from migrator.delta.model import Changes, TreeChanges
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.transfer.bases import base_catalog
from tests.conftest import MakeXfs
from tests.support.delta_changes import let_settle
from tests.support.run_site import RealSite

ANN, BOB = b"home/ann", b"home/bob"


def passed(ledger: Ledger, kind: PassKind, number: int, trees: Sequence[bytes]) -> None:
    """A pass over some trees; the seed has no base."""
    name, seed = f"{kind.value}-{number}", kind is PassKind.SEED
    found = tuple(TreeChanges(tree=tree, names_before=1, bytes_before=1, by_kind={}) for tree in trees)
    ledger.passes.start(
        plan="p",
        batch=1,
        kind=kind,
        number=number,
        catalog=name,
        base_catalog=None if seed else "base",
        chunk_list=name,
        changes=None if seed else Changes(base="base", now=name, trees=found),
        chunks=(),
        at_s=1.0,
    )


def test_the_base_of_a_tree_is_the_catalog_of_the_latest_pass_over_it(ledger: Ledger) -> None:
    def base(*trees: bytes) -> str:
        return base_catalog(ledger.passes, "p", 1, trees)

    with pytest.raises(LedgerCorrupt, match="no pass"):
        base(ANN)
    passed(ledger, PassKind.SEED, 0, ())
    assert base(ANN, BOB) == "seed-0"
    passed(ledger, PassKind.DELTA, 1, (ANN, BOB))
    passed(ledger, PassKind.FINAL, 1, (ANN,))
    assert (base(ANN), base(BOB)) == ("final-1", "delta-1")
    with pytest.raises(LedgerCorrupt, match="different passes"):
        base(ANN, BOB)
    passed(ledger, PassKind.FINAL, 2, (BOB,))
    assert (base(ANN), base(BOB)) == ("final-1", "final-2")
    passed(ledger, PassKind.DELTA, 2, (ANN, BOB))
    assert base(ANN) == base(BOB) == base(BOB, ANN) == "delta-2"


def planned(site: RealSite) -> dict[str, Any]:
    """A new plan."""
    done = site.migrator("plan", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["plan"]
    return found


@pytest.mark.needs_root
def test_a_delta_pass_scans_the_trees_of_its_batch_alone(scratch: Path, make_xfs: MakeXfs) -> None:
    site = RealSite(scratch / "site", make_xfs(), make_xfs())
    homes = site.source.path / "home"
    for user in ("ann", "bob"):
        (homes / user).mkdir(parents=True)
        (homes / user / "file").write_text(f"{user}'s")
    os.link(homes / "ann" / "file", homes / "bob" / "ann's")
    let_settle()
    site.write(transfer="[batch]\nmax_users = 1\n")
    for verb in ("init", "scan"):
        assert site.migrator(verb).returncode == 0
    plan = planned(site)
    done = site.migrator("run", "--all", "--deltas", "0")
    assert done.returncode == 0, done.stderr
    trees = {batch["number"]: [tree["path"].encode() for tree in batch["trees"]] for batch in plan["batches"]}
    assert sorted(trees.values()) == [[ANN], [BOB]]
    # Through the one name, which bob's batch has a copy of its own of; and what bob has done since is not looked at.
    with (homes / "ann" / "file").open("a") as file:
        file.write(" and more")
    (homes / "bob" / "new").write_text("later")
    let_settle()
    (number,) = [number for number, paths in trees.items() if paths == [ANN]]
    done = site.migrator("run", "--user-batch", str(number), "--deltas", "2", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    with open_ledger(site.ledger) as ledger:
        scans, latest = ledger.scans.all(), ledger.scans.latest()
        passes = ledger.passes.of_batch(plan["name"], number)
    assert latest == scans[0]
    assert {scan.scope for scan in scans[1:]} == {(ANN,)}
    assert all(scan.whole for scan in scans)
    assert (site.target.path / "home" / "ann" / "file").read_text() == "ann's and more"
    assert (site.target.path / "home" / "bob" / "ann's").read_text() == "ann's"
    assert not (site.target.path / "home" / "bob" / "new").exists()
    # A plan that is made now rests on the scan of everything, and a verification finds nothing wrong with the others.
    again = planned(site)
    assert again["catalog"] == scans[0].name
    assert sum(len(batch["trees"]) for batch in again["batches"]) == 2
    verified = site.migrator("verify", "--plan", plan["name"], "--user-batch", str(number), "--json")
    (found,) = json.loads(verified.stdout)
    assert (found["differences"], found["whole"]) == ({}, True), found
    assert [(one.kind, one.base_catalog) for one in passes][:2] == [("seed", None), ("delta", scans[0].name)]
