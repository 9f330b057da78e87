"""Nodes of a Slurm cluster as hosts: one job for each, requested when it is needed.

Observed with Slurm 22.05: without `--unbuffered`, `srun` holds back output that does not end with a newline; with it,
the output goes unchanged through a raw pseudo terminal (11 MB/s instead of 28). Slurm never requeues jobs of `srun`,
only batch jobs.
"""

import asyncio
import logging
import os
import pwd
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.errors import ToolFailed, UsageError
from migrator.core.paths import show
from migrator.core.tasks import drop_error
from migrator.hosts import proc
from migrator.hosts.connection import known_failure, own_environment
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Host, HostFacts, HostLost, Processes
from migrator.hosts.remote import Backoff, RemoteHost, again

_log = logging.getLogger(__name__)

PASSED_ON = ("SLURM_CONF", "HOME", "USER", "LOGNAME", "TMPDIR")
"""No other SLURM_* variables: inside an allocation they would turn the jobs into job steps."""
_FIXED = ("--nodes=1", "--ntasks=1", "--unbuffered", "--chdir=/", "--mpi=none", "--cpu-bind=none")
_SAID_BYTES = 300
_FIELDS = "%i|%T|%r|%N|%k|%j"


class JobState(StrEnum):
    """The state of a job. `GONE`: Slurm no longer knows the job."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    NODE_FAILED = "node-failed"
    GONE = "gone"


_PENDING = "PENDING CONFIGURING REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT"
_ENDED = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED OUT_OF_MEMORY PREEMPTED TIMEOUT REVOKED"
_STATES = {
    **dict.fromkeys(_PENDING.split(), JobState.PENDING),
    **dict.fromkeys(_ENDED.split(), JobState.ENDED),
    "NODE_FAIL": JobState.NODE_FAILED,
}
"""All other states count as running (RUNNING, COMPLETING, SUSPENDED, STOPPED, RESIZING, and new ones)."""


class SlurmJob(Struct, frozen=True, kw_only=True):
    """A job as `squeue` shows it; `node` is empty until it has one."""

    id: str
    name: str
    state: JobState
    reason: str = ""
    node: str = ""
    comment: str = ""

    @property
    def active(self) -> bool:
        """True if processes may run in it, now or later."""
        return self.state in (JobState.PENDING, JobState.RUNNING)


def read_jobs(output: bytes) -> list[SlurmJob]:
    """Parses the output of `squeue` in the format of `_FIELDS`. Comments of foreign jobs may hold anything: such lines
    are skipped.
    """
    found: list[SlurmJob] = []
    for line in output.decode("utf-8", "replace").split("\n"):
        fields = line.split("|")
        if len(fields) != len(_FIELDS.split("|")):
            continue
        job_id, state, reason, node, comment, name = (field.strip() for field in fields)
        found.append(
            SlurmJob(
                id=job_id,
                name=name,
                state=_STATES.get(state.partition(" ")[0], JobState.RUNNING),
                reason="" if reason == "None" else reason,
                node="" if node == "(null)" else node,
                comment="" if comment == "(null)" else comment,
            )
        )
    return found


@dataclass(slots=True, kw_only=True)
class Srun:
    """The `Transport` of one job. It is used once: an ended job is followed by a new one.

    `options` come last, so that they override others. `cpus` is the number for the streams; None leaves it to the site.
    """

    host: str
    job_name: str
    comment: str
    options: tuple[str, ...] = ()
    python: str = "python3"
    cpus: int | None = None
    avoid_nodes: Sequence[str] = ()
    used: bool = False
    lost: HostLost | None = None
    """The reason of its end, for later callers."""

    @property
    def environment(self) -> Mapping[str, str]:
        return own_environment(PASSED_ON)

    def argv(self, arguments: tuple[str, ...]) -> tuple[bytes, ...]:
        """`srun`, with SIGINT when this program dies. SIGINT cancels a pending job. It does not affect a running one,
        whose far end detects the end of its input and ends everything in order.
        """
        if self.used:
            ended = HostLost(f"the job {self.job_name} of {self.host} has ended", hint="another one is asked for")
            raise again(self.lost or ended)
        self.used = True
        setpriv = shutil.which("setpriv")
        words = (
            *((setpriv, "--pdeathsig", "INT", "--") if setpriv else ()),
            "srun",
            *_FIXED,
            f"--job-name={self.job_name}",
            f"--comment={self.comment}",
            *(() if self.cpus is None else (f"--cpus-per-task={self.cpus}",)),
            *((f"--exclude={','.join(self.avoid_nodes)}",) if self.avoid_nodes else ()),
            *self.options,
            "--",
            self.python,
            *arguments,
        )
        return tuple(os.fsencode(word) for word in words)

    def explain(self, stderr: bytes, exit_code: int | None, *, connected: bool) -> HostLost:
        self.lost = self._explain(stderr, exit_code, connected=connected)
        return self.lost

    def _explain(self, stderr: bytes, exit_code: int | None, *, connected: bool) -> HostLost:
        what = f"the job of {self.host} has ended: " if connected else f"{self.host} is not to be had from Slurm: "
        known = known_failure(_FAILURES, stderr, what, python=self.python)
        if known is not None:
            return known
        last = show(stderr.strip()[-_SAID_BYTES:]) or "srun printed nothing"
        if connected:
            return HostLost(
                f"the connection to the job of {self.host} was lost: {last}",
                cause="the node or the network is down, or an administrator, another job or a rule of the site ended the job",
                hint="see `scontrol show job`; migrator requests another job once this one has ended",
            )
        return HostLost(
            f"{self.host} is not to be had from Slurm (srun's exit code: {exit_code}): {last}",
            cause="Slurm refuses the options of [slurm], or does not accept this machine (munge)",
            hint="try the same by hand: `srun --nodes=1 --ntasks=1 hostname`, with the options of [slurm] in site.toml",
        )


_FAILURES = (
    (
        r"DUE TO TIME LIMIT",
        "its time limit is over",
        "the partition's limit, or --time, is shorter than the copying",
        'another job is asked for by itself; a longer limit saves that: [slurm] options = ["--time=2-00:00:00"]',
    ),
    (
        r"Out Of Memory|oom.kill",
        "it ran out of memory",
        "the partition gives a job little memory, and the streams share it",
        'ask for more: [slurm] options = ["--mem=8G"]',
    ),
    (
        r"Unable to contact slurm controller|Socket timed out on send/recv|Unable to establish control.machine|"
        r"Zero Bytes were transmitted|slurm_persist_conn_open",
        "Slurm's controller does not answer",
        "slurmctld is stopped, or cannot be reached from this machine",
        "see `scontrol ping`; running jobs continue",
    ),
    (
        r"execve\(\).*No such file",
        "the node has no Python 3 of that name",
        "{python} is not installed there",
        'install Python 3.9 or later there, or name it in site.toml: [slurm] python = "/path/of/python3"',
    ),
)


_ASK_TIMEOUT_S = 15.0
_FIRST_LOOK_S = 0.1
_LONGEST_LOOK_S = 2.0
_END_WITHIN_S = 60.0
"""Slurm itself waits 30 s (KillWait) before it kills remaining processes."""


class SlurmQueue:
    """This user's jobs. `processes` are this machine's, for Slurm's commands."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._user = _user()

    async def jobs(self) -> list[SlurmJob]:
        """All jobs that Slurm knows, ended ones included. Raises HostLost."""
        return read_jobs(await self._ask("squeue", "--noheader", "--states=all", f"--format={_FIELDS}"))

    async def job(self, name: str) -> SlurmJob:
        """The job of a name, preferably one that has not ended; GONE if Slurm knows none. Raises HostLost."""
        found = [job for job in await self.jobs() if job.name == name]
        return next(
            (job for job in found if job.active), found[0] if found else SlurmJob(id="", name=name, state=JobState.GONE)
        )

    async def cancel(self, name: str) -> None:
        """Request the end of the jobs of a name; no error if there are none. Raises HostLost."""
        await self._ask("scancel", "--quiet", f"--name={name}")

    async def end(self, name: str, *, until_s: float) -> SlurmJob:
        """Cancel the jobs of a name, and wait until Slurm reports that they have ended, at most until that time of the
        loop. Returns the job as it is then: still active if Slurm cannot reach its node, for as long as SlurmdTimeout.
        Raises HostLost.
        """
        loop = asyncio.get_running_loop()
        pause_s, cancelled = _FIRST_LOOK_S, False
        while (job := await self.job(name)).active and (not cancelled or loop.time() < until_s):
            if not cancelled:
                await self.cancel(name)
                cancelled = True
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_LOOK_S)
        return job

    async def _ask(self, program: str, *words: str) -> bytes:
        """Run one of Slurm's commands for this user. Raises HostLost if the controller does not answer."""
        argv = tuple(os.fsencode(word) for word in (program, f"--user={self._user}", *words))
        command = Command(argv=argv, environment=own_environment(PASSED_ON), timeout_s=_ASK_TIMEOUT_S)
        try:
            done = await self._processes.run(command)
        except ToolFailed as error:
            raise HostLost(
                f"Slurm cannot be asked: {error.message}",
                cause="Slurm's commands are not installed on this machine",
                hint="install the client side of Slurm (Debian: slurm-client), or set [transfer] movers to local",
            ) from error
        if done.exit_code != 0 or done.timed_out:
            printed = show(done.stderr.strip()) or f"{program} ended with exit code {done.exit_code}"
            raise HostLost(
                f"Slurm does not answer: {printed}",
                cause="slurmctld is stopped, or cannot be reached from this machine",
                hint="see `scontrol ping`; running jobs continue, and the state of lost ones is unknown until then",
            )
        return done.stdout


def _user() -> str:
    """The effective user, as Slurm uses it, not the environment's."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


_NAME = "slurm-{number}"
_NO_LIMIT_S = 10.0 * 365 * 86400
"""A job may wait in the queue without limit; `patience_s` is how long a caller waits for it."""
_STARTED_WITHIN_S = 60.0
_LEASE_MARGIN_S = 15.0
_CONNECTED_ENVIRONMENT_BYTES = 1 << 20


class SlurmHost(RemoteHost):
    """The `Host` port in one job. It is lost for good when the job ends."""

    node = ""
    """Slurm's name of the node; known after `facts`."""

    async def facts(self) -> HostFacts:
        found = await super().facts()
        variables = await self._variables(found.process_id)
        self.node = os.fsdecode(variables.get(b"SLURMD_NODENAME", b""))
        return replace(found, job=os.fsdecode(variables.get(b"SLURM_JOB_ID", b"")))

    async def _variables(self, process_id: int) -> dict[bytes, bytes]:
        """The environment that Slurm gave the far end; it is known without the controller."""
        content = await self._read_head(b"/proc/%d/environ" % process_id, _CONNECTED_ENVIRONMENT_BYTES)
        pairs = (entry.partition(b"=") for entry in content.split(b"\0"))
        return {name: value for name, _, value in pairs}


@dataclass(slots=True, kw_only=True)
class _Mover:
    """One node. `job_name` is that of the latest job, which is `settled` once nothing can run in it any more."""

    name: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    host: SlurmHost | None = None
    opening: "asyncio.Task[object] | None" = None
    job_name: str = ""
    node: str = ""
    settled: bool = True
    running_since_s: float | None = None
    lost_at_s: float | None = None
    backoff: Backoff = field(default_factory=Backoff)


class SlurmHosts:
    """The `Hosts` port: `slurm-1`, `slurm-2` and so on, each a node with a job of its own.

    An ended job is followed by a new one, perhaps on another node, but only after Slurm has confirmed the end, or the
    lease of what ran there is over. So once a host is reached again after a loss, no old program runs there. The same
    holds for jobs that a killed program of the same site has left. Jobs of a living program are left alone.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        site_id: str,
        nodes: int,
        options: Sequence[str] = (),
        python: str = "python3",
        cpus: int | None = None,
        lease_s: float = 30.0,
        grace_s: float = 5.0,
        patience_s: float = 20.0,
    ) -> None:
        """`processes` are this machine's, for Slurm's commands. `patience_s`: how long `reach` waits for a node before
        it raises HostLost.
        """
        self._queue = SlurmQueue(processes)
        self._options = tuple(options)
        self._python = python
        self._cpus = cpus
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._patience_s = patience_s
        self._prefix = f"migrator-{site_id[:8]}-"
        self._comment = f"migrator:{site_id}:{_myself()}"
        self._movers = {name: _Mover(name=name) for name in (_NAME.format(number=n + 1) for n in range(nodes))}
        self.names = tuple(self._movers)
        self._clearing = asyncio.Lock()
        self._cleared = False
        self._placing = asyncio.Lock()
        self._began_s: float | None = None

    async def reach(self, name: str) -> Host:
        """The node with its far end connected. Raises UsageError, and HostLost, also while its job waits in the queue."""
        mover = self._mover(name)
        async with mover.lock:
            if await self._is_connected(mover) and mover.host is not None:
                return mover.host
            if mover.opening is None:
                mover.backoff.check()
                await self._clear_leftovers()
                await self._settle(mover)
            try:
                host = await self._open(mover)
            except HostLost as error:
                if mover.opening is None:
                    mover.backoff.failed(error)
                raise
            mover.backoff.succeeded()
            return host

    async def end_orphans(self, name: str, tokens: Sequence[str]) -> Sequence[str]:
        """End earlier attempts on this host; returns the tokens that cannot be ended. If the host's job has ended, all
        of its processes have ended, and no new job is requested. Raises UsageError, and HostLost while Slurm does not
        confirm the end and the lease is not over.
        """
        mover = self._mover(name)
        async with mover.lock:
            await self._clear_leftovers()
            if await self._is_connected(mover) and mover.host is not None:
                processes = mover.host.processes
                return [token for token in tokens if not await processes.end(token, grace_s=self._grace_s)]
            if mover.opening is None:
                await self._settle(mover)
            return []

    async def close(self) -> None:
        """End all jobs. May be called again."""
        await asyncio.gather(*(self._close(mover) for mover in self._movers.values()))

    def _mover(self, name: str) -> _Mover:
        mover = self._movers.get(name)
        if mover is None:
            raise UsageError(f"there is no node {name}", hint=f"[slurm] nodes = {len(self._movers)} in site.toml")
        return mover

    async def _is_connected(self, mover: _Mover) -> bool:
        """True if the connection is open; records its loss."""
        if mover.host is None or mover.opening is not None:
            return False
        try:
            await mover.host.connected()
        except HostLost:
            mover.host = None
            mover.lost_at_s = asyncio.get_running_loop().time()
            return False
        return True

    async def _open(self, mover: _Mover) -> SlurmHost:
        """Request a job, or continue to wait for it. Raises HostLost; if `opening` is set then, the job still waits."""
        if mover.opening is None:
            # One after the other, so that each avoids the nodes of the others.
            async with self._placing:
                self._ask(mover)
                return await self._opened(mover)
        return await self._opened(mover)

    async def _opened(self, mover: _Mover) -> SlurmHost:
        if mover.opening is not None:
            await asyncio.wait([mover.opening], timeout=self._patience_s)
        task, host = mover.opening, mover.host
        if task is None or host is None:
            raise HostLost(f"the job of {mover.name} is gone")
        if not task.done():
            raise await self._still_waiting(mover)
        mover.opening = None
        try:
            task.result()
        except HostLost:
            mover.host = None  # nothing was started there
            raise
        facts = await host.identity()
        mover.node = host.node
        _log.info("%s is node %s in job %s", mover.name, host.node, facts.job)
        return host

    def _ask(self, mover: _Mover) -> None:
        mover.job_name = self._prefix + secrets.token_hex(6)
        mover.node, mover.running_since_s, mover.settled, mover.lost_at_s = "", None, False, None
        transport = Srun(
            host=mover.name,
            job_name=mover.job_name,
            comment=self._comment,
            options=self._options,
            python=self._python,
            cpus=self._cpus,
            avoid_nodes=sorted({other.node for other in self._movers.values() if other.node}),
        )
        mover.host = SlurmHost(transport, lease_s=self._lease_s, grace_s=self._grace_s, open_within_s=_NO_LIMIT_S)
        mover.opening = asyncio.create_task(mover.host.connected(), name=f"open-{mover.name}")

    async def _still_waiting(self, mover: _Mover) -> HostLost:
        """Why it still waits. A job that runs without an answer from its far end is given up."""
        job = await self._queue.job(mover.job_name)
        now_s = asyncio.get_running_loop().time()
        if job.state is not JobState.RUNNING:
            return HostLost(
                f"the job {job.id or mover.job_name} of {mover.name} waits for a node"
                + (f" ({job.reason})" if job.reason else ""),
                cause="the nodes are busy, drained or down, or [slurm] options ask for more than any node has",
                hint=f"see `squeue --name={mover.job_name}` and `sinfo -R`, or ask for less in site.toml: [slurm] options = "
                '["--cpus-per-task=1"]; the job stays queued, and the run continues without it',
            )
        if mover.running_since_s is None:
            mover.running_since_s = now_s
        if now_s - mover.running_since_s < _STARTED_WITHIN_S:
            return HostLost(f"the job {job.id} of {mover.name} has just been started on {job.node}")
        await self._give_up(mover)
        return HostLost(
            f"the job {job.id} of {mover.name} runs on {job.node}, and does not answer",
            cause="a prolog of the site takes long, or srun cannot be reached from the node (a firewall between them)",
            hint="try `srun hostname` with the options of [slurm] from here; see SrunPortRange in slurm.conf",
        )

    async def _settle(self, mover: _Mover) -> None:
        """Wait until nothing can run in the mover's job any more. Raises HostLost if that is not certain."""
        if mover.settled:
            return
        now_s = asyncio.get_running_loop().time()
        until_s = now_s + _END_WITHIN_S if mover.lost_at_s is None else self._lease_over_s(mover.lost_at_s)
        job = await self._queue.end(mover.job_name, until_s=until_s)
        if mover.lost_at_s is not None:
            self._require_end([job], mover.lost_at_s)
        mover.settled, mover.node = True, ""

    def _lease_over_s(self, since_s: float) -> float:
        """When far ends have ended their streams by themselves, by the time of the loop."""
        return since_s + self._lease_s + _LEASE_MARGIN_S

    def _require_end(self, jobs: Sequence[SlurmJob], since_s: float) -> None:
        """Raise HostLost if something may still run in one of these jobs, whose connections were lost by `since_s`.

        Where Slurm does not know, the lease decides: a node that does not answer may only be disconnected, and a job that
        Slurm no longer knows proves nothing.
        """
        doubted = [job for job in jobs if job.state is not JobState.ENDED]
        left_s = self._lease_over_s(since_s) - asyncio.get_running_loop().time()
        if not doubted:
            return
        shown = ", ".join(f"{job.id or job.name} ({job.state}{job.node and f' on {job.node}'})" for job in doubted)
        if left_s > 0:
            raise HostLost(
                f"streams may still be at work in {shown}",
                cause="Slurm does not reach the node, or does not know the job any more",
                hint=f"they end by themselves when their lease is over, in {left_s:.0f} s",
            )
        _log.warning("Slurm has not ended %s; the lease of what ran there is over", shown)

    async def _clear_leftovers(self) -> None:
        """End the jobs that an earlier program of this site has left, because they may run streams. Raises HostLost."""
        async with self._clearing:
            if self._began_s is None:
                self._began_s = asyncio.get_running_loop().time()
            if self._cleared:
                return
            mine = {mover.job_name for mover in self._movers.values()}
            theirs = [
                job for job in await self._queue.jobs() if job.name.startswith(self._prefix) and job.name not in mine
            ]
            left = [job for job in theirs if job.active and not _owner_lives(job.comment)]
            for job in left:
                _log.warning("ending job %s on %s, which an earlier run has left", job.id, job.node or "no node")
            until_s = self._lease_over_s(self._began_s)
            ended = await asyncio.gather(*(self._queue.end(job.name, until_s=until_s) for job in left))
            self._require_end([*ended, *(job for job in theirs if job.state is JobState.NODE_FAILED)], self._began_s)
            self._cleared = True

    async def _give_up(self, mover: _Mover) -> None:
        """Cancel a requested job, without closing the connection in order."""
        try:
            await self._queue.cancel(mover.job_name)
        except HostLost as error:
            _log.warning("%s: %s", mover.job_name, error.message)
        if mover.opening is not None:
            mover.opening.cancel()
            await asyncio.wait([mover.opening])
            drop_error(mover.opening)
        mover.opening, mover.host = None, None

    async def _close(self, mover: _Mover) -> None:
        async with mover.lock:
            if mover.opening is not None and not mover.opening.done():
                await self._give_up(mover)
            if mover.host is not None:
                await mover.host.close()
                mover.host, mover.opening = None, None
            try:
                await self._settle(mover)
            except HostLost as error:
                _log.warning("%s: %s", mover.job_name, error.message)


def _myself() -> str:
    me = proc.identity_of(os.getpid())
    return "::" if me is None else f"{me.boot_id}:{me.pid}:{me.start_ticks}"


def _owner_lives(comment: str) -> bool:
    """True if the program that requested a job is still alive. A program on another machine counts as dead: the lock of
    the site's directory admits one run at a time.
    """
    fields = comment.split(":")
    if len(fields) != 5 or not (fields[3].isdigit() and fields[4].isdigit()):
        return False
    return proc.lives(ProcessIdentity(boot_id=fields[2], pid=int(fields[3]), start_ticks=int(fields[4])))
