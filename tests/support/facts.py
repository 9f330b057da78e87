"""Facts with a hostile string in every place that a user's name, path or message can reach."""

from msgspec.structs import replace

from migrator.catalog.model import VerificationRecord
from migrator.core.blocker import Blocker
from migrator.core.entry import UserTree
from migrator.core.events import EventKind, Severity
from migrator.core.states import BatchState, ChunkState, PassKind, PassState
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.fs.model import CapacityOutlook, CapacitySample, Difference, DifferenceKind, DigestPolicy, Side
from migrator.plan.model import ThroughputPoint
from migrator.report import model
from migrator.transfer import model as transfer
from migrator.transfer.model_convergence import ConvergenceOutcome, ConvergenceRecord, Prediction, TreeChurn
from tests.bench.test_bench_rules import A, B, measured, result
from tests.support import records
from tests.support.catalogs import whole_catalog
from tests.support.making import made
from tests.support.plans import small_plan

AT_S = 1_763_600_000.0


def verification(text: str = "abc", *, share: float = 1.0) -> VerificationRecord:
    example = Difference(
        path=f"home/alice/{text}".encode("utf-8", "surrogateescape"),
        kind=DifferenceKind.MISSING,
        source="file",
        target="none",
    )
    return records.verification(
        finished_at_s=AT_S,
        policy=DigestPolicy(algorithm="xxh3_128", share=share, seed=17),
        paths=1000,
        size_bytes=2**40,
        digested_files=900,
        digested_bytes=2**39,
        proven_gone=4,
        differences={"content": 2, "missing": 1, "mode": 0},
        expected={"loss-acl": 5},
        whole=False,
        reasons=(text,),
        manifest=f"manifests/{text}",
        manifest_digest="f00dfeed",
        files=990,
        equal_paths=997,
        differences_file=f"manifests/{text}/differences.parquet",
        examples=(example,),
    )


def convergence(path: bytes = b"home/alice") -> ConvergenceRecord:
    return ConvergenceRecord(
        pass_id=2,
        at_s=AT_S - 60,
        batch=1,
        outcome=ConvergenceOutcome.NO_LONGER_SHRINKS,
        max_freeze_s=600.0,
        prediction=Prediction(
            next_pass_s=90.0,
            freeze_s=1200.0,
            least_freeze_s=700.0,
            churn_files_per_h=1234.5,
            churn_bytes_per_h=2.0**31,
            trees=(
                TreeChurn(tree=path, files_per_h=1200.0, bytes_per_h=2.0**31 * 0.75),
                TreeChurn(tree=path + b"2", files_per_h=34.5, bytes_per_h=2.0**31 * 0.25),
            ),
        ),
    )


def report(path: bytes = b"home/alice", text: str = "alice") -> model.ReportFacts:
    """A migration half way; `path` and `text` are in every place where a user's may be."""
    trees = (UserTree(path=path, user=text), UserTree(path=path + b"2", user=text + "2"))
    tally = model.ProgressCounts(
        total_bytes=1000, done_bytes=620, total_files=10, done_files=4, total_users=1, done_users=0
    )
    run = made(
        model.RunStatus, id=1, verb="run", life=model.RunLife.SILENT, started_at_s=AT_S - 1000, silent_s=400.0, pid=4711
    )
    plan = small_plan("week1", trees=trees)
    status = model.MigrationStatus(
        at_s=AT_S,
        site=text,
        scan=whole_catalog(
            name=text, trees=trees, finished_at_s=AT_S - 4000, whole=False, reasons=(text,), files=15, size_bytes=1500
        ),
        plan=made(model.PlanFacts, name=text, created_at_s=AT_S - 3000, forecast_s=90.0, basis="assumed"),
        overall=replace(tally, total_bytes=1500, total_files=15, total_users=2),
        verified=model.ProgressCounts(total_bytes=1500, total_files=15, total_users=2),
        batches=(
            model.BatchStatus(
                number=1,
                state=BatchState.SEEDED,
                tally=tally,
                users=(text,),
                chunks={ChunkState.DONE: 3, ChunkState.FAILED: 1},
                passes=(
                    made(
                        model.PassStatus,
                        id=1,
                        batch=1,
                        kind=PassKind.SEED,
                        state=PassState.DONE,
                        started_at_s=AT_S - 900,
                        finished_at_s=AT_S - 10,
                    ),
                ),
                forecast_s=60.0,
                attention=model.AttentionCount(bad=7, vanished=3),
                verification=verification(text),
                convergence=convergence(path),
            ),
        ),
        trees=tuple(
            model.TreeStatus(tree=tree, plan=text, batch=1, rank=rank, state=model.TreeState.COPYING, tally=tally)
            for rank, tree in enumerate(trees, 1)
        ),
        forecast=forecast(text),
        rate=ThroughputPoint(at_s=AT_S, span_s=300.0, busy_s=300.0, streams=4.0, files=600, size_bytes=300 * 2**20),
        attention=(
            model.AttentionFile(
                batch=1,
                problem=transfer.FileProblem(
                    path=path, kind=transfer.FileProblemKind.BAD, errno=5, reason=f"no: {text}"
                ),
            ),
        ),
        attention_total=7,
        vanished_total=3,
        runs=(run,),
        events=(
            model.RecordedEvent(
                at_s=AT_S, kind=EventKind.FILE_BAD, severity=Severity.ERROR, subject=text, message=f"m {text}"
            ),
        ),
        cutovers=(
            made(
                CutoverRecord,
                tree=trees[0],
                batch=1,
                attempt=2,
                state=CutoverState.REVERTED,
                times={CutoverState.REVERTED: AT_S - 30},
                predicted_freeze_s=45.0,
                frozen_at_s=AT_S - 90,
                thawed_at_s=AT_S - 30,
                failure=f"no: {text}",
            ),
        ),
        blocked=(Blocker(subject=text, on=f"on {text}", hint="migrator verify --user-batch 1"),),
        next_steps=(model.NextStep(subject=text, state=f"copied by {text}", hint="migrator verify --user-batch 2"),),
    )
    return model.ReportFacts(
        status=status,
        done=tuple(
            model.DonePoint(at_s=AT_S - 900 + 100 * index, done_files=index, done_bytes=100 * index)
            for index in range(7)
        ),
        verifications=(verification(text),),
        plan=plan,
        plan_problem="",
        since=since(text),
        days=tuple(
            ThroughputPoint(
                at_s=AT_S - 86400 * index, span_s=86400.0, busy_s=4e4, streams=2.0, files=5, size_bytes=2**40 + index
            )
            for index in range(5, 0, -1)
        ),
        capacity=tuple(capacity(side, AT_S - 3600 * hour) for hour in (3, 2, 1) for side in Side),
        outlook=CapacityOutlook(
            side=Side.TARGET, at_s=AT_S + 9000, used_bytes=2**45, total_bytes=2**44, used_inodes=90, total_inodes=100
        ),
        bricks=(
            model.BrickOutlook(
                brick=f"gl1:/{text}", state="draining", left_files=5, left_bytes=7, free_at_s=AT_S, basis=f"by {text}"
            ),
        ),
        servers=(
            model.ServerOutlook(server=f"gl1{text}", bricks=2, free_bricks=1, free_at_s=AT_S, basis=f"by {text}"),
        ),
        reaped=made(model.ReapedFacts, to_archive_bytes=2**30, to_archive_inodes=7, skipped_inodes=3, archives=1),
        incidents=tuple(
            made(
                model.Incident,
                kind=EventKind.HOST_LOST,
                severity=Severity.WARNING,
                subject=text,
                count=3,
                last_at_s=AT_S - 400,
                message=f"m {text}",
                resolved_at_s=resolved_at_s,
                resolution="the host is back",
            )
            for resolved_at_s in (None, AT_S - 100)
        ),
        benchmarks=(result(measured(A, [9.0, 10.0, 11.0]), measured(B, [1.0, 1.1, 1.2])),),
    )


def forecast(text: str) -> model.CopyForecast:
    return model.CopyForecast(
        made_at_s=AT_S,
        likely_at_s=AT_S + 9000,
        earliest_at_s=AT_S + 8000,
        latest_at_s=AT_S + 12000,
        share=0.8,
        history_s=5e5,
        basis=(f"from {text}", "by replays"),
        cone=tuple(
            model.ConePoint(
                at_s=AT_S + 1200 * turn,
                left_bytes=880 - 88.0 * turn,
                least_bytes=880 - 88.0 * turn,
                most_bytes=900 - 80.0 * turn,
            )
            for turn in range(11)
        ),
    )


def since(text: str) -> model.SinceReport:
    return model.SinceReport(
        earlier=made(model.EarlierReport, at_s=AT_S - 6e5, plan=text, done_bytes=20, likely_at_s=AT_S + 8000),
        standing=model.Punctuality.BEHIND,
        done_bytes=600,
        done_files=3,
        expected_bytes=700.0,
        planned_more_bytes=100,
        end_moved_s=1000.0,
        reasons=(f"the plan is another one: {text}",),
    )


def capacity(side: Side, at_s: float) -> CapacitySample:
    return CapacitySample(side=side, at_s=at_s, total_bytes=2**44, free_bytes=2**43, total_inodes=100, free_inodes=40)
