"""The compiled program comes with the installation; where it cannot be built, the installation succeeds and says so."""

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from migrator.adapters.native.program import NativeProgram, NoNativeProgram, native_program

pytestmark = pytest.mark.exhaustive

REPOSITORY = Path(__file__).parents[2]
NATIVE = Path("migrator/adapters/native")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the build needs of this checkout, without what an earlier build left."""
    copy = tmp_path / "checkout"
    (copy / NATIVE).mkdir(parents=True)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "migrator/__init__.py"):
        shutil.copy(REPOSITORY / name, copy / name)
    shutil.copytree(REPOSITORY / NATIVE / "src", copy / NATIVE / "src")
    for name in ("__init__.py", "program.py"):
        shutil.copy(REPOSITORY / NATIVE / name, copy / NATIVE / name)
    (copy / "migrator/adapters/__init__.py").touch()
    return copy


def run(checkout: Path, *argv: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *argv],
        cwd=checkout,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@needs_compiler
def test_a_wheel_holds_the_program_and_is_for_this_architecture(checkout: Path) -> None:
    done = run(checkout, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", "wheels", ".")
    assert done.returncode == 0, done.stderr
    (wheel,) = (checkout / "wheels").glob("*.whl")
    assert platform.machine() in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(checkout / "installed")
        names = set(archive.namelist())
    assert {str(NATIVE / "migrator-native"), str(NATIVE / "src/gluster.c")} <= names
    program = checkout / "installed" / NATIVE / "migrator-native"
    program.chmod(0o755)  # as pip does when it installs
    found = native_program(program.parent)
    assert isinstance(found, NativeProgram)
    assert (found.path, found.architecture) == (os.fsencode(program), platform.machine())
    assert found.content()[:4] == b"\x7fELF"
    asked = subprocess.run([program], capture_output=True, check=False)
    assert (asked.returncode, asked.stderr[:6]) == (2, b"usage:")


@needs_compiler
def test_a_build_next_to_the_sources_takes_the_place_of_a_note(checkout: Path) -> None:
    (checkout / NATIVE / "migrator-native.missing").write_text("no C compiler was found\n")
    done = run(checkout, "setup.py", "-q", "build_native", "--inplace")
    assert done.returncode == 0, done.stderr
    assert isinstance(native_program(checkout / NATIVE), NativeProgram)
    assert not (checkout / NATIVE / "migrator-native.missing").exists()


@pytest.mark.parametrize(
    ("compiler", "words"),
    [("/no/such/compiler", "cannot be started: No such file or directory"), ("false", "false failed: without a word")],
)
def test_without_a_compiler_the_build_succeeds_and_says_why(checkout: Path, compiler: str, words: str) -> None:
    (checkout / NATIVE / "migrator-native").write_bytes(b"one of an earlier build")
    done = run(checkout, "setup.py", "build_native", "--inplace", CC=compiler)
    assert done.returncode == 0
    assert words in done.stderr + done.stdout
    missing = native_program(checkout / NATIVE)
    assert isinstance(missing, NoNativeProgram)
    assert words in missing.reason
    assert "install gcc" in missing.reason


def test_what_is_no_program_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "migrator-native").write_text("#!/bin/sh\n")
    found = native_program(tmp_path)
    assert isinstance(found, NoNativeProgram)
    assert "is not a program" in found.reason
    (tmp_path / "migrator-native").unlink()
    (tmp_path / "migrator-native").mkdir()
    found = native_program(tmp_path)
    assert isinstance(found, NoNativeProgram)
    assert "cannot be read: Is a directory" in found.reason
