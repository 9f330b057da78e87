"""The commands that README names are there, and do what it says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = sorted([*(REPOSITORY / "tools").glob("*.sh"), REPOSITORY / ".ci" / "run"])


def dry_run(target: str) -> str:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", target],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_make_command_of_the_readme_exists_and_sets_up_first() -> None:
    named = set(re.findall(r"`?make ([a-z-]+)`?", (REPOSITORY / "README.md").read_text(encoding="utf-8")))
    assert {"demo", "test", "test-all", "venv", "bench"} <= named
    for target in named:
        assert dry_run(target).startswith("tools/setup.sh\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_executable_and_parses(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
