"""Reports of fio (recorded), of mdtest and of IOR (their tables, as four versions print them)."""

import json
from pathlib import Path

import pytest

from migrator.adapters.benchmarks.reports import read_report

FIXTURES = Path(__file__).parents[2] / "fixtures" / "benchmarks"
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
    with pytest.raises(ValueError, match="errors"):
        read_report("fio", json.dumps(report))


@pytest.mark.parametrize("text", ["", "fio: bad option", '{"jobs": []}', '{"jobs": [{}]}'])
def test_what_is_no_report_of_fio_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="fio"):
        read_report("fio", text)


@pytest.mark.parametrize(("text", "rate"), [(MDTEST_4, 2568.636), (MDTEST_3, 1763.735), (MDTEST_1_9, 422.661)])
def test_mdtest_with_and_without_colons(text: str, rate: float) -> None:
    found = read_report("mdtest", text)
    assert found["operations_per_s"] == found["file_creation_per_s"] == rate
    assert "file_removal_per_s" not in found


def test_a_rate_of_mdtest_that_was_not_measured_is_none() -> None:
    assert "file_stat_per_s" not in read_report("mdtest", MDTEST_4)
    with pytest.raises(ValueError, match="mdtest"):
        read_report("mdtest", "mdtest-4.0.0 was launched")


def test_ior_writes_in_one_call_and_reads_in_another() -> None:
    written = IOR.replace("5429.38", "0.00")
    assert read_report("ior", written) == {"bytes_per_s": pytest.approx(1299.23 * (1 << 20))}
    read = IOR.replace("1299.23", "0.00")
    assert read_report("ior", read) == {"bytes_per_s": pytest.approx(5429.38 * (1 << 20))}
    with pytest.raises(ValueError, match="out of memory"):
        read_report("ior", IOR)
    with pytest.raises(ValueError, match="IOR"):
        read_report("ior", "")
