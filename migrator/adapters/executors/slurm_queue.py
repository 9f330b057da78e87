"""This user's jobs in Slurm's queue, asked for by Slurm's own commands."""

import asyncio
import os
import pwd

from migrator.adapters.executors.slurm import PASSED_ON, Job, JobState, cancel_argv, list_jobs_argv, read_jobs
from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.ports.hosts import HostLost
from migrator.ports.processes import Command, Processes

_ASK_TIMEOUT_S = 15.0
_FIRST_LOOK_S = 0.1
_LONGEST_LOOK_S = 2.0
_END_WITHIN_S = 60.0
"""Slurm itself waits 30 s (KillWait) before it kills what does not end."""


class SlurmQueue:
    """The jobs of this user. `processes` are this machine's, for Slurm's commands."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._user = _user()

    async def jobs(self) -> list[Job]:
        """All that Slurm still knows. Raises HostLost."""
        return read_jobs(await self._ask(list_jobs_argv(self._user)))

    async def job(self, name: str) -> Job:
        """The job of a name: one that has not ended, where there is one; GONE where Slurm knows none. Raises HostLost."""
        found = [job for job in await self.jobs() if job.name == name]
        return next(
            (job for job in found if job.active), found[0] if found else Job(id="", name=name, state=JobState.GONE)
        )

    async def cancel(self, name: str) -> None:
        """Ask for the end of the jobs of a name. Raises HostLost."""
        await self._ask(cancel_argv(name, self._user))

    async def end(self, name: str) -> None:
        """Cancel the jobs of a name, and wait until Slurm says that nothing of them runs. Raises HostLost, also after a minute."""
        loop = asyncio.get_running_loop()
        deadline_s, pause_s = loop.time() + _END_WITHIN_S, _FIRST_LOOK_S
        cancelled = False
        while (job := await self.job(name)).active:
            if not cancelled:
                await self.cancel(name)
                cancelled = True
            if loop.time() > deadline_s:
                raise HostLost(
                    f"the job {job.id} on {job.node or 'no node'} has not ended: it is {job.state}",
                    cause="its processes hang in the kernel, or Slurm cannot reach the node",
                    hint=f"see `scontrol show job {job.id}` and the node; nothing of it is given to others before",
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_LOOK_S)

    async def _ask(self, argv: tuple[bytes, ...]) -> bytes:
        """Run one of Slurm's commands. Raises HostLost where the controller does not answer."""
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        command = Command(argv=argv, environment=environment, timeout_s=_ASK_TIMEOUT_S)
        program = show(argv[0])
        try:
            done = await self._processes.run(command)
        except ToolFailed as error:
            raise HostLost(
                f"Slurm cannot be asked: {error.message}",
                cause="Slurm's commands are not installed on this machine",
                hint="install the client side of Slurm (Debian: slurm-client), or set [transfer] movers to local",
            ) from error
        if done.exit_code != 0 or done.timed_out:
            said = show(done.stderr.strip()) or f"{program} ended with exit code {done.exit_code}"
            raise HostLost(
                f"Slurm does not answer: {said}",
                cause="slurmctld is stopped, or cannot be reached from this machine",
                hint="see `scontrol ping`; what runs in a job goes on meanwhile, and what was lost is in doubt until then",
            )
        return done.stdout


def _user() -> str:
    """By the effective user, as Slurm sees it: not what the environment says."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
