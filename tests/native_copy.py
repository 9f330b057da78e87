"""The compiled program for tests of its `copy`: built from the sources with warnings as errors."""

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from migrator.adapters.engines.direct import DirectEngine
from migrator.adapters.native import program

SOURCES = Path(program.__file__).parent / "src"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread")
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def missing_for_native() -> str | None:
    """Why the program cannot be compiled here; None where it can."""
    return None if shutil.which("gcc") else "gcc is not installed"


@cache
def built(*flags: str) -> Path:
    """The program, once per set of flags; static and optimised where none are given."""
    directory = Path(tempfile.mkdtemp(prefix="migrator-native-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    directory.chmod(0o755)
    made = directory / "migrator-native"
    sources = sorted(str(source) for source in SOURCES.glob("*.c"))
    argv = ["gcc", *STRICT, *(flags or ("-O2", "-static")), "-o", str(made), *sources]
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    if done.returncode:
        raise RuntimeError(f"the program does not compile:\n{done.stderr}")
    return made


def direct_engine(*, privileged: bool = True, digest: bool = False) -> DirectEngine:
    """The engine with a program that was built now."""
    return DirectEngine(program=str(built()).encode(), privileged=privileged, digest=digest)


def listed(*names: bytes) -> bytes:
    """A list of names that need nothing else."""
    return b"".join(b":" + name + b"\0" for name in names)


ALL = [
    "--privileged",
    "--sparse",
    "--hard-links",
    "--acls",
    "--user-xattrs",
    "--security-xattrs",
    "--symlink-times",
    "--symlink-owner",
    "--devices",
    "--fifos",
    "--sockets",
]


def run_copy(
    source: Path, target: Path, names: bytes, *options: str, kind: str = "files", flags: Sequence[str] = ()
) -> "subprocess.CompletedProcess[bytes]":
    """Run the program by itself, without a confinement."""
    argv = [
        str(built(*flags)),
        "copy",
        "--source",
        str(source),
        "--target",
        str(target),
        "--kind",
        kind,
        *ALL,
        *options,
    ]
    return subprocess.run(argv, input=names, capture_output=True, check=False)
