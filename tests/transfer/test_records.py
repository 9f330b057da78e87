"""The records of passes, chunks, attempts, files that need attention, and samples."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt
from migrator.core.states import ChunkKind, ChunkState, PassKind, PassState
from migrator.fs.model import Need
from migrator.hosts.model import ProcessIdentity
from migrator.plan.model import Chunk
from migrator.transfer.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.transfer.model import (
    FileProblem,
    FileProblemKind,
    ListedChunk,
    NotArrived,
    PassRecord,
    Sample,
    StreamCounters,
)
from tests.support.plans import small_plan
from tests.support.records import attempt, begin, end, files, waiting

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
def ledger(ledger: MigrationLedger) -> MigrationLedger:
    trees = (UserTree(path=ALICE, user="alice"), UserTree(path=BOB, user="bob"))
    ledger.plans.record(small_plan(trees=trees), path="plans/plan.json", checksum="c")
    return ledger


def chunks_of(*numbers: int, tree: bytes = ALICE) -> list[Chunk]:
    return [files(number, 10, tree=tree) for number in numbers]


def seed(ledger: MigrationLedger, chunks: Sequence[Chunk] = (), batch: int = 1) -> int:
    lists: dict[str, Any] = {"catalog": "catalog-1", "chunk_list": SEED_LIST, "chunks": chunks}
    return ledger.passes.start(plan="plan", batch=batch, kind=PassKind.SEED, at_s=5.0, **lists).id


def delta(ledger: MigrationLedger, number: int = 1, chunks: Sequence[Chunk] = (), **other: Any) -> PassRecord:
    facts: dict[str, Any] = {
        "kind": PassKind.DELTA,
        "catalog": "catalog-2",
        "base_catalog": "catalog-1",
        "chunk_list": DELTA_LIST,
        "move_list": "moves-1",
        "scan_s": 2.5,
    }
    return ledger.passes.start(plan="plan", batch=1, number=number, chunks=chunks, at_s=50.0, **(facts | other))


def end_chunk(ledger: MigrationLedger, chunk_id: int, *problems: FileProblem, failed: bool = False) -> None:
    state, chunk = ("failed", ChunkState.FAILED) if failed else ("succeeded", ChunkState.DONE)
    end(ledger, attempt(ledger, chunk_id, f"t{chunk_id}"), state=state, chunk=chunk, problems=problems)


def done(ledger: MigrationLedger, pass_id: int, *problems: FileProblem) -> None:
    """All chunks of a pass, and the pass, are done."""
    for chunk in waiting(ledger, pass_id):
        end_chunk(ledger, chunk.id, *problems)
    ledger.passes.set_state(pass_id, PassState.DONE, 60.0)


def problem(path: bytes, kind: FileProblemKind = FileProblemKind.BAD) -> FileProblem:
    return FileProblem(path=path, kind=kind, errno=None, reason="r")


def not_arrived(ledger: MigrationLedger, *trees: bytes, batch: int = 1) -> NotArrived:
    return ledger.passes.not_arrived("plan", batch, trees or None)


# Passes.


def test_passes_over_a_tree_are_those_of_its_batches_and_those_that_name_it(ledger: MigrationLedger) -> None:
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
def test_started_again_with_something_else_is_refused(ledger: MigrationLedger, other: dict[str, Any]) -> None:
    made = delta(ledger, chunks=chunks_of(1, 2), changes=CHANGES)
    with pytest.raises(LedgerCorrupt, match="delta 1 pass over batch 1"):
        delta(ledger, **{"chunks": chunks_of(1, 2), **other})
    assert ledger.passes.changes(made.id) == CHANGES


@pytest.mark.parametrize(
    ("kind", "number"), [(PassKind.SEED, 1), (PassKind.DELTA, 0), (PassKind.FINAL, 0), (PassKind.DELTA, -1)]
)
def test_the_seed_alone_is_number_0(ledger: MigrationLedger, kind: PassKind, number: int) -> None:
    with pytest.raises(LedgerCorrupt):
        delta(ledger, number, kind=kind)


def test_changes_are_recorded_with_their_pass_or_later(ledger: MigrationLedger) -> None:
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


def test_the_lists_of_chunks_that_failed_are_named(ledger: MigrationLedger) -> None:
    made = seed(ledger, chunks_of(1, 2, 3))
    first, second, third = waiting(ledger, made)
    end_chunk(ledger, first.id, problem(b"x"), failed=True)
    end_chunk(ledger, second.id)
    split = attempt(ledger, third.id, "s")
    halves = ledger.passes.split(third.id, [(chunk, f"splits/{chunk.number}") for chunk in chunks_of(4, 5)])
    end(ledger, split, state="failed", chunk=ChunkState.SPLIT)
    end_chunk(ledger, halves[0].id)
    end_chunk(ledger, halves[1].id, failed=True)
    ledger.passes.set_state(made, PassState.DONE, 60.0)
    chunks = (ListedChunk(chunk_list=SEED_LIST, number=1), ListedChunk(chunk_list="splits/5", number=5))
    assert not_arrived(ledger) == NotArrived(paths=(b"x",), chunks=chunks)


@pytest.mark.parametrize("state", [PassState.RUNNING, PassState.STOPPED])
def test_nothing_is_known_of_the_trees_of_a_pass_that_has_not_gone_through(
    ledger: MigrationLedger, state: PassState
) -> None:
    done(ledger, seed(ledger, chunks_of(1)), problem(b"x"))
    ledger.passes.set_state(delta(ledger, chunks=chunks_of(1, 2)).id, state, 60.0)
    assert not_arrived(ledger) == NotArrived(paths=(b"x",), trees=(ALICE,))


def test_a_later_pass_that_went_through_settles_it(ledger: MigrationLedger) -> None:
    first = seed(ledger, chunks_of(1, 2))
    end_chunk(ledger, waiting(ledger, first)[0].id, failed=True)
    done(ledger, first, problem(b"old"))
    done(ledger, seed(ledger, chunks_of(1), batch=2), problem(b"other batch"))
    done(ledger, delta(ledger, chunks=chunks_of(1)).id, problem(b"new", FileProblemKind.CHANGED))
    assert not_arrived(ledger) == NotArrived(paths=(b"new",))
    done(ledger, delta(ledger, 2, chunks=chunks_of(1)).id)
    assert not_arrived(ledger) == NotArrived()
    assert not_arrived(ledger, batch=2) == NotArrived(paths=(b"other batch",))


# Passes over some trees of a batch settle nothing of the others.


OVER_ALICE = replace(CHANGES, trees=CHANGES.trees[:1])
FAILED = {number: ListedChunk(chunk_list=SEED_LIST, number=number) for number in (1, 3)}
OF_ALICE_LEFT = NotArrived(paths=(ALICE + b"/bad",), chunks=(FAILED[1],))
OF_BOB_LEFT = NotArrived(paths=(BOB + b"/bad",), chunks=(FAILED[3],))


@pytest.fixture
def seeded(ledger: MigrationLedger) -> MigrationLedger:
    """A bad file in each tree, and a chunk of each that failed."""
    made = seed(ledger, [*chunks_of(1, 2), *chunks_of(3, 4, tree=BOB)])
    for chunk in waiting(ledger, made):
        end_chunk(ledger, chunk.id, problem(chunk.tree + b"/bad"), failed=chunk.number in FAILED)
    ledger.passes.set_state(made, PassState.DONE, 60.0)
    return ledger


def test_a_pass_over_one_tree_settles_that_one_alone(seeded: MigrationLedger) -> None:
    final = delta(seeded, kind=PassKind.FINAL, chunks=chunks_of(1), changes=OVER_ALICE)
    done(seeded, final.id, problem(ALICE + b"/new", FileProblemKind.CHANGED))
    assert not_arrived(seeded, ALICE) == NotArrived(paths=(ALICE + b"/new",))
    assert not_arrived(seeded, BOB) == OF_BOB_LEFT
    assert seeded.facts.attention_counts("plan")[1].bad == 1
    assert [one.problem.path for one in seeded.facts.attention("plan", 9)] == [BOB + b"/bad"]
    done(seeded, delta(seeded, chunks=[*chunks_of(1), *chunks_of(2, tree=BOB)], changes=CHANGES).id)
    assert not_arrived(seeded) == not_arrived(seeded, ALICE) == not_arrived(seeded, BOB) == NotArrived()


def test_of_a_pass_that_was_cut_off_counts_what_it_had_not_brought(seeded: MigrationLedger) -> None:
    cut = delta(seeded, kind=PassKind.FINAL, chunks=chunks_of(1, 2, 3), changes=OVER_ALICE, move_list=None)
    first, second, _ = waiting(seeded, cut.id)
    end_chunk(seeded, first.id)
    attempt(seeded, second.id, "cut")
    seeded.passes.set_state(cut.id, PassState.STOPPED, 9.0)
    left = tuple(ListedChunk(chunk_list=DELTA_LIST, number=number) for number in (2, 3))
    assert not_arrived(seeded, ALICE) == replace(OF_ALICE_LEFT, chunks=(*left, FAILED[1]))
    assert not_arrived(seeded, BOB) == OF_BOB_LEFT


def test_nothing_is_known_of_the_trees_of_one_that_was_cut_off_while_it_renamed(seeded: MigrationLedger) -> None:
    cut = delta(seeded, kind=PassKind.FINAL, chunks=chunks_of(1), changes=OVER_ALICE)
    assert (not_arrived(seeded).trees, not_arrived(seeded, BOB).trees) == ((ALICE,), ())
    seeded.passes.moves_done(cut.id, 8.0)
    assert not_arrived(seeded).trees == ()


FAILED_END = {"state": "failed", "chunk": ChunkState.FAILED}


def bad(path: bytes, reason: str = "Permission denied") -> FileProblem:
    return FileProblem(path=path, kind=FileProblemKind.BAD, errno=13, reason=reason)


def sample(at_s: float, attempt_id: int | None = None, size_bytes: int = 1, *, streams: int = 1) -> Sample:
    return Sample(at_s=at_s, interval_s=5.0, attempt_id=attempt_id, streams=streams, files=1, size_bytes=size_bytes)


# Passes and chunks.


def test_ranges_bring_the_bytes_and_ranged_files_the_names(ledger: MigrationLedger) -> None:
    ranges = [Chunk(number=n, kind=ChunkKind.RANGES, tree=b"t", files=0, size_bytes=50) for n in (1, 2)]
    made = begin(ledger, [*ranges, replace(files(3, 0, tree=b"t"), kind=ChunkKind.RANGED_FILES)])
    totals = ledger.passes.totals(made)
    assert (totals.files, totals.size_bytes, totals.done_files, totals.done_bytes) == (1, 100, 0, 0)
    assert (ledger.passes.read(made).total_files, ledger.passes.read(made).total_bytes) == (1, 100)
    for kind in (ChunkKind.RANGES, ChunkKind.RANGED_FILES):
        for chunk in ledger.passes.pending(made, kind, 9):
            end(ledger, attempt(ledger, chunk.id, f"t{chunk.id}"))
    totals = ledger.passes.totals(made)
    assert (totals.done_files, totals.done_bytes) == (1, 100)
    assert ledger.passes.arrived(before_plan="q") == {b"t": Need(size_bytes=100, inodes=1)}


def test_failed_chunks_are_given_out_again_and_the_times_of_their_trees_are_set_again(ledger: MigrationLedger) -> None:
    trees = (b"home/a", b"home/b", b"home/c")
    times = [replace(files(n, 0, tree=tree), kind=ChunkKind.DIRECTORY_TIMES) for n, tree in enumerate(trees, 4)]
    made = begin(ledger, [*(files(number, 1, tree=tree) for number, tree in enumerate(trees, 1)), *times])
    every = (*waiting(ledger, made), *ledger.passes.pending(made, ChunkKind.DIRECTORY_TIMES, 9))
    for chunk in every:
        end(ledger, attempt(ledger, chunk.id, f"t{chunk.number}"), **(FAILED_END if chunk.number in (1, 6) else {}))  # type: ignore[arg-type]
    assert waiting(ledger, made) == []
    assert [chunk.number for chunk in ledger.passes.failed(made)] == [1, 6]
    assert [chunk.number for chunk in ledger.passes.to_retry(made)] == [1, 4, 6]
    assert ledger.passes.retry_failed(made) == 2
    assert [chunk.number for chunk in ledger.passes.pending(made, ChunkKind.DIRECTORY_TIMES, 9)] == [4, 6]
    assert waiting(ledger, made) == [every[0]]
    assert list(ledger.passes.to_retry(made)) == list(ledger.passes.failed(made)) == []
    assert ledger.passes.retry_failed(made) == 0


# Attempts.


def test_an_attempt_runs_its_course(ledger: MigrationLedger) -> None:
    made = begin(ledger, [files(1, 100)])
    (chunk,) = waiting(ledger, made)
    attempt_id = attempt(ledger, chunk.id)
    assert attempt(ledger, chunk.id) == attempt_id
    (intended,) = ledger.passes.unfinished_attempts()
    assert (intended.token, intended.process, intended.argv) == ("t1", None, ("rsync", "caf\udce9"))
    assert waiting(ledger, made) == []
    other = ledger.passes.start(
        plan="p", batch=2, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=[files(1, 5)], at_s=5.0
    ).id
    assert ledger.passes.unfinished_attempts(pass_id=made) == [intended]
    assert list(ledger.passes.unfinished_attempts(pass_id=other)) == []
    counters = StreamCounters(files=1, size_bytes=100)
    end(ledger, attempt_id, counters=counters)
    again = {"exit_code": 0, "counters": counters, "stderr_tail": b"", "chunk_state": ChunkState.DONE, "problems": ()}
    ledger.passes.finish(attempt_id, at_s=12.0, state="succeeded", **again)  # type: ignore[arg-type]
    assert list(ledger.passes.unfinished_attempts()) == []
    (ended,) = ledger.passes.attempts_of_chunk(chunk.id)
    assert ended.process == ProcessIdentity(pid=7, start_ticks=70, boot_id="b")
    assert (ended.number, ended.exit_code, ended.counters) == (1, 0, counters)
    assert (ended.stderr_tail, ended.finished_at_s) == (b"\xff tail", 9.0)
    totals = ledger.passes.totals(made)
    assert (totals.done_files, totals.done_bytes, totals.chunks) == (1, 100, {ChunkState.DONE: 1})


def test_attempts_go_one_after_another(ledger: MigrationLedger) -> None:
    made = begin(ledger, [files(1, 100)])
    (chunk,) = waiting(ledger, made)
    for token, state in (("a", "interrupted"), ("b", "failed")):
        end(ledger, attempt(ledger, chunk.id, token), state=state, chunk=ChunkState.PENDING)
    last = attempt(ledger, chunk.id, "c")
    with pytest.raises(LedgerCorrupt, match="has not ended"):
        attempt(ledger, chunk.id, "d")
    end(ledger, last)
    with pytest.raises(LedgerCorrupt, match="cannot become running"):
        attempt(ledger, chunk.id, "d")
    assert [one.number for one in ledger.passes.attempts_of_chunk(chunk.id)] == [1, 2, 3]
    with pytest.raises(LedgerCorrupt):
        ledger.passes.started(77, ProcessIdentity(pid=1, start_ticks=1, boot_id="b"))
    with pytest.raises(LedgerCorrupt):
        attempt(ledger, 77)


# Splitting.


HALVES = [(files(0, 60, 2), "splits/a"), (files(0, 40, 2), "splits/b")]


def test_a_chunk_is_replaced_by_its_halves(ledger: MigrationLedger) -> None:
    made = begin(ledger, [files(1, 100, 4), files(2, 10, 1)])
    chunk, other = waiting(ledger, made)
    attempt_id = attempt(ledger, chunk.id)
    with pytest.raises(LedgerCorrupt):
        ledger.passes.split(chunk.id, [])
    with pytest.raises(LedgerCorrupt, match="without its halves"):
        end(ledger, attempt_id, state="failed", chunk=ChunkState.SPLIT)
    one, two = ledger.passes.split(chunk.id, HALVES)
    assert (one.number, two.number) == (3, 4)
    assert (one.list_path, two.list_path, one.state) == ("splits/a", "splits/b", ChunkState.PENDING)
    assert (one.parent_id, other.parent_id) == (chunk.id, None)
    assert list(ledger.passes.split(chunk.id, HALVES)) == [one, two]
    end(ledger, attempt_id, state="failed", chunk=ChunkState.SPLIT)
    totals = ledger.passes.totals(made)
    assert (totals.files, totals.size_bytes) == (5, 110)
    assert totals.chunks == {ChunkState.PENDING: 3, ChunkState.SPLIT: 1}
    assert ledger.passes.next_chunk_number(made) == 5
    end(ledger, attempt(ledger, other.id, "other"), state="succeeded", chunk=ChunkState.DONE)
    with pytest.raises(LedgerCorrupt):
        ledger.passes.split(other.id, HALVES)


# Samples.


def test_ended_attempts_give_the_cost_of_streams(ledger: MigrationLedger) -> None:
    assert ledger.samples.measured_cost() is None
    sizes = [(10, 1_000_000), (1000, 2_000_000), (500, 80_000_000), (1, 2**33), (3000, 5_000)]
    made = begin(ledger, [files(number, size, count) for number, (count, size) in enumerate(sizes, 1)])
    for chunk in waiting(ledger, made):
        counters = StreamCounters(files=chunk.files, size_bytes=chunk.size_bytes)
        took_s = chunk.files * 0.003 + chunk.size_bytes * 1e-8
        end(ledger, attempt(ledger, chunk.id, f"t{chunk.number}"), counters=counters, at_s=6.0 + took_s)
    ledger.samples.add(made, [sample(1.0, streams=4)])
    cost = ledger.samples.measured_cost()
    assert cost is not None
    assert cost.s_per_file == pytest.approx(0.003, rel=1e-3)
    assert cost.s_per_byte == pytest.approx(1e-8, rel=1e-3)
    assert cost.streams == 4
    assert "5 chunks" in cost.basis
