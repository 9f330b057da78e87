"""Python 3.9, the oldest that hosts may have."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

PYTHON_VARIABLE = "MIGRATOR_TEST_PYTHON39"
"""Names the interpreter, if it is neither in PATH nor a version of pyenv."""
_ASKED = "import sys, ctypes; sys.exit(sys.version_info[:2] != (3, 9))"


@cache
def find_python39() -> str | None:
    """The path of a Python 3.9 that works; None if this machine has none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    named = [os.environ.get(PYTHON_VARIABLE), shutil.which("python3.9"), shutil.which("python3")]
    for candidate in (*named, *sorted(map(str, pyenv.glob("versions/3.9*/bin/python3.9")))):
        if candidate and subprocess.run([candidate, "-c", _ASKED], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def python39() -> str:
    """The same; skips the test that asks, if there is none."""
    found = find_python39()
    if found is None:
        pytest.skip(f"no Python 3.9: neither {PYTHON_VARIABLE}, PATH nor pyenv has one")
    return found
