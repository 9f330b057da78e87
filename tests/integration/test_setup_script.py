"""Which interpreter `tools/setup.sh` takes."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "setup.sh"
DEBIAN = "/usr/bin/python3"
NEEDED = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"


def found(path: str, **environment: str) -> str:
    """What the script's own function finds."""
    function = SCRIPT.read_text(encoding="utf-8").partition("find_python() {")[2].partition("\n}\n")[0]
    script = f"set -euo pipefail\nfail() {{ exit 1; }}\nfind_python() {{{function}\n}}\nfind_python"
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        env={"PATH": path, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def own_python(directory: Path) -> Path:
    """An interpreter that serves, in a directory of somebody's own, under every name that is looked for."""
    directory.mkdir()
    for name in ("python3", "python3.11", "python3.12"):
        (directory / name).write_text(f'#!/bin/bash\n[[ $2 != *executable* ]] || echo "{directory / name}"\n')
        (directory / name).chmod(0o755)
    return directory


def test_debians_own_interpreter_goes_before_one_that_is_first_on_the_path(tmp_path: Path) -> None:
    if (
        not os.path.exists(DEBIAN)
        or subprocess.run([DEBIAN, "-c", NEEDED], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"{DEBIAN} is missing, too old, or cannot make virtual environments")
    own = own_python(tmp_path / "own")
    assert found(f"{own}:/usr/bin:/bin") == DEBIAN


def test_an_interpreter_that_is_named_goes_before_all(tmp_path: Path) -> None:
    own = own_python(tmp_path / "own")
    assert found("/usr/bin:/bin", PYTHON=str(own / "python3.12")) == str(own / "python3.12")
