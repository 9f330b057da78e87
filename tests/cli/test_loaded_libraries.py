"""What verbs load: each only what it works with. The rest is time before the first file."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.bench_world import cli_site

_THEN_WRITE_MODULES = """
import atexit, pathlib, sys
atexit.register(lambda: pathlib.Path(sys.argv[1]).write_text("\\n".join(sys.modules)))
from migrator.cli.main import main
main(sys.argv[2:], prog_name="migrator")
"""
_NEVER = {"jinja2", "rich", "pygments", "numpy", "pandas", "pyarrow.compute", "pyarrow.dataset"}
_REPORTS = {"migrator.report.status", "migrator.report.report", "migrator.report.view"}
_SLURM_AND_DRIVERS = {"migrator.hosts.slurm", "migrator.transfer.engines.drivers"}


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    """A site that is recorded."""
    return cli_site(tmp_path).file


def loaded(site_file: Path, *words: str) -> set[str]:
    """The modules that were loaded when the verb had done its work."""
    modules = site_file.with_name("modules")
    argv = [sys.executable, "-c", _THEN_WRITE_MODULES, str(modules), "--site", str(site_file), *words]
    subprocess.run(argv, check=True, capture_output=True)
    return set(modules.read_text().splitlines())


def test_each_verb_loads_what_it_works_with_and_no_more(site_file: Path) -> None:
    scan = loaded(site_file, "scan", "--json")
    assert {"sqlalchemy", "pyarrow.parquet", "migrator.scan.scan"} <= scan
    assert not scan & (_NEVER | _REPORTS | _SLURM_AND_DRIVERS | {"duckdb", "migrator.transfer.run"})

    plan = loaded(site_file, "plan", "--accept-unknown-inodes", "--json")
    assert {"sqlalchemy", "duckdb", "migrator.plan.plan"} <= plan
    assert not plan & (_NEVER | _REPORTS | _SLURM_AND_DRIVERS | {"migrator.transfer.run", "migrator.scan.scan"})

    run = loaded(site_file, "run", "--all", "--deltas", "0", "--json")
    assert (site_file.parent / "target/home/alice/letter").read_text() == "content"
    assert {"sqlalchemy", "pyarrow.parquet", "migrator.transfer.run"} <= run
    assert not run & (_NEVER | _REPORTS | _SLURM_AND_DRIVERS | {"duckdb", "migrator.scan.scan"})

    delta = loaded(site_file, "run", "--all", "--deltas", "1", "--json")
    assert {"duckdb", "migrator.scan.scan"} <= delta
    assert not delta & (_NEVER | _REPORTS | _SLURM_AND_DRIVERS)


@pytest.mark.parametrize("words", [["--version"], ["run", "--help"], ["scan", "--help"], ["status", "--help"]])
def test_a_verb_that_does_nothing_loads_no_large_library(tmp_path: Path, words: list[str]) -> None:
    modules = loaded(tmp_path / "site.toml", *words)
    assert {"migrator", "click"} <= modules
    assert not modules & {"jinja2", "duckdb", "pyarrow", "rich", "pygments"}


def test_the_version_is_printed_without_the_ledger(tmp_path: Path) -> None:
    assert not loaded(tmp_path / "site.toml", "--version") & {"sqlalchemy", "migrator.ledger.ledger"}
