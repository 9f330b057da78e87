"""The metadata that package indexes and installers show."""

import tomllib
from importlib.metadata import metadata
from importlib.resources import files
from pathlib import Path

import pytest

import migrator

ROOT = Path(__file__).parents[2]
INSTALLED = metadata("migrator")


def test_metadata_is_complete() -> None:
    wanted = {"Name", "Version", "Summary", "License-Expression", "License-File", "Requires-Python", "Description"}
    assert [field for field in sorted(wanted) if field not in INSTALLED or not INSTALLED[field]] == []
    assert (INSTALLED["Version"], INSTALLED["License-Expression"]) == (migrator.__version__, "Apache-2.0")
    assert "text/markdown" in INSTALLED["Description-Content-Type"]
    assert INSTALLED.get_all("Classifier")
    assert INSTALLED.get_all("Requires-Dist")


def test_the_package_has_type_information() -> None:
    assert files("migrator").joinpath("py.typed").is_file()


@pytest.mark.parametrize("name", ["LICENSE", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "README.md"])
def test_a_project_file_is_there(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_the_licence_is_the_one_that_the_metadata_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license-files"] == ["LICENSE"]
    first_lines = (ROOT / "LICENSE").read_text(encoding="utf-8").split("\n")[:4]
    assert {"Apache License", "Version 2.0, January 2004"} <= {line.strip() for line in first_lines}


def test_public_continuous_integration_runs_the_same_checks() -> None:
    assert "- run: .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
