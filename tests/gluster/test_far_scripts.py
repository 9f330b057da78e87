"""The scripts that are sent to hosts where nothing of this program is installed."""

import ast
import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from migrator.app.doctor import benchmark_script
from migrator.bench import tree_timing
from migrator.cutover import writers
from migrator.gluster import looks
from migrator.hosts import connection
from migrator.hosts import site as hosts_of_site
from migrator.hosts.far_source import far_argv

_LONGEST_ARGUMENT_BYTES = 32 * 4096
"""MAX_ARG_STRLEN of Linux: what one argument may have."""


MODULES = [
    (package, file.name)
    for package in ("migrator.bench", "migrator.cutover", "migrator.fs", "migrator.gluster", "migrator.hosts")
    for file in sorted(resources.files(package).iterdir(), key=lambda one: one.name)
    if file.name.startswith("far_") and file.name != "far_source.py"  # which sends the others
]


@pytest.mark.parametrize(("package", "name"), MODULES)
def test_every_module_is_python_3_9_of_the_standard_library_alone(package: str, name: str) -> None:
    source = (resources.files(package) / name).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source, feature_version=(3, 9))):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert module.startswith((package, "migrator.fs")) or module.partition(".")[0] in sys.stdlib_module_names
        if isinstance(node, ast.Import):
            assert all(alias.name in sys.stdlib_module_names for alias in node.names)


ARGUMENTS = {
    "benchmark": benchmark_script(b"python3")[-1],
    "tree": tree_timing._script(),
    "writers": writers.script(),
    "directories": looks._script(("far_directories",)),
    "bare": looks._script(("far_bare",)),
    "named": looks._script(("far_named",)),
    "marks": looks._script(("far_marks",)),
    "blamed": looks._script(("far_blamed",)),
    "places": looks._PLACE_SCRIPT,
    "room": hosts_of_site._ROOM_SCRIPT,
}


@pytest.mark.parametrize("name", [*ARGUMENTS, "far end"])
def test_every_source_is_ascii_an_old_python_takes_it_and_as_an_argument_it_fits_into_one(name: str) -> None:
    source = ARGUMENTS.get(name) or connection.bundle(lease_s=1.0, grace_s=1.0)
    ast.parse(source.decode("ascii"), feature_version=(3, 9))
    assert name not in ARGUMENTS or len(source) < _LONGEST_ARGUMENT_BYTES


@pytest.mark.parametrize("name", ["directories", "bare", "named", "marks", "blamed"])
def test_a_script_runs_alone_and_looks_at_nothing_that_is_no_brick_of_the_volume(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not Gluster's")
    question = {"root": str(tmp_path), "volume_id": "v", "what": "look", "digests": False}
    done = subprocess.run(
        far_argv(sys.executable.encode(), ARGUMENTS[name]),
        input=json.dumps(question).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(b"there is no brick of this volume")
