"""The scripts that are sent to the hosts of bricks."""

import ast
import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from migrator.adapters.far_source import far_source

PACKAGE = "migrator.adapters.bricks"
FAR = sorted(file.name for file in resources.files(PACKAGE).iterdir() if file.name.startswith("far_"))
SCRIPTS = [name.removesuffix(".py") for name in FAR if name != "far_brick.py"]
_LONGEST_ARGUMENT_BYTES = 32 * 4096
"""MAX_ARG_STRLEN of Linux: what one argument may have."""


@pytest.mark.parametrize("name", FAR)
def test_every_module_is_python_3_9_of_the_standard_library_alone(name: str) -> None:
    source = (resources.files(PACKAGE) / name).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source, feature_version=(3, 9))):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert module == f"{PACKAGE}.far_brick" or module.partition(".")[0] in sys.stdlib_module_names
        if isinstance(node, ast.Import):
            assert all(alias.name in sys.stdlib_module_names for alias in node.names)


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_runs_alone_and_looks_at_nothing_that_is_no_brick_of_the_volume(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not Gluster's")
    source = far_source(PACKAGE, ("far_brick", name))
    assert len(source) < _LONGEST_ARGUMENT_BYTES
    question = {"root": str(tmp_path), "volume_id": "v", "what": "look", "digests": False}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source],
        input=json.dumps(question).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(b"there is no brick of this volume")
