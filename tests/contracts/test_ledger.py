"""What every ledger does. A fake that a test uses in place of the real one has to pass this suite as well."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.adapters.ledger.sqlite import SqliteLedger, open_ledger
from migrator.decide.sample_thinning import FINE_S
from migrator.domain.errors import LedgerCorrupt, UsageError
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.plan import Chunk
from migrator.domain.reap import ReapRelease
from migrator.domain.scan import CatalogRecord
from migrator.domain.site import MountIdentity, Need, TargetCapabilities
from migrator.domain.states import BatchState, ChunkKind, ChunkState, PassKind, PassState
from migrator.domain.transfer import (
    ChunkRecord,
    FileProblem,
    FileProblemKind,
    ProcessIdentity,
    Sample,
    StreamCounters,
)
from migrator.domain.tree import UserTree
from migrator.domain.verification import DigestPolicy, VerificationRecord
from migrator.ports.ledger import Ledger
from migrator.ports.site import SiteRecord
from tests.contracts.plans import small_plan

HOSTILE = (b"-rf", b"new\nline", b"\xff\xfe", b"a" * 255, b"<script>", "\u202eexe.txt".encode(), b"tab\t|`'\"%41\\")
SITE = SiteRecord(
    site_id="5e1f",
    name="rehearsal",
    created_at_s=10.5,
    source=MountIdentity(
        filesystem="fuse.glusterfs", mounted_from="gl1:/vol", device=None, fsid=2**64 - 1, root_ino=1, sentinel="s"
    ),
    target=MountIdentity(
        filesystem="xfs", mounted_from="/dev/sdb", device=2049, fsid=None, root_ino=128, sentinel=None
    ),
    capabilities=None,
    capabilities_probed_at_s=None,
)


def _sqlite(directory: Path) -> Ledger:
    return open_ledger(directory / "ledger.db", create=True)


@pytest.fixture(params=[_sqlite], ids=["sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    make: Callable[[Path], Ledger] = request.param
    made = make(tmp_path)
    yield made
    close = getattr(made, "close", None)
    if close is not None:
        close()


def files(number: int, size_bytes: int, count: int = 1, tree: bytes = b"home/alice") -> Chunk:
    return Chunk(number=number, kind=ChunkKind.FILES, tree=tree, files=count, size_bytes=size_bytes)


def begin(ledger: Ledger, chunks: Sequence[Chunk]) -> int:
    return ledger.passes.start(
        plan="p", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=chunks, at_s=5.0
    ).id


def waiting(ledger: Ledger, pass_id: int) -> list[ChunkRecord]:
    return list(ledger.passes.pending(pass_id, ChunkKind.FILES, 1000))


def attempt(ledger: Ledger, chunk_id: int, token: str = "t1") -> int:
    return ledger.passes.intend(
        chunk_id=chunk_id, token=token, host="here", engine="rsync", argv=("rsync", "caf\udce9"), at_s=6.0
    )


def end(
    ledger: Ledger,
    attempt_id: int,
    *,
    state: str = "succeeded",
    chunk: ChunkState = ChunkState.DONE,
    problems: Sequence[FileProblem] = (),
    counters: StreamCounters | None = None,
    at_s: float = 9.0,
) -> None:
    ledger.passes.started(attempt_id, ProcessIdentity(pid=7, start_ticks=70, boot_id="b"))
    ledger.passes.finish(
        attempt_id,
        at_s=at_s,
        state=state,
        exit_code=0 if state == "succeeded" else 23,
        counters=counters or StreamCounters(files=1, size_bytes=100),
        stderr_tail=b"\xff tail",
        chunk_state=chunk,
        problems=problems,
    )


def rows_of(ledger: Ledger, attempt_id: int) -> list[tuple[float, float, int, int]]:
    """The samples of one stream, as they are kept: no port gives them out one by one."""
    assert isinstance(ledger, SqliteLedger)
    with closing(sqlite3.connect(ledger.file)) as database:
        query = "select at_s, interval_s, files, size_bytes from samples where attempt_id = ? order by at_s"
        return database.execute(query, (attempt_id,)).fetchall()


def bad(path: bytes, reason: str = "Permission denied") -> FileProblem:
    return FileProblem(path=path, kind=FileProblemKind.BAD, errno=13, reason=reason)


class TestSite:
    def test_is_nothing_before_init(self, ledger: Ledger) -> None:
        assert ledger.site.read() is None

    def test_comes_back_as_created_and_again(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        ledger.site.create(SITE)
        assert ledger.site.read() == SITE

    def test_is_one_only(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        other = SiteRecord(
            site_id="other",
            name="x",
            created_at_s=1.0,
            source=SITE.source,
            target=SITE.target,
            capabilities=None,
            capabilities_probed_at_s=None,
        )
        with pytest.raises(UsageError, match="rehearsal"):
            ledger.site.create(other)

    def test_learns_identities_and_capabilities(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        ledger.site.update_identities(SITE.target, SITE.source)
        capabilities = TargetCapabilities(keeps_acls=False, reserved_names=(b"#fSiDs#", b"\xff"))
        ledger.site.record_capabilities(capabilities, 99.0)
        found = ledger.site.read()
        assert found is not None
        assert (found.source, found.target) == (SITE.target, SITE.source)
        assert (found.capabilities, found.capabilities_probed_at_s) == (capabilities, 99.0)

    def test_that_is_not_there_learns_nothing(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerCorrupt):
            ledger.site.record_capabilities(TargetCapabilities(), 1.0)


class TestRuns:
    def test_live_and_end(self, ledger: Ledger) -> None:
        first = ledger.runs.start(verb="scan", pid=5, at_s=1.0, directory="runs/1")
        second = ledger.runs.start(verb="run", pid=6, at_s=2.0, directory="runs/\udcff")
        ledger.runs.heartbeat(second, 4.0)
        latest = ledger.runs.latest()
        assert latest is not None
        assert (latest.id, latest.verb, latest.heartbeat_at_s, latest.finished_at_s) == (second, "run", 4.0, None)
        ledger.runs.finish(first, 8.0, 130)
        scan = ledger.runs.latest("scan")
        assert scan is not None
        assert (scan.id, scan.finished_at_s, scan.exit_code) == (first, 8.0, 130)
        assert ledger.runs.latest("verify") is None

    def test_that_never_began_have_no_heartbeat(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerCorrupt):
            ledger.runs.heartbeat(12, 1.0)


class TestScans:
    def closing(
        self, scan_id: int, name: str, finished_at_s: float | None, *, scope: tuple[bytes, ...] = ()
    ) -> CatalogRecord:
        return CatalogRecord(
            name=name,
            scan_id=scan_id,
            site_id="5e1f",
            via="mount",
            trees=tuple(UserTree(path=b"home/" + name, user="user") for name in HOSTILE),
            parts=("part-000000.parquet",),
            started_at_s=1.0,
            finished_at_s=finished_at_s,
            whole=False,
            reasons=("brick gl1:/b1 is down",),
            rows=3,
            files=2,
            directories=1,
            size_bytes=2**52,
            problems=4,
            health_fingerprint="f1",
            scope=scope,
        )

    def test_go_on_until_they_end(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        assert ledger.scans.unfinished() is None
        scan_id = ledger.scans.start(catalog="c1", via="mount", at_s=1.0)
        assert ledger.scans.start(catalog="c1", via="mount", at_s=7.0) == scan_id
        going_on = ledger.scans.unfinished()
        assert going_on is not None
        assert (going_on.name, going_on.scan_id, going_on.started_at_s) == ("c1", scan_id, 1.0)
        assert ledger.scans.latest() is None
        assert ledger.scans.latest(finished=False) == going_on
        closing = self.closing(scan_id, "c1", 3.0)
        ledger.scans.finish(closing)
        ledger.scans.finish(closing)
        assert ledger.scans.unfinished() is None
        assert ledger.scans.latest() == closing
        assert list(ledger.scans.all()) == [closing]

    def test_that_were_overtaken_do_not_go_on(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        ledger.scans.start(catalog="c1", via="mount", at_s=1.0)
        newer = ledger.scans.start(catalog="c2", via="mount", at_s=2.0)
        ledger.scans.finish(self.closing(newer, "c2", 3.0))
        assert ledger.scans.unfinished() is None

    def test_of_some_trees_are_never_the_newest(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        scope = tuple(b"home/" + name for name in HOSTILE)
        alone = ledger.scans.start(catalog="c1", via="mount", at_s=1.0, scope=scope)
        assert ledger.scans.unfinished() is None
        assert ledger.scans.latest(finished=False) is None
        assert [(record.name, record.scope) for record in ledger.scans.unfinished_of_trees()] == [("c1", scope)]
        whole = ledger.scans.start(catalog="c2", via="mount", at_s=2.0)
        ledger.scans.finish(self.closing(whole, "c2", 3.0))
        closing = self.closing(alone, "c1", 4.0, scope=scope)
        ledger.scans.finish(closing)
        later = ledger.scans.start(catalog="c3", via="mount", at_s=5.0, scope=scope[:1])
        ledger.scans.finish(self.closing(later, "c3", 6.0, scope=scope[:1]))
        ledger.scans.start(catalog="c4", via="bricks", at_s=7.0, scope=scope[:1])
        latest = ledger.scans.latest()
        assert latest is not None
        assert latest.name == "c2"
        assert ledger.scans.latest(finished=False) == latest
        assert ledger.scans.unfinished() is None
        assert [record.name for record in ledger.scans.unfinished_of_trees()] == ["c4"]
        assert [record.scope for record in ledger.scans.all()] == [scope, (), scope[:1], scope[:1]]

    def test_of_some_trees_do_not_overtake_one_of_the_whole_source(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        ledger.scans.start(catalog="c1", via="mount", at_s=1.0)
        alone = ledger.scans.start(catalog="c2", via="mount", at_s=2.0, scope=(b"home/a",))
        ledger.scans.finish(self.closing(alone, "c2", 3.0, scope=(b"home/a",)))
        going_on = ledger.scans.unfinished()
        assert going_on is not None
        assert going_on.name == "c1"


class TestPlans:
    def test_are_recorded_once(self, ledger: Ledger) -> None:
        assert ledger.plans.latest() is None
        ledger.plans.record(small_plan("one"), path="plans/one.json", checksum="c1")
        ledger.plans.record(small_plan("one"), path="plans/one.json", checksum="c1")
        found = ledger.plans.read("one")
        assert found is not None
        assert (found.checksum, found.path) == ("c1", "plans/one.json")
        assert found.batches == {1: BatchState.PLANNED, 2: BatchState.PLANNED}
        with pytest.raises(UsageError, match="one"):
            ledger.plans.record(small_plan("one"), path="plans/one.json", checksum="c2")

    def test_latest_is_the_one_recorded_last(self, ledger: Ledger) -> None:
        for name in ("b", "a"):
            ledger.plans.record(small_plan(name), path=name, checksum=name)
        latest = ledger.plans.latest()
        assert latest is not None
        assert latest.name == "a"
        assert ledger.plans.read("c") is None

    def test_batches_move_as_the_states_allow(self, ledger: Ledger) -> None:
        ledger.plans.record(small_plan("one"), path="p", checksum="c")
        ledger.plans.set_batch_state("one", 1, BatchState.SEEDING)
        ledger.plans.set_batch_state("one", 1, BatchState.SEEDING)
        with pytest.raises(LedgerCorrupt, match="cannot become"):
            ledger.plans.set_batch_state("one", 1, BatchState.VERIFIED)
        with pytest.raises(LedgerCorrupt, match="no batch 9"):
            ledger.plans.set_batch_state("one", 9, BatchState.SEEDING)
        found = ledger.plans.read("one")
        assert found is not None
        assert found.batches == {1: BatchState.SEEDING, 2: BatchState.PLANNED}


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

    def test_of_streams_that_ended_long_ago_are_put_together_by_the_hour(self, ledger: Ledger) -> None:
        made = begin(ledger, [files(number, 100) for number in range(1, 101)])
        numbers = [attempt(ledger, chunk.id, f"t{chunk.number}") for chunk in waiting(ledger, made)]
        # The first was never ended, the last ends late.
        for number in numbers[1:]:
            end(ledger, number, at_s=9_000.0 + (FINE_S if number == numbers[-1] else 0.0))
        kept = {number: [(at_s, at_s // 5) for at_s in (3590.0, 3595.0, 3600.0, 3605.0)] for number in numbers}
        whole = [
            Sample(at_s=at_s, interval_s=5.0, attempt_id=None, streams=1, files=9, size_bytes=9) for at_s in (1.0, 2.0)
        ]
        ledger.samples.add(made, whole)
        for number, of_stream in kept.items():
            ledger.samples.add(
                made,
                [
                    Sample(at_s=at_s, interval_s=5.0, attempt_id=number, streams=1, files=1, size_bytes=int(size))
                    for at_s, size in of_stream
                ],
            )

        assert not ledger.samples.thin(now_s=3605.0 + FINE_S), (
            "the first is too young to be put together, and bars others"
        )
        assert rows_of(ledger, numbers[0]) == [(at_s, 5.0, 1, size) for at_s, size in kept[numbers[0]]]

        now_s = 9_001.0 + FINE_S
        assert ledger.samples.thin(now_s=now_s), "there are more of them than one call takes"
        assert not ledger.samples.thin(now_s=now_s)
        for number in numbers[:-1]:
            assert rows_of(ledger, number) == [(3595.0, 10.0, 2, 718 + 719), (3605.0, 10.0, 2, 720 + 721)]
        assert len(rows_of(ledger, numbers[-1])) == 4
        assert list(ledger.samples.whole(made)) == whole
        assert not ledger.samples.thin(now_s=now_s + 2 * FINE_S)
        assert len(rows_of(ledger, numbers[-1])) == 2

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


class TestEvents:
    def test_newest_first(self, ledger: Ledger) -> None:
        run = ledger.runs.start(verb="run", pid=1, at_s=0.0, directory="d")
        events = [
            Event(
                at_s=float(n), kind=EventKind.FILE_BAD, severity=Severity.ERROR, subject=f"s{n}", message="m\n\x1b[1m"
            )
            for n in range(4)
        ]
        for event in events:
            ledger.events.add(event, run)
        assert list(ledger.events.latest(2)) == [events[3], events[2]]


class TestVerifications:
    def record(self, verification_id: int, batch: int = 1, **changes: object) -> VerificationRecord:
        facts: dict[str, object] = {
            "id": verification_id,
            "plan": "p",
            "batch": batch,
            "started_at_s": 1.0,
            "finished_at_s": 2.0,
            "policy": DigestPolicy(algorithm="xxh3_128", share=0.5, seed=2**63 - 1),
            "paths": 10,
            "size_bytes": 2**50,
            "digested_files": 5,
            "digested_bytes": 2**49,
            "proven_gone": 1,
            "differences": {"content": 1},
            "expected": {"loss-acl": 2},
            "whole": True,
            "reasons": (),
            "manifest": "manifests/1",
            "manifest_digest": "abc",
        }
        return VerificationRecord(**(facts | changes))  # type: ignore[arg-type]

    def test_count_when_they_have_ended(self, ledger: Ledger) -> None:
        first = ledger.verifications.start(plan="p", batch=1, at_s=1.0)
        second = ledger.verifications.start(plan="p", batch=1, at_s=1.0)
        assert ledger.verifications.latest("p", 1) is None
        done = self.record(first)
        ledger.verifications.finish(done)
        ledger.verifications.finish(done)
        assert ledger.verifications.latest("p", 1) == done
        assert list(ledger.verifications.of_plan("p")) == [done]
        ledger.verifications.finish(self.record(second, whole=False, reasons=("brick down",), manifest=None))
        latest = ledger.verifications.latest("p", 1)
        assert latest is not None
        assert (latest.id, latest.whole, latest.reasons) == (second, False, ("brick down",))
        assert ledger.verifications.latest("p", 2) is None

    def test_result_stands(self, ledger: Ledger) -> None:
        first = ledger.verifications.start(plan="p", batch=1, at_s=1.0)
        ledger.verifications.finish(self.record(first))
        with pytest.raises(LedgerCorrupt):
            ledger.verifications.finish(self.record(first, proven_gone=7))
        with pytest.raises(LedgerCorrupt):
            ledger.verifications.finish(self.record(first + 1))

    def test_those_of_some_trees_are_never_taken_for_one_of_the_batch(self, ledger: Ledger) -> None:
        trees = ((), (b"home/alice",), (b"home/b%ob\n", b"home/c\xff"), (b"home/alice", b"home/c\xff"))
        records = []
        for covered in trees:
            number = ledger.verifications.start(plan="p", batch=1, at_s=1.0)
            records.append(self.record(number, trees=covered, carried_files=3, carried_bytes=2**41))
            ledger.verifications.finish(records[-1])
        other = self.record(ledger.verifications.start(plan="p", batch=2, at_s=1.0), batch=2)
        ledger.verifications.finish(other)
        ledger.verifications.start(plan="p", batch=1, at_s=1.0)
        assert ledger.verifications.latest("p", 1) == records[0]
        whole, of_alice, of_others, of_two = records
        assert list(ledger.verifications.of_tree("p", 1, b"home/alice")) == [whole, of_alice, of_two]
        assert list(ledger.verifications.of_tree("p", 1, b"home/b%ob\n")) == [whole, of_others]
        assert list(ledger.verifications.of_tree("p", 1, b"home/dave")) == [whole]
        assert list(ledger.verifications.all()) == [*records, other]

    def test_a_tree_is_covered_by_verifications_of_whatever_plan_it_was_in(self, ledger: Ledger) -> None:
        scan = ledger.scans.start(catalog="catalog-1", via="mount", at_s=1.0)
        first, second = UserTree(path=b"home/alice", user="alice"), UserTree(path=b"home/bob", user="bob")
        for name, trees in (("one", (first, second)), ("two", (second, first))):
            plan = replace(small_plan(name, trees=trees), scan_id=scan)
            ledger.plans.record(plan, path=f"{name}.json", checksum="c")
        covering = []
        for name, batch, covered in (
            ("one", 1, ()),
            ("one", 2, ()),
            ("two", 2, ()),
            ("two", 2, (b"home/alice",)),
            ("two", 2, (b"home/bob",)),
        ):
            number = ledger.verifications.start(plan=name, batch=batch, at_s=1.0)
            record = self.record(number, batch=batch, plan=name, trees=covered)
            ledger.verifications.finish(record)
            covering.append(record)
        assert list(ledger.verifications.covering(b"home/alice")) == [covering[0], covering[2], covering[3]]
        assert list(ledger.verifications.covering(b"home/carol")) == []


class TestReleases:
    def test_they_are_kept_by_tree_in_their_order(self, ledger: Ledger) -> None:
        found = [
            ReapRelease(tree=b"home/\xff", pattern=name, is_glob=bool(number % 2), by="root", at_s=float(number))
            for number, name in enumerate(HOSTILE)
        ]
        other = ReapRelease(tree=b"home/b", pattern=b"x", is_glob=False, by="root", at_s=1.0)
        ledger.releases.add([])
        ledger.releases.add([*found[:2], other])
        ledger.releases.add(found[2:])
        assert list(ledger.releases.of_trees([b"home/\xff"])) == found
        assert list(ledger.releases.of_trees([b"home/b", b"home/c"])) == [other]
        assert list(ledger.releases.of_trees([])) == []
