"""Builds the compiled program beside the Python packages. Where it cannot, the installation goes on without it and says so."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.build import build

SOURCES = Path("migrator/adapters/native/src")
PROGRAM = Path("migrator/adapters/native/migrator-native")
MISSING = Path("migrator/adapters/native/migrator-native.missing")
FLAGS = ["-std=c11", "-O2", "-pthread"]


def compile_program(target: Path) -> str | None:
    """Compile all sources into one program; None when done, else why not, the compiler's words first."""
    compiler = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        return "no C compiler was found"
    sources = sorted(str(source) for source in SOURCES.glob("*.c"))
    target.parent.mkdir(parents=True, exist_ok=True)
    complaint = ""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "program"
        # Static, so that it runs on every host of this architecture; some systems lack the static C library.
        for linking in (["-static"], []):
            argv = [*compiler.split(), *FLAGS, *linking, "-o", str(made), *sources]
            try:
                done = subprocess.run(argv, capture_output=True, check=False, text=True)
            except OSError as error:
                return f"{compiler} cannot be started: {error.strerror}"
            if done.returncode == 0:
                made.chmod(0o755)
                made.replace(target)  # at once: one that runs keeps its own
                return None
            complaint = complaint or done.stderr.strip()
    errors = [line for line in complaint.splitlines() if "error" in line] or complaint.splitlines()
    return f"{compiler} failed: {errors[0] if errors else 'without a word'}"


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

    def _targets(self) -> tuple[Path, Path]:
        base = Path() if self.editable_mode or self.inplace else Path(self.build_lib)
        return base / PROGRAM, base / MISSING

    def run(self) -> None:
        program, missing = self._targets()
        reason = compile_program(program)
        if reason is None:
            missing.unlink(missing_ok=True)
            return
        program.unlink(missing_ok=True)
        missing.write_text(reason + "\n", encoding="utf-8")
        self.warn(f"{reason}: bricks will be walked by Python and copied by rsync, slower")

    def get_source_files(self) -> list[str]:
        return sorted(str(source) for source in SOURCES.glob("*.[ch]"))

    def get_outputs(self) -> list[str]:
        return [] if self.editable_mode or self.inplace else [str(path) for path in self._targets() if path.exists()]

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
