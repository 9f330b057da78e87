"""This machine: programs, hooks, state directory, ledger, clock."""

import asyncio
import os
from pathlib import Path

from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.events import Finding, failure, ok
from migrator.doctor import rules_machine
from migrator.doctor.call import DRIVERS, LOOK_TIMEOUT_S, DoctorPorts, rsync_version
from migrator.doctor.configuration import check_mail, examine_hooks
from migrator.fs.model import mount_of


async def examine_machine(ports: DoctorPorts) -> list[Finding]:
    """The programs of this machine, site.toml with the paths in it, the state directory, and the clock."""
    findings = await _tools(ports)
    if (users := ports.site.users.map) is not None:
        fix = "write it, or remove [users] map from site.toml"
        findings.append(
            ok("users map", str(users)) if users.is_file() else failure("users map", f"{users} is missing", fix)
        )
    findings += _state_directory(ports)
    findings += await _journal(ports)
    if ports.hooks is not None:
        findings += await examine_hooks(ports.site, ports.hooks, ports.blocking)
    findings += await asyncio.to_thread(check_mail, ports.site.file.with_name("mail.ini"))
    events = ports.ledger.events.latest(1) if ports.ledger is not None else ()
    findings.append(rules_machine.check_clock(ports.clock.now_s(), events[0].at_s if events else None))
    return findings


async def _tools(ports: DoctorPorts) -> list[Finding]:
    site, rsync, euid = ports.site, ports.find_program("rsync"), ports.euid
    findings = [rules_machine.check_kernel(ports.kernel)]
    findings.append(rules_machine.check_rsync(rsync, await rsync_version(ports), engine=site.transfer.engine))
    if site.source.kind == "gluster":
        findings.append(rules_machine.check_gluster(site.source.gluster, ports.find_program(site.source.gluster)))
    findings.append(rules_machine.check_user(euid))
    findings.append(rules_machine.check_confinement(euid, await ports.confinement_problem() if euid == 0 else None))
    return findings + _engine(ports)


def _engine(ports: DoctorPorts) -> list[Finding]:
    engine = ports.site.transfer.engine
    if engine in DRIVERS:
        try:
            ports.find_driver(engine)
        except ToolFailed as error:
            fix = error.hint or f"install {engine}, or set [transfer] engine to `auto`"
            return [failure("engine", f"[transfer] engine is `{engine}`: {error.message}", fix)]
    return [ok("engine", f"`{engine}`")]


async def _journal(ports: DoctorPorts) -> list[Finding]:
    """Check that the ledger is the newest one, by the journal on the target."""
    if ports.require_newest is None or ports.ledger is None:
        return []
    try:
        await ports.blocking(ports.require_newest, timeout_s=LOOK_TIMEOUT_S)
    except TimeoutError:
        return [failure("ledger", f"the target does not answer within {LOOK_TIMEOUT_S:.0f} s", "check its mount")]
    except MigratorError as error:
        return [failure("ledger", error.message, error.hint)]
    return [ok("ledger", "the newest one, by the journal on the target")]


def _state_directory(ports: DoctorPorts) -> list[Finding]:
    directory = os.fsencode(os.path.realpath(ports.site.site.state_dir))
    mount = mount_of(ports.mounts, directory)
    try:
        room = os.statvfs(_existing(directory))
        free_bytes = room.f_bavail * room.f_frsize
    except OSError:
        free_bytes = None
    # Compares names only: a mount that hangs must not hang this check.
    roots = (("source", ports.source.root), ("target", ports.target.root))
    return rules_machine.check_state_directory(
        directory, filesystem=mount.filesystem if mount else None, free_bytes=free_bytes, roots=roots
    )


def _existing(directory: bytes) -> bytes:
    """The directory or its nearest existing parent: `init` creates the state directory."""
    path = Path(os.fsdecode(directory))
    return os.fsencode(next(place for place in (path, *path.parents) if place.exists()))
