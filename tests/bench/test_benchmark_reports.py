"""From reports of fio (recorded), mdtest and IOR (their tables, as four versions print them) to figures."""

import json
from pathlib import Path

import pytest

from migrator.bench.model import HostRun, Step, Unit
from migrator.bench.rules import figure, read_report

FIXTURES = Path(__file__).parents[1] / "fixtures" / "benchmarks"
MDTEST_4 = """
SUMMARY rate: (of 1 iterations)
   Operation                     Max            Min           Mean        Std Dev
   ---------                     ---            ---           ----        -------
   File creation                2568.636       2568.636       2568.636          0.000
   File stat                       0.000          0.000          0.000          0.000
   Tree creation                 496.015        496.015        496.015          0.000
"""
MDTEST_1_9 = """
SUMMARY: (of 3 iterations)
   Operation                      Max            Min           Mean        Std Dev
   ---------                      ---            ---           ----        -------
   Directory creation:        980.027        900.027        940.027          0.000
   File creation     :        439.763        404.632        422.661         14.357
   File stat         :       3232.092       2645.504       2947.822        239.813
"""
MDTEST_3 = """
WARNING: Read bytes is 0, thus, a read test will actually just open/close.
Path: /scratch
FS: 36.5 GiB   Used FS: 18.8%   Inodes: 2.3 Mi   Used Inodes: 5.9%

SUMMARY rate: (of 1 iterations)
   Operation                      Max            Min           Mean        Std Dev
   ---------                      ---            ---           ----        -------
   Directory creation        :       1807.150       1807.150       1807.150          0.000
   File creation             :       1763.735       1763.735       1763.735          0.000
   File create (stonewall)   :             NA             NA       1700.000             NA
   File read                 :       5316.999       5316.999       5316.999          0.000
   Tree removal              :          0.000          0.000          0.000          0.000
-- finished at 01/02/2030 03:04:05 --
"""
IOR = """
access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
write     1299.23    1299.84    0.022917    5242880    1024.00    10.79      118.17     0.000377   118.22     0
Max Write: 1299.23 MiB/sec (1362.35 MB/sec)
Max Read:  5429.38 MiB/sec (5693.11 MB/sec)
"""


def test_fio_random_reads() -> None:
    found = read_report("fio", (FIXTURES / "fio-3.33-randread.json").read_text())
    assert found["operations_per_s"] == pytest.approx(48709.58, abs=0.01)
    assert found["bytes_per_s"] == 199514443
    assert found["mean_ms"] == pytest.approx(0.040535, abs=1e-6)
    assert (found["p50_ms"], found["p99_ms"], found["p999_ms"]) == (0.026496, 0.177152, 3.850240)
    assert found["max_ms"] == pytest.approx(28.848972)


def test_fio_random_writes_after_a_warning() -> None:
    text = "fio: this platform does not support something\n" + (FIXTURES / "fio-3.33-randwrite.json").read_text()
    assert read_report("fio", text)["operations_per_s"] == pytest.approx(21635.12, abs=0.01)


def test_fio_that_failed_has_no_figures() -> None:
    report = json.loads((FIXTURES / "fio-3.33-randread.json").read_text())
    report["jobs"][0]["error"] = 28
    with pytest.raises(ValueError, match="error 28"):
        read_report("fio", json.dumps(report))


@pytest.mark.parametrize(("text", "rate"), [(MDTEST_4, 2568.636), (MDTEST_3, 1763.735), (MDTEST_1_9, 422.661)])
def test_mdtest_with_and_without_colons(text: str, rate: float) -> None:
    assert read_report("mdtest", text) == {"operations_per_s": rate}


@pytest.mark.parametrize(
    ("program", "text"),
    [
        *(("fio", text) for text in ("", "fio: bad option", '{"jobs": []}', '{"jobs": [{}]}')),
        ("mdtest", "mdtest-4.0.0 was launched"),
        ("ior", ""),
    ],
)
def test_text_that_is_no_report_is_refused(program: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"(?i){program}"):
        read_report(program, text)


def test_ior_writes_in_one_call_and_reads_in_another() -> None:
    written = IOR.replace("5429.38", "0.00")
    assert read_report("ior", written) == {"bytes_per_s": pytest.approx(1299.23 * (1 << 20))}
    read = IOR.replace("1299.23", "0.00")
    assert read_report("ior", read) == {"bytes_per_s": pytest.approx(5429.38 * (1 << 20))}
    with pytest.raises(ValueError, match="exactly one"):
        read_report("ior", IOR)


def host(name: str, elapsed_s: float, *lanes: dict[str, float]) -> HostRun:
    return HostRun(host=name, began_at_s=0.0, elapsed_s=elapsed_s, lanes=lanes)


def step(unit: Unit, size_bytes: int = 0, report: str = "") -> Step:
    return Step(name="s", title="s", lanes=(), unit=unit, size_bytes=size_bytes, report=report)


def test_a_time_is_the_mean_over_the_hosts() -> None:
    value, by_host, details = figure(step(Unit.SECONDS, 100), [host("a", 2.0), host("b", 4.0)])
    assert (value, by_host, details) == (3.0, {"a": 2.0, "b": 4.0}, {"bytes_per_s": 50.0})


def test_a_rate_is_all_bytes_over_the_longest_time() -> None:
    value, by_host, _ = figure(step(Unit.BYTES_PER_S, 100), [host("a", 2.0), host("b", 4.0)])
    assert (value, by_host) == (50.0, {"a": 50.0, "b": 25.0})


def test_what_programs_report_counts_instead() -> None:
    lanes = ({"bytes_per_s": 30.0}, {"bytes_per_s": 12.0})
    assert figure(step(Unit.BYTES_PER_S, 100, "ior"), [host("a", 9.0, *lanes)])[0] == 42.0
    hosts = [host("a", 1.0, {"operations_per_s": 5.0}), host("b", 1.0, {"operations_per_s": 7.0})]
    assert figure(step(Unit.OPERATIONS_PER_S, report="fio"), hosts)[0] == 12.0


def test_a_latency_is_the_mean_over_all_reads_and_percentiles_are_the_slowest_readers() -> None:
    hosts = [
        host("a", 1.0, {"mean_ms": 1.0, "reads": 300.0, "p99_ms": 5.0}),
        host("b", 1.0, {"mean_ms": 5.0, "reads": 100.0, "p99_ms": 9.0}),
    ]
    value, _, details = figure(step(Unit.MILLISECONDS), hosts)
    assert (value, details) == (2.0, {"mean_ms": 2.0, "p99_ms": 9.0, "reads": 400.0})


@pytest.mark.parametrize("unit", [Unit.MILLISECONDS, Unit.OPERATIONS_PER_S])
def test_what_was_not_measured_has_no_figure(unit: Unit) -> None:
    with pytest.raises(ValueError, match="measured"):
        figure(step(unit), [host("a", 1.0)])
