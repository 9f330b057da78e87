"""From reports of programs (fio recorded, mdtest and IOR as several versions print them) to figures, comparisons and pages."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from migrator.bench import far_bench, model
from migrator.bench.model import SuiteName, Unit
from migrator.bench.rules import StepComparison, SuiteComparison, compare, figure, read_report, statements
from migrator.bench.suites import publications, room_problems, suite
from migrator.bench.view import comparison_document, figure_words, summary_document, value_words
from migrator.core.paths import show
from migrator.core.statistics import series
from migrator.core.units import GIB, MIB
from migrator.render.charts import bar_svg
from migrator.render.document import BarChart, Document
from migrator.render.html import to_html
from migrator.render.terminal import print_document
from migrator.render.text import to_markdown

# --- Suites as plans, and the room for them


@pytest.mark.parametrize("scale", [0.0001, 0.01, 1.0, 3.0])
@pytest.mark.parametrize("name", list(SuiteName))
def test_every_suite_is_a_plan_at_every_scale(name: SuiteName, scale: float) -> None:
    planned = suite(name, scale)
    measured = [step for step in planned.steps if step.unit is not None]
    assert measured
    assert len({step.name for step in measured} - {""}) == len(measured)
    assert "{" not in planned.sizes + "".join(step.title for step in planned.steps)
    for step in planned.steps:
        for argv in step.lanes:
            # Everything lies in the work directory.
            paths = [word.rpartition("=")[2] for word in argv]
            assert {path for path in paths if path.startswith("/")} <= {"/dev/zero", "/dev/urandom", "/dev/null"}
            assert not [word for word in argv if ".." in word or "{" in word]
            assert argv[0] in step.programs or argv[0] in far_bench._FUNCTIONS
    assert planned.need_bytes >= max(step.size_bytes for step in planned.steps)
    assert planned.need_inodes > 0


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_scale_is_above_0(scale: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        suite(SuiteName.CATALOG, scale)


def test_scale_1_is_what_was_published_and_figures_stand_beside_their_steps() -> None:
    streaming = suite(SuiteName.STREAMING, 1).steps[0]
    assert len(streaming.lanes) == 10
    assert streaming.size_bytes == pytest.approx(20e9, rel=0.001)
    (tree,) = suite(SuiteName.RECURSIVE, 1).steps[0].lanes
    files, directories, mean_bytes = map(int, tree[2:])
    assert (files, directories) == (28_619, 1_814)
    assert files * mean_bytes == pytest.approx(5.6e9, rel=0.001)
    reading = suite(SuiteName.LATENCY, 1).steps[-1]
    assert (len(reading.lanes), reading.lanes[0][-1]) == (17, "11000")
    steps = [step for name in SuiteName for step in suite(name, 1).steps]
    assert all(step.unit for step in steps if step.published)
    references = [reference for step in steps for reference in step.published]
    assert {one.publication for one in references} == set(publications())
    assert all(system and figures for one in references for system, figures in one.figures.items())
    found = {(step.name, one.hosts): one.figures for step in steps for one in step.published}
    assert found["fewer-larger", 1]["Glfs1"] == "699"
    assert found["fewer-larger", 9]["Glfs1"] == "2704±30, 1486±67, 2210±92"


@pytest.mark.parametrize(
    ("changes", "inodes_free", "accept", "problem"),
    [
        # Enough with a margin of a half in nine tenths.
        ({}, None, False, ""),
        ({"need_bytes": 6 * GIB + 1}, None, False, "10.0 GiB free"),
        ({"need_inodes": 601}, None, False, "1,000 more files"),
        ({"free_inodes": None}, None, False, "does not report"),
        ({"free_inodes": None}, None, True, ""),
        ({"free_inodes": None}, 5000, False, ""),
        ({"free_inodes": None}, 500, False, "500 more files"),
        # The file system counts first.
        ({"free_inodes": 10}, 10**9, False, "10 more files"),
    ],
)
def test_room(changes: dict[str, int | None], inodes_free: int | None, accept: bool, problem: str) -> None:
    values = {"need_bytes": 6 * GIB, "free_bytes": 10 * GIB, "need_inodes": 600, "free_inodes": 1000} | changes
    room = model.PlaceRoom(place=model.Place(label="target", root=b"/mnt"), **values)  # type: ignore[arg-type]
    found = "; ".join(room_problems(room, inodes_free=inodes_free, accept_unknown_inodes=accept))
    assert (problem in found) if problem else not found


# --- Reports of programs, and figures of a step


FIXTURES = Path(__file__).parents[1] / "fixtures" / "benchmarks"
READS, WRITES = ((FIXTURES / f"fio-3.33-rand{way}.json").read_text() for way in ("read", "write"))
MDTEST_4 = """
SUMMARY rate: (of 1 iterations)
   Operation                     Max            Min           Mean        Std Dev
   ---------                     ---            ---           ----        -------
   File creation                2568.636       2568.636       2568.636          0.000
   File stat                       0.000          0.000          0.000          0.000
"""
MDTEST_3 = """
WARNING: Read bytes is 0, thus, a read test will actually just open/close.
   Directory creation        :       1807.150       1807.150       1807.150          0.000
   File creation             :       1763.735       1763.735       1763.735          0.000
   File create (stonewall)   :             NA             NA       1700.000             NA
-- finished at 01/02/2030 03:04:05 --
"""
MDTEST_1_9 = """
   Directory creation:        980.027        900.027        940.027          0.000
   File creation     :        439.763        404.632        422.661         14.357
"""
IOR = """
access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
write     1299.23    1299.84    0.022917    5242880    1024.00    10.79      118.17     0.000377   118.22     0
Max Write: 1299.23 MiB/sec (1362.35 MB/sec)
Max Read:  0.00 MiB/sec (5693.11 MB/sec)
"""


def test_fio_random_reads() -> None:
    found = read_report("fio", READS)
    assert found["operations_per_s"] == pytest.approx(48709.58, abs=0.01)
    assert found["bytes_per_s"] == 199514443
    assert found["mean_ms"] == pytest.approx(0.040535, abs=1e-6)
    assert (found["p50_ms"], found["p99_ms"], found["p999_ms"]) == (0.026496, 0.177152, 3.850240)
    assert found["max_ms"] == pytest.approx(28.848972)


@pytest.mark.parametrize(
    ("program", "text", "name", "value"),
    [
        ("fio", f"fio: this platform does not support something\n{WRITES}", "operations_per_s", 21635.12),
        ("mdtest", MDTEST_4, "operations_per_s", 2568.636),
        ("mdtest", MDTEST_3, "operations_per_s", 1763.735),
        ("mdtest", MDTEST_1_9, "operations_per_s", 422.661),
        ("ior", IOR, "bytes_per_s", 1299.23 * MIB),
        ("ior", IOR.replace("1299.23", "0.00").replace("Read:  0.00", "Read:  5429.38"), "bytes_per_s", 5429.38 * MIB),
    ],
)
def test_reports_of_several_versions(program: str, text: str, name: str, value: float) -> None:
    assert read_report(program, text)[name] == pytest.approx(value)


@pytest.mark.parametrize(
    ("program", "text", "said"),
    [
        *(("fio", text, "fio") for text in ("", "fio: bad option", '{"jobs": []}', '{"jobs": [{}]}')),
        ("fio", json.dumps({"jobs": [json.loads(READS)["jobs"][0] | {"error": 28}]}), "error 28"),
        ("mdtest", "mdtest-4.0.0 was launched", "mdtest"),
        ("ior", "", "ior"),
        ("ior", IOR.replace("Read:  0.00", "Read:  5429.38"), "exactly one"),
    ],
)
def test_text_that_is_no_report_is_refused(program: str, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"(?i){said}"):
        read_report(program, text)


def host(name: str, elapsed_s: float, *lanes: dict[str, float]) -> model.HostRun:
    return model.HostRun(host=name, began_at_s=0.0, elapsed_s=elapsed_s, lanes=lanes)


OPS = [host("a", 1.0, {"operations_per_s": 5.0}), host("b", 1.0, {"operations_per_s": 7.0})]
RATES = [host("a", 9.0, {"bytes_per_s": 30.0}, {"bytes_per_s": 12.0})]
LATENCIES = [
    host("a", 1.0, {"mean_ms": 1.0, "reads": 300.0, "p99_ms": 5.0}),
    host("b", 1.0, {"mean_ms": 5.0, "reads": 100.0, "p99_ms": 9.0}),
]


@pytest.mark.parametrize(
    ("unit", "report", "hosts", "value", "details"),
    [
        # A time is the mean over the hosts, a rate all bytes over the longest time.
        (Unit.SECONDS, "", [host("a", 2.0), host("b", 4.0)], 3.0, {"bytes_per_s": 50.0}),
        (Unit.BYTES_PER_S, "", [host("a", 2.0), host("b", 4.0)], 50.0, {}),
        # Reports of programs count instead.
        (Unit.BYTES_PER_S, "ior", RATES, 42.0, {"bytes_per_s": 42.0}),
        (Unit.OPERATIONS_PER_S, "fio", OPS, 12.0, {"operations_per_s": 12.0}),
        # A latency is the mean over all reads, percentiles are those of the slowest reader.
        (Unit.MILLISECONDS, "", LATENCIES, 2.0, {"mean_ms": 2.0, "p99_ms": 9.0, "reads": 400.0}),
        (Unit.MILLISECONDS, "", [host("a", 1.0)], None, {}),
        (Unit.OPERATIONS_PER_S, "", [host("a", 1.0)], None, {}),
    ],
)
def test_the_figure_of_a_step(
    unit: Unit, report: str, hosts: list[model.HostRun], value: float | None, details: dict[str, float]
) -> None:
    step = model.Step(name="s", title="s", lanes=(), unit=unit, size_bytes=100, report=report)
    if value is None:
        with pytest.raises(ValueError, match="measured"):
            figure(step, hosts)
        return
    found, by_host, others = figure(step, hosts)
    assert (found, others) == (value, details)
    assert list(by_host) == [one.host for one in hosts]


# --- Comparisons


A, B = model.Place(label="source", root=b"/a"), model.Place(label="target", root=b"/b")
RECORD = model.BenchmarkRecord(
    id=3,
    suite=SuiteName.RECURSIVE,
    scale=0.01,
    seed=1,
    runs=3,
    places=(A, B),
    hosts=("localhost",),
    token="0123456789ab",
    state=model.BenchmarkState.DONE,
    started_at_s=1.0,
)
LOOK = model.Background(host="localhost", load_average=2.0, disk_bytes_per_s=3.0, network_bytes_per_s=7.0)
SLOW, FAST, ALIKE = [10.0, 20.0, 30.0, 5.0, 40.0], [2.0, 4.1, 6.0, 1.1, 8.0], [12.0, 18.0, 31.0, 5.0, 39.0]


def measured(
    place: model.Place, values: list[float], step: str = "ls", unit: Unit = Unit.SECONDS
) -> list[model.Measurement]:
    return [
        model.Measurement(
            place=place.label,
            run=run,
            step=step,
            unit=unit,
            value=value,
            by_host={"localhost": value},
            at_s=float(run),
            background=(LOOK,),
        )
        for run, value in enumerate(values, 1)
    ]


def result(*each: list[model.Measurement], record: model.BenchmarkRecord = RECORD) -> model.BenchmarkResult:
    return model.BenchmarkResult(record=record, measurements=tuple(one for some in each for one in some))


def compared(*results: model.BenchmarkResult) -> SuiteComparison:
    (comparison,) = compare(results)
    return comparison


def only_step(*results: model.BenchmarkResult) -> StepComparison:
    (step,) = compared(*results).steps
    return step


@pytest.mark.parametrize(
    ("ones", "others", "verdict"),
    [
        (SLOW, FAST, "target was 5.00 times as fast as source (4.55 to 5.00, 5 pairs): beyond the noise"),
        (SLOW, ALIKE, "no difference beyond the noise between source and target"),
        ([10.0], [1.0], "target was 10.0 times as fast as source; whether that is more than noise cannot be told from so few"),
        # Only runs that both have are pairs.
        ([10.0, 20.0, 30.0], [1.0, 2.1], "target was 9.76 times as fast as source; whether"),
    ],
)  # fmt: skip
def test_what_is_faster_beyond_the_noise(ones: list[float], others: list[float], verdict: str) -> None:
    step = only_step(result(measured(A, ones), measured(B, others)))
    (contrast,) = step.contrasts
    assert contrast.verdict.startswith(verdict)
    assert contrast.speed.paired
    assert (contrast.speed.count, step.sides[0].figures.count) == (len(others), len(ones))


def test_a_higher_rate_is_faster() -> None:
    ones = measured(A, [10.0, 11.0, 12.0], "mdtest", Unit.OPERATIONS_PER_S)
    lower = measured(B, [5.01, 5.52, 6.03], "mdtest", Unit.OPERATIONS_PER_S)
    (contrast,) = only_step(result(ones, lower, record=replace(RECORD, suite=SuiteName.CATALOG))).contrasts
    assert contrast.verdict.startswith("source was 1.99 times as fast as target; whether")


def test_benchmarks_of_different_times_are_compared_by_label_and_not_paired() -> None:
    earlier = result(measured(A, [10.0, 11.0]), measured(B, [5.0, 5.6]))
    later = result(measured(A, [9.0, 9.5]), measured(B, [4.0, 4.4]), record=replace(RECORD, id=7))
    comparison = compared(earlier, later)
    assert [(one.base, one.other, one.speed.paired) for one in comparison.steps[0].contrasts] == [
        ("source #3", "target #3", True),
        ("source #3", "source #7", False),
        ("target #3", "target #7", False),
        ("source #7", "target #7", True),
    ]
    assert any("not measured at the same time" in caution for caution in comparison.cautions)
    apart = only_step(
        result(measured(A, [10.0, 11.0, 10.5])), result(measured(A, [5.0, 5.2, 5.1]), record=replace(RECORD, id=7))
    )
    assert apart.contrasts[0].speed.beyond_noise
    other = result(measured(A, [1.0]), record=replace(RECORD, id=4, scale=0.1))
    assert [one.scale for one in compare([result(measured(A, [10.0])), other])] == [0.01, 0.1]


def on(kind: str, name: SuiteName, *each: list[model.Measurement]) -> SuiteComparison:
    return compared(result(*each, record=replace(RECORD, suite=name, places=(replace(A, filesystem=kind),))))


RATE = measured(A, [1000.0], "one-write", Unit.BYTES_PER_S)
FAST_READ = measured(A, [1e9], "one-read", Unit.BYTES_PER_S)
SMALL = measured(A, [10.0], "many-small")
INTERRUPTED = replace(RECORD, state=model.BenchmarkState.INTERRUPTED)


@pytest.mark.parametrize(
    ("comparison", "caution", "there"),
    [
        (compared(result([replace(one, cold=False) for one in measured(A, [1.0])])), "caches", True),
        (compared(result([replace(one, skew_s=0.5) for one in measured(A, [1.0])])), "0.5 s apart", True),
        (compared(result(measured(A, [1.0]), record=INTERRUPTED)), "interrupted", True),
        # The start of a program is a good part of tests that are over at once.
        (compared(result(measured(A, [9.0]), measured(B, [0.02]))), "ls -lR on target; a larger --scale", True),
        (compared(result(measured(A, [9.0], "du"), measured(B, [8.0], "du"))), "--scale", False),
        (on("", SuiteName.STREAMING, FAST_READ), "one stream reads it on source", True),
        *((on(kind, SuiteName.UNTAR, SMALL), "servers", True) for kind in ("fuse.glusterfs", "beegfs")),
        *((on(kind, SuiteName.UNTAR, SMALL), "servers", False) for kind in ("xfs", "")),
        # Zeros say nothing where disks may compress.
        (on("beegfs", SuiteName.STREAMING, RATE), "dd writes zeros: where the disks behind source (beegfs)", True),
        (on("xfs", SuiteName.STREAMING, RATE), "zeros", False),
        (on("beegfs", SuiteName.RECURSIVE, measured(A, [10.0])), "zeros", False),
    ],
)  # fmt: skip
def test_cautions(comparison: SuiteComparison, caution: str, there: bool) -> None:
    assert any(caution in one for one in comparison.cautions) is there, comparison.cautions


def test_the_load_before_is_that_of_each_run_once() -> None:
    runs = [1.0, 2.0]
    busy = compared(result(measured(A, runs), measured(A, runs, "du"), measured(B, runs))).background[0]
    assert (busy.load.count, busy.disk_bytes_per_s.values) == (2, (3.0, 3.0))


def test_every_pair_has_a_statement() -> None:
    both = (measured(A, SLOW), measured(B, FAST), measured(A, FAST, "du"), measured(B, SLOW, "du"))
    (said,) = statements(compared(result(*both, measured(A, SLOW, "grep"), measured(B, ALIKE, "grep"))))
    assert said == (
        "beyond the noise, target is faster than source in 1 of 3 tests (ls -lR) and slower than source in 1 of 3 tests (du -sh)"
    )
    (said,) = statements(compared(result(measured(A, [10.0]), measured(B, [2.0]))))
    assert said == "nothing between source and target is beyond the noise; 1 test with too few runs to tell"
    assert statements(compared(result(measured(A, [1.0, 2.0])))) == ()


# --- Pages


HOSTILE = "/<script>alert(1)</script>\u202e\x1b[31m"


def document(other: model.Place) -> Document:
    found = result(measured(A, SLOW), measured(other, FAST), record=replace(RECORD, places=(A, other)))
    return comparison_document(compare([found]), charts=True)


def printed(shown: Document) -> str:
    stream = io.StringIO()
    print_document(Console(file=stream, width=160, color_system=None), shown)
    return stream.getvalue()


def test_medians_with_ranges_noise_load_and_published_figures_are_all_there() -> None:
    words = ("scale 0.01 (1 % of the published sizes)", "20 s (5 to 40)", "4.1 s (1.1 to 8)", "beyond the noise")
    for text in (printed(document(B)), to_markdown(document(B)).replace("\\", "")):
        assert all(said in text for said in (*words, "2 (2 to 2)", "Mangalam"))


def test_bars_are_as_long_as_their_values_and_told_in_words() -> None:
    (chart,) = [block for section in document(B).sections for block in section.blocks if isinstance(block, BarChart)]
    root = ET.fromstring(str(bar_svg(chart, "c")))
    bars = [float(bar.get("width", "0")) for bar in root.iter("rect")]
    assert bars[0] / bars[1] == pytest.approx(20 / 4.1, rel=0.02)
    assert {"20 s (5 to 40)", "ls -lR, shorter is better"} <= {node.text for node in root.iter("text")}
    assert root.find("title") is not None
    told = root.findtext("desc")
    assert told is not None
    assert "Beyond the noise, target is faster than source in 1 of 1 test (ls -lR)." in told


def test_a_path_is_text_in_every_output() -> None:
    shown = document(model.Place(label=show(HOSTILE.encode()), root=HOSTILE.encode()))
    page = to_html(shown)
    assert "<script" not in page.lower()
    for text in (page, printed(shown), to_markdown(shown)):
        assert not re.search("[\u202e\x1b]", text)


@pytest.mark.parametrize(
    ("values", "unit", "words"),
    [
        ([81.0, 82.42], Unit.SECONDS, "81.7 s (81 to 82.4)"),
        ([0.002, 0.004], Unit.SECONDS, "3 ms (2 to 4)"),
        ([1048576.0], Unit.BYTES_PER_S, "1 MiB/s"),
        ([1.9 * GIB, 0.3 * GIB], Unit.BYTES_PER_S, "1.1 GiB/s (0.3 to 1.9)"),
        ([500.0 * MIB, 100.0 * MIB], Unit.BYTES_PER_S, "300 MiB/s (100 to 500)"),
        ([0.0145, 0.0165], Unit.MILLISECONDS, "15.5 µs (14.5 to 16.5)"),
        ([12000.0, 14000.0], Unit.OPERATIONS_PER_S, "13,000 ops/s (12,000 to 14,000)"),
        ([3.643], Unit.MILLISECONDS, "3.64 ms"),
    ],
)
def test_figures_have_their_unit(values: list[float], unit: Unit, words: str) -> None:
    assert figure_words(series(values), unit) == words
    assert value_words(values[0], unit).split()[-1] == words.split()[1]


def test_failed_suites_and_removed_directories_are_named() -> None:
    summary = model.BenchmarkSummary(
        scale=0.01,
        dry_run=False,
        room=(),
        results=(result(measured(A, [1.0]), record=replace(RECORD, state=model.BenchmarkState.FAILED)),),
        removed=("/mnt/.migrator-bench/0123-000001",),
        failures=("recursive: grep ended with 2",),
    )
    text = printed(summary_document(summary))
    for words in ("Recursive: grep ended with 2.", "/mnt/.migrator-bench/0123-000001", "not every run is there"):
        assert words in text
