"""How far, how fast, until when, and what is in the way."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.catalog.model import StrangeFiles
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode
from migrator.core.states import BatchState, ChunkKind, ChunkState, PassKind, PassState
from migrator.plan.model import TransferCost
from migrator.report.model import (
    AttentionCount,
    BatchFacts,
    ChunkSum,
    DonePoint,
    PassFacts,
    PlanFacts,
    PlannedBatch,
    PlannedTree,
    RunFacts,
    RunLife,
    ScanFacts,
    Tally,
    ThroughputPoint,
    TreeFacts,
    TreeState,
)
from migrator.report.rules import (
    add_up,
    after_differences,
    batch_facts,
    blockers,
    estimates,
    left_to_people,
    settled,
    together,
    tree_facts,
    verified_content_bytes,
    with_rests,
)
from tests.support.facts import verification

DELTA = "migrator run --user-batch 1` makes a delta pass"
COST = TransferCost(s_per_file=0.01, s_per_byte=1e-6, streams=2, basis="assumed")


def planned(path: bytes, user: str, batch: int = 1) -> PlannedTree:
    return PlannedTree(
        tree=UserTree(path=path, user=user), batch=batch, rank=1, size_bytes=1000, files=10, directories=1
    )


def chunk_sum(tree: bytes, state: ChunkState, size_bytes: int = 500, kind: ChunkKind = ChunkKind.FILES) -> ChunkSum:
    return ChunkSum(tree=tree, kind=kind, state=state, chunks=1, files=5, size_bytes=size_bytes)


def one_pass(state: PassState = PassState.RUNNING) -> PassFacts:
    return PassFacts(
        id=1, batch=1, kind=PassKind.SEED, number=0, state=state, started_at_s=0.0, finished_at_s=None, catalog="c"
    )


def facts_of(
    sums: list[ChunkSum], state: BatchState = BatchState.SEEDING, the_pass: PassFacts | None = None
) -> TreeFacts:
    (facts,) = tree_facts([planned(b"t", "u")], {1: sums}, {1: state}, {1: the_pass or one_pass()})
    return facts


class TestLaterPasses:
    def test_a_pass_over_other_trees_settles_nothing_of_this_one(self) -> None:
        seed = [chunk_sum(b"t", ChunkState.FAILED, 7), chunk_sum(b"u", ChunkState.FAILED, 7)]
        sums = settled(seed, [chunk_sum(b"u", ChunkState.DONE, 7)], {b"u"})
        assert [(one.tree, one.state) for one in sums] == [(b"t", ChunkState.FAILED), (b"u", ChunkState.DONE)]
        assert list(settled(seed, [chunk_sum(b"t", ChunkState.FAILED)], {b"u"}))[2:] == []


def test_what_failed_each_time_is_left_to_people() -> None:
    whole = facts_of([chunk_sum(b"t", ChunkState.DONE)])
    bad = facts_of([chunk_sum(b"t", ChunkState.DONE), chunk_sum(b"t", ChunkState.FAILED, 7)])
    going_on = facts_of([chunk_sum(b"t", ChunkState.FAILED, 7), chunk_sum(b"t", ChunkState.PENDING, 7)])
    assert left_to_people([whole, bad])
    assert not left_to_people([whole, bad, going_on])
    assert not left_to_people([whole])
    assert not left_to_people([])


class TestTrees:
    def test_what_is_reaped_is_not_to_be_copied(self) -> None:
        tree = replace(planned(b"t", "u"), reaped_bytes=700, reaped_files=9)
        (facts,) = tree_facts([tree], {}, {1: BatchState.PLANNED}, {})
        assert facts.tally == Tally(total_bytes=300, total_files=1, total_users=1)

    def test_split_chunks_and_directories_count_no_bytes(self) -> None:
        facts = facts_of(
            [
                chunk_sum(b"t", ChunkState.SPLIT, 800),
                chunk_sum(b"t", ChunkState.DONE, 300),
                chunk_sum(b"t", ChunkState.PENDING, 500),
                chunk_sum(b"t", ChunkState.DONE, 7, ChunkKind.DIRECTORIES),
                chunk_sum(b"other", ChunkState.DONE, 9),
            ]
        )
        assert facts.state is TreeState.COPYING
        assert (facts.tally.total_bytes, facts.tally.done_bytes, facts.tally.done_users) == (800, 300, 0)
        assert (facts.tally.total_files, facts.tally.done_files) == (10, 5)

    def test_is_copied_when_every_chunk_of_every_kind_is(self) -> None:
        done = [chunk_sum(b"t", ChunkState.DONE)]
        times = chunk_sum(b"t", ChunkState.PENDING, 0, ChunkKind.DIRECTORY_TIMES)
        assert facts_of([*done, times]).state is TreeState.COPYING
        assert facts_of(done).state is TreeState.COPIED
        assert facts_of(done, BatchState.VERIFIED).state is TreeState.VERIFIED
        assert facts_of([chunk_sum(b"t", ChunkState.FAILED)], BatchState.VERIFIED).state is TreeState.ATTENTION

    def test_needs_attention_once_only_failed_chunks_are_left(self) -> None:
        failed, done = chunk_sum(b"t", ChunkState.FAILED), chunk_sum(b"t", ChunkState.DONE)
        stopped = one_pass(PassState.DONE)
        found = facts_of([failed, done], BatchState.SEEDED, stopped)
        assert (found.state, found.tally.left_files, found.tally.done_users) == (TreeState.ATTENTION, 5, 0)
        assert facts_of([failed, chunk_sum(b"t", ChunkState.PENDING)]).state is TreeState.COPYING

    def test_empty_tree_is_copied_with_its_pass(self) -> None:
        assert facts_of([]).state is TreeState.COPYING
        assert facts_of([], the_pass=one_pass(PassState.DONE)).state is TreeState.COPIED

    def test_a_user_is_done_when_all_his_trees_are(self) -> None:
        trees = tree_facts(
            [planned(b"a", "ann"), planned(b"b", "ann"), planned(b"c", "cem")],
            {
                1: [
                    chunk_sum(b"a", ChunkState.DONE),
                    chunk_sum(b"b", ChunkState.RUNNING),
                    chunk_sum(b"c", ChunkState.DONE),
                ]
            },
            {1: BatchState.SEEDING},
            {1: one_pass()},
        )
        tally = add_up(trees)
        assert (tally.total_users, tally.done_users) == (2, 1)
        assert (tally.total_bytes, tally.done_bytes, tally.left_bytes) == (1500, 1000, 500)
        assert add_up(trees, counts=frozenset({TreeState.VERIFIED})).done_bytes == 0


class TestTally:
    @given(st.integers(0, 10**15), st.integers(0, 10**15))
    def test_says_a_hundred_percent_of_what_is_done_only(self, one: int, other: int) -> None:
        done, total = sorted((one, other))
        share = Tally(total_bytes=total, done_bytes=done).percent_bytes
        if total == 0:
            assert share is None
        else:
            assert share is not None
            assert 0 <= share <= 100
            assert (share == 100) == (done == total)


class TestEstimates:
    def ask(
        self,
        tally: Tally,
        *,
        measured: TransferCost | None = None,
        planned: TransferCost | None = COST,
        done: tuple[DonePoint, ...] = (),
        started_at_s: float | None = None,
    ) -> list[tuple[float, str]]:
        found = estimates(
            now_s=10_000.0, tally=tally, planned=planned, measured=measured, done=done, started_at_s=started_at_s
        )
        assert all(one.finish_at_s == pytest.approx(10_000.0 + one.left_s) for one in found)
        return [(one.left_s, one.basis) for one in found]

    def test_by_pace_with_pauses(self) -> None:
        tally = Tally(total_bytes=3000, done_bytes=1000, total_files=3, done_files=1)
        done = (
            DonePoint(at_s=8500.0, done_files=1, done_bytes=400),
            DonePoint(at_s=9000.0, done_files=1, done_bytes=1000),
        )
        ((left_s, basis),) = self.ask(tally, planned=None, done=done, started_at_s=8000.0)
        assert left_s == pytest.approx(2000 / (1000 / 2000))
        assert "33 min 20 s" in basis

    def test_pace_forgets_what_is_older_than_its_window(self) -> None:
        day_s = 86400.0
        tally = Tally(total_bytes=3000, done_bytes=1700, total_files=3, done_files=1)
        now_s = 30 * day_s
        done = (
            DonePoint(at_s=2 * day_s, done_files=1, done_bytes=1000),
            DonePoint(at_s=29 * day_s, done_files=1, done_bytes=1700),
        )
        (found,) = estimates(now_s=now_s, tally=tally, planned=None, measured=None, done=done, started_at_s=0.0)
        assert found.left_s == pytest.approx(1300 / (700 / (7 * day_s)))

    def test_the_pace_of_files_counts_where_only_empty_ones_are_left(self) -> None:
        tally = Tally(total_bytes=1000, done_bytes=1000, total_files=300, done_files=100)
        done = (DonePoint(at_s=9000.0, done_files=100, done_bytes=1000),)
        ((left_s, basis),) = self.ask(tally, planned=None, done=done, started_at_s=8000.0)
        assert left_s == pytest.approx(200 / (100 / 2000))
        assert "pauses included" in basis
        none_yet = (DonePoint(at_s=9000.0, done_files=0, done_bytes=1000),)
        assert self.ask(tally, planned=None, done=none_yet, started_at_s=8000.0) == []

    def test_while_something_is_copied_its_rate_counts_and_no_assumption(self) -> None:
        tally = Tally(total_bytes=9_000, done_bytes=0, total_files=30, done_files=0)
        rate = ThroughputPoint(at_s=0.0, span_s=300.0, busy_s=10.0, streams=1.0, files=10, size_bytes=1_000)
        (found,) = estimates(now_s=0.0, tally=tally, planned=COST, measured=None, done=[], started_at_s=None, rate=rate)
        assert found.left_s == pytest.approx(90.0)
        assert found.basis.startswith("measured now: the last 10 s: 100 B/s and 1 files/s")
        slower = replace(rate, files=1)
        (found,) = estimates(
            now_s=0.0, tally=tally, planned=COST, measured=None, done=[], started_at_s=None, rate=slower
        )
        assert found.left_s == pytest.approx(300.0)
        no_file = replace(rate, files=0)
        measured = replace(COST, basis="measured here")
        first, second = estimates(
            now_s=5.0, tally=tally, planned=COST, measured=measured, done=[], started_at_s=None, rate=no_file
        )
        assert first.left_s == pytest.approx(90.0)
        assert first.finish_at_s == pytest.approx(95.0)
        assert "no file was completed" in first.basis
        assert "measured here" in second.basis
        (found,) = estimates(
            now_s=0.0, tally=tally, planned=COST, measured=None, done=[], started_at_s=None, last_rate=rate
        )
        assert found.left_s == pytest.approx(90.0)
        assert found.basis.startswith("measured when the last files were copied: ")
        (found,) = estimates(
            now_s=0.0, tally=tally, planned=COST, measured=measured, done=[], started_at_s=None, last_rate=rate
        )
        assert "measured here" in found.basis
        idle = replace(rate, size_bytes=0)
        (found,) = estimates(now_s=0.0, tally=tally, planned=COST, measured=None, done=[], started_at_s=None, rate=idle)
        assert "assumed" in found.basis

    def test_nothing_is_said_of_nothing(self) -> None:
        assert self.ask(Tally()) == []
        assert self.ask(Tally(total_bytes=5, done_bytes=5, total_files=1, done_files=1)) == []
        assert self.ask(Tally(total_bytes=5, total_files=1), planned=None) == []


def test_content_of_verified_trees_only() -> None:
    record = replace(verification(), digested_bytes=400, size_bytes=1000, differences={}, whole=True)
    tally = Tally(total_bytes=1000, done_bytes=1000)
    facts = BatchFacts(
        number=1,
        state=BatchState.VERIFIED,
        tally=tally,
        users=(),
        chunks={},
        passes=(),
        forecast_s=0.0,
        attention=AttentionCount(bad=0, vanished=0),
        verification=record,
    )
    whole = TreeFacts(
        tree=UserTree(path=b"home/alice", user="alice"),
        batch=1,
        rank=1,
        state=TreeState.VERIFIED,
        tally=replace(tally, done_users=1),
    )
    assert verified_content_bytes([facts], [whole]) == 400
    assert verified_content_bytes([facts], [replace(whole, state=TreeState.COPIED)]) == 0
    more = replace(facts, verification=replace(record, digested_bytes=1500))
    assert verified_content_bytes([more], [whole]) == 1000
    # A file of the other tree never arrived, and is gone from the source: the batch is verified, and that tree is not.
    part = replace(whole, tally=replace(tally, total_bytes=300, done_bytes=300))
    rest = replace(whole, state=TreeState.ATTENTION, tally=replace(tally, total_bytes=700, done_bytes=690))
    assert verified_content_bytes([more], [part, rest]) == 300
    assert verified_content_bytes([more], [part, replace(rest, batch=2)]) == 300


@pytest.mark.parametrize(
    ("digested", "size", "share"), [(0, 10, 0.0), (9_999, 10_000, 99.9), (10, 10, 100.0), (11, 10, 100.0), (0, 0, None)]
)
def test_percent_of_the_content_is_rounded_down(digested: int, size: int, share: float | None) -> None:
    assert replace(verification(), digested_bytes=digested, size_bytes=size).percent_content == share


def test_nothing_falls_while_nothing_ran() -> None:
    def at(at_s: float, done: int) -> DonePoint:
        return DonePoint(at_s=at_s, done_files=done, done_bytes=done * 100)

    assert with_rests((), 10.0) == ()
    assert with_rests((at(10.0, 1), at(20.0, 2)), 10.0) == (at(10.0, 1), at(20.0, 2))
    assert with_rests((at(10.0, 1), at(60.0, 2), at(70.0, 3)), 10.0) == (
        at(10.0, 1),
        at(50.0, 1),
        at(60.0, 2),
        at(70.0, 3),
    )


def test_together_weighs_by_work() -> None:
    def point(at_s: float, busy_s: float, streams: float) -> ThroughputPoint:
        return ThroughputPoint(at_s=at_s, span_s=60.0, busy_s=busy_s, streams=streams, files=1, size_bytes=100)

    assert together([]) is None
    assert together([point(1.0, 0.0, 0.0)]) is None
    whole = together([point(1.0, 10.0, 4.0), point(2.0, 30.0, 8.0)])
    assert whole is not None
    assert (whole.at_s, whole.busy_s, whole.streams, whole.size_bytes) == (2.0, 40.0, 7.0, 200)
    assert whole.rate_bytes_per_s == 5.0


class TestBlockers:
    SCAN = ScanFacts(
        name="c1",
        via="mount",
        started_at_s=0.0,
        finished_at_s=1.0,
        whole=True,
        reasons=(),
        rows=1,
        files=1,
        directories=0,
        size_bytes=1,
        problems=0,
    )
    PLAN = PlanFacts(
        name="p", path="p.json", checksum="c", created_at_s=0.0, catalog="c1", forecast_s=1.0, basis="assumed"
    )

    def batch(self, state: BatchState, *, failed: int = 0, bad: int = 0, verified: bool = False) -> BatchFacts:
        sums = [chunk_sum(b"t", ChunkState.FAILED)] * failed
        return batch_facts(
            PlannedBatch(number=3, state=state, size_bytes=1, files=1, directories=1, chunks=1, forecast_s=1.0),
            trees=[],
            sums=sums,
            passes=[],
            attention=AttentionCount(bad=bad, vanished=0),
            verification=verification("brick down") if verified else None,
        )

    def on(self, **facts: object) -> list[tuple[str, str, str]]:
        asked: dict[str, object] = {"site": "s", "scan": self.SCAN, "plan": self.PLAN, "batches": [], "runs": []}
        found = blockers(**(asked | facts))  # type: ignore[arg-type]
        return [(one.subject, one.on, one.hint) for one in found]

    def test_files_that_were_put_on_bricks_past_gluster(self) -> None:
        ((subject, on, hint),) = self.on(strange=(StrangeFiles(brick="gl1:/b", files=2, paths=(b"home/placed",)),))
        assert subject == "drains and additions: gl1:/b"
        assert "2 files without a gfid" in on
        assert "migrator scan --via bricks" in hint

    def test_batches(self) -> None:
        assert self.on(batches=[self.batch(BatchState.SEEDED)]) == [
            ("batch 3: cutover", "it is copied and not verified", "migrator verify --user-batch 3")
        ]
        found = self.on(batches=[self.batch(BatchState.SEEDED, failed=2, bad=5, verified=True)])
        assert [on for _, on, _ in found] == [
            "2 chunks failed at every attempt",
            "5 files could not be copied",
            "the verification found 3 differences (2 content, 1 missing)",
            "the verification is not whole: brick down",
        ]

    @pytest.mark.parametrize(
        ("differences", "said", "not_said"),
        [
            ({"missing": 1, "mode": 0}, (DELTA, "migrator scan", "by the new plan"), ("--recopy", "target only")),
            ({"content": 2}, (DELTA, "--recopy (2 files differ in content", "by the new plan"), ("target only",)),
            ({"extra": 3}, (DELTA, "3 paths are on the target only"), ("migrator scan", "--recopy")),
            ({"changed-while-read": 1}, ("migrator verify --user-batch 1",), ("migrator scan", "delta pass")),
            ({}, (), ("migrator",)),
        ],
    )
    def test_after_differences_nothing_is_advised_that_copies_nothing(
        self, differences: dict[str, int], said: tuple[str, ...], not_said: tuple[str, ...]
    ) -> None:
        hint = after_differences(replace(verification(), differences=differences))
        assert all(words in hint for words in said)
        assert not any(words in hint for words in not_said)

    def run(self, run_id: int, life: RunLife, exit_code: int | None, verb: str = "run") -> RunFacts:
        return RunFacts(
            id=run_id,
            verb=verb,
            pid=4,
            life=life,
            started_at_s=0.0,
            silent_s=90.0,
            finished_at_s=None,
            exit_code=exit_code,
            directory="runs/1",
        )

    @pytest.mark.parametrize(("verb", "undoing"), [("brick-drain", "brick-stop"), ("cutover", "rollback")])
    def test_what_was_taken_back_since_is_not_to_be_given_again(self, verb: str, undoing: str) -> None:
        failed = self.run(1, RunLife.ENDED, int(ExitCode.INTERRUPTED), verb)
        undone = replace(self.run(2, RunLife.ENDED, 0, undoing), started_at_s=5.0)
        assert self.on(runs=[undone, failed]) == []
        assert len(self.on(runs=[replace(undone, exit_code=4), failed])) == 2
        assert len(self.on(runs=[replace(failed, started_at_s=9.0), undone])) == 1

    def test_runs_by_the_newest_of_each_verb(self) -> None:
        assert self.on(runs=[self.run(2, RunLife.ENDED, 0), self.run(1, RunLife.ENDED, 1)]) == []
        assert self.on(runs=[self.run(2, RunLife.ENDED, 3), self.run(1, RunLife.AT_WORK, None, "scan")]) == []
        ((_, killed, hint),) = self.on(runs=[self.run(2, RunLife.KILLED, None)])
        assert killed == "process 4 was killed: it is gone and recorded no end"
        assert hint.startswith("run the same command again")
        ((_, silent, _),) = self.on(runs=[self.run(2, RunLife.SILENT, None)])
        assert "process 4" in silent
        assert "1 min 30 s" in silent
        ((subject, on, _),) = self.on(runs=[self.run(2, RunLife.ENDED, int(ExitCode.INTERRUPTED))])
        assert (subject, on) == ("run", "it ended with exit code 130 (interrupted, resumable)")
        ((_, on, _),) = self.on(runs=[self.run(2, RunLife.ENDED, 77)])
        assert on == "it ended with exit code 77 (unknown)"
