"""Metrics from facts: what is counted, what is left out, and which labels there are."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from migrator.core.entry import UserTree
from migrator.core.probe import Probe, ProbeSide
from migrator.core.windows import WindowStanding
from migrator.cutover.model import ROLLBACK_STATES, UNDER_WAY_STATES, CutoverRecord, CutoverState, frozen_since_s
from migrator.report.model import (
    MetricFacts,
    MetricFamily,
    MetricKind,
    MetricSums,
    PlanFacts,
    RunFacts,
    RunLife,
    StatusFacts,
    Tally,
)
from migrator.report.rules_metrics import CATALOGUE, families
from migrator.transfer.model import Bound, Gate, GoverningFacts, GovernorRecord, HostLoad
from tests.support.facts import report

GOVERNOR = GovernorRecord(
    at_s=1.0,
    run_id=1,
    gate=Gate.OPEN,
    bound=Bound.LATENCY,
    streams=3,
    most=8,
    hosts=(("gl1", 2), ("localhost", 1)),
    bwlimit_bytes_per_s=None,
    reason="",
    max_latency_s=0.05,
)
STREAMS = MetricSums(counts={"streams": [(4, "gl1", "brick"), (1, "gl1", "mount")]})


def run(life: RunLife, verb: str = "run") -> RunFacts:
    return RunFacts(
        id=1,
        verb=verb,
        pid=1,
        life=life,
        started_at_s=10.0,
        silent_s=5.0,
        finished_at_s=None,
        exit_code=None,
        directory="",
    )


def facts(
    *, status: StatusFacts | None = None, sums: MetricSums | None = None, runs: Sequence[RunFacts] = ()
) -> MetricFacts:
    return MetricFacts(
        status=status or StatusFacts(at_s=100.0, site=None),
        sums=sums or MetricSums(),
        runs=tuple(runs),
        capacity=(),
        governing=GoverningFacts(governor=GOVERNOR),
        frozen_since_s=(),
        version="1",
        read_s=0.5,
    )


def values(found: Sequence[MetricFamily], name: str) -> dict[tuple[str, ...], float]:
    family = next(one for one in found if one.name == f"migrator_{name}")
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_an_empty_site_has_every_metric_and_hardly_a_value() -> None:
    found = families(facts())
    assert [one.name for one in found] == [spec.name for spec in CATALOGUE]
    assert values(found, "trees") == values(found, "copied_bytes") == values(found, "copy_left_seconds") == {}
    assert values(found, "freeze_oldest_start_timestamp_seconds") == {}
    assert values(found, "frozen_users") == {(): 0.0}
    assert set(values(found, "cutovers").values()) == {0.0}


def test_where_all_is_copied_nothing_is_left_and_where_nobody_knows_nothing_is_said() -> None:
    empty = facts()
    plan = PlanFacts(name="p", path="p", checksum="c", created_at_s=1.0, catalog="c", forecast_s=1.0, basis="assumed")
    half = Tally(total_bytes=2, done_bytes=2, total_files=2, done_files=1)
    for tally, left in ((half, {}), (replace(half, done_files=2), {(): 0.0})):
        status = replace(empty.status, plan=plan, overall=tally)
        assert values(families(replace(empty, status=status)), "copy_left_seconds") == left


@pytest.mark.parametrize(("life", "there"), [(RunLife.AT_WORK, True), (RunLife.KILLED, False), (RunLife.ENDED, False)])
def test_what_a_killed_run_left_is_not_at_work(life: RunLife, there: bool) -> None:
    found = families(facts(sums=STREAMS, runs=[run(life), run(RunLife.AT_WORK, "brick-drain")]))
    assert values(found, "streams") == ({("gl1", "brick"): 4.0, ("gl1", "mount"): 1.0} if there else {})
    assert values(found, "allowed_streams") == ({(): 3.0} if there else {})
    assert values(found, "governor_bound") == ({("latency",): 1.0} if there else {})


def standing(when: str, *, holds: bool, changes_at_s: float | None) -> WindowStanding:
    return WindowStanding(
        when=when, jobs=None, bwlimit_bytes_per_s=None, holds=holds, changes_at_s=changes_at_s, changes=""
    )


def test_limits_and_loads_are_told_while_a_run_is_at_work_and_windows_always() -> None:
    nights = standing("Mon-Fri 19:00-07:00", holds=True, changes_at_s=500.0)
    governing = GoverningFacts(
        governor=GOVERNOR,
        windows=(nights, standing("00:00-24:00", holds=True, changes_at_s=None), nights),
        loads=(HostLoad(host="gl1", at_s=90.0, load=3.5),),
    )
    for life, there in ((RunLife.AT_WORK, True), (RunLife.ENDED, False)):
        found = families(replace(facts(runs=[run(life)]), governing=governing))
        assert values(found, "host_allowed_streams") == ({("gl1",): 2.0, ("localhost",): 1.0} if there else {})
        assert values(found, "probe_latency_limit_seconds") == ({(): 0.05} if there else {})
        assert values(found, "host_load") == ({("gl1",): 3.5} if there else {})
        assert values(found, "host_load_limit") == values(found, "bandwidth_limit_bytes_per_second") == {}
        assert values(found, "window_holds") == {("Mon-Fri 19:00-07:00",): 1.0, ("00:00-24:00",): 1.0}
        assert values(found, "window_change_timestamp_seconds") == {("Mon-Fri 19:00-07:00",): 500.0}
        # Two samples with the same labels, and Prometheus takes none of all metrics.
        (holds,) = [family for family in found if family.name == "migrator_window_holds"]
        assert len(holds.samples) == 2


def test_a_probe_without_an_answer_is_no_latency_of_zero() -> None:
    hung = Probe(side=ProbeSide.SOURCE, at_s=90.0, waited_s=30.0)
    failed = Probe(side=ProbeSide.TARGET, at_s=90.0, failure="read-only")
    found = families(facts(status=StatusFacts(at_s=100.0, site=None, probes=(hung, failed))))
    assert values(found, "probe_latency_seconds") == {("source",): 30.0}
    assert values(found, "probe_success") == {("source",): 0.0, ("target",): 0.0}
    assert values(found, "probe_operation_seconds") == {}


def test_no_value_names_a_user_a_tree_or_a_file() -> None:
    secret = "who-is-this"
    status = report(secret.encode(), secret).status
    found = families(facts(status=replace(status, site="site", plan=None, drains=(), additions=())))
    assert any(values(found, "copied_bytes")) is True
    labels = {text for family in found for sample in family.samples for text in sample.labels.values()}
    assert not any(secret in text for text in labels)


def test_a_histogram_counts_up_to_all() -> None:
    found = families(facts(sums=MetricSums(freezes_s=(30.0, 31.0, 100_000.0))))
    family = next(one for one in found if one.kind is MetricKind.HISTOGRAM)
    buckets = [(sample.labels["le"], sample.value) for sample in family.samples if sample.name.endswith("_bucket")]
    assert buckets[0] == ("30.0", 1.0)
    assert buckets[1] == ("60.0", 2.0)
    assert buckets[-1] == ("+Inf", 3.0)
    assert [value for _, value in buckets] == sorted(value for _, value in buckets)
    assert {sample.name: sample.value for sample in family.samples[-2:]} == {
        "migrator_freeze_seconds_count": 3.0,
        "migrator_freeze_seconds_sum": 100_061.0,
    }


def record(state: CutoverState, *, frozen: float | None = None, thawed: float | None = None) -> CutoverRecord:
    return CutoverRecord(
        id=1,
        plan="p",
        batch=1,
        tree=UserTree(path=b"home/a", user="a"),
        attempt=1,
        state=state,
        times={state: 50.0, CutoverState.ROLLBACK_FREEZING: 40.0},
        predicted_freeze_s=None,
        frozen_at_s=frozen,
        thawed_at_s=thawed,
    )


def test_who_cannot_work_on_the_way_there_and_back() -> None:
    assert frozen_since_s(record(CutoverState.PLANNED)) is None
    assert frozen_since_s(record(CutoverState.FREEZING, frozen=10.0)) == 10.0
    assert frozen_since_s(record(CutoverState.THAWED, frozen=10.0, thawed=20.0)) is None
    assert frozen_since_s(record(CutoverState.REVERTED, frozen=10.0, thawed=20.0)) is None
    for state in ROLLBACK_STATES:
        assert frozen_since_s(record(state, frozen=10.0, thawed=20.0)) == 40.0
        assert frozen_since_s(record(state, frozen=10.0)) == 10.0
    for state in UNDER_WAY_STATES:
        assert frozen_since_s(record(state, frozen=10.0)) == 10.0
