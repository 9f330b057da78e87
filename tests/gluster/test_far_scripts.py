"""The scripts that are sent to hosts where nothing of this program is installed."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import migrator
from migrator.app.doctor import benchmark_script
from migrator.bench import tree_timing
from migrator.cutover import writers
from migrator.gluster import probes
from migrator.hosts import connection
from migrator.hosts import site as hosts_of_site
from migrator.hosts.far_source import far_argv, far_source
from tests.support.pythons import python39

_LONGEST_ARGUMENT_BYTES = 32 * 4096
"""MAX_ARG_STRLEN of Linux: what one argument may have."""


ROOT = Path(migrator.__file__).parent
MODULES = sorted(set(ROOT.rglob("far_*.py")) - {ROOT / "hosts" / "far_source.py"})  # which sends the others


def full_name(module: Path) -> str:
    return ".".join(module.relative_to(ROOT.parent).with_suffix("").parts)


NAMES = frozenset(map(full_name, MODULES))


def imported(source: str) -> Iterator[str]:
    """The modules that a source in the syntax of Python 3.9 imports."""
    for node in ast.walk(ast.parse(source, feature_version=(3, 9))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            members = [f"{module}.{alias.name}" for alias in node.names]
            yield from members if set(members) <= NAMES else [module]


@pytest.mark.parametrize("module", MODULES, ids=full_name)
def test_every_module_has_the_syntax_of_python_3_9_and_imports_its_standard_library_alone(module: Path) -> None:
    others = set(imported(module.read_text(encoding="utf-8"))) - NAMES
    assert {name for name in others if name.partition(".")[0] not in sys.stdlib_module_names} == set()


def test_python_3_9_loads_every_module() -> None:
    script = f"import sys; sys.path.append({str(ROOT.parent)!r}); import {', '.join(NAMES)}"
    subprocess.run([python39(), "-I", "-S", "-B", "-W", "error", "-c", script], check=True)


ARGUMENTS = {
    "benchmark": benchmark_script(b"python3")[-1],
    "tree": tree_timing._script(),
    "writers": writers.script(),
    "blamed": far_source("migrator.gluster", ("far_blamed",)),
    "places": probes._PLACE_SCRIPT,
    "room": hosts_of_site._ROOM_SCRIPT,
}


@pytest.mark.parametrize("name", [*ARGUMENTS, "far end"])
def test_every_source_is_ascii_an_old_python_takes_it_and_as_an_argument_it_fits_into_one(name: str) -> None:
    source = ARGUMENTS.get(name) or connection.bundle(lease_s=1.0, grace_s=1.0)
    ast.parse(source.decode("ascii"), feature_version=(3, 9))
    assert name not in ARGUMENTS or len(source) < _LONGEST_ARGUMENT_BYTES


@pytest.fixture(params=["own", "3.9"])
def python(request: pytest.FixtureRequest) -> str:
    return sys.executable if request.param == "own" else python39()


@pytest.mark.parametrize("name", [*ARGUMENTS, "far end"])
def test_every_source_compiles(name: str, python: str) -> None:
    source = ARGUMENTS.get(name) or connection.bundle(lease_s=1.0, grace_s=1.0)
    script = "import sys; compile(sys.stdin.buffer.read(), 'source', 'exec')"
    subprocess.run([python, "-I", "-S", "-W", "error", "-c", script], input=source, check=True)


def test_a_script_runs_alone_and_reads_nothing_that_is_no_brick_of_the_volume(python: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not Gluster's")
    question = {"root": str(tmp_path), "volume_id": "v", "volume": "vol1", "but": ""}
    done = subprocess.run(
        far_argv(python.encode(), ARGUMENTS["blamed"]),
        input=json.dumps(question).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(b"there is no brick of this volume")
