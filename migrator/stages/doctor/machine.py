"""What `doctor` looks at on this machine: programs, hooks, the state directory, the clock."""

import os
import sys
from pathlib import Path

from migrator.config.site import Site
from migrator.decide.freezing import check_freeze_hooks
from migrator.decide.hooks import check_hooks
from migrator.decide.site_checks import check_clock, check_state_directory
from migrator.decide.tool_checks import (
    check_confinement,
    check_engine,
    check_gluster,
    check_python,
    check_rsync,
    check_syncing,
    check_user,
)
from migrator.domain.errors import ToolFailed
from migrator.domain.finding import Finding, failure, ok
from migrator.domain.freezing import FreezeWay
from migrator.domain.mounts import mount_of
from migrator.domain.paths import show
from migrator.domain.site import MountIdentity
from migrator.ports.ledger import Ledger
from migrator.ports.processes import Command
from migrator.stages.doctor.world import DoctorWorld, ask

_VERSION_TIMEOUT_S = 30.0
_DRIVERS = ("fpsync", "parsyncfp2")


async def examine_machine(world: DoctorWorld) -> list[Finding]:
    """The programs of this machine, site.toml with what it names, the state directory, and the clock."""
    findings = [*await _tools(world), *_users_map(world.site)]
    findings += _state_directory(world)
    findings += await _hooks(world)
    findings.append(check_clock(world.clock.now_s(), _last_event_s(world.ledger)))
    return findings


async def _tools(world: DoctorWorld) -> list[Finding]:
    euid = os.geteuid() if world.euid is None else world.euid
    site, rsync = world.site, world.find_program("rsync")
    major, minor, micro = sys.version_info[:3]
    findings = [check_python((major, minor, micro)), check_rsync(rsync, await _version_output(world, rsync))]
    gluster = check_gluster(site.source.kind, site.source.gluster, world.find_program(site.source.gluster))
    findings += [gluster] if gluster else []
    findings.append(check_user(euid))
    if rsync is not None:
        problem = await world.confinement_problem(os.fsencode(rsync)) if euid == 0 else None
        findings.append(check_confinement(euid, problem))
    return findings + _engine(world)


async def examine_syncing(world: DoctorWorld, target: MountIdentity | None) -> list[Finding]:
    """Whether the rsync of this machine can put on the disks what it copies to the target that answers."""
    if target is None:
        return []
    finding = check_syncing(target.filesystem, await _version_output(world, world.find_program("rsync")))
    return [] if finding is None else [finding]


def _engine(world: DoctorWorld) -> list[Finding]:
    if world.hosts is None:
        return []
    engine, problem = world.site.transfer.engine, None
    if engine in _DRIVERS:
        try:
            world.find_driver(engine)
        except ToolFailed as error:
            problem = (error.message, error.hint or f"install {engine}, or set [transfer] engine to `auto`")
    return check_engine(engine, problem)


async def _version_output(world: DoctorWorld, program: str | None) -> bytes | None:
    if program is None:
        return None
    command = Command(argv=(os.fsencode(program), b"--version"), timeout_s=_VERSION_TIMEOUT_S)
    try:
        completed = await world.processes.run(command)
    except ToolFailed:
        return None
    return completed.stdout if completed.exit_code == 0 else None


def _users_map(site: Site) -> list[Finding]:
    if site.users.map is None:
        return []
    if site.users.map.is_file():
        return [ok("users map", str(site.users.map))]
    return [failure("users map", f"{site.users.map} is missing", "write it, or take [users] map out of site.toml")]


async def _hooks(world: DoctorWorld) -> list[Finding]:
    if world.hooks is None:
        return []
    found, error = await ask(world, world.hooks.find)
    if found is None:
        fix = "mend the file system that holds them, or name another directory in [site] hooks_dir"
        return [failure("hooks", f"{show(world.hooks.directory)} cannot be looked at: {error}", fix)]
    freeze = check_freeze_hooks(FreezeWay(world.site.cutover.freeze), found.hooks)
    return [*check_hooks(found, world.hooks.directory), *freeze]


def _state_directory(world: DoctorWorld) -> list[Finding]:
    directory = os.fsencode(os.path.realpath(world.site.site.state_dir))
    mount = mount_of(world.mounts, directory)
    try:
        room = os.statvfs(_existing(directory))
        free_bytes = room.f_bavail * room.f_frsize
    except OSError:
        free_bytes = None
    # By their names alone: a mount that hangs must not hang this check.
    roots = (("source", world.source.root), ("target", world.target.root))
    return check_state_directory(
        directory, filesystem=mount.filesystem if mount else None, free_bytes=free_bytes, roots=roots
    )


def _existing(directory: bytes) -> bytes:
    """The directory, or the one above it that is there: the state directory is made by `init`."""
    path = Path(os.fsdecode(directory))
    return os.fsencode(next(place for place in (path, *path.parents) if place.exists()))


def _last_event_s(ledger: Ledger | None) -> float | None:
    events = ledger.events.latest(1) if ledger is not None else ()
    return events[0].at_s if events else None
