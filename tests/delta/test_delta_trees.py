"""Delta passes scan the trees of their batch and no others, and begin from a catalog that covers them."""

from collections.abc import Sequence

import pytest

from migrator.core.errors import LedgerCorrupt
from migrator.core.states import PassKind, PassState
from migrator.delta.delta import unfinished_places
from migrator.delta.model import Changes, TreeChanges
from migrator.ledger.ledger import Ledger
from migrator.transfer.bases import base_catalog
from tests.support.plans import small_plan
from tests.support.records import SITE

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


def test_the_trash_of_a_pass_that_was_killed_is_kept_until_it_has_ended(ledger: Ledger) -> None:
    """Renamed files lie in it and nowhere else, however old it is."""
    ledger.site.create(SITE)
    ledger.plans.record(small_plan(), path="plan.json", checksum="c")
    begun = ledger.passes.start(
        plan="plan",
        batch=1,
        kind=PassKind.DELTA,
        number=3,
        catalog="now",
        base_catalog="base",
        chunk_list="c",
        move_list="m",
        move_list_digest="d",
        changes=Changes(base="base", now="now", trees=()),
        chunks=(),
        at_s=1577836800.0,
    )
    assert unfinished_places(ledger) == {"20200101T000000Z-batch-0001-delta-0003"}
    ledger.passes.set_state(begun.id, PassState.STOPPED, 1.0)
    assert unfinished_places(ledger)
    ledger.passes.set_state(begun.id, PassState.RUNNING, 1.0)
    ledger.passes.set_state(begun.id, PassState.DONE, 2.0)
    assert not unfinished_places(ledger)
