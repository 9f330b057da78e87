"""Runs one chunk as the program does: engine, executor and processes are the real ones."""

import asyncio
import os
import random
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from migrator.catalog.model import ListedPath
from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.gluster.model import BrickRules
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed
from migrator.hosts.process import LocalProcesses
from migrator.plan.chunk_lists import ListedPaths
from migrator.transfer.engines import rsync as rsync_program
from migrator.transfer.engines.rsync import RsyncEngine
from migrator.transfer.executors import LocalExecutor
from migrator.transfer.model import AttemptVerdict, StreamOutcome, StreamView
from migrator.transfer.ports import ChunkWork, CopyEngine
from tests.support.native_builds import placing
from tests.support.snapshots import names_of

OTHER_RSYNCS_VARIABLE = "MIGRATOR_TEST_RSYNCS"
"""Further rsync programs to test with, separated by colons."""


def rsync_programs() -> list[str]:
    """The installed rsync, and those that the environment names."""
    named = [name for name in os.environ.get(OTHER_RSYNCS_VARIABLE, "").split(":") if name]
    return ["rsync", *named]


def engine_of(program: str = "rsync") -> RsyncEngine:
    """The engine for a program, with what that program says of itself."""
    found = shutil.which(program)
    assert found is not None, f"{program} is not installed"
    path = os.fsencode(found)
    features = asyncio.run(rsync_program.ask(LocalProcesses(), path))
    return RsyncEngine(program=path, features=features, privileged=os.geteuid() == 0)


@dataclass
class Ran:
    """How a chunk ended."""

    outcome: StreamOutcome
    completed: Completed
    stdout: bytes
    stderr: bytes


@dataclass
class Streams:
    """One source, one target, one engine."""

    engine: CopyEngine
    source_root: Path
    target_root: Path
    capabilities: TargetCapabilities = field(default_factory=TargetCapabilities)
    as_uid: int | None = None
    brick: BrickRules | None = None
    recopy: bool = False

    def run(self, paths: Iterable[bytes | ListedPath], **options: Any) -> Ran:
        """Copy these paths (relative to the source root), listed as they are now or as they are given."""
        return asyncio.run(self._copy(paths, **options))

    async def _copy(
        self,
        paths: Iterable[bytes | ListedPath],
        *,
        tree: bytes = b"home/alice",
        kind: ChunkKind = ChunkKind.FILES,
        bwlimit_bytes_per_s: int | None = None,
        on_stdout: Callable[[bytes], None] = lambda _: None,
        on_start: Callable[[ProcessIdentity], None] = lambda _: None,
    ) -> Ran:
        processes = LocalProcesses(grace_s=2.0)
        executor = LocalExecutor(
            processes,
            source_root=os.fsencode(self.source_root),
            target_root=os.fsencode(self.target_root),
            compiled=placing(),
        )
        work = ChunkWork(
            kind=kind,
            tree=tree,
            paths=ListedPaths.of(
                [_listed(self.source_root, path) if isinstance(path, bytes) else path for path in paths]
            ).within(tree),
            capabilities=self.capabilities,
            bwlimit_bytes_per_s=bwlimit_bytes_per_s,
            brick=self.brick,
            recopy=self.recopy,
        )
        view = executor.view(tree) if self.as_uid is None else self._open_view(tree)
        reader = self.engine.reader(work, view)
        command = replace(self.engine.command(work, view), token=secrets.token_hex(16))
        stdout, stderr = bytearray(), bytearray()

        def take_stdout(piece: bytes) -> None:
            stdout.extend(piece)
            reader.stdout(piece)
            on_stdout(piece)

        def take_stderr(piece: bytes) -> None:
            stderr.extend(piece)
            reader.stderr(piece)

        if self.as_uid is None:
            try:
                completed = await executor.execute(
                    command,
                    program=self.engine.program,
                    tree=tree,
                    on_start=on_start,
                    on_stdout=take_stdout,
                    on_stderr=take_stderr,
                )
            finally:
                await executor.close()
        else:
            completed = await processes.stream(
                _as_user(command, self.as_uid), on_start=on_start, on_stdout=take_stdout, on_stderr=take_stderr
            )
        return Ran(reader.outcome(completed), completed, bytes(stdout), bytes(stderr))

    def _open_view(self, tree: bytes) -> StreamView:
        return StreamView(
            source_tree=os.path.join(os.fsencode(self.source_root), tree),
            target_tree=os.path.join(os.fsencode(self.target_root), tree),
        )


def _listed(source_root: Path, path: bytes) -> ListedPath:
    try:
        seen = os.lstat(os.path.join(os.fsencode(source_root), path))
    except OSError:
        return ListedPath(path=path, size_bytes=0)
    linked = seen.st_nlink > 1 and not stat.S_ISDIR(seen.st_mode)
    return ListedPath(path=path, size_bytes=seen.st_size, link_group=seen.st_ino if linked else None)


def _as_user(command: Command, uid: int) -> Command:
    number = str(uid).encode()
    prefix = (b"setpriv", b"--reuid=" + number, b"--regid=" + number, b"--clear-groups", b"--")
    return replace(command, argv=(*prefix, *command.argv))


def make_trees(*roots: Path, tree: bytes = b"home/alice") -> Sequence[Path]:
    """The tree's directory under every root."""
    made = [root / os.fsdecode(tree) for root in roots]
    for path in made:
        path.mkdir(parents=True)
    return made


def copy_tree(streams: Streams, source: Path, *, tree: bytes) -> list[Ran]:
    """Directories, files, times: the order of a pass; files in no particular order, and only what the engine can take."""
    directories, others = (
        [tree + b"/" + name for name in names if len(name) <= streams.engine.longest_name_bytes]
        for names in names_of(os.fsencode(source))
    )
    random.Random(1).shuffle(others)
    order = ((directories, ChunkKind.DIRECTORIES), (others, ChunkKind.FILES), (directories, ChunkKind.DIRECTORY_TIMES))
    runs = [streams.run(paths, tree=tree, kind=kind) for paths, kind in order]
    for ran in runs:
        assert ran.completed.exit_code == 0, ran.stderr
        assert ran.outcome.verdict is AttemptVerdict.DONE, (ran.outcome, ran.stderr)
        assert not ran.outcome.suspects, ran.outcome.suspects
    return runs
