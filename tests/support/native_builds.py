"""The compiled program for tests: built from its sources, with warnings as errors."""

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from migrator.hosts.ports import Host
from migrator.native import program
from migrator.transfer.executors import PlaceCompiled

SOURCES = Path(program.__file__).parent / "src"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-pthread")
RELEASE = ("-O2", "-static")
SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@cache
def missing_for_native(*flags: str) -> str | None:
    """Why a compiler cannot build with these flags here (those of a release where none are given); None where it can."""
    if shutil.which("gcc") is None:
        return "gcc is not installed"
    argv = ["gcc", *STRICT, *(flags or RELEASE), "-x", "c", "-", "-o", "/dev/null"]
    done = subprocess.run(argv, input=b"int main(void){return 0;}", capture_output=True, check=False)
    return None if done.returncode == 0 else f"gcc cannot build with {' '.join(flags or RELEASE)}"


@cache
def built(*flags: str) -> Path:
    """The program, once per set of flags; as it is released where none are given."""
    directory = Path(tempfile.mkdtemp(prefix="migrator-native-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    directory.chmod(0o755)
    made = directory / "migrator-native"
    sources = sorted(str(source) for source in SOURCES.glob("*.c"))
    argv = ["gcc", *STRICT, *(flags or RELEASE), "-o", str(made), *sources]
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    if done.returncode:
        raise RuntimeError(f"the program does not compile:\n{done.stderr}")
    return made


def placing(host: Host | None = None) -> PlaceCompiled:
    """The program for an executor: placed on a host, or where it was built."""

    async def place() -> bytes:
        path = built()
        return os.fsencode(path) if host is None else await host.place(path.name, path.read_bytes())

    return place
