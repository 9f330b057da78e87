"""The `copy` of the compiled program by itself, for tests."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from migrator.site.model import DIRECT
from migrator.transfer.engines.direct import DirectEngine
from migrator.transfer.ports import CopyEngine
from tests.support.native_builds import built
from tests.support.streams import engine_of

SEED = 20260314
"""The seed of temporary names in all tests of the compiled program."""


def direct_engine(*, privileged: bool = True) -> DirectEngine:
    """The engine with a program that was built now."""
    return DirectEngine(program=str(built()).encode(), privileged=privileged, name_seed=SEED)


def engine_named(name: str) -> CopyEngine:
    """The built-in engine as `direct`, or that for an rsync."""
    return direct_engine() if name == DIRECT else engine_of(name)


def listed(*names: bytes) -> bytes:
    """A list of names that need nothing else."""
    return b"".join(b":" + name + b"\0" for name in names)


ALL = [
    "--privileged",
    "--sparse",
    "--hard-links",
    *("--acls", "--default-acls"),
    "--user-xattrs",
    "--security-xattrs",
    "--symlink-times",
    "--symlink-owner",
    "--devices",
    "--fifos",
    "--sockets",
    *("--name-seed", str(SEED)),
]


def run_copy(
    source: Path, target: Path, names: bytes, *options: str, kind: str = "files", flags: Sequence[str] = ()
) -> "subprocess.CompletedProcess[bytes]":
    """Run the program by itself, without a confinement."""
    places = ["--source", str(source), "--target", str(target), "--kind", kind]
    argv = [str(built(*flags)), "copy", *places, *ALL, *options]
    return subprocess.run(argv, input=names, capture_output=True, check=False)
