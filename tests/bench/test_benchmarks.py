"""The benchmarks run at a scale that shows nothing of speed, and are killed or stopped in the middle of a step."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench.options import parse_options
from bench.page import PAGE_NAME, write_page
from bench.results import JSON_NAME, Section, Table, read_results, section_document, write_results
from bench.timing import Run, Series, ratio
from migrator.lab.machine import loops_beneath, mounts_beneath, why_no_cluster

pytestmark = pytest.mark.exhaustive

REPOSITORY = Path(__file__).parents[2]


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def series(name: str, *times_s: float) -> Series:
    return Series(name=name, runs=[Run(elapsed_s=time_s, load_before=0.5) for time_s in times_s])


def test_every_job_of_size_finds_every_path(tmp_path: Path) -> None:
    done = bench("scale", "--scale", "0.00005", "--dir", str(tmp_path), "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    facts = read_results(tmp_path)["scale"]["facts"]
    assert facts["5,000 paths, plan"].startswith("5,000 found")
    assert facts["5,000 paths, the manifest of a verification"].startswith("5,000 found")


def test_the_page_keeps_other_sections_and_says_what_was_missed_but_not_where(tmp_path: Path) -> None:
    options = parse_options(["--output", str(tmp_path), "--dir", str(tmp_path / "labs")], None)
    slow, quick = series("slow", 10, 12), series("quick", 2, 3)
    table = Table(
        title="Copies",
        series=[slow, quick, Series(name="broken", failure="ended with 1")],
        ratios=[*ratio("quick against slow", slow.times_s, quick.times_s, at_least=10)],
    )
    section = Section(name="bulk", title="Bulk", facts={"files": "many"}, tables=[table], left_out={"fpart": "none"})
    assert section.failures == ["broken: ended with 1"]
    assert [one.name for one in section.missed] == ["quick against slow"]
    write_results(tmp_path, {"scan": section_document(section, options)})
    write_results(tmp_path, {**read_results(tmp_path), "bulk": section_document(section, options)})
    write_page(tmp_path, read_results(tmp_path), ("scan", "bulk"))
    page = (tmp_path / PAGE_NAME).read_text()
    assert page.count("## Bulk") == 2
    assert "| quick against slow | 4.50 | 4.00 to 5.00 | 10 (missed) |" in page
    assert "| broken | failed | | | |" in page
    assert "Left out: fpart (none)." in page
    for text in (page, (tmp_path / JSON_NAME).read_text()):
        assert socket.gethostname() not in text or len(socket.gethostname()) < 4
        assert str(tmp_path) not in text
        assert str(REPOSITORY) not in text


@pytest.mark.cluster
def test_bulk_and_scans_are_measured_on_labs_that_are_gone_afterwards(scratch: Path) -> None:
    if reason := why_no_cluster():
        pytest.skip(f"needs a Gluster cluster: {reason}")
    options = ["--dir", str(scratch / "lab"), "--output", str(scratch / "out"), "--scale", "0.002", "--repeat", "1"]
    done = bench("scan", "bulk", *options, "--warm")
    assert done.returncode == 0, done.stderr
    found = json.loads((scratch / "out" / JSON_NAME).read_text())["sections"]
    assert set(found) == {"scan", "bulk"}
    for section in found.values():
        for table in section["tables"]:
            assert all(len(one["runs"]) == 1 and one["failure"] is None for one in table["series"])
            assert any(one["name"].startswith("migrator") for one in table["series"])
            assert table["ratios"]
    assert mounts_beneath(os.fsencode(scratch)) == ()
    assert loops_beneath(os.fsencode(scratch)) == ()
    assert [path.name for path in scratch.iterdir()] == ["out"]
    assert str(scratch) not in (scratch / "out" / PAGE_NAME).read_text()
