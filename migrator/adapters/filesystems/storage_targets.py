"""Whether all storage targets of the target's file system are there: what lies on a missing one cannot be read."""

import os
from collections.abc import Sequence

from migrator.decide.storage_targets import target_problems
from migrator.domain.errors import ToolFailed
from migrator.ports.processes import Command, Processes

_TIMEOUT_S = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/beegfs/sbin"
"""The last is where BeeGFS's own packages put it."""
_QUESTIONS: Sequence[tuple[str, ...]] = (
    ("beegfs", "target", "list", "--state"),
    ("beegfs-ctl", "--listtargets", "--nodetype=storage", "--state"),
)
"""BeeGFS 8 and later; BeeGFS 7 (doc.beegfs.io, "Target States")."""


class NoStorageTargets:
    """The `StorageTargets` port of a file system that has none of its own: its mount is all there is to look at."""

    async def problems(self) -> tuple[str, ...]:
        """None."""
        return ()


class BeegfsTargets:
    """The `StorageTargets` port of BeeGFS, by its command on this machine."""

    def __init__(self, processes: Processes, *, path: str = _PATH) -> None:
        self._processes = processes
        self._environment = {"PATH": path}

    async def problems(self) -> tuple[str, ...]:
        """As the port says."""
        failures: list[str] = []
        for question in _QUESTIONS:
            argv = tuple(map(os.fsencode, question))
            try:
                answer = await self._processes.run(
                    Command(argv=argv, environment=self._environment, timeout_s=_TIMEOUT_S)
                )
            except ToolFailed as error:
                failures.append(error.message)
                continue
            if answer.exit_code == 0 and not answer.timed_out:
                return target_problems(answer.stdout.decode("utf-8", "replace"))
            said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
            why = "no answer" if answer.timed_out else (said[-1] if said else f"exit code {answer.exit_code}")
            failures.append(f"`{' '.join(question)}`: {why}")
        return (
            "the states of the target's storage targets are not known: "
            f"{'; '.join(failures)}; install BeeGFS's command on this machine",
        )
