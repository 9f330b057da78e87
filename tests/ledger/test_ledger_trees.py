"""Chunks of whole trees in the real ledger."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.states import AttemptState, ChunkKind, ChunkState, PassKind
from migrator.fs.model import Need
from migrator.hosts.model import ProcessIdentity
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.plan.model import Chunk
from migrator.transfer.model import StreamCounters
from tests.support.plans import small_plan

ALICE, BOB = b"home/alice", b"home/bob"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
        made.plans.record(small_plan(), path="plan.json", checksum="c")
        yield made


def begin(ledger: Ledger) -> int:
    chunks = [Chunk(number=7, kind=ChunkKind.FILES, tree=ALICE, files=3, size_bytes=30)]
    return ledger.passes.start(
        plan="plan", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=chunks, at_s=1.0
    ).id


def attempt(ledger: Ledger, chunk_id: int, files: int, chunk_state: ChunkState = ChunkState.DONE) -> int:
    passes = ledger.passes
    made = passes.intend(chunk_id=chunk_id, token=f"t{chunk_id}-{files}", host="here", engine="x", argv=(), at_s=1.0)
    passes.started(made, ProcessIdentity(pid=1, start_ticks=1, boot_id="b"))
    passes.finish(
        made,
        at_s=2.0,
        state=AttemptState.SUCCEEDED.value,
        exit_code=0,
        counters=StreamCounters(files=files, size_bytes=10 * files),
        stderr_tail=b"",
        chunk_state=chunk_state,
        problems=(),
    )
    return made


def test_one_chunk_for_each_tree_after_those_of_the_plan(ledger: Ledger) -> None:
    pass_id = begin(ledger)
    trees = {BOB: Need(size_bytes=5, inodes=2), ALICE: Need(size_bytes=30, inodes=3)}
    made = ledger.passes.add_trees(pass_id, trees)
    assert [(chunk.number, chunk.tree, chunk.kind, chunk.files, chunk.size_bytes) for chunk in made] == [
        (8, BOB, ChunkKind.TREE, 2, 5),
        (9, ALICE, ChunkKind.TREE, 3, 30),
    ]
    assert ledger.passes.add_trees(pass_id, trees) == made
    assert ledger.passes.next_chunk_number(pass_id) == 10
    assert ledger.passes.add_trees(pass_id, {}) == []


def test_they_count_in_no_sum_of_files(ledger: Ledger) -> None:
    pass_id = begin(ledger)
    (tree,) = ledger.passes.add_trees(pass_id, {ALICE: Need(size_bytes=30, inodes=3)})
    attempt(ledger, tree.id, 3)
    totals = ledger.passes.totals(pass_id)
    assert (totals.files, totals.size_bytes, totals.done_files, totals.done_bytes) == (3, 30, 0, 0)
    begin(ledger)  # goes on: the plan's chunks are those of the pass still
    assert ledger.passes.arrived(before_plan="another") == {}


def test_what_was_sent_after_them(ledger: Ledger) -> None:
    pass_id = begin(ledger)
    (tree,) = ledger.passes.add_trees(pass_id, {ALICE: Need(size_bytes=30, inodes=3)})
    last = attempt(ledger, tree.id, 3)
    (files,) = ledger.passes.pending(pass_id, ChunkKind.FILES.value, 10)
    assert ledger.passes.sent_since(pass_id, last) == StreamCounters()
    attempt(ledger, files.id, 2)
    assert ledger.passes.sent_since(pass_id, last) == StreamCounters(files=2, size_bytes=20)
    assert ledger.passes.sent_since(pass_id, 0) == StreamCounters(files=2, size_bytes=20)
