"""Streams from a brick server that does not have the target to a host that does, joined over connections."""

import asyncio
import os
import secrets
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from migrator.catalog.model import ListedPath
from migrator.core.states import ChunkKind
from migrator.core.units import KIB, MIB
from migrator.fs.model import TargetCapabilities
from migrator.gluster.model import BrickRules
from migrator.hosts.local import LocalHost
from migrator.hosts.ports import Command, Completed, Host
from migrator.hosts.proc import carriers
from migrator.hosts.remote import RemoteHost
from migrator.plan.chunk_lists import ListedPaths
from migrator.transfer.engines.direct import DirectEngine
from migrator.transfer.executors import Executor
from migrator.transfer.model import AttemptVerdict, StreamOutcome
from migrator.transfer.ports import ChunkWork
from migrator.transfer.two_ends import TwoEnds, split_requests
from tests.hosts.local_pipe import LocalPipe
from tests.support.native_builds import placing
from tests.support.streams import make_trees
from tests.support.waiting import DEADLINE_S, until
from tests.support.xfs import missing_for_root_tests
from tests.transfer.native_copy import SEED

TREE = b"home/al ice\n"
RULES = BrickRules(times_from_mdata=False, distributed=False)
Result = TypeVar("Result")


class Pair:
    """A reading host and a writing one, with a tree on each."""

    def __init__(self, scratch: Path, reader: Host, writer: Host, runner: asyncio.Runner) -> None:
        self.reader, self.writer, self.runner = reader, writer, runner
        self.roots = scratch / "source", scratch / "target"
        self.source, self.target = make_trees(*self.roots, tree=TREE)
        self.token = secrets.token_hex(16)
        self.stderr = bytearray()
        self.stdout = bytearray()
        self.executor = self.in_loop(self.connect())

    def in_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    async def connect(self) -> TwoEnds:
        return TwoEnds(
            self.writer,
            Executor(
                self.reader,
                source_root=os.fsencode(self.roots[0]),
                target_root=b"",
                compiled=placing(self.reader),
                facts=await self.reader.identity(),
            ),
            target_root=os.fsencode(self.roots[1]),
            compiled=placing(self.writer),
            facts=await self.writer.identity(),
        )

    async def copy(
        self, *names: bytes, kind: ChunkKind = ChunkKind.FILES, limit: int | None = None
    ) -> tuple[StreamOutcome, Completed]:
        engine = DirectEngine(program=await self.executor.compiled_program(), privileged=True, name_seed=SEED)
        work = ChunkWork(
            kind=kind,
            tree=TREE,
            paths=ListedPaths.of([ListedPath(path=TREE + b"/" + name, size_bytes=0) for name in names]).within(TREE),
            capabilities=TargetCapabilities(),
            bwlimit_bytes_per_s=limit,
            brick=RULES,
            recopy=False,
        )
        view = self.executor.view(TREE)
        command: Command = engine.command(work, view)
        reader = engine.reader(work, view)

        def take(piece: bytes) -> None:
            self.stdout.extend(piece)
            reader.stdout(piece)

        completed = await self.executor.execute(
            replace(command, token=self.token, timeout_s=DEADLINE_S),
            program=engine.program,
            tree=TREE,
            on_start=lambda _: None,
            on_stdout=take,
            on_stderr=self.stderr.extend,
        )
        return reader.outcome(completed), completed

    def close(self) -> None:
        for host in (self.reader, self.writer):
            self.in_loop(host.close())
        assert not carriers([self.token])
        self.runner.close()


@pytest.fixture(params=["pipe>local", "ssh>local", "pipe>ssh"])
def pair(scratch: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    if reason := missing_for_root_tests():
        pytest.skip(f"needs root: {reason}")
    runner = asyncio.Runner()

    def host(kind: str) -> Host:
        if kind == "local":
            return LocalHost(name="here")
        transport = request.getfixturevalue("sshd").transport() if kind == "ssh" else LocalPipe()
        return RemoteHost(transport, grace_s=0.5)

    reader, writer = request.param.split(">")
    made = Pair(scratch, host(reader), host(writer), runner)
    yield made
    made.close()


def test_content_arrives_confined_on_both_ends(pair: Pair) -> None:
    contents = {b"%d" % number: os.urandom(size) for number, size in enumerate([0, 5, 70 * KIB, 9 * MIB + 1])}
    for name, content in contents.items():
        (pair.source / os.fsdecode(name)).write_bytes(content)
    (pair.source / "0").chmod(0o640)
    outcome, completed = pair.in_loop(pair.copy(*contents))
    assert completed.exit_code == 0, pair.stderr
    assert outcome.verdict is AttemptVerdict.DONE
    assert {os.fsencode(path.name): path.read_bytes() for path in pair.target.iterdir()} == contents
    assert b"Q " not in pair.stdout
    pair.in_loop(pair.executor.sync())


@pytest.mark.guarantee("kill-9")
@pytest.mark.parametrize("end", ["source", "target"])
def test_an_end_that_is_killed_ends_the_other_one(pair: Pair, end: str) -> None:
    (pair.source / "file").write_bytes(os.urandom(MIB) * 64)

    def ends() -> dict[str, int]:
        found = {}
        for identity in carriers([pair.token]).get(pair.token, ()):
            words = Path(f"/proc/{identity.pid}/cmdline").read_bytes().split(b"\0")
            if words[1:2] == [b"copy"]:
                found["source" if b"--source" in words else "target"] = identity.pid
        return found

    async def kill() -> tuple[StreamOutcome, Completed]:
        copying = asyncio.create_task(pair.copy(b"file", limit=4 * MIB))
        # What has left the reading end is still written, at this limit.
        await until(lambda: b"P 0 1" in pair.stdout or copying.done())
        os.kill(ends()[end], 9)
        return await copying

    outcome, completed = pair.in_loop(kill())
    assert completed.exit_code != 0
    assert outcome.verdict is AttemptVerdict.INTERRUPTED
    assert not (pair.target / "file").exists()
    assert not carriers([pair.token])
    assert pair.in_loop(pair.copy(b"file"))[0].verdict is AttemptVerdict.DONE
    assert (pair.target / "file").read_bytes() == (pair.source / "file").read_bytes()


def test_a_cancelled_stream_ends_on_both_hosts(pair: Pair) -> None:
    (pair.source / "file").write_bytes(os.urandom(3 * MIB))

    async def cancel() -> None:
        copying = asyncio.create_task(pair.copy(b"file", limit=1))
        await until(lambda: b"P 0 1" in pair.stdout or copying.done())
        assert await pair.executor.activity([pair.token])
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert not carriers([pair.token])

    pair.in_loop(cancel())


def test_requests_are_taken_out_of_output_that_is_cut_anywhere() -> None:
    output = b"P 0 0\nQ 1 e 0 1\nD 0 1 2 3 4 ab\nQ 0 c 7\nP 1 5\n"
    for cut in range(len(output)):
        first, lines, rest = split_requests(b"", output[:cut])
        second, more, end = split_requests(rest, output[cut:])
        assert (first + second, lines + more, end) == (
            b"Q 1 e 0 1\nQ 0 c 7\n",
            b"P 0 0\nD 0 1 2 3 4 ab\nP 1 5\n",
            b"",
        )
