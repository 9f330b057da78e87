"""The `copy` of the compiled program by itself, for tests."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from migrator.catalog.model import ListedPath
from migrator.core.entry import Entry, EntryType
from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap
from migrator.hosts.ports import Completed
from migrator.plan.chunk_lists import ListedPaths
from migrator.site.model import DIRECT
from migrator.transfer.engines.direct import DirectEngine
from migrator.transfer.model import FileProblem, StreamView
from migrator.transfer.ports import ChunkWork, CopyEngine
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


def copy_entries(
    source: Path,
    target: Path,
    entries: Sequence[Entry],
    capabilities: TargetCapabilities | None = None,
    owners: OwnerMap = SAME_OWNERS,
) -> list[FileProblem]:
    """Copy entries of any trees anew, without a confinement: directories first, and their times last. Returns what did
    not arrive.
    """
    engine, view = (
        replace(direct_engine(), owners=owners),
        StreamView(source_tree=os.fsencode(source), target_tree=os.fsencode(target)),
    )
    directories = [entry for entry in entries if entry.type is EntryType.DIRECTORY]
    others = [entry for entry in entries if entry.type is not EntryType.DIRECTORY]
    failed: list[FileProblem] = []
    for kind, some in (
        (ChunkKind.DIRECTORIES, directories),
        (ChunkKind.FILES, others),
        (ChunkKind.DIRECTORY_TIMES, directories),
    ):
        rows = [ListedPath(path=one.path, size_bytes=one.size_bytes, link_group=one.link_group) for one in some]
        capabilities = capabilities or TargetCapabilities()
        work = ChunkWork(kind=kind, tree=b"", paths=ListedPaths.of(rows), capabilities=capabilities, recopy=True)
        command, reader = engine.command(work, view), engine.reader(work, view)
        ran = subprocess.run(command.argv, input=command.stdin, capture_output=True, check=False)
        reader.stdout(ran.stdout)
        reader.stderr(ran.stderr)
        completed = Completed(exit_code=ran.returncode, stdout=b"", stderr=b"", timed_out=False)
        failed += reader.outcome(completed).suspects
    return failed
