"""What every ledger does with archives."""

from dataclasses import replace

import pytest

from migrator.core.errors import LedgerCorrupt
from migrator.ledger.ledger import Ledger
from migrator.reap.model import ArchiveRecord, ArchiveState, WrittenArchive

HOSTILE = b"home/\xff\nnew"
WRITTEN = WrittenArchive(
    members=7, content_bytes=2**50, archive_bytes=2**40, index_bytes=12, archive_digest="aa", index_digest="bb"
)


def add(ledger: Ledger, number: int, *, tree: bytes = HOSTILE, plan: str = "p", batch: int = 1) -> ArchiveRecord:
    return ledger.archives.add(plan=plan, batch=batch, tree=tree, number=number, written=WRITTEN, at_s=5.25)


def test_come_back_as_added(ledger: Ledger) -> None:
    made = add(ledger, 3)
    assert made == ArchiveRecord(
        id=made.id,
        plan="p",
        batch=1,
        tree=HOSTILE,
        number=3,
        written=WRITTEN,
        state=ArchiveState.WRITTEN,
        at_s=5.25,
    )
    assert list(ledger.archives.of_tree(HOSTILE)) == [made]
    assert list(ledger.archives.of_tree(b"home")) == []


def test_are_told_by_tree_and_by_plan(ledger: Ledger) -> None:
    late, early = add(ledger, 2), add(ledger, 1)
    other = add(ledger, 1, tree=b"home/bob", batch=2)
    elsewhere = add(ledger, 3, plan="q")
    assert list(ledger.archives.of_tree(HOSTILE)) == [early, late, elsewhere]
    assert list(ledger.archives.of_plan("p")) == [late, early, other]
    assert list(ledger.archives.of_plan("p", 2)) == [other]


def test_are_proven_once_and_void_for_ever(ledger: Ledger) -> None:
    made = add(ledger, 1)
    ledger.archives.prove(made.id, at_s=6.0)
    ledger.archives.prove(made.id, at_s=7.0)
    assert list(ledger.archives.of_tree(HOSTILE)) == [replace(made, state=ArchiveState.PROVEN, at_s=6.0)]
    ledger.archives.void(made.id, "it was lost", at_s=8.0)
    ledger.archives.void(made.id, "again", at_s=9.0)
    gone = replace(made, state=ArchiveState.VOID, at_s=8.0, reason="it was lost")
    assert list(ledger.archives.of_tree(HOSTILE)) == [gone]
    with pytest.raises(LedgerCorrupt, match="cannot become proven"):
        ledger.archives.prove(made.id, at_s=10.0)


def test_what_is_not_there_is_said(ledger: Ledger) -> None:
    with pytest.raises(LedgerCorrupt, match="no archive 5"):
        ledger.archives.prove(5, at_s=1.0)
