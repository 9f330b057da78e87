"""`status` and `report` over a real ledger, from the empty one to the end, and beside a writer."""

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.core.entry import UserTree
from migrator.core.errors import Refused, UsageError
from migrator.core.events import Event, EventKind, Severity
from migrator.core.states import BatchState, ChunkKind, ChunkState, PassKind, PassState
from migrator.fs.model import DigestPolicy
from migrator.ledger.locks import of_tree
from migrator.ledger.model import Holder
from migrator.plan.model import Chunk
from migrator.render.document import first_page
from migrator.render.text import to_markdown
from migrator.report.model import RunLife, TreeState, WatchFacts
from migrator.report.report import read_report
from migrator.report.status import read_status
from migrator.report.view import report_document
from migrator.report.view_status import status_document
from migrator.report.view_watch import change_lines
from migrator.transfer.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.transfer.model import FileProblem, FileProblemKind, Sample, StreamCounters
from tests.support.catalogs import whole_catalog
from tests.support.making import made
from tests.support.operations import BACK, FREEZE, RETAIN, REVERT, THERE, do, plan_cutover
from tests.support.plans import small_plan
from tests.support.records import SITE, at_work, attempt, end, files, verification
from tests.support.report_world import OnePlan

T0_S = 1_763_600_000.0
PLAN = small_plan("week1")


def scanned(ledger: MigrationLedger) -> None:
    scan_id = ledger.scans.start(catalog="catalog-1", via="mount", at_s=T0_S - 500)
    times = {"started_at_s": T0_S - 500, "finished_at_s": T0_S - 400}
    held = {"rows": 21, "files": 15, "directories": 6, "size_bytes": 1500}
    ledger.scans.finish(whole_catalog(name="catalog-1", scan_id=scan_id, via="mount", **held, **times))


def planned(ledger: MigrationLedger) -> None:
    ledger.plans.record(PLAN, path="plans/week1.json", checksum="c")


def seed(ledger: MigrationLedger) -> int:
    """Begin batch 1 in three chunks of files (of 10), and bring two of them over, a minute each."""
    tree = PLAN.batches[0].trees[0].path
    chunks = [Chunk(number=1, kind=ChunkKind.DIRECTORIES, tree=tree, files=3, size_bytes=0)]
    chunks += [
        Chunk(number=number, kind=ChunkKind.FILES, tree=tree, files=files, size_bytes=size_bytes)
        for number, files, size_bytes in ((2, 4, 600), (3, 4, 300), (4, 2, 100))
    ]
    made = ledger.passes.start(
        plan="week1", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=chunks, at_s=T0_S
    )
    ledger.plans.set_batch_state("week1", 1, BatchState.SEEDING)
    copy(ledger, made.id, ledger.passes.pending(made.id, ChunkKind.DIRECTORIES, 1)[0].id, T0_S)
    for turn, chunk in enumerate(ledger.passes.pending(made.id, ChunkKind.FILES, 2)):
        copy(ledger, made.id, chunk.id, T0_S + 60 * turn)
    return made.id


def copy(ledger: MigrationLedger, pass_id: int, chunk_id: int, at_s: float, *problems: FileProblem) -> None:
    made = attempt(ledger, chunk_id, f"{chunk_id}-{at_s}", at_s=at_s)
    ledger.samples.add(
        pass_id,
        [
            Sample(at_s=at_s + 5 * turn, interval_s=5.0, attempt_id=attempt_id, streams=2, files=1, size_bytes=50)
            for turn in range(1, 13)
            for attempt_id in (None, made)
        ],
    )
    end(ledger, made, counters=StreamCounters(files=1, size_bytes=600), problems=problems, at_s=at_s + 60)


def test_an_earlier_pause_is_over_while_a_later_one_lasts(ledger: MigrationLedger) -> None:
    for second, severity in enumerate((Severity.WARNING, Severity.INFO, Severity.WARNING)):
        facts = {"kind": EventKind.LIMITS_SET, "severity": severity, "subject": "pause"}
        ledger.events.add(made(Event, at_s=T0_S + second, message=f"pause {second}", **facts))
    events = read_status(ledger, now_s=T0_S + 9).events
    assert {one.message: (one.resolution, one.resolved_at_s) for one in events} == {
        "pause 0": ("resumed", T0_S + 1),
        "pause 2": ("", None),
    }


def test_users_that_an_earlier_plan_moved_stay_in_sight(ledger: MigrationLedger) -> None:
    ledger.site.create(SITE)
    planned(ledger)
    alice, bob, carol = (UserTree(path=f"home/{user}".encode(), user=user) for user in ("alice", "bob", "carol"))
    do(ledger.cutovers, plan_cutover(ledger, name="week1", tree=alice), *THERE, RETAIN)
    do(ledger.cutovers, plan_cutover(ledger, name="week1", tree=bob), FREEZE)
    later = replace(PLAN, name="plan-0002", created_at_s=PLAN.created_at_s + 1)
    ledger.plans.record(later, path="plans/plan-0002.json", checksum="d")
    do(ledger.cutovers, plan_cutover(ledger, name="plan-0002", tree=carol), FREEZE, REVERT, reason="no")
    for plan in (None, "week1"):
        facts = read_status(ledger, now_s=T0_S, plan=plan)
        told = [(one.plan, one.tree.user) for one in facts.cutovers]
        assert told == [("week1", "alice"), ("week1", "bob"), ("plan-0002", "carol")]
        assert {one.subject for one in facts.blocked} >= {"bob: cutover", "carol: cutover"}


def test_only_what_no_command_is_at_work_on_waits_for_somebody(ledger: MigrationLedger) -> None:
    ledger.site.create(SITE)
    planned(ledger)
    ledger.scans.start(catalog="catalog-1", via="mount", at_s=T0_S - 500)
    for user in ("alice", "bob"):
        tree = UserTree(path=f"home/{user}".encode(), user=user)
        do(ledger.cutovers, plan_cutover(ledger, name="week1", tree=tree), FREEZE)
    holders = [
        Holder(7, "scan", T0_S, ("scan",)),
        Holder(8, "cutover of bob", T0_S, (of_tree(b"home/bob"),)),
    ]
    waiting = {"plan", "alice: cutover", "bob: cutover"}
    status = read_status(ledger, now_s=T0_S)
    assert {one.subject for one in status.blocked} >= waiting
    status = read_status(ledger, now_s=T0_S, holders=lambda: holders)
    assert {one.subject for one in status.blocked} & waiting == {"alice: cutover"}
    assert "scan, cutover of bob" in to_markdown(status_document(status))


def test_status_begins_with_frozen_users(ledger: MigrationLedger) -> None:
    ledger.site.create(SITE)
    planned(ledger)
    users = [UserTree(path=f"home/{user}".encode(), user=user) for user in ("alice", "bob", "carol", "dave")]
    alice, bob, carol, dave = users
    do(ledger.cutovers, plan_cutover(ledger, name="week1", tree=alice), *THERE, at_s=T0_S - 50)
    do(ledger.cutovers, plan_cutover(ledger, name="week1", tree=bob), FREEZE, at_s=T0_S - 30)
    do(ledger.cutovers, plan_cutover(ledger, name="week1", tree=carol), FREEZE, at_s=T0_S - 20)
    do(ledger.cutovers, plan_cutover(ledger, name="week1", tree=dave), FREEZE, REVERT, reason="no", at_s=T0_S - 10)
    holders = [Holder(8, "cutover of bob", T0_S, (of_tree(bob.path),))]

    status = read_status(ledger, now_s=T0_S, holders=lambda: holders)

    assert [(one.tree, one.at_work) for one in status.frozen] == [(carol, False), (bob, True)]
    assert status.frozen[0].hint.startswith("migrator cutover --user carol")
    assert status.blocked[0].subject == "carol: cutover"
    document = status_document(status)
    assert document.sections[0].title == "Frozen users"
    assert "carol" in to_markdown(first_page(document, "more")).partition("In short")[0]
    assert next(iter(change_lines(None, WatchFacts(status=status)))).endswith(status.frozen[0].hint)


def test_a_user_who_is_rolled_back_after_a_new_plan_stays_in_the_totals(ledger: MigrationLedger) -> None:
    """Cutovers, plans and rollbacks never change what there is to move."""
    ledger.site.create(SITE)
    planned(ledger)
    totals = read_status(ledger, now_s=T0_S).overall
    alice = UserTree(path=b"home/alice", user="alice")
    moved = do(ledger.cutovers, plan_cutover(ledger, name="week1", tree=alice), *THERE, at_s=1000.0)
    without = replace(PLAN, name="plan-0002", created_at_s=2000.0, ranking=PLAN.ranking[1:], batches=PLAN.batches[1:])
    ledger.plans.record(without, path="plans/plan-0002.json", checksum="d")
    ledger.plans.activate("plan-0002", 2000.0)
    for back in (False, True):
        if back:
            do(ledger.cutovers, moved, *BACK, at_s=3000.0)
        facts = read_status(ledger, now_s=T0_S)
        assert (facts.overall.total_bytes, facts.overall.total_users) == (totals.total_bytes, totals.total_users)
        assert ("rolled back: home/alice" in {one.subject for one in facts.blocked}) == back


def test_before_and_after_init(ledger: MigrationLedger) -> None:
    status = read_status(ledger, now_s=T0_S)
    assert (status.site, status.scan, status.plan, status.batches) == (None, None, None, ())
    assert ([one.hint for one in status.next_steps], status.blocked) == (["migrator init"], ())
    assert status.overall.percent_bytes is None
    with pytest.raises(UsageError, match="week9"):
        read_status(ledger, now_s=T0_S, plan="week9")
    ledger.site.create(SITE)
    report = read_report(ledger, OnePlan(plan=PLAN), now_s=T0_S)
    assert report.status.site == "rehearsal"
    assert ([one.hint for one in report.status.next_steps], report.status.blocked) == (["migrator plan"], ())
    assert (report.plan, report.plan_problem) == (None, "there is no plan yet")
    assert (report.done, report.days) == ((), ())
    assert "No files have been copied yet" in to_markdown(report_document(report))


class TestHalfWay:
    @pytest.fixture
    def pass_id(self, ledger: MigrationLedger) -> int:
        ledger.site.create(SITE)
        scanned(ledger)
        planned(ledger)
        return seed(ledger)

    def test_rate_and_pace(self, ledger: MigrationLedger, pass_id: int) -> None:
        run = ledger.runs.start(verb="run", pid=7, at_s=T0_S, directory="runs/long")
        ledger.runs.heartbeat(run, T0_S + 125)
        for _ in range(6):
            other = ledger.runs.start(verb="run", pid=8, at_s=T0_S + 20, directory="runs/2")
            ledger.runs.finish(other, T0_S + 21, 0)
        status = read_status(ledger, now_s=T0_S + 130, holders=at_work((7, "runs/long")))
        assert [one.life for one in status.runs] == [RunLife.ENDED] * 5 + [RunLife.AT_WORK]
        assert status.rate is not None
        # 12 samples a chunk; the first chunk of files and the one of directories share their times.
        assert (status.rate.busy_s, status.rate.size_bytes) == (120.0, 1200)
        assert status.rate.streams == 2.0
        assert status.rate.span_s == 130.0
        assert status.next_steps == (), "what a command at work does is no next step"
        text = to_markdown(status_document(status)).replace("\\", "")
        assert "Now: 10 B/s and 0.2 files/s with 2.0 streams, over 2 min of work within 2 min 10 s." in text

    def test_now_is_what_the_present_run_does(self, ledger: MigrationLedger, pass_id: int) -> None:
        earlier = ledger.runs.start(verb="run", pid=7, at_s=T0_S, directory="runs/1")
        ledger.runs.finish(earlier, T0_S + 61, 130)
        run = ledger.runs.start(verb="run", pid=7, at_s=T0_S + 61, directory="runs/2")
        rate = read_status(ledger, now_s=T0_S + 71, holders=at_work((7, "runs/2"))).rate
        assert rate is not None
        # Two samples of five seconds.
        assert (rate.busy_s, rate.size_bytes, rate.span_s) == (10.0, 100, 10.0)
        ledger.runs.finish(run, T0_S + 125, 0)
        status = read_status(ledger, now_s=T0_S + 130)
        assert status.rate is None
        assert status.last_rate is not None
        assert (status.last_rate.at_s, status.last_rate.size_bytes) == (T0_S + 120, 600)
        text = to_markdown(status_document(status)).replace("\\", "")
        assert "No stream is copying now. Last rate, until" in text
        assert "Now:" not in text

    def test_a_run_whose_lock_nobody_holds_was_killed(self, ledger: MigrationLedger, pass_id: int) -> None:
        run = ledger.runs.start(verb="run", pid=7, at_s=T0_S, directory="runs/1")

        def ends_meanwhile() -> list[Holder]:
            ledger.runs.finish(run, T0_S + 1, 130)
            return []

        def begins_meanwhile() -> list[Holder]:
            ledger.runs.start(verb="cutover", pid=8, at_s=T0_S, directory="runs/2")
            return []

        status = read_status(ledger, now_s=T0_S + 1)
        assert (status.runs[0].life, status.rate) == (RunLife.KILLED, None)
        assert "was killed" in status.blocked[0].on
        for now_s, life in ((T0_S + 1, RunLife.AT_WORK), (T0_S + 99, RunLife.SILENT)):
            assert read_status(ledger, now_s=now_s, holders=at_work((7, "runs/1"))).runs[0].life is life
        # Another process cleans up after it.
        assert read_status(ledger, now_s=T0_S + 1, holders=at_work((9, "runs/1"))).runs[0].life is RunLife.KILLED
        newest, older, *_ = read_status(ledger, now_s=T0_S + 1, holders=begins_meanwhile).runs
        assert (newest.life, older.life) == (RunLife.AT_WORK, RunLife.KILLED)
        ledger.runs.finish(run + 1, T0_S + 1, 0)
        status = read_status(ledger, now_s=T0_S + 1, holders=ends_meanwhile)
        assert {one.life for one in status.runs} == {RunLife.ENDED}
        (blocker,) = status.blocked
        assert "interrupted, resumable" in blocker.on
        assert "runs/1" in blocker.hint

    def test_attention_is_cut_and_counted(self, ledger: MigrationLedger, pass_id: int) -> None:
        (chunk,) = ledger.passes.pending(pass_id, ChunkKind.FILES, 5)
        bad = [
            FileProblem(path=b"home/alice/\xff%02d" % n, kind=FileProblemKind.BAD, errno=5, reason="Input/output error")
            for n in range(30)
        ]
        gone = FileProblem(path=b"home/alice/gone", kind=FileProblemKind.VANISHED, errno=None, reason="")
        copy(ledger, pass_id, chunk.id, T0_S + 120, *bad, gone)
        status = read_status(ledger, now_s=T0_S + 200, attention_limit=5)
        assert (status.attention_total, status.vanished_total, len(status.attention)) == (30, 1, 5)
        assert status.attention[0].problem == bad[0]
        assert status.batches[0].attention.bad == 30
        text = to_markdown(status_document(status))
        assert "30 files in all, the first 5 are shown" in text
        assert "30 files failed" in text

    @pytest.mark.parametrize(
        ("documents", "said"),
        [
            (OnePlan(plan=PLAN, error=Refused("plans/week1.json was edited by hand")), "edited by hand"),
            (OnePlan(plan=PLAN, checksum="other"), "is not the recorded plan"),
        ],
    )
    def test_a_bad_plan_stops_no_report(
        self, ledger: MigrationLedger, pass_id: int, documents: OnePlan, said: str
    ) -> None:
        report = read_report(ledger, documents, now_s=T0_S + 130)
        assert report.plan is None
        assert said in report.plan_problem
        assert report.status.overall.done_bytes == 900
        assert "The plan cannot be shown" in to_markdown(report_document(report))

    def test_verified_batches_count_as_verified(self, ledger: MigrationLedger, pass_id: int) -> None:
        (chunk,) = ledger.passes.pending(pass_id, ChunkKind.FILES, 5)
        copy(ledger, pass_id, chunk.id, T0_S + 120)
        ledger.passes.set_state(pass_id, PassState.DONE, T0_S + 200)
        ledger.plans.set_batch_state("week1", 1, BatchState.SEEDED)
        status = read_status(ledger, now_s=T0_S + 200)
        assert status.blocked == ()
        assert [one.hint for one in status.next_steps] == [
            "migrator run --user-batch 2",
            "migrator verify --user-batch 1",
        ]
        assert status.overall.done_users == 1
        number = ledger.verifications.start(plan="week1", batch=1, at_s=T0_S + 200)
        ledger.verifications.finish(
            verification(
                id=number,
                plan="week1",
                started_at_s=T0_S + 200,
                finished_at_s=T0_S + 300,
                policy=DigestPolicy(algorithm="xxh3_128", share=0.1, seed=4),
                paths=13,
                size_bytes=1000,
                digested_bytes=100,
                expected={"loss-acl": 2},
                manifest_digest="f00d",
            )
        )
        ledger.plans.set_batch_state("week1", 1, BatchState.VERIFIED)
        report = read_report(ledger, OnePlan(plan=PLAN), now_s=T0_S + 300)
        assert report.status.blocked == ()
        assert [one.hint for one in report.status.next_steps] == [
            "migrator run --user-batch 2",
            "migrator cutover --user-batch 1 --dry-run",
        ]
        assert (report.status.verified.done_bytes, report.status.verified.done_users) == (1000, 1)
        assert report.status.verified_content_bytes == 100
        text = to_markdown(report_document(report)).replace("\\", "")
        assert "the content of 100 B (10.0 %) was compared" in text
        assert text.count("verified (content of 10.0 %)") == 3
        assert "a sample of 10.0 % of the files, xxh3_128, seed 4" in text
        assert "f00d" in text
        assert "loss-acl" in text


# --- Several passes


TREE = PLAN.batches[0].trees[0].path
BAD, WORSE = TREE + b"/bad\n", TREE + b"/worse"


def end_chunk(ledger: MigrationLedger, pass_id: int, *bad: bytes) -> None:
    """The next chunk of a pass is done, or failed with these files."""
    chunk = ledger.passes.pending(pass_id, ChunkKind.FILES, 1)[0]
    end(
        ledger,
        attempt(ledger, chunk.id, f"t{chunk.id}"),
        state="failed" if bad else "succeeded",
        chunk=ChunkState.FAILED if bad else ChunkState.DONE,
        problems=[FileProblem(path=path, kind=FileProblemKind.BAD, errno=5, reason="r") for path in bad],
    )


def delta(ledger: MigrationLedger, number: int) -> int:
    changed = {ChangeKind.NEW: ChangeTally(paths=5, size_bytes=500)}
    trees = (TreeChanges(tree=TREE, names_before=10, bytes_before=1000, by_kind=changed),)
    before, now = f"catalog-{number}", f"catalog-{number + 1}"
    made = ledger.passes.start(
        plan="week1",
        batch=1,
        kind=PassKind.DELTA,
        number=number,
        catalog=now,
        base_catalog=before,
        chunk_list=f"passes/{number}",
        scan_s=125.0,
        changes=Changes(base=before, now=now, trees=trees),
        chunks=[files(1, 500, 5)],
        at_s=T0_S + 100 * number,
    )
    ledger.plans.set_batch_state("week1", 1, BatchState.CONVERGING)
    return made.id


def test_files_need_attention_until_a_later_pass_succeeds(ledger: MigrationLedger) -> None:
    ledger.site.create(SITE)
    planned(ledger)
    first = seed(ledger)
    end_chunk(ledger, first, BAD)
    ledger.passes.set_state(first, PassState.DONE, T0_S + 50)
    ledger.plans.set_batch_state("week1", 1, BatchState.SEEDED)
    pass_id = delta(ledger, 1)
    status = read_status(ledger, now_s=T0_S + 120)
    assert [one.problem.path for one in status.attention] == [BAD]
    assert status.trees[0].state is TreeState.ATTENTION
    assert status.batches[0].chunks == {ChunkState.PENDING: 1}
    end_chunk(ledger, pass_id, BAD, WORSE)
    status = read_status(ledger, now_s=T0_S + 130)
    assert [one.problem.path for one in status.attention] == [BAD, WORSE]
    assert status.attention_total == 2
    ledger.passes.set_state(pass_id, PassState.DONE, T0_S + 140)
    status = read_status(ledger, now_s=T0_S + 150)
    assert [one.problem.path for one in status.attention] == [BAD, WORSE]
    assert (status.trees[0].state, status.trees[0].tally.left_bytes) == (TreeState.ATTENTION, 0)
    second = delta(ledger, 2)
    end_chunk(ledger, second)
    ledger.passes.set_state(second, PassState.DONE, T0_S + 240)
    status = read_status(ledger, now_s=T0_S + 250)
    assert (status.attention, status.attention_total) == ((), 0)
    assert status.trees[0].state is TreeState.COPIED
    assert status.batches[0].chunks == {ChunkState.DONE: 1}
    assert [one.on for one in status.blocked if one.subject == "batch 1"] == []
