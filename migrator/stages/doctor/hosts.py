"""The part of `doctor` that looks at the hosts of site.toml: each is reached, asked, and judged."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from migrator.config.site import HostSection, Site
from migrator.decide.host_checks import HostSight, check_brick_hosts, check_host, check_host_clocks, host_lost
from migrator.decide.host_roots import brick_problem, target_problem
from migrator.decide.scan_way import BrickWay, choose_way
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.errors import MigratorError, ToolFailed
from migrator.domain.finding import Finding, failure
from migrator.domain.host import HostRoom, HostRoots
from migrator.domain.paths import show
from migrator.domain.site import MountIdentity
from migrator.ports.bricks import BrickVolume
from migrator.ports.hosts import Host, HostFacts, HostLost, Hosts
from migrator.ports.processes import Command, Processes

_AT_ONCE = 32
_VERSION_TIMEOUT_S = 30.0


class LookAtRoots(Protocol):
    """What lies at the target's root and at a brick's on a host."""

    def __call__(self, processes: Processes, *, python: bytes, target: bytes, brick: bytes) -> Awaitable[HostRoots]:
        """Raises HostLost, ToolFailed."""


class LookAtRoom(Protocol):
    """The file system at a path of a host."""

    def __call__(self, processes: Processes, *, python: bytes, path: bytes) -> Awaitable[HostRoom]:
        """Raises HostLost, ToolFailed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWorld:
    """`sections` by the host's name, one entry for each of a section that stands for several. `place_native` puts the
    compiled program on a host; it raises HostLost and ToolFailed. `volume` is None where the source is no Gluster volume.
    """

    hosts: Hosts
    sections: Mapping[str, HostSection]
    volume: BrickVolume | None
    place_native: Callable[[Host], Awaitable[bytes]]
    look_at_roots: LookAtRoots
    look_at_room: LookAtRoom


async def examine_hosts(
    world: HostWorld, site: Site, *, target: MountIdentity | None, state: VolumeState | None
) -> list[Finding]:
    """All findings about hosts, and whether the bricks could be read now. `target` is the recorded one, `state` the
    volume as it was just seen. Closes the connections.
    """
    try:
        gate = asyncio.Semaphore(_AT_ONCE)
        looks = await asyncio.gather(
            *(_look(world, site, name, gate, target=target, state=state) for name in world.sections)
        )
    finally:
        await world.hosts.close()
    findings: list[Finding] = []
    offsets: dict[str, tuple[float, float]] = {}
    unreachable: dict[str, str] = {}
    for name, look in zip(world.sections, looks, strict=True):
        if isinstance(look, MigratorError):
            findings.append(host_lost(name, look.message, look.cause, look.hint))
            unreachable[name] = look.message
            continue
        offsets[name] = (look.clock_offset_s, look.round_trip_s / 2)
        filesystem = target.filesystem if target is not None else None
        findings += check_host(look, target_filesystem=filesystem, reserve_bytes=site.transfer.reserve_bytes)
    findings += check_host_clocks(offsets)
    if state is not None and world.volume is not None:
        findings += await _examine_way(world, site, state, reachable=list(offsets), unreachable=unreachable)
    return findings


async def _examine_way(
    world: HostWorld, site: Site, state: VolumeState, *, reachable: list[str], unreachable: Mapping[str, str]
) -> list[Finding]:
    way: BrickWay | None = None
    if site.source.via != "mount" and world.sections and world.volume is not None:
        try:
            whole = await world.volume.state_for_bricks(state)
        except MigratorError as error:
            return [
                failure("bricks", f"the volume's state is not known: {error.message}", "see `gluster volume status`")
            ]
        way = choose_way(whole, reachable=reachable, unreachable=unreachable)
    return check_brick_hosts(site.source.via, state, list(world.sections), way)


async def _look(
    world: HostWorld,
    site: Site,
    name: str,
    gate: asyncio.Semaphore,
    *,
    target: MountIdentity | None,
    state: VolumeState | None,
) -> HostSight | MigratorError:
    """What a host shows, or why it cannot be told."""
    async with gate:
        try:
            host = await world.hosts.reach(name)
            return await _sight(world, site, host, target=target, state=state)
        except MigratorError as error:
            return error


async def _sight(
    world: HostWorld, site: Site, host: Host, *, target: MountIdentity | None, state: VolumeState | None
) -> HostSight:
    section = world.sections[host.name]
    facts = await host.facts()
    place = None if section.target is None else os.fsencode(section.target / site.target.path)
    bricks = [brick for brick in state.bricks if brick.host == host.name] if state is not None else []
    room, room_error = await _room(world, host, facts, place)
    problem = None
    if place is not None:
        roots = await world.look_at_roots(host.processes, python=facts.python, target=place, brick=b"")
        problem = target_problem(target, roots, os.fsdecode(place)) or room_error
    rsync = await host.find("rsync")
    return HostSight(
        name=host.name,
        python_version=facts.python_version,
        effective_uid=facts.effective_uid,
        round_trip_s=facts.round_trip_s,
        clock_offset_s=facts.clock_offset_s,
        bricks={brick.name: await _brick(world, host, facts, brick, state) for brick in bricks},
        target=None if place is None else os.fsdecode(place),
        target_problem=problem,
        room=room,
        rsync=None if rsync is None else show(rsync),
        rsync_output=None if rsync is None else await _version(host, rsync),
        native_problem=await _native_problem(world, host),
    )


async def _room(
    world: HostWorld, host: Host, facts: HostFacts, place: bytes | None
) -> tuple[HostRoom | None, str | None]:
    if place is None:
        return None, None
    try:
        return await world.look_at_room(host.processes, python=facts.python, path=place), None
    except HostLost:
        raise
    except ToolFailed as error:
        return None, error.message


async def _brick(world: HostWorld, host: Host, facts: HostFacts, brick: Brick, state: VolumeState | None) -> str | None:
    roots = await world.look_at_roots(host.processes, python=facts.python, target=b"", brick=brick.path)
    return brick_problem(state.volume_id if state is not None else None, roots, brick.name)


async def _version(host: Host, program: bytes) -> bytes | None:
    command = Command(argv=(program, b"--version"), timeout_s=_VERSION_TIMEOUT_S)
    try:
        completed = await host.processes.run(command)
    except HostLost:
        raise
    except ToolFailed:
        return None
    return completed.stdout if completed.exit_code == 0 else None


async def _native_problem(world: HostWorld, host: Host) -> str | None:
    """Why the compiled program does not run there; None where it does, which is tried."""
    try:
        placed = await world.place_native(host)
        completed = await host.processes.run(Command(argv=(placed, b"--version"), timeout_s=_VERSION_TIMEOUT_S))
    except HostLost:
        raise
    except ToolFailed as error:
        return error.message
    if completed.exit_code != 0:
        said = show(completed.stderr.strip()[-200:])
        return f"it ended with code {completed.exit_code} {said}".rstrip()
    return None
