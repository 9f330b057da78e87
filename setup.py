"""Builds the compiled program beside the Python packages."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.build import build
from setuptools.errors import ExecError

SOURCES = Path("migrator/native/src")
PROGRAM = Path("migrator/native/migrator-native")
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


class WithProgram(Distribution):
    """What is installed fits one architecture only."""

    def has_ext_modules(self) -> bool:
        """Makes a wheel one of this architecture."""
        return True


setup(distclass=WithProgram, cmdclass={"build": Build, "build_native": BuildNative})
