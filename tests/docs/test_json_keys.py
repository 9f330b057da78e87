"""`docs/json.md` names every key, and no other."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from migrator.bootstrap.serving import Listening
from migrator.decide import benchmark_comparison, repeated_runs
from migrator.domain import (
    benchmark,
    brick_list,
    forecast,
    governing,
    ledger_sums,
    reap,
    report,
    report_parts,
    schedule,
    stream_sums,
)
from migrator.domain.addition_run import AdditionSummary
from migrator.domain.addition_seen import NewPlace
from migrator.domain.addition_standing import AdditionStanding, BrickStandings
from migrator.domain.announcing import Announcement, AnnounceSummary
from migrator.domain.archives import LeftOut, NotRestored, Restored, TreeArchived
from migrator.domain.backup import BackupTold
from migrator.domain.capacity import CapacityOutlook, CapacitySample
from migrator.domain.changes import Changes, ChangeTally, TreeChanges
from migrator.domain.convergence import ConvergenceRecord, Prediction, TreeChurn
from migrator.domain.cutover_run import CutoverSummary, TreeOutcome
from migrator.domain.directory_owners import ListedDirectory
from migrator.domain.drain_preflight import RetainedSource
from migrator.domain.drain_run import DrainCheck, DrainSummary
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.incidents import Incident
from migrator.domain.metrics import MetricFamily, MetricSample
from migrator.domain.probe import Probe, ProbeTimes
from migrator.domain.purge import PurgeFinding, PurgeSummary, TreePurge
from migrator.domain.retirement import CoverFound, PathSum, RetirementRecord, RetirementSummary, Uncovered
from migrator.domain.run import BatchSummary, DeltaSummary, GuardFinding, RunSummary, Stopped, TreeWork
from migrator.domain.scan import BrickWalk, CatalogRecord, ScanTimes, StrangeFiles
from migrator.domain.speed_up import SpeedUp, SpeedUpSum, UserSpeedUps
from migrator.domain.transfer import FileProblem
from migrator.domain.verification import VerificationRecord
from migrator.domain.volume_tasks import TaskCounters
from migrator.domain.windows import WindowStanding

TEXT = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
TYPES = [
    SpeedUp,
    SpeedUpSum,
    UserSpeedUps,
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
    ConvergenceRecord,
    Prediction,
    TreeChurn,
    report.TreeFacts,
    report.CutoverFacts,
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
    CutoverSummary,
    TreeOutcome,
    BackupTold,
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
    RunSummary,
    BatchSummary,
    DeltaSummary,
    Changes,
    TreeChanges,
    ChangeTally,
    TreeWork,
    GuardFinding,
    FileProblem,
    Stopped,
    AnnounceSummary,
    Announcement,
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
