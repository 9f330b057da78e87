"""What every ledger keeps of passes, chunks, attempts at them, files that need attention, and samples."""

from dataclasses import replace

import pytest

from migrator.core.errors import LedgerCorrupt
from migrator.core.states import ChunkKind, ChunkState, PassKind, PassState
from migrator.fs.model import Need
from migrator.hosts.model import ProcessIdentity
from migrator.ledger.ledger import Ledger
from migrator.plan.model import Chunk
from migrator.transfer.model import FileProblem, FileProblemKind, Sample, StreamCounters
from tests.support.records import attempt, begin, end, files, waiting

FAILED = {"state": "failed", "chunk": ChunkState.FAILED}


def bad(path: bytes, reason: str = "Permission denied") -> FileProblem:
    return FileProblem(path=path, kind=FileProblemKind.BAD, errno=13, reason=reason)


def sample(at_s: float, attempt_id: int | None = None, size_bytes: int = 1, *, streams: int = 1) -> Sample:
    return Sample(at_s=at_s, interval_s=5.0, attempt_id=attempt_id, streams=streams, files=1, size_bytes=size_bytes)


# Passes and chunks.


def test_a_pass_is_found_with_its_totals(ledger: Ledger) -> None:
    directories = Chunk(number=1, kind=ChunkKind.DIRECTORIES, tree=b"t", files=50, size_bytes=0)
    links = Chunk(number=4, kind=ChunkKind.LINKS, tree=b"t", files=2, size_bytes=0)
    made = begin(ledger, [directories, files(2, 100, 3), files(3, 10, 2), links])
    found = ledger.passes.find("p", 1, PassKind.SEED)
    assert found is not None
    assert (found.id, found.total_files, found.total_bytes, found.state) == (made, 7, 110, PassState.RUNNING)
    assert ledger.passes.read(made) == found
    assert ledger.passes.find("p", 2, PassKind.SEED) is ledger.passes.find("p", 1, PassKind.DELTA) is None
    totals = ledger.passes.totals(made)
    assert (totals.chunks, totals.files, totals.size_bytes) == ({ChunkState.PENDING: 4}, 7, 110)
    assert (totals.done_files, totals.done_bytes) == (0, 0)
    (chunk, _) = waiting(ledger, made)
    assert ledger.passes.chunk(chunk.id) == chunk
    with pytest.raises(LedgerCorrupt, match="no pass 99"):
        ledger.passes.read(99)
    with pytest.raises(LedgerCorrupt, match="no chunk 99"):
        ledger.passes.chunk(99)


def test_chunks_wait_for_those_who_reach_their_brick(ledger: Ledger) -> None:
    bricks = (None, "one:/b", "two:/b", "one:/b")
    made = begin(ledger, [replace(files(n, n), brick=brick) for n, brick in enumerate(bricks, start=1)])
    assert ledger.passes.bricks(made) == {None, "one:/b", "two:/b"}

    def waiting_for(*wanted: str | None) -> list[int]:
        return [one.number for one in ledger.passes.pending(made, ChunkKind.FILES, 9, bricks=wanted)]

    assert [one.brick for one in waiting(ledger, made)] == ["one:/b", "two:/b", "one:/b", None]
    assert [waiting_for("one:/b"), waiting_for("one:/b", None), waiting_for(None)] == [[4, 2], [4, 2, 1], [1]]
    assert waiting_for("other:/b") == waiting_for() == []
    largest = waiting(ledger, made)[0]
    attempt(ledger, largest.id)
    halves = [(replace(files(0, 2), brick=brick), "a") for brick in ("one:/b", None)]
    assert [one.brick for one in ledger.passes.split(largest.id, halves)] == ["one:/b", None]
    assert waiting_for(None, "two:/b") == [3, 6, 1]


def test_ranges_bring_the_bytes_and_ranged_files_the_names(ledger: Ledger) -> None:
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


def test_failed_chunks_are_given_out_again_and_the_times_of_their_trees_are_set_again(ledger: Ledger) -> None:
    trees = (b"home/a", b"home/b", b"home/c")
    times = [replace(files(n, 0, tree=tree), kind=ChunkKind.DIRECTORY_TIMES) for n, tree in enumerate(trees, 4)]
    made = begin(ledger, [*(files(number, 1, tree=tree) for number, tree in enumerate(trees, 1)), *times])
    every = (*waiting(ledger, made), *ledger.passes.pending(made, ChunkKind.DIRECTORY_TIMES, 9))
    for chunk in every:
        end(ledger, attempt(ledger, chunk.id, f"t{chunk.number}"), **(FAILED if chunk.number in (1, 6) else {}))  # type: ignore[arg-type]
    assert waiting(ledger, made) == []
    assert [chunk.number for chunk in ledger.passes.failed(made)] == [1, 6]
    assert [chunk.number for chunk in ledger.passes.to_retry(made)] == [1, 4, 6]
    assert ledger.passes.retry_failed(made) == 2
    assert [chunk.number for chunk in ledger.passes.pending(made, ChunkKind.DIRECTORY_TIMES, 9)] == [4, 6]
    assert waiting(ledger, made) == [every[0]]
    assert list(ledger.passes.to_retry(made)) == list(ledger.passes.failed(made)) == []
    assert ledger.passes.retry_failed(made) == 0


# Attempts.


def test_an_attempt_runs_its_course(ledger: Ledger) -> None:
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
    assert ledger.passes.unfinished_attempts(made) == [intended]
    assert list(ledger.passes.unfinished_attempts(other)) == []
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


def test_attempts_count_as_tries_unless_interrupted_and_go_one_after_another(ledger: Ledger) -> None:
    made = begin(ledger, [files(1, 100)])
    (chunk,) = waiting(ledger, made)
    for token, state, tries in (("a", "interrupted", 0), ("b", "failed", 1)):
        end(ledger, attempt(ledger, chunk.id, token), state=state, chunk=ChunkState.PENDING)
        assert waiting(ledger, made)[0].tries == tries
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


def test_a_chunk_is_replaced_by_its_halves(ledger: Ledger) -> None:
    made = begin(ledger, [files(1, 100, 4), files(2, 10, 1)])
    chunk = waiting(ledger, made)[0]
    with pytest.raises(LedgerCorrupt):
        ledger.passes.split(chunk.id, HALVES)
    attempt_id = attempt(ledger, chunk.id)
    with pytest.raises(LedgerCorrupt):
        ledger.passes.split(chunk.id, [])
    with pytest.raises(LedgerCorrupt, match="without its halves"):
        end(ledger, attempt_id, state="failed", chunk=ChunkState.SPLIT)
    one, two = ledger.passes.split(chunk.id, HALVES)
    assert (one.number, two.number) == (3, 4)
    assert (one.list_path, two.list_path, one.state) == ("splits/a", "splits/b", ChunkState.PENDING)
    assert list(ledger.passes.split(chunk.id, HALVES)) == [one, two]
    end(ledger, attempt_id, state="failed", chunk=ChunkState.SPLIT)
    totals = ledger.passes.totals(made)
    assert (totals.files, totals.size_bytes) == (5, 110)
    assert totals.chunks == {ChunkState.PENDING: 3, ChunkState.SPLIT: 1}
    assert ledger.passes.next_chunk_number(made) == 5


def test_a_split_survives_a_kill_before_the_attempt_is_finished(ledger: Ledger) -> None:
    made = begin(ledger, [files(1, 100, 4)])
    (chunk,) = waiting(ledger, made)
    attempt_id = attempt(ledger, chunk.id)
    ledger.passes.split(chunk.id, HALVES)
    end(ledger, attempt_id, state="interrupted", chunk=ChunkState.PENDING)
    assert ledger.passes.totals(made).chunks == {ChunkState.PENDING: 2, ChunkState.SPLIT: 1}


# Files that need attention.


def test_attention_is_that_of_the_latest_attempt_and_halves_tell_it_anew(ledger: Ledger) -> None:
    made = begin(ledger, [files(1, 100, 9), files(2, 50, 2)])
    one, two = waiting(ledger, made)
    for chunk, paths in ((one, (b"x", b"y")), (two, (b"z",))):
        first = attempt(ledger, chunk.id, f"{chunk.id}")
        end(ledger, first, state="failed", chunk=ChunkState.PENDING, problems=[bad(path) for path in paths])
    assert len(ledger.passes.attention(made)) == 3
    attempt(ledger, two.id, "split")
    ledger.passes.split(two.id, HALVES)
    end(ledger, attempt(ledger, one.id, "again"), problems=[bad(b"y", "still")])
    assert [(problem.path, problem.reason) for problem in ledger.passes.attention(made)] == [(b"y", "still")]


# Samples.


def test_ended_attempts_give_the_cost_of_streams(ledger: Ledger) -> None:
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
