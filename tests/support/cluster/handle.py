"""A lab in the hands of a test: asking Gluster, and breaking the cluster for the length of a block."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from migrator.core.clock import SystemClock
from migrator.hosts.process import LocalProcesses
from migrator.lab import cluster
from migrator.lab import cluster as sshd
from migrator.lab.down import lab_down
from migrator.lab.machine import LabTools, entering, processes_in
from migrator.lab.model import LabBrick, LabHost, LabSpec, LabState
from migrator.lab.up import lab_up
from tests.support.waiting import wait_for

DEADLINE_S = 200.0
BUSY_DEADLINE_S = 600.0
"""Glusterd gives a lock of a command that has broken off free again after three minutes."""

_BUSY = (b"Another transaction is in progress", b"Locking failed on", b"Brick ops failed on")
"""Messages of glusterd that end by themselves: another command holds the cluster's lock, a rebalance process starts or ends."""
_KNOWN_FOR_S = 1.1
"""A little more than the second for which the client, and the kernel, keep what they know of a name."""


def bring_up(spec: LabSpec) -> "LabHandle":
    return LabHandle(asyncio.run(lab_up(spec, LocalProcesses(), SystemClock())))


def take_down(directory: Path) -> bool:
    return asyncio.run(lab_down(os.fsencode(directory), LocalProcesses(), SystemClock()))


def is_alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    return _command_of(pid) != b""


def _command_of(pid: int) -> bytes:
    """The command line of a process; empty where it has ended, also where nobody has reaped it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


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
        """Ask the first host, through the lab's own wrapper; again where another command was under way."""
        argv = [os.fsdecode(self.state.gluster), "--mode=script", *arguments]
        end = time.monotonic() + BUSY_DEADLINE_S
        while True:
            done = subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL)
            said = done.stdout + done.stderr
            # Its exit code is 0 for some failures: by the words alone.
            busy = any(sign in said for sign in _BUSY)
            if time.monotonic() > end or not busy:
                break
            time.sleep(0.2)
        if done.returncode or busy:
            raise RuntimeError(f"{argv} gave {done.returncode}: {os.fsdecode(said)}")
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

    def on_host(self, host: LabHost, *argv: str | bytes) -> "subprocess.CompletedProcess[bytes]":
        """Run a command in the namespaces of a host, without ssh."""
        return subprocess.run([*entering(host), *argv], capture_output=True, check=False, stdin=subprocess.DEVNULL)

    def unmount_on(self, host: LabHost, point: str | bytes) -> None:
        """Unmount on a host, as soon as nobody uses it: what a run has left at work may need a moment to see that it is over."""
        wait_for(lambda: self.on_host(host, "umount", point).returncode == 0, f"{point!r} is unmounted")

    def ssh(self, host: LabHost, command: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a shell command on a host over ssh, as the program reaches it."""
        argv = ["ssh", "-F", os.fsdecode(self.state.ssh_config), sshd.destination(host), command]
        return subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL)

    def brick_path(self, brick: LabBrick) -> bytes:
        """The brick's directory as its host sees it."""
        return cluster.brick_path(brick.number).encode()

    def stop_brick(self, brick: LabBrick) -> None:
        """Kill one brick process, and wait until Gluster knows."""
        pid = self.brick_pids()[brick.name]
        assert pid > 0, f"{brick.name} is down already"
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.brick_pids().get(brick.name) == -1, f"{brick.name} is known to be down")

    def start_bricks(self) -> None:
        """Start every brick that is down, and wait until the mount has reached them all."""

        def all_up() -> bool:
            # Again and again: right after its end glusterd may still take a brick for started, and start nothing.
            self.gluster("volume", "start", self.state.spec.volume, "force")
            return min(self.brick_pids().values(), default=-1) > 0

        wait_for(all_up, "every brick is up")
        self.let_client_know()

    def let_client_know(self) -> None:
        """Wait until this machine's client has reached every brick, and knows nothing any more of what it knew before."""
        asyncio.run(self._wait_for_all())
        # A directory that was looked up while a brick was down has no place for some names (EIO) until it is looked up anew, which
        # also mends its layout.
        time.sleep(_KNOWN_FOR_S)
        for _ in os.walk(os.fsencode(self.source)):
            continue

    async def _wait_for_all(self) -> None:
        tools = LabTools(LocalProcesses(), self.state.token)
        await cluster.wait_for_bricks(self.state, tools, SystemClock())
        await cluster.wait_for_client(self.state, SystemClock())

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
        """Kill the management daemon of a host (the bricks go on), and wait until the others know."""
        pid = self.glusterd_pid(host)
        assert pid is not None
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(pid), "glusterd has ended")
        Path(f"/proc/{host.holder_pid}/root/run/glusterd.pid").unlink()
        others = [one for one in self.state.hosts if self.glusterd_pid(one) is not None]
        for other in others:
            wait_for(lambda other=other: self._knows_fewer(other, len(others)), "the others know")  # type: ignore[misc]

    def _knows_fewer(self, host: LabHost, count: int) -> bool:
        """Whether a host is connected to fewer other management daemons than so many, and says so."""
        done = self.on_host(host, "gluster", "--mode=script", "--xml", "peer", "status")
        return done.returncode == 0 and done.stdout.count(b"<connected>1</connected>") < count

    def crash_host(self, host: LabHost) -> None:
        """End all that runs on a host and take its mounts away, as a loss of power does; its disks stay."""

        def others() -> list[int]:
            return [pid for pid in processes_in((host.namespace,)) if pid != host.holder_pid]

        killed: set[int] = set()
        while pids := others():
            killed.update(pids)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        # Nothing is left of them after a reboot either: glusterd takes whatever has the pid of its mover for that.
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in killed), "what was killed is gone")
        for point in self._points(host):
            self.unmount_on(host, point)
        run = Path(f"/proc/{host.holder_pid}/root/run")
        (run / "glusterd.pid").unlink(missing_ok=True)
        # A machine that is switched on again has an empty /run: a stale pid there could be somebody else's by now.
        shutil.rmtree(run / "gluster", ignore_errors=True)

    def boot_host(self, host: LabHost) -> None:
        """What a host does when it is switched on again: mounts, sshd, glusterd, which starts everything else."""
        for point, image in self._points(host).items():
            done = self.on_host(host, "mount", "-t", "xfs", "-o", "loop", image, point)
            assert done.returncode == 0, done.stderr
        self.start_sshd(host)
        asyncio.run(cluster.start_glusterd(host, LabTools(LocalProcesses(), self.state.token), SystemClock()))

    def mover_pid_files(self, host: LabHost) -> list[Path]:
        """What glusterd keeps of the process that moves files on a host; they outlast a reboot."""
        volume = Path(f"/proc/{host.holder_pid}/root/var/lib/glusterd/vols/{self.state.spec.volume}")
        return sorted((volume / "rebalance").glob("*.pid"))

    def movers(self, host: LabHost) -> list[int]:
        """The processes that move files on a host (what `pgrep -f rebalance/VOLUME` finds)."""
        wanted = f"rebalance/{self.state.spec.volume}".encode()
        return [pid for pid in processes_in((host.namespace,)) if wanted in _command_of(pid)]

    def _points(self, host: LabHost) -> dict[str, bytes]:
        """Where the host mounts its bricks, and their images."""
        own = [brick for brick in self.state.bricks if brick.host == host.number]
        return {os.path.dirname(cluster.brick_path(brick.number)): brick.image for brick in own}

    def stop_sshd(self, host: LabHost) -> None:
        """Nothing listens; open connections go on."""
        pid = int(Path(f"/proc/{host.holder_pid}/root/run/sshd.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not is_alive(pid), "sshd has ended")

    def start_sshd(self, host: LabHost) -> None:
        asyncio.run(sshd.start_sshd(self.state, host, LabTools(LocalProcesses(), self.state.token)))
        wait_for(lambda: self.ssh(host, "true").returncode == 0 or self._refuses(host), "sshd answers")

    def _refuses(self, host: LabHost) -> bool:
        """Another key than before, or none that is let in: it does answer."""
        return b"connect to host" not in self.ssh(host, "true").stderr

    def _connections(self, host: LabHost) -> list[int]:
        """The processes of sshd that hold open connections."""
        commands = {pid: _command_of(pid) for pid in processes_in((host.namespace,))}
        sessions = {pid: name for pid, name in commands.items() if name.startswith((b"sshd: ", b"sshd-session: "))}
        return [pid for pid, name in sessions.items() if b"[listener]" not in name]

    @contextmanager
    def ssh_cut(self, host: LabHost) -> Iterator[None]:
        """Nothing goes through open connections any more, neither way and without a word, and no new one is made; the
        network for everything else goes on.
        """
        self.stop_sshd(host)
        stopped = self._connections(host)
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.start_sshd(host)

    @contextmanager
    def target_unmounted(self, host: LabHost) -> Iterator[None]:
        """An empty directory is in the target's place on one host; elsewhere it stays."""
        self.unmount_on(host, self.state.target)
        try:
            yield
        finally:
            tools = LabTools(LocalProcesses(), self.state.token)
            asyncio.run(cluster.mount_target_on(self.state, host, tools))

    def unmount_source(self) -> None:
        """Unmount the volume: an empty directory is in its place."""
        argv = ["umount", str(self.source)]
        # Whoever looks at all processes or mounts of this machine holds it for a moment.
        wait_for(
            lambda: subprocess.run(argv, capture_output=True, check=False).returncode == 0, "nobody uses the mount"
        )

    def mount_source(self) -> None:
        """Mount the volume again, with a client that knows nothing yet."""
        tools = LabTools(LocalProcesses(), self.state.token)
        asyncio.run(cluster.mount_source(self.state, tools, SystemClock()))

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
