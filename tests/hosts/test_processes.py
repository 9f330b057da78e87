"""What everybody who starts programs relies on; run against every adapter of the port."""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from migrator.core.errors import ToolFailed
from migrator.hosts import far_process, far_procfs
from migrator.hosts.connection import Transport
from migrator.hosts.far_end import predecessors
from migrator.hosts.far_procfs import ProcessTable, process_stat, token_of
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, Processes
from migrator.hosts.proc import TOKEN_VARIABLE, carriers
from migrator.hosts.process import LocalProcesses
from migrator.hosts.remote import RemoteHost
from tests.hosts.local_pipe import LocalPipe
from tests.support.waiting import until

PYTHON = os.fsencode(sys.executable)
LIMIT_BYTES = 50_000_000
Result = TypeVar("Result")
loops: list[asyncio.Runner] = []


@pytest.fixture(autouse=True)
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all of a test: connections belong to theirs."""
    with asyncio.Runner() as made:
        loops.append(made)
        yield made
        loops.pop()


def in_loop(work: Coroutine[Any, Any, Result]) -> Result:
    return loops[-1].run(work)


@pytest.fixture(params=["local", "pipe", "ssh"])
def processes(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[Processes]:
    if request.param == "local":
        yield LocalProcesses(grace_s=0.3, output_limit_bytes=LIMIT_BYTES)
        return
    transport: Transport = LocalPipe()
    if request.param == "ssh":
        transport = request.getfixturevalue("sshd").transport()
    host = RemoteHost(transport, grace_s=0.3, output_limit_bytes=LIMIT_BYTES)
    yield host.processes
    runner.run(host.close())


@pytest.fixture
def token(processes: Processes) -> Iterator[str]:
    """A token of this test alone; what still carries it afterwards is ended."""
    value = secrets.token_hex(16)
    yield value
    assert in_loop(processes.end(value, grace_s=0.0))


def start_alone(argv: Sequence[bytes], token: str) -> int:
    """Start what an earlier run may have left behind: a process with a token that nobody here holds; its pid."""
    null = subprocess.DEVNULL
    environment = os.environ | {TOKEN_VARIABLE: token}
    started = subprocess.Popen(argv, stdin=null, stdout=null, stderr=null, env=environment, start_new_session=True)
    threading.Thread(target=started.wait, daemon=True).start()
    return started.pid


def run(processes: Processes, *argv: bytes, **options: object) -> Completed:
    return in_loop(processes.run(Command(argv=argv, **options)))  # type: ignore[arg-type]


def shell(script: str) -> tuple[bytes, ...]:
    return (b"sh", b"-c", script.encode())


async def ignore_output(
    processes: Processes, command: Command, on_start: Callable[[ProcessIdentity], None]
) -> Completed:
    return await processes.stream(command, on_start=on_start, on_stdout=lambda _: None, on_stderr=lambda _: None)


@pytest.mark.parametrize(
    ("argv", "options", "expected"),
    [
        (shell("printf out; printf err >&2; exit 7"), {}, (7, b"out", b"err")),
        (shell("kill -USR1 $$"), {}, (-signal.SIGUSR1, b"", b"")),
        ((b"printf", b"%s", bytes(range(1, 256))), {}, (0, bytes(range(1, 256)), b"")),
        ((b"cat",), {}, (0, b"", b"")),
        ((b"true",), {"stdin": b"x" * 5_000_000}, (0, b"", b"")),
    ],
    ids=["output", "signal", "bytes", "no input", "input that is not read"],
)
def test_output_and_exit_code(
    processes: Processes, argv: tuple[bytes, ...], options: dict[str, bytes], expected: tuple[int, bytes, bytes]
) -> None:
    code, stdout, stderr = expected
    completed = run(processes, *argv, **options)
    assert completed == Completed(exit_code=code, stdout=stdout, stderr=stderr, timed_out=False)


def test_one_output_keeps_the_order_of_what_is_said() -> None:
    lines = "".join(f"echo {number} {'>&2' if number % 2 else ''};" for number in range(200))
    completed = run(LocalProcesses(one_output=True), *shell(lines))
    assert completed.stdout.split() == [b"%d" % number for number in range(200)]
    assert completed.stderr == b""


def test_the_environment_holds_nothing_else(processes: Processes, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "1")
    completed = run(processes, b"env", b"-0", environment={"MORE": "2"}, token=token)
    variables = dict(line.split(b"=", 1) for line in completed.stdout.split(b"\0") if line)
    assert variables.keys() == {b"PATH", b"LC_ALL", b"MORE", b"MIGRATOR_TOKEN"}
    assert variables[b"LC_ALL"] == b"C"
    assert variables[b"MIGRATOR_TOKEN"] == token.encode()


def test_no_descriptor_is_inherited(processes: Processes) -> None:
    with open(os.devnull, "rb") as file:
        os.set_inheritable(file.fileno(), True)
        script = "import json, os; print(json.dumps(sorted(int(n) for n in os.listdir('/proc/self/fd'))))"
        # The listing itself holds one.
        assert json.loads(run(processes, PYTHON, b"-c", script.encode()).stdout) == [0, 1, 2, 3]


def test_a_lot_of_input_and_output_at_once(processes: Processes) -> None:
    content = os.urandom(8_000_000)
    assert run(processes, b"cat", stdin=content).stdout == content


def test_a_program_that_is_not_there(processes: Processes) -> None:
    with pytest.raises(ToolFailed, match="no-such-program") as caught:
        run(processes, b"/no-such-program\n")
    assert caught.value.hint


def test_a_time_limit_ends_the_whole_group(processes: Processes, token: str) -> None:
    script = "trap '' TERM; echo started; sleep 1000 & sleep 1000"
    for timeout_s in (0.5, 5.0, 60.0):
        completed = run(processes, *shell(script), timeout_s=timeout_s, token=token)
        assert completed.timed_out
        assert not in_loop(processes.survivors([token]))
        if completed.stdout:  # a slow machine may not have come so far
            break
    assert completed.exit_code == -signal.SIGKILL
    assert completed.stdout == b"started\n"


def test_too_much_output_ends_it(token: str) -> None:
    processes = LocalProcesses(grace_s=0.3, output_limit_bytes=100_000)
    with pytest.raises(ToolFailed, match="100000 bytes"):
        run(processes, b"yes", token=token, timeout_s=None)
    assert not in_loop(processes.survivors([token]))


DEAF = "trap '' TERM INT HUP; sleep 1000 & while :; do sleep 1000; done"


@pytest.mark.parametrize(
    ("script", "again"),
    [
        ("sleep 1000", False),
        (DEAF, False),
        (DEAF, True),
        ("setsid sleep 1000 & setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & sleep 1000", False),
        ("(sleep 1000 &) ; exec sleep 1000", False),
    ],
    ids=["plain", "deaf", "again-and-again", "other-sessions", "orphan"],
)
def test_cancellation_leaves_nothing(processes: Processes, token: str, script: str, again: bool) -> None:
    async def cancel() -> None:
        started: list[ProcessIdentity] = []
        command = Command(argv=shell(script), token=token, timeout_s=None)
        task = asyncio.create_task(ignore_output(processes, command, started.append))

        async def all_started() -> bool:
            return len((await processes.survivors([token])).get(token, ())) >= 1 + script.count("&")

        await until(all_started)
        task.cancel()
        while again and not task.done():
            task.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (await processes.survivors([token]))
        assert started

    in_loop(cancel())


def test_a_cancellation_before_the_start_disturbs_no_other_program(processes: Processes) -> None:
    async def cancel() -> None:
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        await processes.run(Command(argv=(b"true",)))  # connected
        tasks = [asyncio.create_task(processes.run(Command(argv=(b"true",)))) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert ([type(one) for one in ended], errors) == ([asyncio.CancelledError, Completed], [])

    in_loop(cancel())


@pytest.mark.parametrize("where", ["on_start", "on_stdout", "on_stderr"])
def test_a_callback_that_raises_ends_it(processes: Processes, token: str, where: str) -> None:
    class Trouble(Exception):
        pass

    def fail(_: object) -> None:
        raise Trouble

    callbacks: dict[str, Callable[..., None]] = {
        name: fail if name == where else lambda _: None for name in ("on_start", "on_stdout", "on_stderr")
    }
    command = Command(argv=shell("echo out; echo err >&2; sleep 1000"), token=token, timeout_s=None)
    with pytest.raises(Trouble):
        in_loop(processes.stream(command, **callbacks))
    assert not in_loop(processes.survivors([token]))


def test_a_daemon_that_keeps_the_pipes_does_not_keep_us(processes: Processes, token: str) -> None:
    completed = run(processes, *shell("setsid sleep 1000 & echo up"), token=token)
    assert completed.stdout == b"up\n"
    assert not completed.timed_out
    assert len(in_loop(processes.survivors([token]))[token]) == 1


def test_the_end_of_one_token_leaves_others_alone(processes: Processes, token: str) -> None:
    other = secrets.token_hex(16)
    try:
        mine, theirs = (start_alone((b"sleep", b"1000"), each) for each in (token, other))
        found = in_loop(processes.survivors([token, other]))
        assert {each: [one.pid for one in left] for each, left in found.items()} == {token: [mine], other: [theirs]}
        assert in_loop(processes.end(token, grace_s=1.0))
        assert in_loop(processes.survivors([token, other])) == {other: found[other]}
        assert in_loop(processes.end(token, grace_s=1.0)), "may be called again"
    finally:
        assert in_loop(processes.end(other, grace_s=0.0))


def test_processes_started_during_an_end_are_ended_too(processes: Processes, token: str) -> None:
    script = "trap 'setsid sleep 1000 & setsid sleep 1000' TERM; while :; do sleep 0.1; done"
    start_alone(shell(script), token)
    assert in_loop(processes.end(token, grace_s=0.5))
    assert not in_loop(processes.survivors([token]))


def test_a_relay_is_seen_at_every_look(processes: Processes, token: str, tmp_path: Path) -> None:
    """Each process starts the next one and ends itself: at no time is there none."""
    relay, done = tmp_path / "relay", tmp_path / "done"
    relay.write_text(f'[ "$1" = 0 ] || {{ sh "$0" $(($1 - 1)) & exit; }}\ntouch {done}\nexec sleep 1000\n')
    looks = 0
    while not looks:  # it may be through before the first look
        start_alone((b"sh", os.fsencode(relay), b"300"), token)
        try:
            while not done.exists():
                assert in_loop(processes.survivors([token])), f"none was seen in look {looks}"
                looks += 1
        finally:
            assert in_loop(processes.end(token, grace_s=0.1))
        done.unlink()


def test_a_process_is_seen_at_every_moment_of_an_exec(token: str, tmp_path: Path) -> None:
    """Of one that executes a program all the time, 1 in 1,000 looks fell into the change of its environment."""
    script = tmp_path / "again"
    script.write_text('exec sh "$0"\n')
    pid = start_alone((b"sh", os.fsencode(script)), token)
    try:
        for _ in range(10_000):
            look = process_stat(pid)
            assert look is not None
            assert token_of(look) == token.encode(), look
    finally:
        assert in_loop(LocalProcesses().end(token, grace_s=0.0))


def test_a_pid_given_out_from_the_lowest_again_is_seen(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    """A listing that was past it does not have it, as the first one here."""
    pid = start_alone((b"sleep", b"1000"), token)
    listed, real = [], os.listdir

    def listdir(path: str) -> list[str]:
        listed.append(path)
        return [name for name in real(path) if len(listed) > 1 or name != str(pid)]

    monkeypatch.setattr(os, "listdir", listdir)
    try:
        assert [one.pid for one in carriers([token])[token]] == [pid]
    finally:
        monkeypatch.undo()
        assert in_loop(LocalProcesses().end(token, grace_s=0.0))


def test_a_process_that_survives_kill_is_reported(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    """A process that hangs in the kernel takes no signal: as here, where none is sent."""
    monkeypatch.setattr(far_process, "_signal", lambda *_: None)
    monkeypatch.setattr(far_process, "KILL_WAIT_S", 0.05)
    processes = LocalProcesses(grace_s=0.05)
    start_alone((b"sleep", b"1000"), token)
    assert not in_loop(processes.end(token, grace_s=0.05))
    command = Command(argv=(b"sh", b"-c", b"echo up; sleep 1000"), stdin=bytes(1 << 20), timeout_s=0.1, token=token)
    completed = in_loop(processes.run(command))
    assert (completed.timed_out, completed.stdout) == (True, b"up\n")
    monkeypatch.undo()
    assert in_loop(processes.end(token, grace_s=1.0))


def test_a_slow_reader_holds_a_fast_program(processes: Processes, token: str) -> None:
    """What is on its way stays bounded, however much the program has to say, and nothing is lost."""
    size_bytes = 60_000_000

    async def hold() -> tuple[int, int]:
        taken, written_when_held = 0, -1

        async def slow(piece: bytes) -> None:
            nonlocal taken, written_when_held
            taken += len(piece)
            if written_when_held < 0:
                written_when_held = await _written_until_it_waits(token)

        command = Command(argv=(b"head", b"-c", b"%d" % size_bytes, b"/dev/zero"), token=token, timeout_s=None)
        completed = await processes.stream(command, on_start=lambda _: None, on_stdout=slow, on_stderr=lambda _: None)
        assert completed.exit_code == 0
        return taken, written_when_held

    taken, written_when_held = in_loop(hold())
    assert taken == size_bytes
    assert 0 < written_when_held < 8 << 20


def test_a_slow_reader_gets_all_of_a_program_that_has_ended(processes: Processes, token: str) -> None:
    """What its pipes hold when it ends is not lost."""

    async def hold() -> int:
        taken = 0

        async def slow(piece: bytes) -> None:
            nonlocal taken
            if not taken:
                await until(lambda: _none_left(processes, token))
            taken += len(piece)

        command = Command(argv=shell("printf one; printf two >&2; head -c 60000 /dev/zero"), token=token)
        await processes.stream(command, on_start=lambda _: None, on_stdout=slow, on_stderr=lambda _: None)
        return taken

    assert in_loop(hold()) == 60_003


async def _none_left(processes: Processes, token: str) -> bool:
    return not await processes.survivors([token])


async def _written_until_it_waits(token: str) -> int:
    """How much the token's process has written, once it does not go on."""
    before = -1
    while True:
        (carrier,) = carriers([token])[token]
        lines = Path(f"/proc/{carrier.pid}/io").read_text().split("\n")  # noqa: ASYNC240 - it does not block
        written = int(next(line for line in lines if line.startswith("wchar:")).split()[1])
        if written == before:
            return written
        before = written
        await asyncio.sleep(0.2)


FAR_END = """
import os, subprocess, sys
# Starts another one, and ends, as soon as it is told to.
environment = {**os.environ, sys.argv[2]: sys.argv[3]}
child = subprocess.Popen(["sh", "-c", "read line; sleep 1000 & exit"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
print("up", flush=True)
sys.stdin.readline()
child.stdin.close()
child.wait()
"""


def test_a_lost_far_end_and_all_that_it_started_are_found_and_no_others() -> None:
    token = secrets.token_hex(16)
    prefix = f"migrator-test-predecessor-{token}-"

    def find(own: str, prefix: str, tokens: list[bytes]) -> set[int]:
        return {look.pid for look in predecessors(own.encode(), prefix.encode(), tokens)(ProcessTable())}

    argv = (sys.executable, "-c", FAR_END, f"{prefix}1", TOKEN_VARIABLE, token)
    lost = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert lost.stdout is not None
        assert lost.stdout.readline() == b"up\n"
        (started,) = far_procfs.carriers([token])[token]
        assert find(f"{prefix}2", prefix, []) == {lost.pid, started.pid}
        assert find(f"{prefix}1", prefix, []) == find("another-2", "another-", []) == set()
        # What was started starts another one, and ends; then the far end ends itself.
        lost.communicate(b"go\n")
        (left,) = far_procfs.carriers([token])[token]
        assert find(f"{prefix}2", prefix, [token.encode()]) == {left.pid}
    finally:
        lost.kill()
        lost.communicate()
        for look in far_procfs.carriers([token]).get(token, ()):
            with suppress(ProcessLookupError):
                os.kill(look.pid, 9)
