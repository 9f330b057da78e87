"""The part of `doctor` that asks Slurm, where its nodes move the data."""

import os
from collections.abc import Callable

from migrator.config.site import SlurmSection
from migrator.decide.tool_checks import check_slurm_controller, check_slurm_nodes, check_slurm_programs
from migrator.domain.errors import ToolFailed
from migrator.domain.finding import Finding, failure
from migrator.domain.paths import show
from migrator.ports.processes import Command, Completed, Processes

_PROGRAMS = ("srun", "squeue", "scancel", "scontrol", "sinfo")
_PASSED_ON = ("SLURM_CONF", "HOME")
_TIMEOUT_S = 60.0
_SAID_LINES = 3


async def examine_slurm(
    processes: Processes, find_program: Callable[[str], str | None], section: SlurmSection
) -> list[Finding]:
    """Are its programs here, does a controller answer, and are there enough nodes?"""
    found = {name: find_program(name) for name in _PROGRAMS}
    if lacking := check_slurm_programs([name for name, path in found.items() if path is None]):
        return [lacking]
    try:
        ping = await _ask(processes, found["scontrol"], "ping")
        if silent := check_slurm_controller(ping.exit_code, _lines(ping.stdout or ping.stderr)):
            return [silent]
        nodes = await _ask(processes, found["sinfo"], "--noheader", "--Node", "--format=%N|%t", *_partition(section))
    except ToolFailed as error:
        return [failure("slurm", error.message, "see that `scontrol ping` and `sinfo` work here")]
    if nodes.exit_code != 0:
        told = f"sinfo ended with code {nodes.exit_code}: {_lines(nodes.stderr)}"
        return [failure("slurm", told, "put [slurm] options right")]
    return [check_slurm_nodes(nodes.stdout.decode("utf-8", "replace"), section.nodes)]


async def _ask(processes: Processes, program: str | None, *words: str) -> Completed:
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    argv = tuple(os.fsencode(word) for word in (program or "", *words))
    return await processes.run(Command(argv=argv, environment=environment, timeout_s=_TIMEOUT_S))


def _lines(said: bytes) -> str:
    """The last of what was said, in one line, without the banner that Slurm puts below it."""
    lines = [line for line in said.strip().split(b"\n") if line and not line.startswith(b"**")]
    return "; ".join(show(line) for line in lines[-_SAID_LINES:])


def _partition(section: SlurmSection) -> tuple[str, ...]:
    """Of the options for `srun` those that choose among the nodes, in any of the ways in which they can be written."""
    found: list[str] = []
    options = list(section.options)
    for option, following in zip(options, [*options, ""][1:], strict=True):
        if option in ("-p", "--partition"):
            found.append(f"--partition={following}")
        elif option.startswith("--partition="):
            found.append(option)
        elif option.startswith("-p") and not option.startswith("--"):
            found.append(f"--partition={option[2:]}")
    return tuple(found[-1:])
