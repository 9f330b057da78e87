"""A lab in the hands of a test: asking Gluster, and breaking the cluster for the length of a block."""

import asyncio
import os
import signal
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrator.adapters.executors.process import LocalProcesses
from migrator.domain.lab import LabBrick, LabHost, LabSpec, LabState
from migrator.stages.lab import cluster
from migrator.stages.lab.down import lab_down
from migrator.stages.lab.tools import LabTools
from migrator.stages.lab.up import lab_up

DEADLINE_S = 60.0


class WallClock:
    """The real time."""

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)


def bring_up(spec: LabSpec) -> "LabHandle":
    return LabHandle(asyncio.run(lab_up(spec, LocalProcesses(), WallClock())))


def take_down(directory: Path) -> bool:
    return asyncio.run(lab_down(os.fsencode(directory), LocalProcesses(), WallClock()))


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Poll with a deadline."""
    end = time.monotonic() + DEADLINE_S
    while not true():
        if time.monotonic() > end:
            raise AssertionError(f"not within {DEADLINE_S} s: {what}")
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process is there and has not ended (one that nobody reaps has no command line left)."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass(frozen=True)
class LabHandle:
    """A lab that is up. Bricks are named as Gluster does, `address:/path`."""

    state: LabState

    @property
    def source(self) -> Path:
        return Path(os.fsdecode(self.state.source))

    @property
    def target(self) -> Path:
        return Path(os.fsdecode(self.state.target))

    @property
    def site_file(self) -> Path:
        return Path(os.fsdecode(self.state.site_file))

    @property
    def bricks(self) -> tuple[LabBrick, ...]:
        names = cluster.volume_bricks(self.state)
        return tuple(brick for brick in self.state.bricks if brick.name in names)

    def host_of(self, brick: LabBrick) -> LabHost:
        return self.state.hosts[brick.host - 1]

    def gluster(self, *arguments: str) -> bytes:
        """Ask the first host, through the lab's own wrapper."""
        argv = [os.fsdecode(self.state.gluster), "--mode=script", *arguments]
        done = subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"{argv} gave {done.returncode}: {os.fsdecode(done.stdout + done.stderr)}")
        return done.stdout

    def brick_pids(self) -> dict[str, int]:
        """The process of every brick; -1 for one that is down."""
        status = ET.fromstring(self.gluster("--xml", "volume", "status", self.state.spec.volume))
        found: dict[str, int] = {}
        for node in status.iter("node"):
            path = node.findtext("path") or ""
            if path.startswith("/"):
                found[f"{node.findtext('hostname')}:{path}"] = int(node.findtext("pid") or -1)
        return found

    def brick_directory(self, brick: LabBrick) -> Path:
        """The brick's own directory, seen from here."""
        return Path(f"/proc/{self.host_of(brick).holder_pid}/root{cluster.brick_path(brick.number)}")

    def stop_brick(self, brick: LabBrick) -> None:
        """Kill one brick process, and wait until Gluster knows."""
        pid = self.brick_pids()[brick.name]
        assert pid > 0, f"{brick.name} is down already"
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.brick_pids()[brick.name] == -1, f"{brick.name} is known to be down")

    def start_bricks(self) -> None:
        """Start every brick that is down, and wait until the mount has reached them all."""

        def all_up() -> bool:
            # Again and again: right after its end glusterd may still take a brick for started, and start nothing.
            self.gluster("volume", "start", self.state.spec.volume, "force")
            return all(pid > 0 for pid in self.brick_pids().values())

        wait_until(all_up, "every brick is up")
        asyncio.run(self._wait_for_all())

    async def _wait_for_all(self) -> None:
        tools = LabTools(LocalProcesses(), self.state.token)
        await cluster.wait_for_bricks(self.state, tools, WallClock())
        await cluster.wait_for_client(self.state, WallClock())

    @contextmanager
    def brick_down(self, brick: LabBrick) -> Iterator[None]:
        try:
            self.stop_brick(brick)
            yield
        finally:
            self.start_bricks()

    def glusterd_pid(self, host: LabHost) -> int | None:
        try:
            return int(Path(f"/proc/{host.holder_pid}/root/run/glusterd.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def stop_glusterd(self, host: LabHost) -> None:
        """Kill the management daemon of a host (the bricks go on)."""
        pid = self.glusterd_pid(host)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "glusterd has ended")
        Path(f"/proc/{host.holder_pid}/root/run/glusterd.pid").unlink()

    def start_glusterd(self, host: LabHost) -> None:
        """Start the management daemon of a host, and wait until the pool is whole."""

        async def start() -> None:
            tools = LabTools(LocalProcesses(), self.state.token)
            await cluster.start_glusterd(host, tools, WallClock())
            await cluster.wait_for_pool(self.state, tools, WallClock())
            await self._wait_for_all()

        asyncio.run(start())

    @contextmanager
    def glusterd_down(self, host: LabHost) -> Iterator[None]:
        try:
            self.stop_glusterd(host)
            yield
        finally:
            self.start_glusterd(host)

    def unmount_source(self) -> None:
        """Unmount the volume: an empty directory is in its place."""
        subprocess.run(["umount", str(self.source)], check=True, capture_output=True)

    def mount_source(self) -> None:
        """Mount the volume again, with a client that knows nothing yet."""
        tools = LabTools(LocalProcesses(), self.state.token)
        asyncio.run(cluster.mount_source(self.state, tools, WallClock()))

    @contextmanager
    def source_unmounted(self) -> Iterator[None]:
        self.unmount_source()
        try:
            yield
        finally:
            self.mount_source()

    def drop_client_cache(self) -> None:
        """Mount with a new client: nothing is remembered."""
        with self.source_unmounted():
            pass
