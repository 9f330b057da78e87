"""`docs/json.md` names every key, and no other."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from migrator.bench import model as benchmark
from migrator.bench import rules as benchmark_comparison
from migrator.bricks import model as brick_list
from migrator.bricks.add.model import AdditionStanding, AdditionSummary, BrickStandings, NewPlace
from migrator.bricks.drain.model import DrainCheck, DrainStanding, DrainSummary, RetainedSource
from migrator.bricks.retire.model import CoverFound, PathSum, RetirementRecord, RetirementSummary, Uncovered
from migrator.catalog.model import BrickWalk, CatalogRecord, ScanTimes, StrangeFiles
from migrator.core import statistics as repeated_runs
from migrator.core.probe import Probe, ProbeTimes
from migrator.core.windows import WindowStanding
from migrator.cutover import model as cutover
from migrator.delta.model import Changes, ChangeTally, TreeChanges
from migrator.fs.model import CapacityOutlook, CapacitySample
from migrator.gluster.model import ListedDirectory, TaskCounters
from migrator.purge.model import PurgeFinding, PurgeSummary, TreePurge
from migrator.reap import model as reap
from migrator.reap.model import LeftOut, NotRestored, Restored, TreeArchived
from migrator.report import model as forecast
from migrator.report import model as ledger_sums
from migrator.report import model as report
from migrator.report import model as report_parts
from migrator.report import model as stream_sums
from migrator.report.model import Incident, MetricFamily, MetricSample
from migrator.report.serve import Listening
from migrator.schedule import model as schedule
from migrator.transfer import model as governing
from migrator.transfer import model as transfer
from migrator.verify.model import VerificationRecord

TEXT = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
TYPES = [
    cutover.SpeedUp,
    cutover.SpeedUpSum,
    cutover.UserSpeedUps,
    AdditionSummary,
    RetirementSummary,
    CoverFound,
    PathSum,
    Uncovered,
    RetirementRecord,
    NewPlace,
    reap.ReapReport,
    reap.UserReap,
    reap.ReapedTree,
    reap.ReapDirectory,
    reap.Savings,
    reap.Released,
    reap.ReapRelease,
    TreeArchived,
    LeftOut,
    Restored,
    NotRestored,
    report.StatusFacts,
    governing.GoverningFacts,
    governing.Controls,
    governing.Hold,
    governing.Tuned,
    governing.Limits,
    governing.GovernorRecord,
    governing.HostLoad,
    WindowStanding,
    stream_sums.StreamSum,
    Probe,
    ProbeTimes,
    report.Tally,
    report.BatchFacts,
    transfer.ConvergenceRecord,
    transfer.Prediction,
    transfer.TreeChurn,
    report.TreeFacts,
    cutover.CutoverFacts,
    DrainStanding,
    AdditionStanding,
    ListedDirectory,
    BrickStandings,
    report.PassFacts,
    ledger_sums.AttentionCount,
    ledger_sums.AttentionFile,
    report.ScanFacts,
    ledger_sums.PlanFacts,
    report.Estimate,
    ledger_sums.ThroughputPoint,
    report.RunFacts,
    report.Blocker,
    cutover.CutoverSummary,
    cutover.TreeOutcome,
    cutover.BackupTold,
    report.ReportFacts,
    forecast.CopyForecast,
    forecast.ConePoint,
    report_parts.SinceReport,
    report_parts.EarlierReport,
    CapacitySample,
    CapacityOutlook,
    report_parts.BrickOutlook,
    report_parts.ServerOutlook,
    report_parts.ReapedFacts,
    Incident,
    MetricFamily,
    MetricSample,
    Listening,
    ledger_sums.DonePoint,
    VerificationRecord,
    CatalogRecord,
    BrickWalk,
    ScanTimes,
    StrangeFiles,
    schedule.Schedule,
    schedule.OrderSchedule,
    schedule.Outcome,
    schedule.BatchStep,
    schedule.SubvolumeStep,
    schedule.HostStep,
    schedule.Obstacle,
    schedule.WhatIf,
    schedule.Remedies,
    DrainSummary,
    DrainCheck,
    RetainedSource,
    brick_list.BrickListing,
    brick_list.BrickFacts,
    brick_list.BrickRoom,
    brick_list.BrickUse,
    brick_list.TaskFacts,
    TaskCounters,
    brick_list.GlusterFault,
    transfer.RunSummary,
    transfer.BatchSummary,
    transfer.DeltaSummary,
    Changes,
    TreeChanges,
    ChangeTally,
    transfer.TreeWork,
    transfer.GuardFinding,
    transfer.FileProblem,
    transfer.Stopped,
    cutover.AnnounceSummary,
    cutover.Announcement,
    PurgeSummary,
    TreePurge,
    PurgeFinding,
    benchmark.BenchmarkSummary,
    benchmark.PlaceRoom,
    benchmark.BenchmarkResult,
    benchmark.BenchmarkRecord,
    benchmark.Place,
    benchmark.Measurement,
    benchmark.Background,
    benchmark_comparison.SuiteComparison,
    benchmark_comparison.StepComparison,
    benchmark_comparison.Side,
    repeated_runs.Series,
    benchmark_comparison.Contrast,
    repeated_runs.Factor,
    benchmark_comparison.Busy,
    benchmark.Reference,
    benchmark.BenchmarkListing,
    benchmark.Suite,
    benchmark.Step,
    benchmark.Cleaning,
]


def documented(name: str) -> set[str]:
    section = re.split(r"^##+ ", TEXT.split(f"### {name}\n")[1], flags=re.MULTILINE)[0]
    cells = [line.partition(": ")[0] for line in section.splitlines() if line.startswith("- `")]
    return {key for cell in cells for key in re.findall(r"`([a-z_]+)`", cell)}


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_every_key_is_documented(kind: type) -> None:
    properties = {name for name in dir(kind) if not name.startswith("_") and isinstance(getattr(kind, name), property)}
    assert documented(kind.__name__) == {field.name for field in fields(kind)} | properties


def test_nothing_else_is_documented() -> None:
    assert set(re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)) == {kind.__name__ for kind in TYPES}
