"""The compiled program comes with the installation; without a compiler there is no installation."""

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from migrator.hosts import local as elf
from migrator.native.program import native_program
from tools.packages import Machine, compiler_for

pytestmark = pytest.mark.exhaustive

REPOSITORY = Path(__file__).parents[2]
NATIVE = Path("migrator/native")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the build needs of this checkout, without what an earlier build left."""
    copy = tmp_path / "checkout"
    (copy / NATIVE).mkdir(parents=True)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "migrator/__init__.py"):
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
    assert wheel.stem.split("-")[2:] == ["py3", "none", f"manylinux_2_17_{platform.machine()}"]
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


AARCH64 = Machine("aarch64", "arm64")


@pytest.mark.skipif(
    None in (shutil.which(AARCH64.compiler), shutil.which("qemu-aarch64-static")),
    reason="needs a compiler for aarch64, and qemu-user-static",
)
def test_the_program_does_the_same_on_aarch64(checkout: Path) -> None:
    tree, targets = checkout / "tree", checkout / "targets"
    with compiler_for(AARCH64) as compiler:
        done = run(checkout, "setup.py", "build_native", "--inplace", CC=compiler)
    assert done.returncode == 0, done.stderr
    program = checkout / NATIVE / "migrator-native"
    content = program.read_bytes()
    assert native_program(program.parent).architecture == "aarch64"
    assert elf.interpreter(content) is None, "it is static"

    (tree / "folder").mkdir(parents=True)
    names = ["small", "folder/big", "folder/new\nline"]
    for number, name in enumerate(names):
        (tree / name).write_bytes(bytes(range(256)) * 1000 * number)
        os.utime(tree / name, ns=(1_700_000_000_123_456_789 + number, 1_600_000_000_987_654_321 - number))
    lists = b"".join(b":%s\0" % os.fsencode(name) for name in names)
    calls: list[tuple[list[str], bytes]] = [
        (["walk", "--mount", str(tree), "--workers", "1"], b""),
        (["digest", "--tree", str(tree)], lists),
    ]
    programs = {"other": ["qemu-aarch64-static", str(program)], "own": [os.fsdecode(native_program().path)]}
    for words, given in calls:  # one after the other: each reading may change times of access
        answers = [
            subprocess.run([*argv, *words], input=given, capture_output=True, check=True).stdout
            for argv in programs.values()
        ]
        assert answers[0] == answers[1] != b""
    for kind, argv in programs.items():
        target = targets / kind
        (target / "folder").mkdir(parents=True)
        copying = ["copy", "--source", str(tree), "--target", str(target), "--kind", "files", "--name-seed", "7"]
        subprocess.run([*argv, *copying], input=lists, capture_output=True, check=True)
        for name in names:
            assert (target / name).read_bytes() == (tree / name).read_bytes()
            assert (target / name).stat().st_mtime_ns == (tree / name).stat().st_mtime_ns
