"""The compiled program comes with the installation; without a compiler there is no installation."""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from migrator.core.errors import ToolFailed
from migrator.hosts import local as elf
from migrator.hosts.ports import Host
from migrator.native.program import NativeProgram, native_program

pytestmark = pytest.mark.exhaustive

REPOSITORY = Path(__file__).parents[2]
NATIVE = Path("migrator/native")


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
    assert (found.path, found.architecture) == (os.fsencode(program), platform.machine())
    assert elf.interpreter(program.read_bytes()) is None, "it is static"
    asked = subprocess.run([program], capture_output=True, check=False)
    assert (asked.returncode, asked.stderr[:6]) == (2, b"usage:")


@pytest.mark.parametrize("compiler", ["/no/such/compiler", "false"])
def test_without_a_compiler_the_build_fails_and_says_what_to_do(checkout: Path, compiler: str) -> None:
    for argv in (
        ("setup.py", "build_native", "--inplace"),
        ("-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", "wheels", "."),
    ):
        done = run(checkout, *argv, CC=compiler)
        assert done.returncode != 0
        said = done.stderr + done.stdout
        assert "migrator-native was not built" in said
        assert compiler in said
        assert "apt-get install gcc libc6-dev" in said
    assert not list(checkout.glob("wheels/*"))


def test_what_is_no_program_is_not_taken_for_one(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="cannot be read: No such file") as caught:
        native_program(tmp_path)
    assert "install migrator" in caught.value.hint
    (tmp_path / "migrator-native").write_text("#!/bin/sh\n")
    with pytest.raises(ToolFailed, match="is not a program"):
        native_program(tmp_path)


class OtherHost:
    """A host of that architecture, which has room for nothing."""

    name = "gl7"

    def __init__(self, architecture: str) -> None:
        self._architecture = architecture

    async def identity(self) -> Any:
        return SimpleNamespace(architecture=self._architecture)

    async def place(self, name: str, content: bytes) -> bytes:
        assert (name, content) == ("migrator-native", b"content")
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("architecture", "words"),
    [("aarch64", "is compiled for x86_64, but host gl7 is aarch64"), ("x86_64", "on host gl7: No space left")],
)
def test_a_host_that_cannot_have_it_is_refused_with_the_next_step(
    tmp_path: Path, architecture: str, words: str
) -> None:
    program = tmp_path / "migrator-native"
    program.write_bytes(b"content")
    host = cast("Host", OtherHost(architecture))
    with pytest.raises(ToolFailed, match=words) as caught:
        asyncio.run(NativeProgram(os.fsencode(program), "x86_64").place(host))
    assert caught.value.hint
