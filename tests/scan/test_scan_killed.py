"""`kill -9` of a scan, again and again: what comes out is what one go gives."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scan_site import ScanSite

pytestmark = pytest.mark.exhaustive

REPOSITORY = Path(__file__).parents[2]


def run_child(directory: Path, hang_after: int) -> str:
    """Run the scan until it stands still, and kill it; or until it is done."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.scan.scan_child", str(directory), str(hang_after)],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    ) as child:
        try:
            assert child.stdout is not None
            return child.stdout.readline().decode().strip()
        finally:
            child.kill()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_scan_that_is_killed_again_and_again_ends_with_the_same_rows(tmp_path: Path, seed: int) -> None:
    site = ScanSite(tmp_path)
    try:
        site.grow(["alice", "bob", "carol"], directories=8, files=7)
        site.ledger.close()
        chance = random.Random(seed)
        kills = 0
        while run_child(tmp_path, chance.randint(2, 14)) == "standing":
            kills += 1
            assert kills < 100, "the scan never gets further"
        assert kills >= 3
        site = ScanSite(tmp_path)
        killed = site.ledger.scans.latest()
        assert killed is not None
        assert killed.whole, killed.reasons
        straight = site.scan(restart=True)
        assert site.rows(killed) == site.rows(straight)
        counts = [(one.rows, one.directories, one.size_bytes) for one in (killed, straight)]
        assert counts[0] == counts[1]
    finally:
        site.close()
