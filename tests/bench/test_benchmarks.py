"""The benchmarks run at a scale that shows nothing of speed, and leave no lab behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import ON_THEIR_OWN
from bench.page import PAGE_NAME
from bench.results import JSON_NAME, read_results
from bench.scale import NAME as SCALE
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


def test_every_job_of_size_finds_every_path(tmp_path: Path) -> None:
    done = bench("scale", "--large", "--scale", "0.00005", "--dir", str(tmp_path), "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    facts = read_results(tmp_path)["scale-large"]["facts"]
    assert facts["5,000 paths, plan"].startswith("5,000 found")
    assert facts["5,000 paths, a verification with 1 % changed"].startswith("5,000 found")


@pytest.mark.cluster
def test_the_others_run_and_leave_no_lab_behind(scratch: Path) -> None:
    if reason := why_no_cluster():
        pytest.skip(f"needs a Gluster cluster: {reason}")
    names = [name for name in ON_THEIR_OWN if name != SCALE]
    options = ["--dir", str(scratch / "lab"), "--output", str(scratch / "out"), "--scale", "0.002", "--repeat", "1"]
    done = bench(*names, *options, "--warm")
    assert done.returncode == 0, done.stderr
    assert set(read_results(scratch / "out")) == set(names)
    assert mounts_beneath(os.fsencode(scratch)) == ()
    assert loops_beneath(os.fsencode(scratch)) == ()
    assert [path.name for path in scratch.iterdir()] == ["out"]


@pytest.mark.cluster
def test_benchmarks_remove_their_shared_labs(scratch: Path) -> None:
    if reason := why_no_cluster():
        pytest.skip(f"needs a Gluster cluster: {reason}")
    options = ["--dir", str(scratch / "lab"), "--output", str(scratch / "out"), "--scale", "0.002", "--repeat", "1"]
    done = bench("scan", "bulk", "verify", "passes", *options, "--warm")
    assert done.returncode == 0, done.stderr
    found = json.loads((scratch / "out" / JSON_NAME).read_text())["sections"]
    assert set(found) == {"scan", "bulk", "verify", "passes"}
    for section in found.values():
        for table in section["tables"]:
            assert all(len(one["runs"]) == 1 and one["failure"] is None for one in table["series"])
            assert any(one["name"].startswith("migrator") for one in table["series"])
            assert table["ratios"]
    assert mounts_beneath(os.fsencode(scratch)) == ()
    assert loops_beneath(os.fsencode(scratch)) == ()
    assert [path.name for path in scratch.iterdir()] == ["out"]
    assert str(scratch) not in (scratch / "out" / PAGE_NAME).read_text()
