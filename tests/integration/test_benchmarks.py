"""The benchmarks run: at a scale that shows nothing of speed, and everything of whether they still fit the program."""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_planning_over_a_synthetic_catalog_lists_every_row(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench",
            "plan-scale",
            "--rows",
            "5000",
            "--work",
            str(tmp_path),
            "--output",
            str(figures),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert figures.exists(), done.stderr
    found = json.loads(figures.read_text())
    assert found["listed_files"] + found["listed_directories"] == found["rows"] == 5000
