"""What becomes of a node's job and of what runs in it when Slurm, its administrators or this program misbehave."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from migrator.hosts.ports import Command, Completed, Host, HostLost
from migrator.hosts.proc import carriers
from migrator.hosts.slurm import SlurmHosts
from tests.support.run_world import in_loop
from tests.support.slurm import DEADLINE_S, NODES, SITE_ID, Slurm
from tests.support.waiting import until

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

STUBBORN = b"trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & echo up; while :; do sleep 0.05; done"
# Without a child of its own: those of a stream end with its PID namespace, also where Slurm kills the far end at once.
ALONE = b"trap '' TERM; echo up; while :; do sleep 0.05; done"


@pytest.fixture
def token() -> str:
    return os.urandom(16).hex()


@asynccontextmanager
async def closing(hosts: SlurmHosts) -> AsyncIterator[SlurmHosts]:
    try:
        yield hosts
    finally:
        await hosts.close()


class Stream:
    """A program on a node that does not end by itself."""

    def __init__(self, host: Host, token: str) -> None:
        self.said = bytearray()
        command = Command(argv=(b"bash", b"-c", STUBBORN), token=token, timeout_s=None)
        self.task: asyncio.Task[Completed] = asyncio.create_task(
            host.processes.stream(
                command, on_start=lambda _: None, on_stdout=self.said.extend, on_stderr=lambda _: None
            )
        )

    async def up(self) -> None:
        await until(lambda: self.said)

    async def lost(self) -> HostLost:
        with pytest.raises(HostLost) as caught:
            await self.task
        return caught.value


def tell(pids: list[int], number: signal.Signals) -> None:
    """Those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


async def reach_in_time(hosts: SlurmHosts) -> Host:
    """As the run stage: again and again."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            return await hosts.reach("slurm-1")
        except HostLost:
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.1)


def test_a_job_that_is_cancelled_from_outside(slurm: Slurm, token: str) -> None:
    async def work() -> None:
        async with closing(slurm.hosts()) as hosts:
            host = await hosts.reach("slurm-1")
            (job,) = slurm.jobs()
            stream = Stream(host, token)
            await stream.up()
            slurm.do("scancel", job)
            error = await stream.lost()
            assert error.in_doubt
            assert "CANCELLED" in error.message
            assert await hosts.end_orphans("slurm-1", [token]) == []
            assert not carriers([token]), "Slurm has said that the job has ended"
            assert slurm.jobs() == {}, "no other job is asked for by that"
            again = await reach_in_time(hosts)
            assert again is not host
            facts = await again.facts()
            assert slurm.jobs() == {facts.job: "RUNNING"}
            assert facts.job != job
            with pytest.raises(HostLost):
                await host.facts()

    asyncio.run(work())
    assert slurm.jobs() == {}


@in_loop
async def test_the_controller_is_stopped_in_mid_stream(
    slurm: Slurm, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs goes on; what is lost meanwhile is in doubt until the controller is back."""
    async with closing(slurm.hosts(nodes=2)) as hosts:
        host = await hosts.reach("slurm-1")
        stream = Stream(host, token)
        await stream.up()
        slurm.stop_controller()
        monkeypatch.setenv("SLURM_CONF", str(slurm.impatient))
        done = await host.processes.run(Command(argv=(b"echo", b"still there")))
        assert done.stdout == b"still there\n"
        assert await hosts.reach("slurm-1") is host
        with pytest.raises(HostLost, match="Slurm") as caught:
            await hosts.reach("slurm-2")
        assert "scontrol ping" in caught.value.hint
        assert not stream.task.done()
        # Now the job is lost as well: nobody can say whether it has ended.
        tell(slurm.programs("srun"), signal.SIGKILL)
        assert (await stream.lost()).in_doubt
        with pytest.raises(HostLost, match="Slurm does not answer"):
            await hosts.end_orphans("slurm-1", [token])
        with pytest.raises(HostLost):
            await hosts.reach("slurm-1")
        slurm.start_controller()
        monkeypatch.setenv("SLURM_CONF", str(slurm.config))
        assert await hosts.end_orphans("slurm-1", [token]) == []
        assert not carriers([token])
        await reach_in_time(hosts)


CONTROLLER = f"""
import asyncio, sys
from migrator.hosts.process import LocalProcesses
from migrator.hosts.slurm import SlurmHosts
from migrator.hosts.ports import HostLost
from migrator.hosts.ports import Command

async def main():
    hosts = SlurmHosts(LocalProcesses(), site_id={SITE_ID!r}, nodes=1, grace_s=0.3, patience_s=float(sys.argv[2]))
    try:
        host = await hosts.reach("slurm-1")
    except HostLost as error:
        print("waits" if "waits for a node" in error.message else error.message, flush=True)
        await asyncio.sleep(100)
        return
    command = Command(argv=(b"bash", b"-c", {ALONE!r}), token=sys.argv[1], timeout_s=None)
    await host.processes.stream(
        command, on_start=lambda _: None, on_stdout=lambda _: print("up", flush=True), on_stderr=lambda _: None
    )

asyncio.run(main())
"""


def start_controller(token: str, patience_s: float = DEADLINE_S) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", CONTROLLER, token, str(patience_s)], stdout=subprocess.PIPE)


@pytest.mark.parametrize("drained", [False, True])
def test_a_killed_program_leaves_neither_job_nor_process(slurm: Slurm, token: str, drained: bool) -> None:
    """kill -9, while a stream runs and while the job waits in the queue."""
    for node in NODES if drained else ():
        slurm.do("scontrol", "update", f"nodename={node}", "state=drain", "reason=maintenance")
    program = start_controller(token, patience_s=1.0 if drained else DEADLINE_S)
    assert program.stdout is not None
    with program.stdout:
        assert program.stdout.readline() == (b"waits\n" if drained else b"up\n")
        asyncio.run(until(lambda: list(slurm.jobs().values()) == ["PENDING" if drained else "RUNNING"]))
        program.kill()
        program.wait()
    asyncio.run(until(lambda: not slurm.jobs() and not slurm.far_ends() and not carriers([token])))


def test_leftovers_of_a_killed_program_are_ended_first(slurm: Slurm, token: str) -> None:
    """Although its srun could not tell: the next program finds the job by its name."""
    program = start_controller(token)
    assert program.stdout is not None
    with program.stdout:
        assert program.stdout.readline() == b"up\n"
        (job,) = slurm.jobs()

        async def others(expected: Callable[[], object]) -> None:
            async with closing(slurm.hosts()) as hosts:
                await reach_in_time(hosts)
                assert expected()

        asyncio.run(others(lambda: job in slurm.jobs()))
        assert job in slurm.jobs(), "the job of a program that lives is left alone"
        # What connects it is stopped, as on a machine that hangs: nobody tells the job.
        tell(slurm.programs("srun"), signal.SIGSTOP)
        stopped = slurm.programs("srun")
        program.kill()
        program.wait()
    assert job in slurm.jobs()
    asyncio.run(others(lambda: not carriers([token])))
    tell(stopped, signal.SIGKILL)
    asyncio.run(until(lambda: not slurm.programs("srun")))


def test_a_node_died_with_the_job_of_a_killed_program(slurm: Slurm, token: str) -> None:
    """Slurm says for minutes that the job completes. Other nodes are taken once the lease of what ran there is over."""
    program = start_controller(token)
    assert program.stdout is not None
    with program.stdout:
        assert program.stdout.readline() == b"up\n"
        (job,) = slurm.jobs()
        node = slurm.do("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()

        async def work() -> None:
            async with closing(slurm.hosts(lease_s=2.0)) as hosts:
                assert await hosts.end_orphans("slurm-1", [token]) == []
                facts = await (await reach_in_time(hosts)).facts()
                jobs = dict(line.split() for line in slurm.do("squeue", "--noheader", "--format=%i %N").splitlines())
                assert jobs.pop(job) == node, "Slurm has not ended it"
                assert [*jobs] == [facts.job]
                assert jobs[facts.job] != node

        with slurm.dead_node(node):
            program.kill()
            program.wait()
            asyncio.run(work())
