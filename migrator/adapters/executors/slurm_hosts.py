"""Nodes of a Slurm cluster as hosts: one job each, asked for when it is needed."""

import asyncio
import logging
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from migrator.adapters.executors import proc
from migrator.adapters.executors.remote import RemoteHost, again
from migrator.adapters.executors.slurm import TOO_MUCH_CAUSE, TOO_MUCH_HINT, TOO_MUCH_REASONS, JobState, Srun
from migrator.adapters.executors.slurm_queue import SlurmQueue
from migrator.domain.errors import UsageError
from migrator.domain.transfer import ProcessIdentity
from migrator.ports.hosts import Host, HostFacts, HostLost
from migrator.ports.processes import Processes

_log = logging.getLogger(__name__)

_NAME = "slurm-{number}"
_NO_LIMIT_S = 10.0 * 365 * 86400
"""A job may wait in the queue for as long as it likes; `patience_s` is how long a caller waits for it."""
_STARTED_WITHIN_S = 60.0
_LEASE_MARGIN_S = 15.0
_FIRST_BACKOFF_S = 1.0
_LONGEST_BACKOFF_S = 60.0
_CONNECTED_ENVIRONMENT_BYTES = 1 << 20


class SlurmHost(RemoteHost):
    """The `Host` port in one job. It is lost for good when the job ends."""

    node = ""
    """As Slurm names it; known after `facts`."""

    async def facts(self) -> HostFacts:
        """With the job."""
        found = await super().facts()
        variables = await self._variables(found.process_id)
        self.node = os.fsdecode(variables.get(b"SLURMD_NODENAME", b""))
        return replace(found, job=os.fsdecode(variables.get(b"SLURM_JOB_ID", b"")))

    async def _variables(self, process_id: int) -> dict[bytes, bytes]:
        """What Slurm gave the far end: known without the controller."""
        content = await self._read_head(b"/proc/%d/environ" % process_id, _CONNECTED_ENVIRONMENT_BYTES)
        pairs = (entry.partition(b"=") for entry in content.split(b"\0"))
        return {name: value for name, _, value in pairs}


@dataclass(slots=True, kw_only=True)
class _Mover:
    """One of the nodes. `job_name` is that of the latest job, which is `settled` once nothing can run in it any more."""

    name: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    host: SlurmHost | None = None
    opening: "asyncio.Task[object] | None" = None
    job_name: str = ""
    node: str = ""
    settled: bool = True
    running_since_s: float | None = None
    lost_at_s: float | None = None
    failure: HostLost | None = None
    backoff_s: float = 0.0
    not_before_s: float = 0.0


class SlurmHosts:
    """The `Hosts` port: `slurm-1`, `slurm-2` and so on, each a node with a job of its own.

    A job that has ended is followed by another one, on the same node or not, and not before Slurm has said that it has
    ended: whoever reaches a host after a loss knows that nothing of what ran there is left. So it is with jobs that an
    earlier program of the same site has left, when that was killed. Jobs of a program that still lives are left alone.
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
        it says that the job waits in the queue.
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
        self._clearing = asyncio.Lock()
        self._cleared = False
        self._placing = asyncio.Lock()
        self._began_s: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._movers)

    async def reach(self, name: str) -> Host:
        """The node, its far end connected. Raises HostLost while its job waits in the queue, too; UsageError."""
        mover = self._mover(name)
        async with mover.lock:
            if await self._is_connected(mover) and mover.host is not None:
                return mover.host
            now_s = asyncio.get_running_loop().time()
            if mover.opening is None:
                if mover.failure is not None and now_s < mover.not_before_s:
                    raise again(mover.failure)
                await self._clear_leftovers()
                await self._settle(mover)
            try:
                host = await self._open(mover)
            except HostLost as error:
                if mover.opening is None:
                    mover.failure = error
                    mover.backoff_s = min(max(mover.backoff_s * 2, _FIRST_BACKOFF_S), _LONGEST_BACKOFF_S)
                    mover.not_before_s = now_s + mover.backoff_s
                raise
            mover.failure, mover.backoff_s = None, 0.0
            return host

    async def end_orphans(self, name: str, tokens: Sequence[str]) -> Sequence[str]:
        """The tokens of what cannot be ended of earlier attempts on this host. Where its job has ended nothing is left
        of them, and no other job is asked for. Raises HostLost where Slurm does not say so; UsageError.
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
        """Also sees the loss of a connection that was there."""
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
        """Ask for a job, or wait on for the one that was asked for. Raises HostLost; then `opening` says whether it
        still waits.
        """
        if mover.opening is None:
            # One after the other, so that each knows where the others are.
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
            mover.host = None  # nothing was begun there
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
        """Why; a far end that does not speak although its job runs is given up."""
        job = await self._queue.job(mover.job_name)
        now_s = asyncio.get_running_loop().time()
        if job.state is not JobState.RUNNING:
            asks_too_much = job.reason in TOO_MUCH_REASONS
            return HostLost(
                f"the job {job.id or mover.job_name} of {mover.name} waits for a node"
                + (f" ({job.reason})" if job.reason else ""),
                cause=TOO_MUCH_CAUSE
                if asks_too_much
                else "the nodes are busy, drained or down, or the job has to wait its turn",
                hint=TOO_MUCH_HINT
                if asks_too_much
                else f"see `squeue --name={mover.job_name}` and `sinfo -R`; it goes on waiting, and the run without it",
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
        """Return when nothing can run any more in the mover's job. Raises HostLost where that is not known."""
        if mover.settled:
            return
        await self._queue.end(mover.job_name)
        job = await self._queue.job(mover.job_name)
        # A node that failed may only have been cut off, and a job that Slurm does not know says nothing.
        if job.state in (JobState.NODE_FAILED, JobState.GONE) and mover.lost_at_s is not None:
            self._require_lease_over(mover.lost_at_s, f"the job of {mover.name}")
        mover.settled, mover.node = True, ""

    def _require_lease_over(self, since_s: float, what: str) -> None:
        left_s = since_s + self._lease_s + _LEASE_MARGIN_S - asyncio.get_running_loop().time()
        if left_s > 0:
            raise HostLost(
                f"what ran in {what} may still be at work",
                cause="Slurm lost its node, or does not know the job any more",
                hint=f"it ends by itself when its lease is over, in {left_s:.0f} s",
            )

    async def _clear_leftovers(self) -> None:
        """End what an earlier program of this site has left: its jobs may hold streams. Raises HostLost."""
        async with self._clearing:
            loop = asyncio.get_running_loop()
            if self._began_s is None:
                self._began_s = loop.time()
            if self._cleared:
                return
            mine = {mover.job_name for mover in self._movers.values()}
            theirs = [
                job for job in await self._queue.jobs() if job.name.startswith(self._prefix) and job.name not in mine
            ]
            left = [job for job in theirs if job.active and not _owner_lives(job.comment)]
            for job in left:
                _log.warning("ending job %s, which an earlier run has left", job.id)
                await self._queue.end(job.name)
            if any(job.state is JobState.NODE_FAILED for job in theirs):
                self._require_lease_over(self._began_s, "a job of an earlier run")
            self._cleared = True

    async def _give_up(self, mover: _Mover) -> None:
        """Of a job that was asked for: without a word to a far end that does not listen."""
        try:
            await self._queue.cancel(mover.job_name)
        except HostLost as error:
            _log.warning("%s: %s", mover.job_name, error.message)
        if mover.opening is not None:
            mover.opening.cancel()
            await asyncio.wait([mover.opening])
            if not mover.opening.cancelled():
                mover.opening.exception()
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
    """Whether the program that asked for a job is still there. On another machine it counts as gone: there is one run
    of a site at a time, and its directory is locked.
    """
    fields = comment.split(":")
    if len(fields) != 5 or not (fields[3].isdigit() and fields[4].isdigit()):
        return False
    return proc.lives(ProcessIdentity(boot_id=fields[2], pid=int(fields[3]), start_ticks=int(fields[4])))
