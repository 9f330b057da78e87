"""Builds the compiled program beside the Python packages, records the commit, and adds the manual."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.errors import ExecError

SOURCES = Path("migrator/native/src")
PROGRAM = Path("migrator/native/migrator-native")
COMMIT = Path("migrator/commit")
MANUAL = Path("share/doc/migrator")
FLAGS = ["-std=c11", "-O2", "-pthread", "-static"]
HINT = """\
Usual cause: this machine has no C compiler, or no static C library, or no header of xxHash.
Next step:   install them and run this again (Debian: apt-get install gcc libc6-dev libxxhash-dev; RHEL: dnf install gcc
             glibc-static xxhash-devel),
             or install migrator from a wheel that was built elsewhere: it has the program."""


def compile_program(target: Path) -> None:
    """Compile all sources into one program, static: it runs on every host of this architecture."""
    compiler = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), "cc")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "program"
        sources = sorted(str(source) for source in SOURCES.glob("*.c"))
        try:
            subprocess.run([*compiler.split(), *FLAGS, "-o", str(made), *sources], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ExecError(f"{PROGRAM} was not built: {error}\n{HINT}") from error
        made.chmod(0o755)
        made.replace(target)  # at once: one that runs keeps its own


def record_commit(top: Path) -> None:
    """Write the commit of this checkout below `top`. An unpacked sdist has the file already, and is no checkout."""
    if not Path(".git").exists() or not shutil.which("git"):
        return
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    done = subprocess.run(describe, capture_output=True, text=True, check=False)
    if done.returncode == 0:  # otherwise a checkout without a commit, or of another owner
        (top / COMMIT).write_text(done.stdout, encoding="ascii")


def manual() -> list[tuple[str, list[str]]]:
    """Documents and samples by directory, with the links between them intact."""
    pages = [*Path().glob("*.md"), *Path("docs").rglob("*"), *Path("hooks").rglob("*")]
    pages += [Path("plans/README.md"), Path("plans/sample.json"), Path("requirements.lock"), Path("LICENSE")]
    files = sorted(page for page in pages if page.is_file() and page.parent.name != "__pycache__")
    folders = sorted({page.parent for page in files})
    return [(str(MANUAL / folder), [str(page) for page in files if page.parent == folder]) for folder in folders]


class BuildPy(build_py):
    """The Python packages with the commit."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            record_commit(Path(self.build_lib))


class Sdist(sdist):
    """The sources with the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        record_commit(Path(base_dir))


class BuildNative(Command):
    """A part of `build`: into the wheel, or next to the sources for an editable installation."""

    description = "compile the program that walks bricks and copies files"
    user_options: ClassVar[list[tuple[str, str | None, str | None]]] = [
        ("inplace", "i", "next to the sources, as an editable installation has it")
    ]
    boolean_options: ClassVar[list[str]] = ["inplace"]
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib = None
        self.inplace = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def _target(self) -> Path:
        return (Path() if self.editable_mode or self.inplace else Path(self.build_lib)) / PROGRAM

    def run(self) -> None:
        compile_program(self._target())

    def get_source_files(self) -> list[str]:
        return sorted(str(source) for source in SOURCES.glob("*.[ch]"))

    def get_outputs(self) -> list[str]:
        return [] if self.editable_mode or self.inplace else [str(self._target())]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class Build(build):
    """Everything that setuptools builds, then the program."""

    sub_commands: ClassVar[list[object]] = [*build.sub_commands, ("build_native", None)]


class Wheel(bdist_wheel):
    """A wheel for every Python 3: the program is static, and no module is compiled against an interpreter."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, machine = super().get_tag()
        return "py3", "none", machine.replace("linux_", "manylinux_2_17_", 1)


class WithProgram(Distribution):
    """What is installed fits one architecture only."""

    def has_ext_modules(self) -> bool:
        """Makes a wheel one of this architecture."""
        return True


setup(
    distclass=WithProgram,
    data_files=manual(),
    cmdclass={
        "build": Build,
        "build_py": BuildPy,
        "build_native": BuildNative,
        "sdist": Sdist,
        "bdist_wheel": Wheel,
    },
)
