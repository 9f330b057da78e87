"""What every ledger does with several passes over one batch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt
from migrator.core.states import ChunkKind, ChunkState, PassKind, PassState
from migrator.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.hosts.model import ProcessIdentity
from migrator.ledger.ledger import Ledger
from migrator.ledger.model import PassRecord
from migrator.plan.model import Chunk
from migrator.transfer.model import FileProblem, FileProblemKind, ListedChunk, NotArrived, StreamCounters
from tests.support.plans import small_plan

ALICE = b"home/alice\n\xff"
SEED_LIST, DELTA_LIST = "plan.chunks/batch-0001.parquet", "passes/plan/batch-0001-delta-0001.parquet"
BOB = b"home/bob"
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
        TreeChanges(tree=b"home/bob", names_before=0, bytes_before=0),
    ),
)


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    trees = (UserTree(path=ALICE, user="alice"), UserTree(path=b"home/bob", user="bob"))
    ledger.plans.record(small_plan(trees=trees), path="plans/plan.json", checksum="c")
    return ledger


def files(*numbers: int, kind: ChunkKind = ChunkKind.FILES) -> list[Chunk]:
    return [Chunk(number=number, kind=kind, tree=ALICE, files=1, size_bytes=10) for number in numbers]


def seed(ledger: Ledger, chunks: Sequence[Chunk] = (), batch: int = 1) -> int:
    return ledger.passes.start(
        plan="plan",
        batch=batch,
        kind=PassKind.SEED,
        catalog="catalog-1",
        chunk_list=SEED_LIST,
        chunks=chunks,
        at_s=5.0,
    ).id


def delta(ledger: Ledger, number: int = 1, chunks: Sequence[Chunk] = (), **other: Any) -> PassRecord:
    facts: dict[str, Any] = {
        "catalog": "catalog-2",
        "base_catalog": "catalog-1",
        "chunk_list": DELTA_LIST,
        "move_list": "moves-1",
        "scan_s": 2.5,
    }
    kind = other.pop("kind", PassKind.DELTA)
    return ledger.passes.start(
        plan="plan", batch=1, kind=kind, number=number, chunks=chunks, at_s=50.0, **{**facts, **other}
    )


def end_chunk(ledger: Ledger, chunk_id: int, *problems: FileProblem, state: ChunkState = ChunkState.DONE) -> None:
    attempt = ledger.passes.intend(
        chunk_id=chunk_id, token=f"t{chunk_id}", host="here", engine="rsync", argv=(), at_s=6.0
    )
    ledger.passes.started(attempt, ProcessIdentity(pid=7, start_ticks=70, boot_id="b"))
    ledger.passes.finish(
        attempt,
        at_s=7.0,
        state="succeeded" if state is ChunkState.DONE else "failed",
        exit_code=0,
        counters=StreamCounters(files=1, size_bytes=10),
        stderr_tail=b"",
        chunk_state=state,
        problems=problems,
    )


def end_chunks(ledger: Ledger, pass_id: int, *problems: FileProblem, state: ChunkState = ChunkState.DONE) -> None:
    for chunk in ledger.passes.pending(pass_id, ChunkKind.FILES, 1000):
        end_chunk(ledger, chunk.id, *problems, state=state)


def done(ledger: Ledger, pass_id: int) -> None:
    ledger.passes.set_state(pass_id, PassState.DONE, 60.0)


def problem(path: bytes, kind: FileProblemKind = FileProblemKind.BAD) -> FileProblem:
    return FileProblem(path=path, kind=kind, errno=None, reason="r")


class TestPasses:
    def test_say_what_they_were_made_from(self, ledger: Ledger) -> None:
        first = ledger.passes.read(seed(ledger))
        assert (first.number, first.catalog, first.base_catalog, first.chunk_list) == (0, "catalog-1", None, SEED_LIST)
        assert (first.move_list, first.moved_at_s, first.scan_s) == (None, None, None)
        second = delta(ledger)
        assert ledger.passes.read(second.id) == second
        assert (second.number, second.catalog, second.base_catalog) == (1, "catalog-2", "catalog-1")
        assert (second.chunk_list, second.move_list, second.scan_s) == (DELTA_LIST, "moves-1", 2.5)

    def test_the_latest_of_a_kind_is_found(self, ledger: Ledger) -> None:
        of_seed = seed(ledger)
        for number in (1, 2, 10):
            delta(ledger, number)
        last = delta(ledger, 1, kind=PassKind.FINAL)
        found = ledger.passes.find("plan", 1, PassKind.DELTA)
        assert found is not None
        assert found.number == 10
        assert ledger.passes.find("plan", 1, PassKind.FINAL) == last
        other = seed(ledger, batch=2)
        kinds = [(one.kind, one.number) for one in ledger.passes.of_batch("plan", 1)]
        assert kinds == [
            (PassKind.SEED, 0),
            (PassKind.DELTA, 1),
            (PassKind.DELTA, 2),
            (PassKind.DELTA, 10),
            (PassKind.FINAL, 1),
        ]
        assert [one.id for one in ledger.passes.of_batch("plan", 2)] == [other]
        assert {one.id for one in ledger.passes.of_plan("plan")} >= {of_seed, other, last.id}
        assert list(ledger.passes.of_batch("plan", 3)) == []

    def test_started_again_is_the_same_pass(self, ledger: Ledger) -> None:
        made = delta(ledger, chunks=files(1, 2), changes=CHANGES)
        assert delta(ledger, chunks=files(1, 2), changes=CHANGES) == made
        assert len(ledger.passes.pending(made.id, ChunkKind.FILES, 9)) == 2
        done(ledger, made.id)
        assert delta(ledger, chunks=files(1, 2)).state is PassState.DONE
        assert delta(ledger, 2, chunks=files(1, 2)).id != made.id

    @pytest.mark.parametrize(
        "other", [{"catalog": "x"}, {"base_catalog": None}, {"chunk_list": "x"}, {"move_list": None}, {"chunks": []}]
    )
    def test_started_again_with_something_else_is_refused(self, ledger: Ledger, other: dict[str, Any]) -> None:
        delta(ledger, chunks=files(1, 2))
        with pytest.raises(LedgerCorrupt, match="delta 1 pass over batch 1"):
            delta(ledger, **{"chunks": files(1, 2), **other})

    @pytest.mark.parametrize(
        ("kind", "number"), [(PassKind.SEED, 1), (PassKind.DELTA, 0), (PassKind.FINAL, 0), (PassKind.DELTA, -1)]
    )
    def test_the_seed_alone_is_number_0(self, ledger: Ledger, kind: PassKind, number: int) -> None:
        with pytest.raises(LedgerCorrupt):
            delta(ledger, number, kind=kind)

    def test_moves_are_done_once(self, ledger: Ledger) -> None:
        made = delta(ledger)
        ledger.passes.moves_done(made.id, 70.0)
        ledger.passes.moves_done(made.id, 90.0)
        assert ledger.passes.read(made.id).moved_at_s == 70.0
        with pytest.raises(LedgerCorrupt, match="no pass 99"):
            ledger.passes.moves_done(99, 1.0)


class TestChanges:
    def test_come_back_as_recorded(self, ledger: Ledger) -> None:
        made = delta(ledger)
        assert ledger.passes.changes(made.id) is None
        for _ in range(2):
            assert delta(ledger, changes=CHANGES).id == made.id
        assert ledger.passes.changes(made.id) == CHANGES

    def test_are_recorded_with_their_pass(self, ledger: Ledger) -> None:
        made = delta(ledger, changes=CHANGES)
        assert ledger.passes.changes(made.id) == CHANGES
        assert ledger.passes.changes(delta(ledger, 2).id) is None

    def test_of_other_catalogs_undo_the_whole_start(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerCorrupt, match="other catalogs"):
            delta(ledger, catalog="catalog-3", changes=CHANGES)
        assert list(ledger.passes.of_batch("plan", 1)) == []

    def test_cannot_be_others_afterwards(self, ledger: Ledger) -> None:
        made = delta(ledger, changes=CHANGES)
        fewer = Changes(base="catalog-1", now="catalog-2", trees=CHANGES.trees[:1])
        with pytest.raises(LedgerCorrupt, match="other changes"):
            delta(ledger, changes=fewer)
        assert ledger.passes.changes(made.id) == CHANGES


class TestNotArrived:
    def test_is_nothing_before_the_first_pass_and_when_all_is_there(self, ledger: Ledger) -> None:
        assert ledger.passes.not_arrived("plan", 1) == NotArrived()
        made = seed(ledger, files(1, 2))
        end_chunks(ledger, made)
        done(ledger, made)
        assert ledger.passes.not_arrived("plan", 1) == NotArrived()

    def test_counts_every_file_with_a_problem(self, ledger: Ledger) -> None:
        made = seed(ledger, files(1))
        paths = [ALICE + b"/bad", ALICE + b"/changed", ALICE + b"/gone"]
        kinds = (FileProblemKind.BAD, FileProblemKind.CHANGED, FileProblemKind.VANISHED)
        end_chunks(ledger, made, *map(problem, paths, kinds))
        done(ledger, made)
        assert ledger.passes.not_arrived("plan", 1) == NotArrived(paths=tuple(paths))

    def test_names_the_lists_of_chunks_that_failed(self, ledger: Ledger) -> None:
        made = seed(ledger, files(1, 2, 3))
        first, second, third = ledger.passes.pending(made, ChunkKind.FILES, 9)
        end_chunk(ledger, first.id, problem(b"x"), state=ChunkState.FAILED)
        end_chunk(ledger, second.id)
        split = ledger.passes.intend(chunk_id=third.id, token="s", host="h", engine="e", argv=(), at_s=1.0)
        ledger.passes.started(split, ProcessIdentity(pid=7, start_ticks=70, boot_id="b"))
        halves = ledger.passes.split(third.id, [(chunk, f"splits/{chunk.number}") for chunk in files(4, 5)])
        ledger.passes.finish(
            split,
            at_s=7.0,
            state="failed",
            exit_code=1,
            counters=StreamCounters(),
            stderr_tail=b"",
            chunk_state=ChunkState.SPLIT,
            problems=(),
        )
        end_chunk(ledger, halves[0].id)
        end_chunk(ledger, halves[1].id, state=ChunkState.FAILED)
        done(ledger, made)
        assert ledger.passes.not_arrived("plan", 1) == NotArrived(
            paths=(b"x",),
            chunks=(ListedChunk(chunk_list=SEED_LIST, number=1), ListedChunk(chunk_list="splits/5", number=5)),
        )

    def test_leaves_out_what_a_driver_did_not_do(self, ledger: Ledger) -> None:
        made = seed(ledger, files(1, kind=ChunkKind.TREE))
        done(ledger, made)
        assert ledger.passes.not_arrived("plan", 1) == NotArrived()

    @pytest.mark.parametrize("state", [PassState.RUNNING, PassState.STOPPED])
    def test_nothing_is_known_of_the_trees_of_a_pass_that_has_not_gone_through(
        self, ledger: Ledger, state: PassState
    ) -> None:
        first = seed(ledger, files(1))
        end_chunks(ledger, first, problem(b"x"))
        done(ledger, first)
        second = delta(ledger, chunks=files(1, 2))
        if state is PassState.STOPPED:
            ledger.passes.set_state(second.id, state, 60.0)
        assert ledger.passes.not_arrived("plan", 1) == NotArrived(paths=(b"x",), trees=(ALICE,))

    def test_nothing_is_known_of_a_tree_that_was_not_found(self, ledger: Ledger) -> None:
        made = seed(ledger, files(1))
        end_chunks(ledger, made, problem(ALICE, FileProblemKind.VANISHED))
        done(ledger, made)
        assert ledger.passes.not_arrived("plan", 1) == NotArrived(trees=(ALICE,))

    def test_is_settled_by_a_later_pass_that_went_through(self, ledger: Ledger) -> None:
        first = seed(ledger, files(1, 2))
        chunks = ledger.passes.pending(first, ChunkKind.FILES, 9)
        end_chunk(ledger, chunks[0].id, state=ChunkState.FAILED)
        end_chunk(ledger, chunks[1].id, problem(b"old"))
        done(ledger, first)
        other = seed(ledger, files(1), batch=2)
        end_chunks(ledger, other, problem(b"other batch"))
        done(ledger, other)
        second = delta(ledger, chunks=files(1))
        end_chunks(ledger, second.id, problem(b"new", FileProblemKind.CHANGED))
        done(ledger, second.id)
        assert ledger.passes.not_arrived("plan", 1) == NotArrived(paths=(b"new",))
        third = delta(ledger, 2, chunks=files(1))
        end_chunks(ledger, third.id)
        done(ledger, third.id)
        assert ledger.passes.not_arrived("plan", 1) == NotArrived()
        assert ledger.passes.not_arrived("plan", 2) == NotArrived(paths=(b"other batch",))


def over(*trees: bytes) -> Changes:
    """What a pass over these trees alone records."""
    found = tuple(TreeChanges(tree=tree, names_before=1, bytes_before=1) for tree in trees)
    return Changes(base="catalog-1", now="catalog-2", trees=found)


def of_bob(*numbers: int) -> list[Chunk]:
    return [Chunk(number=number, kind=ChunkKind.FILES, tree=BOB, files=1, size_bytes=10) for number in numbers]


class TestNotArrivedTreeByTree:
    """Passes over some trees of a batch settle nothing of the others."""

    @pytest.fixture
    def seeded(self, ledger: Ledger) -> Ledger:
        """A bad file in each tree, and a chunk of each that failed."""
        made = seed(ledger, [*files(1, 2), *of_bob(3, 4)])
        for chunk in ledger.passes.pending(made, ChunkKind.FILES, 9):
            bad = problem(chunk.tree + b"/bad")
            end_chunk(ledger, chunk.id, bad, state=ChunkState.FAILED if chunk.number in (1, 3) else ChunkState.DONE)
        done(ledger, made)
        return ledger

    def test_what_is_asked_of_one_tree_is_said_of_that_one(self, seeded: Ledger) -> None:
        failed = {number: ListedChunk(chunk_list=SEED_LIST, number=number) for number in (1, 3)}
        of_alice = NotArrived(paths=(ALICE + b"/bad",), chunks=(failed[1],))
        of_bob_ = NotArrived(paths=(BOB + b"/bad",), chunks=(failed[3],))
        assert seeded.passes.not_arrived("plan", 1, [ALICE]) == of_alice
        assert seeded.passes.not_arrived("plan", 1, [BOB]) == of_bob_
        both = NotArrived(paths=tuple(sorted((*of_alice.paths, *of_bob_.paths))), chunks=(failed[1], failed[3]))
        assert seeded.passes.not_arrived("plan", 1) == both
        assert seeded.passes.not_arrived("plan", 1, [ALICE, BOB]) == both
        assert seeded.passes.not_arrived("plan", 1, [b"home/other"]) == NotArrived()

    def test_a_pass_over_one_tree_settles_that_one_alone(self, seeded: Ledger) -> None:
        final = delta(seeded, kind=PassKind.FINAL, chunks=files(1), changes=over(ALICE))
        end_chunks(seeded, final.id, problem(ALICE + b"/new", FileProblemKind.CHANGED))
        done(seeded, final.id)
        assert seeded.passes.not_arrived("plan", 1, [ALICE]) == NotArrived(paths=(ALICE + b"/new",))
        of_bob_ = seeded.passes.not_arrived("plan", 1, [BOB])
        assert of_bob_.paths == (BOB + b"/bad",)
        assert of_bob_.chunks == (ListedChunk(chunk_list=SEED_LIST, number=3),)
        counts = seeded.facts.attention_counts("plan")
        assert counts[1].bad == 1
        assert [one.problem.path for one in seeded.facts.attention("plan", 9)] == [BOB + b"/bad"]

    def test_of_a_pass_that_was_cut_off_counts_what_it_had_not_brought(self, seeded: Ledger) -> None:
        cut = delta(seeded, kind=PassKind.FINAL, chunks=files(1, 2, 3), changes=over(ALICE), move_list=None)
        first, second, _ = seeded.passes.pending(cut.id, ChunkKind.FILES, 9)
        end_chunk(seeded, first.id)
        seeded.passes.intend(chunk_id=second.id, token="cut", host="h", engine="e", argv=(), at_s=1.0)
        seeded.passes.set_state(cut.id, PassState.STOPPED, 9.0)
        found = seeded.passes.not_arrived("plan", 1, [ALICE])
        assert {chunk.number for chunk in found.chunks if chunk.chunk_list == DELTA_LIST} == {2, 3}
        assert ListedChunk(chunk_list=SEED_LIST, number=1) in found.chunks
        assert found.trees == ()
        assert seeded.passes.not_arrived("plan", 1, [BOB]).paths == (BOB + b"/bad",)

    def test_nothing_is_known_of_the_trees_of_one_that_was_cut_off_while_it_renamed(self, seeded: Ledger) -> None:
        cut = delta(seeded, kind=PassKind.FINAL, chunks=files(1), changes=over(ALICE))
        assert seeded.passes.not_arrived("plan", 1).trees == (ALICE,)
        assert seeded.passes.not_arrived("plan", 1, [BOB]).trees == ()
        seeded.passes.moves_done(cut.id, 8.0)
        assert seeded.passes.not_arrived("plan", 1).trees == ()

    def test_what_a_pass_over_all_brought_counts_for_each_of_them(self, seeded: Ledger) -> None:
        whole = delta(seeded, chunks=[*files(1), *of_bob(2)], changes=over(ALICE, BOB))
        end_chunks(seeded, whole.id)
        done(seeded, whole.id)
        for trees in ([ALICE], [BOB], None):
            assert seeded.passes.not_arrived("plan", 1, trees) == NotArrived()


def test_problems_are_counted_by_kind(ledger: Ledger) -> None:
    made = seed(ledger, files(1))
    assert ledger.passes.problem_counts(made) == {}
    kinds = (FileProblemKind.BAD, FileProblemKind.CHANGED, FileProblemKind.CHANGED)
    end_chunks(ledger, made, *(problem(b"p%d" % number, kind) for number, kind in enumerate(kinds)))
    assert ledger.passes.problem_counts(made) == {FileProblemKind.BAD: 1, FileProblemKind.CHANGED: 2}


def test_passes_over_a_tree_are_those_of_its_batches_and_those_that_name_it(ledger: Ledger) -> None:
    whole = seed(ledger)
    both = delta(ledger, 1, changes=CHANGES, base_catalog="catalog-1", catalog="catalog-2").id
    of_bob = replace(CHANGES, trees=CHANGES.trees[1:])
    bobs = delta(ledger, 2, changes=of_bob, base_catalog="catalog-1", catalog="catalog-2").id
    assert [one.id for one in ledger.passes.over_tree(ALICE)] == [whole, both]
    assert [one.id for one in ledger.passes.over_tree(BOB)] == [both, bobs], "he is in another batch"
    assert ledger.passes.over_tree(b"home") == []
