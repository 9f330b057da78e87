"""Write the locks, one for each of what the program, its build and its tests need: `make locks`.

Every file of a version is listed by its hash: wheels of all machines and the sdist. Versions that a lock names are kept;
`--upgrade-package NAME` takes the newest one.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "requirements.lock"
LOCKS = {
    PROGRAM: ("pyproject.toml",),
    "requirements-build.lock": ("--group", "build"),
    "requirements-test.lock": ("--group", "test"),
}
OF_EVERY_ENVIRONMENT = ("pip",)
PYTHON = "3.11"
HEADER = "# Written by `make locks`.\n"


def locked(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and SHA-256 of each file, by the normalised name of the package."""
    found = {}
    for entry in re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8")):
        if pinned := re.match(r"([\w.-]+)==(\S+)", entry):
            found[pinned[1]] = pinned[2], frozenset(re.findall(r"--hash=sha256:(\w+)", entry))
    return found


def write_lock(name: str, *, upgraded: list[str]) -> None:
    """The tests' lock leaves out what the program needs, which is installed beside it."""
    options = ["--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", PYTHON]
    options += ["--no-emit-index-url", "--no-emit-find-links", "--allow-unsafe", "--output-file", name, *LOCKS[name]]
    for package in upgraded:
        options += ["--upgrade-package", package]
    if name != PROGRAM:
        options += ["--constraints", PROGRAM]
        for package in (*locked(ROOT / PROGRAM), *OF_EVERY_ENVIRONMENT):
            options += ["--no-emit-package", package]
    subprocess.run([sys.executable, "-m", "uv", "pip", "compile", *options], cwd=ROOT, check=True)
    lock = ROOT / name
    lock.write_text(HEADER + lock.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade-package", metavar="NAME", action="append", default=[])
    arguments = parser.parse_args()
    for lock_name in LOCKS:
        write_lock(lock_name, upgraded=arguments.upgrade_package)
