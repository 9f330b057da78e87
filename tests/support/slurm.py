"""A real Slurm cluster of three nodes on this machine: its own munged, slurmctld and slurmd, ports, keys and directories."""

import inspect
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from migrator.hosts.process import LocalProcesses
from migrator.hosts.slurm import SlurmHosts

DEADLINE_S = 600.0
NODES = ("n1", "n2", "n3")
SITE_ID = "51ab0000-0000-4000-8000-000000000000"
_PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "squeue", "scancel", "scontrol")

_CONFIG = """\
ClusterName={cluster}
SlurmctldHost={machine}
SlurmctldPort={control_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
StateSaveLocation={directory}/ctld
SlurmdSpoolDir={directory}/d-%n
SlurmctldPidFile={directory}/ctld.pid
SlurmdPidFile={directory}/d-%n.pid
SlurmctldLogFile={directory}/ctld.log
SlurmdLogFile={directory}/d-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
KillWait=5
MessageTimeout=8
"""


def missing_for_slurm() -> str:
    """Why there can be none here; empty where all is well."""
    if os.geteuid() != 0:
        return "root"
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: slurmctld, slurmd, slurm-client, munge)"
    return ""


class Slurm:
    """The cluster. Every process of it is found by the configuration that is in its environment."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "slurm.conf"
        self.impatient = directory / "impatient.conf"
        """The same for commands that are to find out soon that the controller does not answer."""
        self.environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "SLURM_CONF": str(self.config)}
        self._controller: subprocess.Popen[bytes] | None = None
        self._others: list[subprocess.Popen[bytes]] = []

    def up(self) -> None:
        """Start everything and wait until all nodes are idle."""
        self.directory.chmod(0o755)
        key = self.directory / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = ("socket=munge.sock", "pid-file=munge.pid", "log-file=munge.log", "seed-file=munge.seed")
        options = (f"--{name}={self.directory}/{file}" for name, file in (one.split("=") for one in files))
        self._others.append(self._start("munged", "--foreground", f"--key-file={key}", *options))
        self._until((self.directory / "munge.sock").exists)
        ports = _free_ports(1 + len(NODES))
        machine = socket.gethostname()
        text = _CONFIG.format(
            cluster=f"lab{secrets.token_hex(3)}", machine=machine, directory=self.directory, control_port=ports[0]
        )
        for node, port in zip(NODES, ports[1:], strict=True):
            (self.directory / f"d-{node}").mkdir()
            text += f"NodeName={node} NodeHostname={machine} NodeAddr=127.0.0.1 Port={port} CPUs=4 State=UNKNOWN\n"
        text += "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverTimeLimit=0\n"
        (self.directory / "ctld").mkdir()
        self.config.write_text(text)
        self.impatient.write_text(text.replace("MessageTimeout=8", "MessageTimeout=3"))
        self.start_controller()
        self._others += [self._start(*self._slurmd(node)) for node in NODES]
        self._until(lambda: self.ask("sinfo", "--noheader", "--format=%t %D").split() == ["idle", str(len(NODES))])

    def down(self) -> None:
        """End everything that belongs to it; may be called again."""
        for process in (self._controller, *self._others):
            if process is not None:
                process.kill()
                process.wait()
        self._controller, self._others = None, []
        deadline_s = time.monotonic() + DEADLINE_S
        while left := self.processes():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline_s, left
            time.sleep(0.02)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._controller = self._start("slurmctld", "-D", "-f", str(self.config))
        self._until(lambda: "UP" in self.ask("scontrol", "ping"))

    def stop_controller(self) -> None:
        """As an administrator stops slurmctld: it knows its jobs when it is started again."""
        assert self._controller is not None
        self._controller.terminate()
        self._controller.wait()

    def ask(self, *argv: str) -> str:
        """Run one of Slurm's commands; empty where it fails."""
        done = subprocess.run(argv, check=False, capture_output=True, env=self.environment, text=True)
        return done.stdout if done.returncode == 0 else ""

    def do(self, *argv: str) -> str:
        """Run one that must work."""
        done = subprocess.run(argv, check=False, capture_output=True, env=self.environment, text=True)
        assert done.returncode == 0, (argv, done.stderr)
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """State by id, of the jobs that have not ended."""
        lines = self.do("squeue", "--noheader", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def calm(self) -> None:
        """End all jobs and bring back all nodes."""
        if self._controller is None or self._controller.poll() is not None:
            self.start_controller()
        self.do("scancel", "--user=root")
        self._until(lambda: not self.jobs())
        for node in NODES:
            self.ask("scontrol", "update", f"nodename={node}", "state=resume")
        self._until(lambda: self.ask("sinfo", "--noheader", "--format=%t %D").split() == ["idle", str(len(NODES))])

    def processes(self) -> list[int]:
        """Every process that was started by it or for it, in any session."""
        marks = {b"SLURM_CONF=" + os.fsencode(config) for config in (self.config, self.impatient)}
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with suppress(OSError):
                    variables = Path("/proc", name, "environ").read_bytes().split(b"\0")
                    state = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[0]
                    if marks & set(variables) and state not in (b"Z", b"X"):
                        found.append(int(name))
        return found

    def programs(self, name: str) -> list[int]:
        """Those of its processes that run this program."""
        found = []
        for pid in self.processes():
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(name.encode()):
                    found.append(pid)
        return found

    def far_ends(self) -> list[int]:
        """The Pythons that run in jobs."""
        return self.programs("python3")

    def hosts(self, *, nodes: int = 1, lease_s: float = 30.0) -> SlurmHosts:
        """Its nodes as hosts; SLURM_CONF must be in this program's environment."""
        return SlurmHosts(
            LocalProcesses(grace_s=0.3),
            site_id=SITE_ID,
            nodes=nodes,
            grace_s=0.3,
            patience_s=DEADLINE_S,
            lease_s=lease_s,
        )

    @contextmanager
    def dead_node(self, node: str) -> Iterator[None]:
        """A node that has lost its power: its programs are gone, and Slurm waits for it for minutes (SlurmdTimeout)."""
        (slurmd,) = (one for one in self._others if one.args == self._slurmd(node))
        slurmd.send_signal(signal.SIGSTOP)
        try:
            for name in ("slurmstepd", "python3"):
                for pid in self.programs(name):
                    with suppress(FileNotFoundError, ProcessLookupError):
                        if f"SLURMD_NODENAME={node}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                            os.kill(pid, signal.SIGKILL)
            yield
        finally:
            slurmd.send_signal(signal.SIGCONT)

    def _slurmd(self, node: str) -> tuple[str, ...]:
        return "slurmd", "-D", "-f", str(self.config), "-N", node

    def _start(self, *argv: str) -> subprocess.Popen[bytes]:
        with (self.directory / f"{argv[0]}.out").open("ab") as log:
            return subprocess.Popen(
                argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _until(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not condition():
            logs = {path.name: path.read_text(errors="replace")[-2000:] for path in self.directory.glob("*.[lo]*[gt]")}
            assert time.monotonic() < deadline_s, logs
            time.sleep(0.02)


def suite_over(module: ModuleType, fixture: str) -> dict[str, Any]:
    """The tests of a contract suite that take a fixture, for a module that has its own fixture of that name."""
    tests = ((name, test) for name, test in vars(module).items() if name.startswith("test_"))
    return {name: test for name, test in tests if fixture in inspect.signature(test).parameters}


@contextmanager
def running_slurm() -> Iterator[Slurm]:
    """One cluster, gone afterwards. Not below a directory of pytest's: everybody must be able to reach munged's socket."""
    directory = Path(tempfile.mkdtemp(prefix="migrator-slurm-"))
    made = Slurm(directory)
    try:
        made.up()
        yield made
    finally:
        made.down()
        shutil.rmtree(directory)


def _free_ports(count: int) -> list[int]:
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in listening]
    for one in listening:
        one.close()
    return ports
