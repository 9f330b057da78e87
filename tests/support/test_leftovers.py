"""A run of tests that is killed leaves nothing behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.xfs import missing_for_xfs

DEADLINE_S = 600.0
_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.support.leftovers import remove_namespace_when_killed, remove_when_killed
from tests.support.xfs import run_tool, xfs

place, name = remove_when_killed(Path(sys.argv[1])), sys.argv[2]
remove_namespace_when_killed(name)
run_tool("ip", "netns", "add", name)
with xfs(place):
    print(*(line.split()[4] for line in open("/proc/self/mountinfo") if sys.argv[1] in line), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.needs_root
def test_mounts_namespaces_and_directories_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    if reason := missing_for_xfs():
        pytest.skip(reason)
    place, namespace = tmp_path / "place", f"mt-{os.getpid():x}"
    place.mkdir()
    argv = [sys.executable, "-c", _KILLED, str(place), namespace]
    killed = subprocess.run(argv, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, check=False)
    assert killed.returncode == -9
    (mounted,) = killed.stdout.split()
    deadline_s = time.monotonic() + DEADLINE_S
    while place.exists() or Path("/run/netns", namespace).exists():
        assert time.monotonic() < deadline_s, (list(place.iterdir()), mounted)
        time.sleep(0.01)
    assert mounted not in Path("/proc/self/mountinfo").read_bytes()
