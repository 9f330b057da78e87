"""The compiled program for tests: built from its sources, with warnings as errors."""

import atexit
import os
import shutil
import subprocess
import tempfile
from fcntl import LOCK_EX, flock
from functools import cache
from hashlib import sha256
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
    """The program, once per set of flags, for all processes of tools/test.sh; as it is released where none are given."""
    flags = flags or RELEASE
    shared = os.environ.get("MIGRATOR_TEST_BUILDS")
    directory = Path(shared or tempfile.mkdtemp(prefix="migrator-native-"), sha256(repr(flags).encode()).hexdigest())
    if shared is None:
        atexit.register(shutil.rmtree, directory.parent, ignore_errors=True)
    directory.parent.chmod(0o755)
    directory.mkdir(exist_ok=True)
    made = directory / "migrator-native"
    with (directory / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not made.exists():
            _build(made.with_name("half"), *flags)
            made.with_name("half").rename(made)
    return made


def _build(made: Path, *flags: str) -> None:
    sources = sorted(str(source) for source in SOURCES.glob("*.c"))
    argv = ["gcc", *STRICT, *flags, "-o", str(made), *sources]
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    if done.returncode:
        raise RuntimeError(f"the program does not compile:\n{done.stderr}")


def placing(host: Host | None = None) -> PlaceCompiled:
    """The program for an executor: placed on a host, or where it was built."""

    async def place() -> bytes:
        path = built()
        return os.fsencode(path) if host is None else await host.place(path.name, path.read_bytes())

    return place
