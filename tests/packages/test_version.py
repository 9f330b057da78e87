"""`--version` prints the commit that the build recorded."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import migrator

ROOT = Path(__file__).parents[2]
BUILD_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


def run(*argv: str | Path, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(cwd), "GIT_CONFIG_GLOBAL": os.devnull}
    for kind in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{kind}_NAME": "tests", f"GIT_{kind}_EMAIL": "tests@example.org"}
    return subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


def sources(directory: Path) -> Path:
    """The sources that the build and `--version` need."""
    package = directory / "migrator"
    without = shutil.ignore_patterns("__pycache__", "migrator-native*")
    for name in ("cli", "core", "native"):
        shutil.copytree(ROOT / "migrator" / name, package / name, ignore=without)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory / name)
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "migrator" / name, package / name)
    return directory


def unpacked_sdist(checkout: Path, scratch: Path) -> Path:
    run(sys.executable, "-c", BUILD_SDIST, scratch, cwd=checkout)
    (archive,) = scratch.glob("*.tar.gz")
    shutil.unpack_archive(archive, scratch)
    return scratch / archive.name.removesuffix(".tar.gz")


def shown_version(directory: Path) -> str:
    return run(sys.executable, "-m", "migrator", "--version", cwd=directory).strip()


PLAIN = f"migrator, version {migrator.__version__}"


def test_a_checkout_has_no_recorded_commit(tmp_path: Path) -> None:
    assert shown_version(sources(tmp_path / "checkout")) == PLAIN


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_an_sdist_has_the_commit_and_the_wheel_made_of_it_too(tmp_path: Path) -> None:
    checkout = sources(tmp_path / "checkout")
    (checkout / ".gitignore").write_text("*.egg-info/\n__pycache__/\n")
    for argv in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        run("git", *argv, cwd=checkout)
    commit = run("git", "rev-parse", "--short=12", "HEAD", cwd=checkout).strip()
    unpacked = unpacked_sdist(checkout, tmp_path)
    assert shown_version(unpacked) == f"{PLAIN} (commit {commit})"
    run(sys.executable, "setup.py", "-q", "build_py", "--build-lib", tmp_path / "library", cwd=unpacked)
    assert (tmp_path / "library/migrator/commit").read_text().strip() == commit

    with (checkout / "README.md").open("a") as readme:
        readme.write("changed\n")
    shutil.rmtree(unpacked)
    assert shown_version(unpacked_sdist(checkout, tmp_path)) == f"{PLAIN} (commit {commit}-dirty)"


def test_sources_without_git_are_built_without_a_commit(tmp_path: Path) -> None:
    assert shown_version(unpacked_sdist(sources(tmp_path / "sources"), tmp_path)) == PLAIN
