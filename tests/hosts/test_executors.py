"""What the run stage relies on when it has a stream executed; run against every adapter of the port."""

import asyncio
import os
import re
import secrets
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, Host
from migrator.hosts.proc import carriers
from migrator.hosts.process import LocalProcesses
from migrator.hosts.remote import RemoteHost
from migrator.transfer.engines.rules_rsync import JAIL_FAILED
from migrator.transfer.executors import Executor, LocalExecutor
from tests.hosts.local_pipe import LocalPipe
from tests.support.native_builds import placing
from tests.support.streams import make_trees
from tests.support.waiting import DEADLINE_S, until
from tests.support.xfs import bound, missing_for_root_tests

BASH = os.path.realpath(b"/bin/bash")
Result = TypeVar("Result")


class World:
    """An executor over two roots that hold a tree each."""

    def __init__(self, scratch: Path, host: Host | None = None, *, runner: asyncio.Runner | None = None) -> None:
        """`runner`: of the loop that the host belongs to."""
        self.runner = runner or asyncio.Runner()
        self.remote = host
        self.source_root, self.target_root = scratch / "source", scratch / "target"
        self.tree = b"home/al ice\n"
        self.source, self.target = make_trees(self.source_root, self.target_root, tree=self.tree)
        self.processes = LocalProcesses(grace_s=0.5)
        roots = {"source_root": os.fsencode(self.source_root), "target_root": os.fsencode(self.target_root)}
        options: dict[str, Any] = {**roots, "compiled": placing(host)}
        self.executor: Executor = (
            LocalExecutor(self.processes, **options) if host is None else Executor(host, **options)
        )
        self.view = self.executor.view(self.tree)
        self.token = secrets.token_hex(16)
        self.started: list[ProcessIdentity] = []
        self.stdout, self.stderr = bytearray(), bytearray()

    async def execute(self, script: str, *, tree: bytes | None = None) -> Completed:
        view = self.view
        text = script.replace("SOURCE", "$1").replace("TARGET", "$2").encode()
        argv = (BASH, b"-c", text, b"bash", view.source_tree, view.target_tree)
        return await self.executed(argv, b"from standard input\n", tree=tree)

    async def executed(self, argv: tuple[bytes, ...], stdin: bytes, *, tree: bytes | None = None) -> Completed:
        return await self.executor.execute(
            Command(argv=argv, stdin=stdin, timeout_s=DEADLINE_S, token=self.token),
            program=argv[0],
            tree=self.tree if tree is None else tree,
            on_start=self.started.append,
            on_stdout=self.stdout.extend,
            on_stderr=self.stderr.extend,
        )

    def run(self, script: str, *, tree: bytes | None = None) -> Completed:
        return self.in_loop(self.execute(script, tree=tree))

    def in_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        """One event loop for all of a test: a connection belongs to its own."""
        return self.runner.run(work)

    def close(self) -> None:
        assert self.in_loop(self.processes.end(self.token, grace_s=0.0))
        if self.remote is not None:
            self.in_loop(self.remote.close())
        self.runner.close()


@pytest.fixture(params=["local", "pipe", "ssh"])
def world(scratch: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    host = None
    if request.param != "local":
        if reason := missing_for_root_tests():
            pytest.skip(f"needs root: {reason}")
        host = RemoteHost(
            request.getfixturevalue("sshd").transport() if request.param == "ssh" else LocalPipe(), grace_s=0.5
        )
    made = World(scratch, host)
    yield made
    made.close()


def test_every_process_carries_the_token(world: World) -> None:
    async def look() -> None:
        task = asyncio.create_task(world.execute("(while :; do read -t 0.1; done) <> <(:) & while :; do :; done"))
        await until(lambda: world.started and len(carriers([world.token]).get(world.token, ())) >= 2)
        found = carriers([world.token])[world.token]
        assert world.started[0] in found
        before = await world.executor.activity([world.token])
        while await world.executor.activity([world.token]) == before:
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not carriers([world.token])
        assert await world.executor.activity([world.token]) == {}

    world.in_loop(look())


def test_a_stream_has_the_same_umask_on_every_host(world: World) -> None:
    before = os.umask(0o027)
    try:
        assert world.run("umask").exit_code == 0
    finally:
        os.umask(before)
    assert world.stdout == b"0000\n"


def test_a_running_copy_takes_another_limit(world: World) -> None:
    (world.source / "file").write_bytes(os.urandom(3 << 20))

    async def copy() -> None:
        program = await placing(world.remote)()
        places = (b"--source", world.view.source_tree, b"--target", world.view.target_tree)
        argv = (program, b"copy", *places, b"--kind", b"files", b"--name-seed", b"1", b"--bwlimit", b"1")
        task = asyncio.create_task(world.executed(argv, b":file\0"))
        # At one byte a second the first piece alone takes days.
        await until(lambda: re.search(rb"P 0 [1-9]", world.stdout) or task.done())
        assert not task.done()
        while not task.done():
            world.executor.limit(world.token, None)
            await asyncio.sleep(0.05)
        assert (await task).exit_code == 0, world.stderr

    world.in_loop(copy())
    assert (world.target / "file").read_bytes() == (world.source / "file").read_bytes()


@pytest.mark.parametrize("victim", range(3))
def test_no_killed_process_leaves_another_behind(world: World, victim: int) -> None:
    """kill -9 of any one of the stream's processes: the rest ends, at the latest when the token is ended."""

    async def kill() -> None:
        script = "trap '' TERM; (while :; do :; done) & echo up; while :; do :; done"
        task = asyncio.create_task(world.execute(script))
        await until(lambda: world.stdout == b"up\n")
        found = sorted(identity.pid for identity in carriers([world.token])[world.token])
        os.kill(found[min(victim, len(found) - 1)], signal.SIGKILL)
        assert await world.executor.end_orphans([world.token, "unknown"]) == []
        completed = await task
        assert completed.exit_code != 0
        assert not carriers([world.token])

    world.in_loop(kill())


def test_leftover_processes_of_a_stream_end_before_it_is_over(world: World) -> None:
    async def leave() -> None:
        completed = await world.execute("trap '' TERM; for n in 1 2 3; do (while :; do :; done) & done; exit 7")
        assert completed.exit_code == 7
        assert not carriers([world.token])

    world.in_loop(leave())


def test_without_root_streams_see_the_real_paths(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    world = World(scratch)
    assert not world.executor.confined
    assert world.view.source_tree == os.fsencode(world.source)
    assert world.view.target_tree == os.fsencode(world.target)
    (world.source / "file").write_bytes(b"content\n")
    assert world.run('read line < "SOURCE/file"; echo "$line" > "TARGET/copy"').exit_code == 0
    assert (world.target / "copy").read_bytes() == b"content\n"
    assert world.in_loop(world.executor.problem()) is None
    world.close()


@pytest.mark.needs_root
class TestConfined:
    """As root."""

    def test_there_is_nothing_else_and_the_source_cannot_be_written(self, world: World) -> None:
        (world.source / "file").write_bytes(b"content")
        script = (
            "shopt -s nullglob globstar; for path in /* /etc/* /dev/* /home/* /proc/* SOURCE/* TARGET/*; do echo $path; done;"
            "echo $$; for fd in 3 4 5 6 7 8 9; do { true >&$fd; } 2>/dev/null && echo open $fd; done;"
            "echo x > SOURCE/file; echo x > /new; exit 23"
        )
        assert world.run(script).exit_code == 23, world.stderr
        assert world.stderr.count(b"Read-only file system") == 2
        assert (world.source / "file").read_bytes() == b"content"
        seen = world.stdout.decode().split("\n")
        assert {"/source", "/target", "/source/file"} <= set(seen)
        assert set(seen) - {"/source", "/target", "/source/file", "1", ""} <= {
            "/usr", "/bin", "/lib", "/lib64", "/etc", "/etc/ld.so.cache", "/dev", "/dev/null", "/dev/urandom"
        }  # fmt: skip
        assert "1" in seen, "it is the first process of its own namespace"

    def test_reading_leaves_no_trace_in_access_times(self, world: World) -> None:
        (world.source / "file").write_bytes(b"content\n")
        os.utime(world.source / "file", ns=(1, 10**18))
        assert world.run("read line < SOURCE/file").exit_code == 0
        assert (world.source / "file").stat().st_atime_ns == 1

    def test_there_is_no_way_up(self, world: World) -> None:
        (world.source_root / "outside").write_bytes(b"secret")
        (world.source / "up").symlink_to("../../outside")
        (world.source / "absolute").symlink_to(world.source_root / "outside")
        (world.source / "root").symlink_to("/")
        world.run(
            "for path in SOURCE/up SOURCE/absolute SOURCE/../outside SOURCE/../../outside SOURCE/root/etc/passwd; do"
            " read line < $path && echo $line; done; true"
        )
        assert world.stdout == b""

    def test_another_mount_in_the_tree_is_not_seen(self, world: World, request: pytest.FixtureRequest) -> None:
        make_xfs = request.getfixturevalue("make_xfs")
        inner = make_xfs()
        (inner.path / "secret").write_bytes(b"secret")
        below = world.source / "mnt"
        below.mkdir()
        with bound(inner.path, below):
            assert world.run("shopt -s nullglob; for path in SOURCE/mnt/*; do echo $path; done").exit_code == 0
        assert world.stdout == b""

    def test_a_target_that_is_not_there_cannot_be_synced(self, world: World) -> None:
        world.target_root.rename(world.target_root.with_name("elsewhere"))
        assert world.run("echo x > TARGET/x").exit_code == JAIL_FAILED
        assert world.stderr.startswith(b"migrator-jail: target-root: ")
        with pytest.raises(FileNotFoundError):
            world.in_loop(world.executor.sync())
