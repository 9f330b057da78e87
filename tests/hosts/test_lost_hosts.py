"""Hosts that cannot be reached, and hosts that are lost in the middle of the work; each for real, against sshd."""

import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.hosts.connection import Transport
from migrator.hosts.far_wire import HEADER
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, HostLost
from migrator.hosts.proc import carriers
from migrator.hosts.remote import RemoteHost
from migrator.hosts.ssh import Ssh
from migrator.transfer.executors import Executor
from tests.hosts.local_pipe import LocalPipe
from tests.hosts.test_hosts import wrapper
from tests.support.native_builds import placing
from tests.support.run_world import in_loop
from tests.support.sshd import Sshd, missing_for_sshd, running_sshd
from tests.support.waiting import DEADLINE_S, until, wait_for

LEASE_S = 4.0
DEAF = b"trap '' TERM HUP INT PIPE; setsid sleep 1000 & echo up; while :; do sleep 0.05; echo more; done"
"""Does not listen to TERM, and starts a session of its own."""


@pytest.fixture
def sshd(scratch: Path) -> Iterator[Sshd]:
    """A host that a test may spoil."""
    if reason := missing_for_sshd():
        pytest.skip(f"needs a real sshd: {reason}")
    directory = scratch / "sshd"
    directory.mkdir()
    with running_sshd(directory) as made:
        yield made


@pytest.fixture
def token() -> Iterator[str]:
    value = secrets.token_hex(16)
    yield value
    for identity in carriers([value]).get(value, ()):
        with suppress(ProcessLookupError):
            os.kill(identity.pid, signal.SIGKILL)


@dataclass
class Running:
    """A stream that has begun to speak."""

    host: RemoteHost
    token: str
    argv: tuple[bytes, ...] = (b"sh", b"-c", DEAF)
    started: list[ProcessIdentity] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    task: "asyncio.Task[Completed] | None" = None

    async def begin(self) -> "asyncio.Task[Completed]":
        command = Command(argv=self.argv, token=self.token, timeout_s=None)
        self.task = asyncio.create_task(
            self.host.processes.stream(
                command, on_start=self.started.append, on_stdout=self.pieces.append, on_stderr=self.pieces.append
            )
        )
        await until(lambda: self.pieces or (self.task is not None and self.task.done()))
        return self.task

    async def begin_in_time(self) -> "asyncio.Task[Completed]":
        """As `begin`, again where a short lease ran out before it spoke: on a busy machine either end may stand still."""
        deadline_s = time.monotonic() + DEADLINE_S
        while (task := await self.begin()).done() or not carriers([self.token]):
            with suppress(HostLost):
                await task
            assert time.monotonic() < deadline_s, "never begun"
            await reached_again(self.host, self.token)
            self.started.clear()
            self.pieces.clear()
        return task


async def lost(task: "asyncio.Task[Completed]") -> HostLost:
    with pytest.raises(HostLost) as caught:
        async with asyncio.timeout(DEADLINE_S):
            await task
    assert caught.value.in_doubt
    assert caught.value.message
    return caught.value


def far_ends_of(started: ProcessIdentity) -> tuple[int, int]:
    """The worker and the guardian above a process."""
    worker = _parent_of(started.pid)
    return worker, _parent_of(worker)


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def refusal(transport: Transport) -> HostLost:
    async def reach() -> None:
        host = RemoteHost(transport, open_within_s=DEADLINE_S)
        try:
            await host.facts()
        finally:
            await host.close()

    with pytest.raises(HostLost) as caught:
        asyncio.run(reach())
    assert caught.value.cause
    assert caught.value.hint
    assert not caught.value.in_doubt
    return caught.value


def key_refused(sshd: Sshd) -> tuple[Transport, str]:
    other = sshd.directory / "other"
    sshd.make_key(other)
    return sshd.transport(key=other), f"refuses the key.*root@{sshd.address}"


def nothing_listens(sshd: Sshd) -> tuple[Transport, str]:
    sshd.stop()
    return sshd.transport(), "nothing listens there"


def no_answer(sshd: Sshd) -> tuple[Transport, str]:
    sshd.take_link_down()
    return replace(sshd.transport(), connect_timeout_s=2), "does not answer"


def python_too_old(sshd: Sshd) -> tuple[Transport, str]:
    code = "import sys; sys.version_info = (3, 6, 8); exec(sys.argv[4])"
    return sshd.transport(python=wrapper(sshd.directory, f"exec python3 -c '{code}' \"$@\"\n")), "too old"


SPOILS = (key_refused, nothing_listens, no_answer, python_too_old)


@pytest.mark.exhaustive
class TestRefused:
    """Errors that say what to do."""

    @pytest.mark.parametrize("spoil", SPOILS, ids=[spoil.__name__ for spoil in SPOILS])
    def test_the_error_says_what_to_do(self, sshd: Sshd, spoil: Callable[[Sshd], tuple[Transport, str]]) -> None:
        transport, expected = spoil(sshd)
        error = refusal(transport)
        assert re.search(expected, f"{error.message} {error.cause} {error.hint}", re.DOTALL)

    @in_loop
    async def test_output_of_start_files_does_no_harm(self, sshd: Sshd) -> None:
        python = wrapper(sshd.directory, 'echo "welcome to this host"; echo problem >&2; exec python3 "$@"\n')
        host = RemoteHost(sshd.transport(python=python))
        try:
            assert (await host.processes.run(Command(argv=(b"echo", b"x")))).stdout == b"x\n"
        finally:
            await host.close()


class TestLost:
    """In the middle of a stream."""

    @pytest.mark.exhaustive
    @in_loop
    async def test_a_host_that_hangs_is_settled_when_it_is_reached_again(self, sshd: Sshd, token: str) -> None:
        """Its far end was stopped, so that no lease ran out there: the next connection ends what it left."""
        host = RemoteHost(sshd.transport(lease_s=LEASE_S), lease_s=LEASE_S, grace_s=0.3)
        running = Running(host, token)
        task = await running.begin_in_time()
        far_ends = far_ends_of(running.started[0])
        for pid in far_ends:
            os.kill(pid, signal.SIGSTOP)
        await lost(task)
        assert carriers([token]), "in doubt: it runs on"
        assert await reached_again(host, "unknown")
        assert not carriers([token]), "reached again, and nothing goes on behind our back"
        await until(lambda: not any(map(_exists, far_ends)))
        await host.close()

    @pytest.mark.guarantee("lost-host")
    @pytest.mark.parametrize("victims", [[0], [1], [0, 1]], ids=["worker", "guardian", "both"])
    @in_loop
    async def test_a_killed_far_end_takes_its_streams_with_it(self, sshd: Sshd, token: str, victims: list[int]) -> None:
        host = RemoteHost(sshd.transport(), lease_s=1000.0, grace_s=0.3)
        # With both killed, only what was started directly is sure to die (PR_SET_PDEATHSIG).
        argv = (b"sh", b"-c", DEAF) if len(victims) == 1 else (b"yes",)
        running = Running(host, token, argv=argv)
        task = await running.begin()
        far_ends = far_ends_of(running.started[0])
        # None of them sees the end of another before its own: the guardian ends soon after the worker.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for victim in victims:
                os.kill(far_ends[victim], number)
        await lost(task)
        await until(lambda: not carriers([token]))
        assert await reached_again(host, token)
        await host.close()

    @in_loop
    async def test_a_sync_after_a_loss_does_not_vouch_for_what_was_before(self, sshd: Sshd, tmp_path: Path) -> None:
        host = RemoteHost(sshd.transport(), grace_s=0.3)
        roots: dict[str, Any] = {"source_root": b"/", "target_root": os.fsencode(tmp_path)}

        async def connected() -> Executor:
            return Executor(host, **roots, compiled=placing(host), facts=await host.identity())

        executor = await connected()
        await executor.sync()
        process_id = (await host.identity()).process_id
        os.kill(process_id, signal.SIGKILL)
        await until(lambda: not _exists(process_id))
        await reached_again(host, "unknown")
        for _ in range(2):
            with pytest.raises(HostLost, match="disks"):
                await executor.sync()
        await (await connected()).sync()
        await host.close()


async def reached_again(host: RemoteHost, token: str) -> bool:
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            return await host.processes.end(token, grace_s=0.0)
        except HostLost:
            assert time.monotonic() < deadline_s, "not reached again"
            await asyncio.sleep(0.1)


_CONTROLLER = """
import asyncio, json, sys
from migrator.hosts.remote import RemoteHost
from migrator.hosts.ssh import Ssh
from migrator.hosts.ports import Command
facts = json.loads(sys.argv[1])
transport = Ssh(host="far", destination=facts["destination"], options=tuple(facts["options"]), lease_s=facts["lease_s"])
async def main():
    host = RemoteHost(transport, lease_s=facts["lease_s"], grace_s=0.3)
    await host.processes.stream(
        Command(argv=("sh".encode(), b"-c", facts["script"].encode()), token=facts["token"], timeout_s=None),
        on_start=lambda _: None, on_stdout=lambda _: print("up", flush=True), on_stderr=lambda _: None,
    )
asyncio.run(main())
"""


class TestController:
    """This program dies without a word."""

    def start(self, transport: Ssh, token: str) -> "subprocess.Popen[bytes]":
        facts = {
            "destination": transport.destination,
            "options": transport.options,
            "lease_s": transport.lease_s,
            "script": DEAF.decode(),
            "token": token,
        }
        return subprocess.Popen(
            [sys.executable, "-c", _CONTROLLER, json.dumps(facts)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )

    @pytest.mark.guarantee("lost-host")
    @pytest.mark.parametrize("link", ["up", "down"])
    def test_its_streams_end_there(self, sshd: Sshd, token: str, link: str) -> None:
        """By the end of the connection; where that does not come through, by the lease."""
        lease_s = LEASE_S if link == "down" else 1000.0
        before = _directories(sshd)
        controller = self.start(sshd.transport(lease_s=lease_s), token)
        try:
            with controller:
                assert controller.stdout is not None
                assert controller.stdout.readline() == b"up\n"
                assert carriers([token])
                own = _directories(sshd) - before
                assert len(own) == 1
                if link == "down":
                    sshd.take_link_down()
                controller.kill()
                controller.wait(DEADLINE_S)
        finally:
            controller.kill()
        asyncio.run(until(lambda: not carriers([token])))
        asyncio.run(until(lambda: not any(map(os.path.exists, own))))


def _directories(sshd: Sshd) -> set[Path]:
    """Where the far ends behind this sshd place files: each holds its own open."""
    held = set()
    for pid in sshd.members():
        with suppress(OSError):
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    held.add(fd.readlink())
    return {path for path in held if path.name.startswith("migrator-far-end-")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(LocalPipe):
    """What this side sends is written to a file, too."""

    file: Path

    def argv(self, arguments: tuple[str, ...]) -> tuple[bytes, ...]:
        words = LocalPipe.argv(self, arguments)
        return (b"sh", b"-c", b'file=$1; shift; tee "$file" | "$@"', b"sh", os.fsencode(self.file), *words)


@in_loop
async def test_a_busy_event_loop_ends_no_stream(tmp_path: Path, token: str) -> None:
    sent = tmp_path / "sent"
    host = RemoteHost(Recorded(file=sent), lease_s=4 * LEASE_S)
    try:
        command = Command(argv=(b"sh", b"-c", b"echo up; sleep 1000"), stdin=b"", token=token, timeout_s=None)
        pieces: list[bytes] = []
        stream = host.processes.stream(
            command, on_start=lambda _: None, on_stdout=pieces.append, on_stderr=pieces.append
        )
        running = asyncio.create_task(stream)
        await until(lambda: pieces or running.done())
        # Nothing of the loop runs meanwhile; the heartbeats are sent all the same.
        beats = sent.stat().st_size + 2 * HEADER.size
        wait_for(lambda: sent.stat().st_size >= beats, "heartbeats are sent")
        assert await host.find("sh") is not None
        assert not running.done()
        assert carriers([token])
    finally:
        await host.close()
    with pytest.raises(HostLost):
        await running
