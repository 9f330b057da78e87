"""What every ledger keeps of passes, chunks, attempts at them, files that need attention, and samples."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from migrator.core.errors import LedgerCorrupt
from migrator.core.states import ChunkKind, ChunkState, PassKind, PassState
from migrator.fs.model import Need
from migrator.hosts.model import ProcessIdentity
from migrator.ledger.ledger import Ledger
from migrator.plan.model import Chunk
from migrator.transfer.model import FileProblem, FileProblemKind, Sample, StreamCounters
from tests.support.records import HOSTILE, attempt, begin, end, files, waiting


def bad(path: bytes, reason: str = "Permission denied") -> FileProblem:
    return FileProblem(path=path, kind=FileProblemKind.BAD, errno=13, reason=reason)


class TestPasses:
    def test_are_found_with_their_totals(self, ledger: Ledger) -> None:
        directories = Chunk(number=1, kind=ChunkKind.DIRECTORIES, tree=b"t", files=50, size_bytes=0)
        links = Chunk(number=4, kind=ChunkKind.LINKS, tree=b"t", files=2, size_bytes=0)
        made = begin(ledger, [directories, files(2, 100, 3), files(3, 10, 2), links])
        found = ledger.passes.find("p", 1, PassKind.SEED)
        assert found is not None
        assert (found.id, found.total_files, found.total_bytes, found.state) == (made, 7, 110, PassState.RUNNING)
        assert ledger.passes.find("p", 2, PassKind.SEED) is None
        assert ledger.passes.find("p", 1, PassKind.DELTA) is None
        totals = ledger.passes.totals(made)
        assert (totals.chunks, totals.files, totals.size_bytes) == ({ChunkState.PENDING: 4}, 7, 110)
        assert (totals.done_files, totals.done_bytes) == (0, 0)

    def test_start_again_with_the_same_chunks(self, ledger: Ledger) -> None:
        chunks = [files(1, 100), files(2, 10)]
        assert begin(ledger, chunks) == begin(ledger, chunks)
        assert len(waiting(ledger, begin(ledger, chunks))) == 2
        with pytest.raises(LedgerCorrupt, match="other chunks"):
            begin(ledger, [files(1, 100)])

    def test_states(self, ledger: Ledger) -> None:
        made = begin(ledger, [])
        ledger.passes.set_state(made, PassState.STOPPED, 6.0)
        with pytest.raises(LedgerCorrupt):
            ledger.passes.set_state(made, PassState.DONE, 7.0)
        ledger.passes.set_state(made, PassState.RUNNING, 8.0)
        ledger.passes.set_state(made, PassState.DONE, 9.0)
        (found,) = ledger.passes.of_plan("p")
        assert (found.state, found.finished_at_s) == (PassState.DONE, 9.0)
        assert begin(ledger, []) == made

    def test_pending_chunks_come_largest_first(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 5), files(2, 50), files(3, 5), files(4, 500)])
        assert [chunk.number for chunk in waiting(ledger, made)] == [4, 2, 1, 3]
        assert len(ledger.passes.pending(made, ChunkKind.FILES, 2)) == 2
        assert list(ledger.passes.pending(made, ChunkKind.LINKS, 2)) == []

    def test_chunks_wait_for_those_who_reach_their_brick(self, ledger: Ledger) -> None:
        bricks = (None, "one:/b", "two:/b", "one:/b")
        made = begin(ledger, [replace(files(n, n), brick=brick) for n, brick in enumerate(bricks, start=1)])
        assert ledger.passes.bricks(made) == {None, "one:/b", "two:/b"}

        def waiting_for(*wanted: str | None) -> list[int]:
            return [one.number for one in ledger.passes.pending(made, ChunkKind.FILES, 9, bricks=wanted)]

        assert [one.brick for one in waiting(ledger, made)] == ["one:/b", "two:/b", "one:/b", None]
        assert waiting_for("one:/b") == [4, 2]
        assert waiting_for("one:/b", None) == [4, 2, 1]
        assert waiting_for(None) == [1]
        assert waiting_for("other:/b") == waiting_for() == []
        largest = waiting(ledger, made)[0]
        attempt(ledger, largest.id)
        halves = [(replace(files(0, 2), brick=brick), "a") for brick in ("one:/b", None)]
        assert [one.brick for one in ledger.passes.split(largest.id, halves)] == ["one:/b", None]
        assert waiting_for(None, "two:/b") == [3, 6, 1]

    def test_ranges_bring_the_bytes_and_ranged_files_the_names(self, ledger: Ledger) -> None:
        ranges = [Chunk(number=n, kind=ChunkKind.RANGES, tree=b"t", files=0, size_bytes=50) for n in (1, 2)]
        in_place = replace(files(3, 0, tree=b"t"), kind=ChunkKind.RANGED_FILES)
        made = begin(ledger, [*ranges, in_place])
        totals = ledger.passes.totals(made)
        assert (totals.files, totals.size_bytes) == (1, 100)
        assert (ledger.passes.read(made).total_files, ledger.passes.read(made).total_bytes) == (1, 100)
        for kind in (ChunkKind.RANGES, ChunkKind.RANGED_FILES):
            for chunk in ledger.passes.pending(made, kind, 9):
                end(ledger, attempt(ledger, chunk.id, f"t{chunk.id}"))
        totals = ledger.passes.totals(made)
        assert (totals.done_files, totals.done_bytes) == (1, 100)
        assert ledger.passes.arrived(before_plan="q") == {b"t": Need(size_bytes=100, inodes=1)}

    def test_and_chunks_are_read_one_by_one(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 5)])
        (chunk,) = waiting(ledger, made)
        assert ledger.passes.chunk(chunk.id) == chunk
        assert ledger.passes.read(made) == ledger.passes.find("p", 1, PassKind.SEED)
        with pytest.raises(LedgerCorrupt, match="no pass 99"):
            ledger.passes.read(99)
        with pytest.raises(LedgerCorrupt, match="no chunk 99"):
            ledger.passes.chunk(99)

    def test_failed_chunks_are_given_out_again(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 5), files(2, 4)])
        first, second = waiting(ledger, made)
        end(ledger, attempt(ledger, first.id, "a"), state="failed", chunk=ChunkState.FAILED)
        end(ledger, attempt(ledger, second.id, "b"))
        assert waiting(ledger, made) == []
        assert [chunk.number for chunk in ledger.passes.failed(made)] == [1]
        assert ledger.passes.retry_failed(made) == 1
        assert list(ledger.passes.failed(made)) == []
        assert waiting(ledger, made) == [first]
        assert ledger.passes.retry_failed(made) == 0

    def test_with_failed_chunks_the_times_of_their_trees_are_set_again(self, ledger: Ledger) -> None:
        trees = (b"home/a", b"home/b", b"home/c")
        times = [
            replace(files(number, 0, tree=tree), kind=ChunkKind.DIRECTORY_TIMES) for number, tree in enumerate(trees, 4)
        ]
        made = begin(ledger, [*(files(number, 1, tree=tree) for number, tree in enumerate(trees, 1)), *times])
        for chunk in (*waiting(ledger, made), *ledger.passes.pending(made, ChunkKind.DIRECTORY_TIMES, 9)):
            bad = chunk.number in (1, 6)
            state, after = ("failed", ChunkState.FAILED) if bad else ("succeeded", ChunkState.DONE)
            end(ledger, attempt(ledger, chunk.id, f"t{chunk.number}"), state=state, chunk=after)
        assert [chunk.number for chunk in ledger.passes.to_retry(made)] == [1, 4, 6]
        assert ledger.passes.retry_failed(made) == 2
        assert [chunk.number for chunk in ledger.passes.pending(made, ChunkKind.DIRECTORY_TIMES, 9)] == [4, 6]
        assert [chunk.number for chunk in waiting(ledger, made)] == [1]
        assert list(ledger.passes.to_retry(made)) == []

    def test_trees_are_bytes(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(number, 1, tree=tree) for number, tree in enumerate(HOSTILE, 1)])
        assert {chunk.tree for chunk in waiting(ledger, made)} == set(HOSTILE)


class TestAttempts:
    def test_run_their_course(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100)])
        (chunk,) = waiting(ledger, made)
        attempt_id = attempt(ledger, chunk.id)
        assert attempt(ledger, chunk.id) == attempt_id
        (intended,) = ledger.passes.unfinished_attempts()
        assert (intended.token, intended.process, intended.argv) == ("t1", None, ("rsync", "caf\udce9"))
        assert waiting(ledger, made) == []
        end(ledger, attempt_id)
        end_again = StreamCounters(files=1, size_bytes=100)
        ledger.passes.finish(
            attempt_id,
            at_s=9.0,
            state="succeeded",
            exit_code=0,
            counters=end_again,
            stderr_tail=b"\xff tail",
            chunk_state=ChunkState.DONE,
            problems=(),
        )
        assert list(ledger.passes.unfinished_attempts()) == []
        (ended,) = ledger.passes.attempts_of_chunk(chunk.id)
        assert ended.process == ProcessIdentity(pid=7, start_ticks=70, boot_id="b")
        assert (ended.number, ended.exit_code, ended.counters) == (1, 0, end_again)
        assert (ended.stderr_tail, ended.finished_at_s) == (b"\xff tail", 9.0)
        totals = ledger.passes.totals(made)
        assert (totals.done_files, totals.done_bytes) == (1, 100)
        assert totals.chunks == {ChunkState.DONE: 1}

    def test_count_as_tries_unless_interrupted(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100)])
        (chunk,) = waiting(ledger, made)
        end(ledger, attempt(ledger, chunk.id, "a"), state="interrupted", chunk=ChunkState.PENDING)
        assert waiting(ledger, made)[0].tries == 0
        end(ledger, attempt(ledger, chunk.id, "b"), state="failed", chunk=ChunkState.PENDING)
        assert waiting(ledger, made)[0].tries == 1
        assert [a.number for a in ledger.passes.attempts_of_chunk(chunk.id)] == [1, 2]

    def test_two_at_one_chunk_are_refused(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100)])
        (chunk,) = waiting(ledger, made)
        attempt(ledger, chunk.id, "a")
        with pytest.raises(LedgerCorrupt, match="has not ended"):
            attempt(ledger, chunk.id, "b")

    def test_at_a_finished_chunk_are_refused(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100)])
        (chunk,) = waiting(ledger, made)
        end(ledger, attempt(ledger, chunk.id, "a"))
        with pytest.raises(LedgerCorrupt, match="cannot become running"):
            attempt(ledger, chunk.id, "b")

    def test_unknown_ones_are_refused(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerCorrupt):
            ledger.passes.started(77, ProcessIdentity(pid=1, start_ticks=1, boot_id="b"))
        with pytest.raises(LedgerCorrupt):
            attempt(ledger, 77)

    def test_of_another_pass_are_told_apart(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100)])
        other = ledger.passes.start(
            plan="p", batch=2, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=[files(1, 5)], at_s=5.0
        ).id
        attempt_id = attempt(ledger, waiting(ledger, made)[0].id)
        assert [a.id for a in ledger.passes.unfinished_attempts(made)] == [attempt_id]
        assert list(ledger.passes.unfinished_attempts(other)) == []


class TestSplitting:
    def test_replaces_a_chunk_by_its_halves(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100, 4), files(2, 10, 1)])
        chunk = waiting(ledger, made)[0]
        attempt_id = attempt(ledger, chunk.id)
        halves = [(files(0, 60, 2), "splits/a"), (files(0, 40, 2), "splits/b")]
        one, two = ledger.passes.split(chunk.id, halves)
        assert (one.number, two.number) == (3, 4)
        assert (one.list_path, two.list_path, one.state) == ("splits/a", "splits/b", ChunkState.PENDING)
        assert list(ledger.passes.split(chunk.id, halves)) == [one, two]
        end(ledger, attempt_id, state="failed", chunk=ChunkState.SPLIT)
        totals = ledger.passes.totals(made)
        assert (totals.files, totals.size_bytes) == (5, 110)
        assert totals.chunks == {ChunkState.PENDING: 3, ChunkState.SPLIT: 1}
        assert ledger.passes.next_chunk_number(made) == 5

    def test_needs_a_running_chunk_and_halves(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100, 4)])
        (chunk,) = waiting(ledger, made)
        with pytest.raises(LedgerCorrupt):
            ledger.passes.split(chunk.id, [(files(0, 50, 2), "a")])
        attempt_id = attempt(ledger, chunk.id)
        with pytest.raises(LedgerCorrupt):
            ledger.passes.split(chunk.id, [])
        with pytest.raises(LedgerCorrupt, match="without its halves"):
            end(ledger, attempt_id, state="failed", chunk=ChunkState.SPLIT)

    def test_survives_a_kill_before_the_attempt_is_finished(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100, 4)])
        (chunk,) = waiting(ledger, made)
        attempt_id = attempt(ledger, chunk.id)
        ledger.passes.split(chunk.id, [(files(0, 50, 2), "a"), (files(0, 50, 2), "b")])
        end(ledger, attempt_id, state="interrupted", chunk=ChunkState.PENDING)
        assert ledger.passes.totals(made).chunks == {ChunkState.PENDING: 2, ChunkState.SPLIT: 1}


class TestAttention:
    def test_lists_bad_files_and_counts_vanished_ones(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100, 9)])
        (chunk,) = waiting(ledger, made)
        vanished = FileProblem(path=b"gone", kind=FileProblemKind.VANISHED, errno=None, reason="")
        problems = [bad(path, "no \udcff way") for path in HOSTILE]
        end(ledger, attempt(ledger, chunk.id), problems=[*problems, vanished])
        assert [problem.path for problem in ledger.passes.attention(made)] == sorted(HOSTILE)
        assert ledger.passes.attention(made)[0].reason == "no \\udcff way"
        assert ledger.passes.vanished_count(made) == 1
        ledger.passes.clear_attention(made, HOSTILE[:-1])
        assert [problem.path for problem in ledger.passes.attention(made)] == [HOSTILE[-1]]

    def test_forgets_what_a_later_attempt_brought_over(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100, 9)])
        (chunk,) = waiting(ledger, made)
        first = attempt(ledger, chunk.id, "a")
        end(ledger, first, state="failed", chunk=ChunkState.PENDING, problems=[bad(b"x"), bad(b"y")])
        assert len(ledger.passes.attention(made)) == 2
        end(ledger, attempt(ledger, chunk.id, "b"), problems=[bad(b"y", "still")])
        assert [(p.path, p.reason) for p in ledger.passes.attention(made)] == [(b"y", "still")]

    def test_is_said_anew_by_halves(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100, 2)])
        (chunk,) = waiting(ledger, made)
        end(ledger, attempt(ledger, chunk.id, "a"), state="failed", chunk=ChunkState.PENDING, problems=[bad(b"x")])
        attempt(ledger, chunk.id, "b")
        ledger.passes.split(chunk.id, [(files(0, 50), "a"), (files(0, 50), "b")])
        assert list(ledger.passes.attention(made)) == []


class TestSamples:
    def test_of_all_streams_in_order(self, ledger: Ledger) -> None:
        made = begin(ledger, [])

        def sample(at_s: float, attempt_id: int | None, size_bytes: int = 1) -> Sample:
            return Sample(at_s=at_s, interval_s=5.0, attempt_id=attempt_id, streams=2, files=3, size_bytes=size_bytes)

        ledger.samples.add(made, [sample(20.0, None), sample(20.0, 4), sample(10.0, None, 2**50)])
        ledger.samples.add(made, [sample(20.0, None, 9)])
        ledger.samples.add(made, [])
        assert list(ledger.samples.whole(made)) == [sample(10.0, None, 2**50), sample(20.0, None, 9)]
        assert list(ledger.samples.whole(made + 1)) == []

    def test_of_a_stream_are_kept_until_its_attempt_ends(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(1, 100), files(2, 100)])
        first, second = [attempt(ledger, chunk.id, f"t{chunk.number}") for chunk in waiting(ledger, made)]
        one = Sample(at_s=1.0, interval_s=5.0, attempt_id=None, streams=1, files=1, size_bytes=1)
        ledger.samples.add(made, [one, replace(one, attempt_id=first), replace(one, attempt_id=second)])
        end(ledger, first)
        with closing(sqlite3.connect(ledger.file)) as database:
            kept = database.execute("select attempt_id from samples order by attempt_id").fetchall()
        assert kept == [(0,), (second,)]
        assert list(ledger.samples.whole(made)) == [one]

    def test_give_the_cost_of_streams(self, ledger: Ledger) -> None:
        assert ledger.samples.measured_cost() is None
        sizes = [(10, 1_000_000), (1000, 2_000_000), (500, 80_000_000), (1, 2**33), (3000, 5_000)]
        made = begin(ledger, [files(number, size, count) for number, (count, size) in enumerate(sizes, 1)])
        for chunk in waiting(ledger, made):
            took_s = chunk.files * 0.003 + chunk.size_bytes * 1e-8
            end(
                ledger,
                attempt(ledger, chunk.id, f"t{chunk.number}"),
                counters=StreamCounters(files=chunk.files, size_bytes=chunk.size_bytes),
                at_s=6.0 + took_s,
            )
        ledger.samples.add(made, [Sample(at_s=1.0, interval_s=5.0, attempt_id=None, streams=4, files=1, size_bytes=1)])
        cost = ledger.samples.measured_cost()
        assert cost is not None
        assert cost.s_per_file == pytest.approx(0.003, rel=1e-3)
        assert cost.s_per_byte == pytest.approx(1e-8, rel=1e-3)
        assert cost.streams == 4
        assert "5 chunks" in cost.basis
