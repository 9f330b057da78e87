"""`bench` as it is typed; suites as plans, reports of fio (recorded), figures, comparisons and pages."""

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.bench import far_bench, model
from migrator.bench.model import FigureUnit, SuiteName
from migrator.bench.rules import SuiteComparison, compare, figure, read_fio
from migrator.bench.suites import suite
from tests.bench.bench_world import cli_site
from tests.support.cli_site import Site
from tests.support.making import made

# --- Suites as plans


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
            assert step.is_check or argv[0] in step.programs or argv[0] in far_bench._FUNCTIONS
    assert planned.need_bytes >= max(step.size_bytes for step in planned.steps)
    assert planned.need_inodes > 0


# --- Reports of programs, and figures of a step


FIXTURES = Path(__file__).parents[1] / "fixtures" / "benchmarks"
READS, WRITES = ((FIXTURES / f"fio-3.33-rand{way}.json").read_text() for way in ("read", "write"))


def test_fio() -> None:
    found = read_fio(f"fio: this platform does not support something\n{READS}")
    assert found["operations_per_s"] == pytest.approx(48709.58, abs=0.01)
    assert found["bytes_per_s"] == 199514443
    assert found["mean_ms"] == pytest.approx(0.040535, abs=1e-6)
    assert (found["p50_ms"], found["p99_ms"], found["p999_ms"]) == (0.026496, 0.177152, 3.850240)
    assert read_fio(WRITES)["operations_per_s"] == pytest.approx(21635.12)


@pytest.mark.parametrize(
    "text", ["", '{"jobs": []}', '{"jobs": [{}]}', json.dumps({"jobs": [json.loads(READS)["jobs"][0] | {"error": 28}]})]
)
def test_text_that_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fio"):
        read_fio(text)


def host(name: str, elapsed_s: float, *lanes: dict[str, float]) -> model.HostRun:
    return model.HostRun(host=name, began_at_s=0.0, elapsed_s=elapsed_s, lanes=lanes)


OPS = [host("a", 1.0, {"operations_per_s": 5.0}), host("b", 1.0, {"operations_per_s": 7.0})]
LATENCIES = [
    host("a", 1.0, {"mean_ms": 1.0, "reads": 300.0, "p99_ms": 5.0}),
    host("b", 1.0, {"mean_ms": 5.0, "reads": 100.0, "p99_ms": 9.0}),
]


@pytest.mark.parametrize(
    ("unit", "hosts", "value", "details"),
    [
        # A time is the mean over the hosts, a rate all bytes over the longest time.
        (FigureUnit.SECONDS, [host("a", 2.0), host("b", 4.0)], 3.0, {"bytes_per_s": 50.0}),
        (FigureUnit.BYTES_PER_S, [host("a", 2.0), host("b", 4.0)], 50.0, {}),
        (FigureUnit.OPERATIONS_PER_S, OPS, 12.0, {"operations_per_s": 12.0}),
        # A latency is the mean over all reads, percentiles are those of the slowest reader.
        (FigureUnit.MILLISECONDS, LATENCIES, 2.0, {"mean_ms": 2.0, "p99_ms": 9.0, "reads": 400.0}),
        (FigureUnit.MILLISECONDS, [host("a", 1.0)], None, {}),
        (FigureUnit.OPERATIONS_PER_S, [host("a", 1.0)], None, {}),
    ],
)
def test_a_steps_figure(
    unit: FigureUnit, hosts: list[model.HostRun], value: float | None, details: dict[str, float]
) -> None:
    step = model.Step(name="s", title="s", lanes=(), unit=unit, size_bytes=100)
    if value is None:
        with pytest.raises(ValueError, match="measured"):
            figure(step, hosts)
        return
    found, by_host, others = figure(step, hosts)
    assert (found, others) == (value, details)
    assert list(by_host) == [one.host for one in hosts]


# --- Comparisons


A, B = model.MeasuredFileSystem(label="source", root=b"/a"), model.MeasuredFileSystem(label="target", root=b"/b")
DONE = {"hosts": ("localhost",), "state": model.BenchmarkState.DONE}
RECORD = made(model.BenchmarkRecord, id=3, suite=SuiteName.RECURSIVE, scale=0.01, runs=3, places=(A, B), **DONE)


def measured(
    place: model.MeasuredFileSystem, values: list[float], step: str = "ls", unit: FigureUnit = FigureUnit.SECONDS
) -> list[model.Measurement]:
    facts = {"place": place.label, "step": step, "unit": unit, "load_average": 2.0}
    return [
        made(model.Measurement, run=run, value=value, by_host={"localhost": value}, **facts)
        for run, value in enumerate(values, 1)
    ]


def result(*each: list[model.Measurement], record: model.BenchmarkRecord = RECORD) -> model.BenchmarkResult:
    return model.BenchmarkResult(record=record, measurements=tuple(one for some in each for one in some))


def compared(*results: model.BenchmarkResult) -> SuiteComparison:
    (comparison,) = compare(results)
    return comparison


@pytest.mark.parametrize(
    ("unit", "ones", "others", "verdict"),
    [
        (FigureUnit.SECONDS, [10.0, 11.0, 12.0], [2.0, 2.2, 2.4], "5.00 times as fast as source (4.17 to 6.00): beyond the noise"),
        (FigureUnit.OPERATIONS_PER_S, [10.0, 11.0, 12.0], [5.0, 5.5, 6.0], "0.50 times as fast as source (0.42 to 0.60): beyond"),
        (FigureUnit.SECONDS, [10.0, 20.0, 30.0], [12.0, 18.0, 31.0], "1.11 times as fast as source (0.32 to 2.50): not beyond the"),
        (FigureUnit.SECONDS, [10.0, 20.0, 30.0], [1.0, 1.1], "19.0 times as fast as source; too few runs"),
    ],
)  # fmt: skip
def test_a_ratio_of_speeds_beside_the_noise(
    unit: FigureUnit, ones: list[float], others: list[float], verdict: str
) -> None:
    rate = unit is FigureUnit.OPERATIONS_PER_S
    step, record = ("random-read", replace(RECORD, suite=SuiteName.RANDOM)) if rate else ("ls", RECORD)
    both = result(measured(A, ones, step, unit), measured(B, others, step, unit), record=record)
    (contrast,) = compared(both).steps[0].contrasts
    assert contrast.verdict.startswith(f"target was {verdict}")


def test_benchmarks_of_one_suite_and_scale_are_compared_with_each_other() -> None:
    later = result(measured(A, [9.0, 9.5]), record=replace(RECORD, id=7, state=model.BenchmarkState.INTERRUPTED))
    comparison = compared(result(measured(A, [10.0, 11.0]), measured(B, [5.0, 5.6])), later)
    assert [(one.base, one.other) for one in comparison.steps[0].contrasts] == [
        ("source #3", "target #3"),
        ("source #3", "source #7"),
        ("target #3", "source #7"),
    ]
    assert "not measured at the same time" in comparison.cautions[0]
    assert "benchmark 7 is interrupted" in comparison.cautions[1]
    other = result(measured(A, [1.0]), record=replace(RECORD, id=4, scale=0.1))
    assert [one.scale for one in compare([result(measured(A, [10.0])), other])] == [0.01, 0.1]


def test_a_side_without_cold_caches_an_agreed_start_or_a_long_step_is_named() -> None:
    runs = [replace(one, cold=False, skew_s=0.5) for one in measured(A, [9.0])]
    cold, short, apart = compared(result(runs, measured(B, [0.02]))).cautions
    assert "caches" in cold
    assert "ls -lR on target; a larger --scale" in short
    assert "0.5 s apart" in apart


# --- The verb


QUICK = ("--scale", "0.0002")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return cli_site(tmp_path)


def left_in(site: Site) -> set[str]:
    return {*os.listdir(site.source), *os.listdir(site.target)} - {"home", ".migrator-sentinel", ".migrator-journal"}


def test_results_are_listed_compared_and_drawn(site: Site, tmp_path: Path) -> None:
    other = tmp_path / "other & <more>"
    other.mkdir()
    on = ("--on", "source", "--on", str(other))
    done = site.call("bench", "run", "--suite", "latency", *on, "--runs", "2", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "scale 0.0002" in done.stdout
    assert "run 2 of 2 on source" in done.stderr
    assert left_in(site) == set()
    assert os.listdir(other) == []

    (record,) = json.loads(site.call("bench", "list", "--json").stdout)["benchmarks"]
    assert (record["suite"], record["state"], record["scale"]) == ("latency", "done", 0.0002)

    page = tmp_path / "page.html"
    done = site.call("bench", "compare", str(record["id"]), "--html", str(page), "--json")
    (comparison,) = json.loads(done.stdout)
    assert [step["step"] for step in comparison["steps"]] == ["read-429", "read-93347"]
    for step in comparison["steps"]:
        assert [side["label"] for side in step["sides"]] == ["source", str(other)]
        assert all(len(side["figures"]["values"]) == 2 for side in step["sides"])
        assert step["contrasts"][0]["speed"]["count"] == 2
        assert step["published"]
    text = page.read_text()
    assert "<progress" in text
    assert "other &amp; &lt;more&gt;" in text
    assert "<more>" not in text


def test_mistakes_are_told(site: Site) -> None:
    site.fails(2, "bench", "run", "--suite", "latency", says=("--on is missing",))
    site.fails(2, "bench", "run", "--suite", "latency", "--on", "somewhere", says=("an absolute path",))
    site.fails(2, "bench", "compare", says=("no measurements yet",))
    site.fails(2, "bench", "compare", "12", says=("no benchmark 12",))
    site.fails(2, "bench", "run", "--suite", "latency", "--on", "target", "--hosts", "gl7", *QUICK, says=("host gl7",))
    for place in ("/nowhere/at/all", str(site.file)):
        words = (f"no directory {place}", "host localhost")
        site.fails(1, "bench", "run", "--suite", "latency", "--on", place, *QUICK, says=words)
    site.fails(4, "bench", "run", "--suite", "streaming", "--on", "target", "--scale", "100", says=("free", "--scale"))


def test_a_directory_of_users_is_not_worked_in(site: Site, tmp_path: Path) -> None:
    """Scans leave benchmarks out of the root alone, and a user may exchange what lies in his own directory."""
    (tmp_path / "way").symlink_to(site.source / "home")
    for place in (site.source / "home/alice", tmp_path / "way" / "alice"):
        on = ("bench", "run", "--suite", "latency", "--on", str(place), *QUICK)
        site.fails(2, *on, says=("is inside the source", "--on source"))
    assert list((site.source / "home/alice").iterdir()) == [site.source / "home/alice/letter"]


def test_the_root_of_the_source_is_the_source_however_it_is_named(site: Site) -> None:
    on = ("--on", f"{site.source}/", "--on", "source", "--on", "/tmp", "--on", "/tmp/")
    done = site.call("bench", "run", "--suite", "latency", *on, "-n", "--json", *QUICK)
    assert [one["place"]["label"] for one in json.loads(done.stdout)["room"]] == ["source", "/tmp"], "each once"


def test_the_suites_are_listed_without_a_site(tmp_path: Path) -> None:
    listing = json.loads(Site(tmp_path, tmp_path, tmp_path).call("bench", "list", "--scale", "1", "--json").stdout)
    assert len(listing["suites"]) == len(SuiteName)
    assert listing["benchmarks"] == []
