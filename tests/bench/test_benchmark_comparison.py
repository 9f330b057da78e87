"""What measurements say of file systems beside each other."""

from dataclasses import replace

import pytest

from migrator.bench.model import (
    Background,
    BenchmarkRecord,
    BenchmarkResult,
    BenchmarkState,
    Measurement,
    Place,
    SuiteName,
    Unit,
)
from migrator.bench.rules import StepComparison, compare, statements

A, B = Place(label="source", root=b"/a"), Place(label="target", root=b"/b")
RECORD = BenchmarkRecord(
    id=3,
    suite=SuiteName.RECURSIVE,
    scale=0.01,
    seed=1,
    runs=3,
    places=(A, B),
    hosts=("localhost",),
    token="0123456789ab",
    state=BenchmarkState.DONE,
    started_at_s=1.0,
)
LOOK = Background(host="localhost", load_average=2.0, disk_bytes_per_s=3.0, network_bytes_per_s=7.0)
SLOW, FAST = [10.0, 20.0, 30.0, 5.0, 40.0], [2.0, 4.1, 6.0, 1.1, 8.0]


def measured(place: Place, values: list[float], *, step: str = "ls", cold: bool = True) -> list[Measurement]:
    return [
        Measurement(
            place=place.label,
            run=run,
            step=step,
            unit=Unit.SECONDS,
            value=value,
            by_host={"localhost": value},
            at_s=float(run),
            cold=cold,
            background=(LOOK,),
        )
        for run, value in enumerate(values, 1)
    ]


def result(*series: list[Measurement], record: BenchmarkRecord = RECORD) -> BenchmarkResult:
    return BenchmarkResult(record=record, measurements=tuple(one for each in series for one in each))


def only_step(*results: BenchmarkResult) -> StepComparison:
    (comparison,) = compare(results)
    (step,) = comparison.steps
    return step


def test_the_faster_one_is_told_whatever_the_unit() -> None:
    step = only_step(result(measured(A, SLOW), measured(B, FAST)))
    (contrast,) = step.contrasts
    assert contrast.speed.paired
    assert contrast.speed.beyond_noise
    assert contrast.verdict == "target was 5.00 times as fast as source (4.55 to 5.00, 5 pairs): beyond the noise"
    rates = [replace(one, step="mdtest", unit=Unit.OPERATIONS_PER_S) for one in measured(A, [10.0, 11.0, 12.0])]
    lower = [replace(one, place="target", value=one.value / 2 + one.run / 100) for one in rates]
    record = replace(RECORD, suite=SuiteName.CATALOG)
    (contrast,) = only_step(result(rates, lower, record=record)).contrasts
    assert contrast.verdict.startswith("source was 1.99 times as fast as target; whether")


def test_noise_is_no_difference() -> None:
    step = only_step(result(measured(A, SLOW), measured(B, [12.0, 18.0, 31.0, 5.0, 39.0])))
    assert step.contrasts[0].verdict.startswith("no difference beyond the noise between source and target")


def test_a_single_pair_says_nothing_of_noise() -> None:
    step = only_step(result(measured(A, [10.0]), measured(B, [1.0])))
    assert "cannot be told from so few runs" in step.contrasts[0].verdict


def test_only_runs_that_both_have_are_pairs() -> None:
    step = only_step(result(measured(A, [10.0, 20.0, 30.0]), measured(B, [1.0, 2.1])))
    assert step.contrasts[0].speed.count == 2
    assert step.sides[0].figures.count == 3


def test_benchmarks_of_different_times_are_not_paired_and_that_is_told() -> None:
    before = result(measured(A, [10.0, 11.0, 10.5]))
    after = result(measured(A, [5.0, 5.2, 5.1]), record=replace(RECORD, id=7))
    (comparison,) = compare([before, after])
    (contrast,) = comparison.steps[0].contrasts
    assert (contrast.base, contrast.other) == ("source #3", "source #7")
    assert not contrast.speed.paired
    assert contrast.speed.beyond_noise
    assert any("not measured at the same time" in caution for caution in comparison.cautions)


def test_several_benchmarks_keep_their_pairs_and_what_has_one_label_is_compared_across() -> None:
    earlier = result(measured(A, [10.0, 11.0]), measured(B, [5.0, 5.6]))
    later = result(measured(A, [9.0, 9.5]), measured(B, [4.0, 4.4]), record=replace(RECORD, id=7))
    step = only_step(earlier, later)
    assert [(one.base, one.other, one.speed.paired) for one in step.contrasts] == [
        ("source #3", "target #3", True),
        ("source #3", "source #7", False),
        ("target #3", "target #7", False),
        ("source #7", "target #7", True),
    ]


def test_scales_are_never_compared() -> None:
    other = result(measured(A, [1.0]), record=replace(RECORD, id=4, scale=0.1))
    assert [one.scale for one in compare([result(measured(A, [10.0])), other])] == [0.01, 0.1]


def test_warm_caches_unfinished_runs_and_hosts_apart_are_cautions() -> None:
    late = [replace(one, skew_s=0.5) for one in measured(A, [1.0], cold=False)]
    record = replace(RECORD, state=BenchmarkState.INTERRUPTED, notes=("left out: fio",))
    (comparison,) = compare([result(late, record=record)])
    assert [word for word in ("caches", "interrupted", "0.5 s apart") if word in "; ".join(comparison.cautions)] == [
        "caches",
        "interrupted",
        "0.5 s apart",
    ]
    assert comparison.notes == ("left out: fio",)


def test_tests_that_are_over_at_once_are_a_caution() -> None:
    """The start of a program is a good part of them."""
    (comparison,) = compare(
        [result(measured(A, [9.0]), measured(B, [0.02]), measured(A, [9.0], step="du"), measured(B, [8.0], step="du"))]
    )
    (caution,) = [one for one in comparison.cautions if "--scale" in one]
    assert "ls -lR on target" in caution
    assert "du" not in caution
    rate = [replace(one, step="one-read", unit=Unit.BYTES_PER_S, value=1e9) for one in measured(A, [1.0])]
    (comparison,) = compare([result(rate, record=replace(RECORD, suite=SuiteName.STREAMING, places=(A,)))])
    assert any("one stream reads it on source" in one for one in comparison.cautions)


@pytest.mark.parametrize(("kind", "reaches"), [("fuse.glusterfs", False), ("beegfs", False), ("xfs", True), ("", True)])
def test_where_a_sync_does_not_reach_the_servers_that_is_told(kind: str, reaches: bool) -> None:
    place = replace(A, filesystem=kind)
    record = replace(RECORD, suite=SuiteName.UNTAR, places=(place,))
    (comparison,) = compare([result(measured(place, [10.0], step="many-small"), record=record)])
    assert any("servers" in one for one in comparison.cautions) is not reaches


@pytest.mark.parametrize(("kind", "step", "told"), [("beegfs", "one-write", True), ("xfs", "one-write", False)])
def test_zeros_are_a_caution_where_disks_may_compress(kind: str, step: str, told: bool) -> None:
    place = replace(A, filesystem=kind)
    rate = [replace(one, unit=Unit.BYTES_PER_S, value=1000.0) for one in measured(place, [10.0], step=step)]
    (comparison,) = compare([result(rate, record=replace(RECORD, suite=SuiteName.STREAMING, places=(place,)))])
    assert any("zeros" in one and "source (beegfs)" in one for one in comparison.cautions) is told
    (comparison,) = compare([result(measured(place, [10.0]), record=replace(RECORD, places=(place,)))])
    assert not any("zeros" in one for one in comparison.cautions)


def test_the_load_before_is_that_of_each_run_once() -> None:
    runs = [1.0, 2.0]
    (comparison,) = compare([result(measured(A, runs), measured(A, runs, step="du"), measured(B, runs))])
    busy = comparison.background[0]
    assert busy.load.count == 2
    assert busy.disk_bytes_per_s.values == (3.0, 3.0)


def test_every_pair_has_a_statement_of_what_is_beyond_the_noise_and_what_is_not() -> None:
    found = result(
        measured(A, SLOW),
        measured(B, FAST),
        measured(A, FAST, step="du"),
        measured(B, SLOW, step="du"),
        measured(A, SLOW, step="grep"),
        measured(B, [12.0, 18.0, 31.0, 5.0, 39.0], step="grep"),
    )
    (said,) = statements(compare([found])[0])
    assert said == (
        "beyond the noise, target is faster than source in 1 of 3 tests (ls -lR) and slower than source in 1 of 3 tests (du -sh)"
    )
    single = result(measured(A, [10.0]), measured(B, [2.0]))
    (said,) = statements(compare([single])[0])
    assert said == "nothing between source and target is beyond the noise; 1 test with too few runs to tell"
    assert statements(compare([result(measured(A, [1.0, 2.0]))])[0]) == ()
