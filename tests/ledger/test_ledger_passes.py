"""What every ledger does with several passes over one batch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt
from migrator.core.states import ChunkKind, ChunkState, PassKind, PassState
from migrator.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.ledger.ledger import Ledger
from migrator.ledger.model import PassRecord
from migrator.plan.model import Chunk
from migrator.transfer.model import FileProblem, FileProblemKind, ListedChunk, NotArrived
from tests.support.plans import small_plan
from tests.support.records import attempt, end, waiting

ALICE, BOB = b"home/alice\n\xff", b"home/bob"
SEED_LIST, DELTA_LIST = "plan.chunks/batch-0001.parquet", "passes/plan/batch-0001-delta-0001.parquet"
CHANGES = Changes(
    base="catalog-1",
    now="catalog-2",
    trees=(
        TreeChanges(
            tree=ALICE,
            names_before=2**40,
            bytes_before=2**50,
            by_kind={
                ChangeKind.NEW: ChangeTally(paths=3, directories=1, size_bytes=2**45),
                ChangeKind.VANISHED: ChangeTally(paths=9, directories=9, size_bytes=0),
            },
        ),
        TreeChanges(tree=BOB, names_before=0, bytes_before=0),
    ),
)
OF_BOB = replace(CHANGES, trees=CHANGES.trees[1:])


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    trees = (UserTree(path=ALICE, user="alice"), UserTree(path=BOB, user="bob"))
    ledger.plans.record(small_plan(trees=trees), path="plans/plan.json", checksum="c")
    return ledger


def files(*numbers: int, kind: ChunkKind = ChunkKind.FILES, tree: bytes = ALICE) -> list[Chunk]:
    return [Chunk(number=number, kind=kind, tree=tree, files=1, size_bytes=10) for number in numbers]


def seed(ledger: Ledger, chunks: Sequence[Chunk] = (), batch: int = 1) -> int:
    lists: dict[str, Any] = {"catalog": "catalog-1", "chunk_list": SEED_LIST, "chunks": chunks}
    return ledger.passes.start(plan="plan", batch=batch, kind=PassKind.SEED, at_s=5.0, **lists).id


def delta(ledger: Ledger, number: int = 1, chunks: Sequence[Chunk] = (), **other: Any) -> PassRecord:
    facts: dict[str, Any] = {
        "kind": PassKind.DELTA,
        "catalog": "catalog-2",
        "base_catalog": "catalog-1",
        "chunk_list": DELTA_LIST,
        "move_list": "moves-1",
        "scan_s": 2.5,
    }
    return ledger.passes.start(plan="plan", batch=1, number=number, chunks=chunks, at_s=50.0, **(facts | other))


def end_chunk(ledger: Ledger, chunk_id: int, *problems: FileProblem, failed: bool = False) -> None:
    state, chunk = ("failed", ChunkState.FAILED) if failed else ("succeeded", ChunkState.DONE)
    end(ledger, attempt(ledger, chunk_id, f"t{chunk_id}"), state=state, chunk=chunk, problems=problems)


def done(ledger: Ledger, pass_id: int, *problems: FileProblem) -> None:
    """All chunks of a pass, and the pass, are done."""
    for chunk in waiting(ledger, pass_id):
        end_chunk(ledger, chunk.id, *problems)
    ledger.passes.set_state(pass_id, PassState.DONE, 60.0)


def problem(path: bytes, kind: FileProblemKind = FileProblemKind.BAD) -> FileProblem:
    return FileProblem(path=path, kind=kind, errno=None, reason="r")


def not_arrived(ledger: Ledger, *trees: bytes, batch: int = 1) -> NotArrived:
    return ledger.passes.not_arrived("plan", batch, trees or None)


# Passes.


def test_passes_over_a_tree_are_those_of_its_batches_and_those_that_name_it(ledger: Ledger) -> None:
    whole = seed(ledger)
    both, bobs = delta(ledger, 1, changes=CHANGES).id, delta(ledger, 2, changes=OF_BOB).id
    assert [one.id for one in ledger.passes.over_tree(ALICE)] == [whole, both]
    assert [one.id for one in ledger.passes.over_tree(BOB)] == [both, bobs], "bob is in another batch"
    assert ledger.passes.over_tree(b"home") == []


@pytest.mark.parametrize(
    "other",
    [
        {"catalog": "x"},
        {"base_catalog": None},
        {"chunk_list": "x"},
        {"move_list": None},
        {"chunks": []},
        {"changes": OF_BOB},
    ],
)
def test_started_again_with_something_else_is_refused(ledger: Ledger, other: dict[str, Any]) -> None:
    made = delta(ledger, chunks=files(1, 2), changes=CHANGES)
    with pytest.raises(LedgerCorrupt, match="delta 1 pass over batch 1"):
        delta(ledger, **{"chunks": files(1, 2), **other})
    assert ledger.passes.changes(made.id) == CHANGES


@pytest.mark.parametrize(
    ("kind", "number"), [(PassKind.SEED, 1), (PassKind.DELTA, 0), (PassKind.FINAL, 0), (PassKind.DELTA, -1)]
)
def test_the_seed_alone_is_number_0(ledger: Ledger, kind: PassKind, number: int) -> None:
    with pytest.raises(LedgerCorrupt):
        delta(ledger, number, kind=kind)


def test_changes_are_recorded_with_their_pass_or_later(ledger: Ledger) -> None:
    made = delta(ledger)
    assert ledger.passes.changes(made.id) is None
    for _ in range(2):
        assert delta(ledger, changes=CHANGES).id == made.id
        assert ledger.passes.changes(made.id) == CHANGES
    assert ledger.passes.changes(delta(ledger, 2, changes=OF_BOB).id) == OF_BOB
    # Changes of other catalogs undo the whole start.
    with pytest.raises(LedgerCorrupt, match="other catalogs"):
        delta(ledger, 3, catalog="catalog-3", changes=CHANGES)
    assert [one.number for one in ledger.passes.of_batch("plan", 1)] == [1, 2]


# What has not arrived.


def test_every_file_with_a_problem_counts_and_a_tree_that_was_not_found_is_unknown(ledger: Ledger) -> None:
    paths = [ALICE + b"/bad", ALICE + b"/changed", ALICE + b"/gone"]
    kinds = (FileProblemKind.BAD, FileProblemKind.CHANGED, FileProblemKind.VANISHED)
    done(ledger, seed(ledger, files(1)), *map(problem, paths, kinds))
    assert not_arrived(ledger) == NotArrived(paths=tuple(paths))
    done(ledger, seed(ledger, files(1), batch=2), problem(ALICE, FileProblemKind.VANISHED))
    assert not_arrived(ledger, batch=2) == NotArrived(trees=(ALICE,))


def test_the_lists_of_chunks_that_failed_are_named(ledger: Ledger) -> None:
    made = seed(ledger, files(1, 2, 3))
    first, second, third = waiting(ledger, made)
    end_chunk(ledger, first.id, problem(b"x"), failed=True)
    end_chunk(ledger, second.id)
    split = attempt(ledger, third.id, "s")
    halves = ledger.passes.split(third.id, [(chunk, f"splits/{chunk.number}") for chunk in files(4, 5)])
    end(ledger, split, state="failed", chunk=ChunkState.SPLIT)
    end_chunk(ledger, halves[0].id)
    end_chunk(ledger, halves[1].id, failed=True)
    ledger.passes.set_state(made, PassState.DONE, 60.0)
    chunks = (ListedChunk(chunk_list=SEED_LIST, number=1), ListedChunk(chunk_list="splits/5", number=5))
    assert not_arrived(ledger) == NotArrived(paths=(b"x",), chunks=chunks)


@pytest.mark.parametrize("state", [PassState.RUNNING, PassState.STOPPED])
def test_nothing_is_known_of_the_trees_of_a_pass_that_has_not_gone_through(ledger: Ledger, state: PassState) -> None:
    done(ledger, seed(ledger, files(1)), problem(b"x"))
    ledger.passes.set_state(delta(ledger, chunks=files(1, 2)).id, state, 60.0)
    assert not_arrived(ledger) == NotArrived(paths=(b"x",), trees=(ALICE,))


def test_a_later_pass_that_went_through_settles_it(ledger: Ledger) -> None:
    first = seed(ledger, files(1, 2))
    end_chunk(ledger, waiting(ledger, first)[0].id, failed=True)
    done(ledger, first, problem(b"old"))
    done(ledger, seed(ledger, files(1), batch=2), problem(b"other batch"))
    done(ledger, delta(ledger, chunks=files(1)).id, problem(b"new", FileProblemKind.CHANGED))
    assert not_arrived(ledger) == NotArrived(paths=(b"new",))
    done(ledger, delta(ledger, 2, chunks=files(1)).id)
    assert not_arrived(ledger) == NotArrived()
    assert not_arrived(ledger, batch=2) == NotArrived(paths=(b"other batch",))


# Passes over some trees of a batch settle nothing of the others.


OVER_ALICE = replace(CHANGES, trees=CHANGES.trees[:1])
FAILED = {number: ListedChunk(chunk_list=SEED_LIST, number=number) for number in (1, 3)}
OF_ALICE_LEFT = NotArrived(paths=(ALICE + b"/bad",), chunks=(FAILED[1],))
OF_BOB_LEFT = NotArrived(paths=(BOB + b"/bad",), chunks=(FAILED[3],))


@pytest.fixture
def seeded(ledger: Ledger) -> Ledger:
    """A bad file in each tree, and a chunk of each that failed."""
    made = seed(ledger, [*files(1, 2), *files(3, 4, tree=BOB)])
    for chunk in waiting(ledger, made):
        end_chunk(ledger, chunk.id, problem(chunk.tree + b"/bad"), failed=chunk.number in FAILED)
    ledger.passes.set_state(made, PassState.DONE, 60.0)
    return ledger


def test_a_pass_over_one_tree_settles_that_one_alone(seeded: Ledger) -> None:
    final = delta(seeded, kind=PassKind.FINAL, chunks=files(1), changes=OVER_ALICE)
    done(seeded, final.id, problem(ALICE + b"/new", FileProblemKind.CHANGED))
    assert not_arrived(seeded, ALICE) == NotArrived(paths=(ALICE + b"/new",))
    assert not_arrived(seeded, BOB) == OF_BOB_LEFT
    assert seeded.facts.attention_counts("plan")[1].bad == 1
    assert [one.problem.path for one in seeded.facts.attention("plan", 9)] == [BOB + b"/bad"]
    done(seeded, delta(seeded, chunks=[*files(1), *files(2, tree=BOB)], changes=CHANGES).id)
    assert not_arrived(seeded) == not_arrived(seeded, ALICE) == not_arrived(seeded, BOB) == NotArrived()


def test_of_a_pass_that_was_cut_off_counts_what_it_had_not_brought(seeded: Ledger) -> None:
    cut = delta(seeded, kind=PassKind.FINAL, chunks=files(1, 2, 3), changes=OVER_ALICE, move_list=None)
    first, second, _ = waiting(seeded, cut.id)
    end_chunk(seeded, first.id)
    attempt(seeded, second.id, "cut")
    seeded.passes.set_state(cut.id, PassState.STOPPED, 9.0)
    left = tuple(ListedChunk(chunk_list=DELTA_LIST, number=number) for number in (2, 3))
    assert not_arrived(seeded, ALICE) == replace(OF_ALICE_LEFT, chunks=(*left, FAILED[1]))
    assert not_arrived(seeded, BOB) == OF_BOB_LEFT


def test_nothing_is_known_of_the_trees_of_one_that_was_cut_off_while_it_renamed(seeded: Ledger) -> None:
    cut = delta(seeded, kind=PassKind.FINAL, chunks=files(1), changes=OVER_ALICE)
    assert (not_arrived(seeded).trees, not_arrived(seeded, BOB).trees) == ((ALICE,), ())
    seeded.passes.moves_done(cut.id, 8.0)
    assert not_arrived(seeded).trees == ()
