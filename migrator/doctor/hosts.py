"""The hosts of site.toml, and the nodes of Slurm."""

import asyncio
import os
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Mapping

from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.events import Finding, failure
from migrator.core.paths import show
from migrator.doctor import rules_hosts
from migrator.doctor.call import (
    VERSION_TIMEOUT_S,
    answer_of,
)
from migrator.fs.model import MountIdentity
from migrator.gluster.model import VolumeState
from migrator.gluster.volume import GlusterSource
from migrator.hosts.connection import own_environment
from migrator.hosts.model import TARGET_HOSTS, brick_problem, target_problem
from migrator.hosts.ports import Command, Completed, Host, Hosts, Processes
from migrator.hosts.site import assign_writers, names, probe_room
from migrator.scan.rules import BrickChoice, select_bricks
from migrator.site.config import HostSection, Site, SlurmSection, WriterSection
from migrator.transfer.executors import Executor

_AT_ONCE = 32


async def examine_hosts(
    site: Site,
    hosts: Hosts,
    volume: GlusterSource | None,
    place_native: Callable[[Host], Awaitable[bytes]],
    *,
    target: MountIdentity | None,
    state: VolumeState | None,
) -> list[Finding]:
    """All findings about hosts, and whether the bricks can be read now. `place_native` copies the compiled program to a
    host; it raises HostLost and ToolFailed. `target` is the recorded one, `state` the current state of the volume;
    `volume` is None if the source is no volume. Closes the connections.
    """
    # A section may cover several hosts.
    sections = {name: section for section in site.source.hosts for name in names(section.name)}
    without = [name for name, section in sections.items() if section.target is None]
    writers = {name: section for section in site.target.hosts for name in names(section.name, of=TARGET_HOSTS)}
    written_by = assign_writers(without, list(writers))
    gate = asyncio.Semaphore(_AT_ONCE)

    async def examine_host(name: str, section: HostSection | WriterSection) -> rules_hosts.HostState | MigratorError:
        """The facts of a host, or why they are unknown."""
        async with gate:
            try:
                host, writer = await hosts.reach(name), written_by.get(name, "")
                return await _sight(site, section, host, place_native, target=target, state=state, writer=writer)
            except MigratorError as error:
                return error

    every: list[tuple[str, HostSection | WriterSection]] = [*sections.items(), *writers.items()]
    try:
        looks = await asyncio.gather(*(examine_host(name, section) for name, section in every))
    finally:
        await hosts.close()
    findings: list[Finding] = []
    offsets: dict[str, tuple[float, float]] = {}
    unreachable: dict[str, str] = {}
    for (name, section), seen in zip(every, looks, strict=True):
        if isinstance(seen, MigratorError):
            of = _place(section)
            findings.append(rules_hosts.host_lost(name, seen.message, seen.cause, seen.hint, of=of))
            unreachable[name] = seen.message
            continue
        offsets[name] = (seen.facts.clock_offset_s, seen.facts.round_trip_s / 2)
        filesystem = target.filesystem if target is not None else None
        findings += rules_hosts.check_host(
            seen, target_filesystem=filesystem, reserve_bytes=site.transfer.reserve_bytes
        )
    findings += rules_hosts.check_host_clocks(offsets)
    if state is not None and volume is not None:
        findings += await _examine_way(
            site,
            sections,
            volume,
            state,
            reachable=[name for name in offsets if name in sections],
            unreachable=unreachable,
        )
    return findings


async def _examine_way(
    site: Site,
    sections: Mapping[str, HostSection],
    volume: GlusterSource,
    state: VolumeState,
    *,
    reachable: list[str],
    unreachable: Mapping[str, str],
) -> list[Finding]:
    way: BrickChoice | None = None
    if site.source.via != "mount" and sections:
        try:
            whole = await volume.state_for_bricks(state)
        except MigratorError as error:
            return [failure("bricks", f"the volume's state is unknown: {error.message}", "see `gluster volume status`")]
        way = select_bricks(whole, reachable=reachable, unreachable=unreachable)
    return rules_hosts.check_brick_hosts(site.source.via, state, list(sections), way)


def _place(section: HostSection | WriterSection) -> str:
    """The place of a section in site.toml."""
    return "source.hosts" if isinstance(section, HostSection) else TARGET_HOSTS


async def _sight(
    site: Site,
    section: HostSection | WriterSection,
    host: Host,
    place_native: Callable[[Host], Awaitable[bytes]],
    *,
    target: MountIdentity | None,
    state: VolumeState | None,
    writer: str,
) -> rules_hosts.HostState:
    facts = await host.facts()
    mount = section.target or (site.target.mount if isinstance(section, WriterSection) else None)
    place = None if mount is None else os.fsencode(mount / site.target.path)
    bricks: dict[str, str | None] = {}
    for brick in state.bricks if state is not None and isinstance(section, HostSection) else ():
        if brick.host == host.name:
            roots = await host.roots(b"", brick.path)
            bricks[brick.name] = brick_problem(state.volume_id if state else None, roots, brick.name)
    room, problem = None, None
    if place is not None:
        room, error = await answer_of(probe_room(host.processes, python=facts.python, path=place))
        roots = await host.roots(place, b"")
        problem = target_problem(target, roots, os.fsdecode(place)) or error or None
    native_problem, confinement_problem = await _native_problem(host, place_native), None
    streams = place is not None or bool(site.target.hosts)
    if streams and native_problem is None and facts.effective_uid == 0:
        stream = Executor(host, source_root=b"", target_root=b"", compiled=lambda: place_native(host), facts=facts)
        confinement_problem = await stream.problem()
    return rules_hosts.HostState(
        facts=facts,
        of=_place(section),
        writer=writer,
        bricks=bricks,
        target=None if place is None else os.fsdecode(place),
        target_problem=problem,
        room=room,
        native_problem=native_problem,
        confinement_problem=confinement_problem,
    )


async def _native_problem(host: Host, place_native: Callable[[Host], Awaitable[bytes]]) -> str | None:
    """Run the compiled program there, and return the reason why it does not run; None if it does."""

    async def run() -> Completed:
        placed = await place_native(host)
        return await host.processes.run(Command(argv=(placed, b"--version"), timeout_s=VERSION_TIMEOUT_S))

    completed, error = await answer_of(run())
    return error if completed is None else completed.failure or None


# Slurm, if its nodes move the data


_PROGRAMS = ("srun", "squeue", "scancel", "scontrol", "sinfo")
_PASSED_ON = ("SLURM_CONF", "HOME")
_SLURM_TIMEOUT_S = 60.0
_SAID_LINES = 3


async def examine_slurm(
    processes: Processes, find_program: Callable[[str], str | None], section: SlurmSection
) -> list[Finding]:
    """Check that its programs are installed, a controller answers, and there are enough nodes."""
    found = {name: find_program(name) for name in _PROGRAMS}
    if missing := [name for name, path in found.items() if path is None]:
        message = f"[transfer] movers is `slurm`, and not found here: {', '.join(missing)}"
        return [failure("slurm", message, "install Slurm's client (Debian: slurm-client), or set movers to `local`")]
    try:
        ping = await _ask(processes, found["scontrol"], "ping")
        status = _lines(ping.stdout or ping.stderr) or f"scontrol ping ended with code {ping.exit_code}"
        # A second controller that is down does not matter.
        if ping.exit_code != 0 or " UP" not in status:
            fix = (
                "start slurmctld; SLURM_CONF or /etc/slurm/slurm.conf names its address; `munge -n | unmunge` must work"
            )
            return [failure("slurm", f"no controller of Slurm answers: {status}", fix)]
        nodes = await _ask(processes, found["sinfo"], "--noheader", "--Node", "--format=%N|%t", *_partition(section))
    except ToolFailed as error:
        return [failure("slurm", error.message, "make `scontrol ping` and `sinfo` work here")]
    if nodes.exit_code != 0:
        message = f"sinfo ended with code {nodes.exit_code}: {_lines(nodes.stderr)}"
        return [failure("slurm", message, "correct [slurm] options")]
    return [rules_hosts.check_slurm_nodes(nodes.stdout.decode("utf-8", "replace"), section.nodes)]


async def _ask(processes: Processes, program: str | None, *words: str) -> Completed:
    argv = tuple(os.fsencode(word) for word in (program or "", *words))
    command = Command(argv=argv, environment=own_environment(_PASSED_ON), timeout_s=_SLURM_TIMEOUT_S)
    return await processes.run(command)


def _lines(output: bytes) -> str:
    """The end of the output in one line, without the banner that Slurm appends."""
    lines = [line for line in output.strip().split(b"\n") if line and not line.startswith(b"**")]
    return "; ".join(show(line) for line in lines[-_SAID_LINES:])


def _partition(section: SlurmSection) -> tuple[str, ...]:
    """The partition that the options for `srun` select."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-p", "--partition")
    found = parser.parse_known_args(section.options)[0].partition
    return () if found is None else (f"--partition={found}",)
