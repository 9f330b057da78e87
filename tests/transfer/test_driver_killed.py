"""The program is killed under its driver: nothing of that is left, and the next run goes on."""

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from migrator.core.states import AttemptState, ChunkState
from migrator.hosts import proc
from migrator.ledger.ledger import open_ledger
from migrator.transfer.engines.drivers import Fpsync, FpsyncPrograms
from tests.support.driver_world import DriverWorld
from tests.support.run_site import wait_for
from tests.support.xfs import XfsMount
from tests.transfer.test_fpsync import crawled, equal_but, fill, programs

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]


class Replaced:
    """fpsync beside an fpart and an rsync of the test's own, which are the real ones unless something else is written."""

    def __init__(self, directory: Path, real: FpsyncPrograms) -> None:
        directory.mkdir()
        self._directory, self.real = directory, real
        shutil.copy(os.fsdecode(real.fpsync), directory / "fpsync")
        self.write_real()

    @property
    def programs(self) -> FpsyncPrograms:
        paths = {name: os.fsencode(self._directory / name) for name in ("fpsync", "fpart", "rsync")}
        return FpsyncPrograms(**paths)

    def write(self, name: str, text: str) -> None:
        file = self._directory / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    def write_real(self) -> None:
        for name, real in (("fpart", self.real.fpart), ("rsync", self.real.rsync)):
            self.write(name, f'exec {os.fsdecode(real)} "$@"')


@pytest.mark.parametrize("moment", ["crawling", "copying"])
def test_killed_under_its_driver(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount, moment: str) -> None:
    fill(xfs_source.path / "home" / "alice", files=400, size_bytes=1000)
    own = Replaced(scratch / "bin", programs())
    world = DriverWorld(scratch, xfs_source.path, xfs_target.path, Fpsync(own.programs, privileged=True))
    world.ledger.close()
    if moment == "crawling":
        own.write("fpart", "sleep 1000")
    else:
        # Minutes for each part.
        own.write("rsync", f'exec {os.fsdecode(own.real.rsync)} "$@" --bwlimit=1')
    pid = os.fork()
    if pid == 0:
        try:
            world.ledger = open_ledger(scratch / "ledger.db", create=False)
            asyncio.run(world.drive())
        finally:
            os._exit(0)
    world.ledger = open_ledger(scratch / "ledger.db", create=False)
    try:
        wait_for(lambda: tokens(world) and living(world, b"fpart" if moment == "crawling" else b"rsync"), moment)
        wait_for(lambda: moment == "crawling" or crawled(world), moment)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    wait_for(lambda: not living(world), "the end of all of the driver's processes")
    (unfinished,) = world.ledger.passes.unfinished_attempts(world.pass_id)
    assert world.chunk.state is ChunkState.RUNNING
    world.ledger.passes.finish(  # as the recovery of the next run does
        unfinished.id,
        at_s=time.time(),
        state=AttemptState.INTERRUPTED.value,
        exit_code=None,
        counters=unfinished.counters,
        stderr_tail=b"",
        chunk_state=ChunkState.PENDING,
        problems=(),
    )
    own.write_real()
    asyncio.run(world.drive())
    assert [attempt.state for attempt in world.attempts] == [AttemptState.INTERRUPTED, AttemptState.SUCCEEDED]
    world.copy_rest()
    assert equal_but(world) == {}
    assert not list(world.target_tree.rglob(".*.??????"))


def tokens(world: DriverWorld) -> list[str]:
    return [attempt.token for attempt in world.ledger.passes.unfinished_attempts(world.pass_id)]


def living(world: DriverWorld, name: bytes = b"") -> list[int]:
    found = [process.pid for processes in proc.carriers(tokens(world)).values() for process in processes]
    return [pid for pid in found if not name or name_of(pid) == name]


def name_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().strip()
    except OSError:
        return b""
