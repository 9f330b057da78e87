"""`doctor`: everything that should be known before a migration begins, each finding with its fix.

It changes nothing but this: where the target is the recorded one, it tries out in a directory of its own what the target
keeps of a file, and writes that into the ledger.
"""

import errno
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from migrator.config.site import Site
from migrator.decide.freezing import check_freeze_hooks, check_open_files
from migrator.decide.hooks import check_hooks
from migrator.decide.reap import atime_problem, check_atime
from migrator.decide.site_checks import (
    check_capabilities,
    check_clock,
    check_health,
    check_lookups,
    check_mount,
    check_source_acls,
    check_state_directory,
    check_target_room,
    check_unused_keys,
)
from migrator.decide.site_guards import kind_problem, mount_problems
from migrator.decide.site_places import check_catalog_trees, check_globs, check_places, unusable_source
from migrator.decide.storage_checks import check_quota, check_storage_targets, check_stripe
from migrator.decide.texts import check_texts
from migrator.decide.tool_checks import (
    check_confinement,
    check_engine,
    check_gluster,
    check_python,
    check_rsync,
    check_user,
)
from migrator.decide.trees import TreePattern, choose_trees, parse_patterns
from migrator.domain.addition import AdditionSide
from migrator.domain.brick import SourceHealth, VolumeState
from migrator.domain.drain import UNTOUCHED_STATES
from migrator.domain.entry import ACL_ACCESS
from migrator.domain.errors import Refused, ToolFailed, UsageError
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.finding import Finding, failure, ok
from migrator.domain.freezing import FreezeWay
from migrator.domain.mounts import Mount, mount_of
from migrator.domain.paths import show
from migrator.domain.site import Capacity, MountIdentity, TargetCapabilities
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.filesystem import FileSystem, SourceFileSystem, TargetFileSystem
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.processes import Command, Processes
from migrator.ports.site import SiteRecord
from migrator.ports.storage_targets import StorageTargets
from migrator.ports.texts import Texts
from migrator.stages.host_examination import HostWorld, examine_hosts
from migrator.stages.link_examination import LinkWorld, examine_links
from migrator.stages.scan.finding import find_directories
from migrator.stages.slurm_examination import examine_slurm
from migrator.stages.storage_looks import look_at_storage

Answer = TypeVar("Answer")

_LOOK_TIMEOUT_S = 30.0
_PROBE_TIMEOUT_S = 300.0
_VERSION_TIMEOUT_S = 30.0
_DRIVERS = ("fpsync", "parsyncfp2")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorWorld:
    """What `doctor` looks at. `ledger` is None before `init`; `mounts` are this machine's, now.

    `confinement_problem` says of a program why no stream of it could be confined here, None where it can. `hosts` is
    what is looked at on the hosts of site.toml, None: nothing. `find_driver` raises ToolFailed where an engine that is a
    driver cannot be used. `hooks` None: nobody looks at them. `links` None: no path
    of a user is to be switched. `texts` None: users are told nothing. `storage` None: the target has no storage targets.
    """

    site: Site
    source: SourceFileSystem
    target: TargetFileSystem
    ledger: Ledger | None
    processes: Processes
    clock: Clock
    blocking: Blocking
    mounts: Sequence[Mount]
    confinement_problem: Callable[[bytes], Awaitable[str | None]]
    find_program: Callable[[str], str | None] = shutil.which
    euid: int | None = None
    hosts: HostWorld | None = None
    find_driver: Callable[[str], object] = lambda _engine: None
    hooks: Hooks | None = None
    links: LinkWorld | None = None
    texts: Texts | None = None
    storage: StorageTargets | None = None


async def examine(world: DoctorWorld) -> tuple[Finding, ...]:
    """All findings, in the order in which they are best mended. May be called at any time, also while a run goes on.

    A file system that does not answer is a finding after half a minute. Raises LedgerCorrupt and what the ledger raises.
    """
    record = world.ledger.site.read() if world.ledger is not None else None
    findings = [*await _tools(world), *check_unused_keys(world.site.without_effect), *_users_map(world.site)]
    findings += _state_directory(world)
    findings += await _hooks(world)
    findings += await _texts(world)
    findings.append(check_clock(world.clock.now_s(), _last_event_s(world.ledger)))
    source, source_room, state = await _source(world, record, findings)
    target = await _target(world, record, source_room, findings)
    sides = (
        ("source", world.site.source.kind, world.source.root, source),
        ("target", world.site.target.kind, os.fsencode(world.site.target.mount), target),
    )
    # Only what answered is asked for its real path: a mount that hangs must not hang this check.
    answered = [(side, kind, _real(root)) for side, kind, root, identity in sides if identity is not None]
    findings += check_places(answered, world.mounts, source, target)
    findings += _reaping(world, state, source)
    if world.hosts is not None:
        recorded = record.target if record is not None else None
        findings += await examine_hosts(world.hosts, world.site, target=recorded, state=state)
    findings += await examine_links(world.links, world.site, world.ledger, world.blocking, world.hooks)
    if world.site.transfer.movers == "slurm":
        findings += await examine_slurm(world.processes, world.find_program, world.site.slurm)
    return tuple(findings)


def _reaping(world: DoctorWorld, state: VolumeState | None, source: MountIdentity | None) -> list[Finding]:
    """Whether the source tells when files were read, where a rule of [reap] asks; what did not answer tells nothing."""
    policy = world.site.reap.policy
    needed = source is not None and any(rule.needs_atime for rule in (policy.rule, *policy.by_name.values()))
    mount = mount_of(world.mounts, _real(world.source.root)) if needed else None
    options = None if state is None else dict(state.options)
    return check_atime(needed, atime_problem(world.site.source.kind, options, mount) if needed else None)


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


def _engine(world: DoctorWorld) -> list[Finding]:
    if world.hosts is None:
        return []
    engine, problem = world.site.transfer.engine, None
    if engine in _DRIVERS:
        try:
            world.find_driver(engine)
        except ToolFailed as error:
            problem = (error.message, error.hint or f"install {engine}, or set [transfer] engine to `auto`")
    compiled = world.hosts.compiled
    return check_engine(engine, compiled if isinstance(compiled, str) else None, problem)


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
    found, error = await _ask(world, world.hooks.find)
    if found is None:
        fix = "mend the file system that holds them, or name another directory in [site] hooks_dir"
        return [failure("hooks", f"{show(world.hooks.directory)} cannot be looked at: {error}", fix)]
    freeze = check_freeze_hooks(FreezeWay(world.site.cutover.freeze), found.hooks)
    return [*check_hooks(found, world.hooks.directory), *freeze]


async def _texts(world: DoctorWorld) -> list[Finding]:
    if world.texts is None:
        return []
    looks, error = await _ask(world, world.texts.look)
    if looks is None:
        return [failure("texts", f"{show(world.texts.directory)} cannot be looked at: {error}", "mend what is told")]
    return check_texts(looks, world.texts.directory)


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


def _real(path: bytes) -> bytes:
    return os.path.realpath(path)


def _existing(directory: bytes) -> bytes:
    """The directory, or the one above it that is there: the state directory is made by `init`."""
    path = Path(os.fsdecode(directory))
    return os.fsencode(next(place for place in (path, *path.parents) if place.exists()))


def _last_event_s(ledger: Ledger | None) -> float | None:
    events = ledger.events.latest(1) if ledger is not None else ()
    return events[0].at_s if events else None


async def _source(
    world: DoctorWorld, record: SiteRecord | None, findings: list[Finding]
) -> tuple[MountIdentity | None, Capacity | None, VolumeState | None]:
    """Add the findings about the source; returns what is mounted; its room, which says what it has in use, where that
    can be told; and the volume, where it is one.
    """
    identity, error = await _ask(world, world.source.identity)
    kind = world.site.source.kind
    findings.append(check_mount("source", kind, record.source if record else None, identity, error))
    state: VolumeState | None = None
    if unusable := unusable_source(kind, world.site.source.volume, identity):
        findings.append(unusable)
    else:
        health, error = await _health(world)
        findings += check_health(health, error)
        state = health.state if health is not None else None
    if state is not None:
        findings += check_lookups(state, moved=_bricks_moved(world.ledger, state))
    if state is not None and world.site.cutover.link is not None:
        findings += check_open_files(state, FreezeWay(world.site.cutover.freeze))
    if identity is None:
        return identity, None, state
    findings.append(check_source_acls(shown=await _shows_acls(world, world.source)))
    if not kind_problem(identity, kind, where="the source"):
        findings += await _user_trees(world)
    root = _real(world.source.root)
    mount = mount_of(world.mounts, root)
    if mount is None or mount.point != root:
        return identity, None, state  # a plain directory: what its disk has in use says nothing
    room, _ = await _ask(world, world.source.capacity)
    return identity, room, state


def _bricks_moved(ledger: Ledger | None, state: VolumeState) -> bool:
    """Whether a drain or an addition has given directories of the volume another layout."""
    if ledger is None:
        return False
    drained = (one.volume_id for one in ledger.drains.all() if one.state not in UNTOUCHED_STATES)
    added = (one.volume_id for one in ledger.additions.all() if one.side is AdditionSide.SOURCE)
    return state.volume_id in {*drained, *added}


async def _user_trees(world: DoctorWorld) -> list[Finding]:
    """Which directories [users] trees makes user trees, as a scan would find them."""
    users = world.site.users
    chosen: set[bytes] = set()

    def find() -> tuple[list[tuple[TreePattern, Sequence[bytes]]], str, str]:
        found: list[tuple[TreePattern, Sequence[bytes]]] = []
        try:
            patterns = parse_patterns(users.trees, "[users] trees")
            found += [(pattern, find_directories(world.source, pattern)) for pattern in patterns]
            exclude = parse_patterns(users.exclude, "[users] exclude")
            chosen.update(tree.path for tree in choose_trees(found, exclude, {}))
        except (UsageError, Refused) as error:
            return found, error.message, error.hint or "put [users] right in site.toml"
        return found, "", ""

    answer, error = await _ask(world, find)
    if answer is None:
        return [failure("user trees", f"not known: {error}", "mend what is told of the source first")]
    found, problem, fix = answer
    matches = [(pattern.text, len(paths)) for pattern, paths in found]
    findings = check_globs(matches, problem, fix, len(chosen))
    catalog = world.ledger.scans.latest() if world.ledger is not None else None
    if catalog is not None and chosen:
        other = check_catalog_trees(catalog.name, [tree.path for tree in catalog.trees], chosen)
        findings += [other] if other else []
    return findings


async def _health(world: DoctorWorld) -> tuple[SourceHealth | None, str]:
    try:
        return await world.source.health(), ""
    except (OSError, ToolFailed) as error:
        return None, str(error)


async def _shows_acls(world: DoctorWorld, filesystem: FileSystem) -> bool | None:
    """A mount without ACLs answers a question for one with ENOTSUP, one with ACLs that there is none (ENODATA)."""

    def ask() -> bool | None:
        try:
            os.getxattr(filesystem.root, os.fsdecode(ACL_ACCESS))
        except OSError as error:
            return {errno.ENODATA: True, errno.ENOTSUP: False}.get(error.errno or 0)
        return True

    shown, _ = await _ask(world, ask)
    return shown


async def _target(
    world: DoctorWorld, record: SiteRecord | None, source_room: Capacity | None, findings: list[Finding]
) -> MountIdentity | None:
    identity, error = await _ask(world, world.target.identity)
    kind = world.site.target.kind
    findings.append(check_mount("target", kind, record.target if record else None, identity, error))
    # Asked also where the mount does not answer: this may be why.
    storage = await look_at_storage(world.storage)
    if world.storage is not None:
        findings += check_storage_targets(storage.seen, storage.failure, storage.hint)
        findings += check_stripe(world.site.target.stripe, storage.seen)
        findings += await _quota(world, world.storage)
    if identity is None:
        return None
    room, error = await _ask(world, world.target.capacity)
    findings += check_target_room(
        storage.room(room),
        source_room,
        inodes_free=world.site.target.inodes_free,
        reserve_bytes=world.site.transfer.reserve_bytes,
        error=error,
    )
    if record is None or world.ledger is None:
        findings.append(failure("target keeps", "not known before `init`", "run `migrator init`, then this again"))
        return identity
    findings += await _capabilities(world, world.ledger, record, identity)
    return identity


async def _quota(world: DoctorWorld, storage: StorageTargets) -> list[Finding]:
    try:
        limits = len(await world.source.quotas())
    except (OSError, ToolFailed):
        return []  # what the source cannot tell is told of the source
    return check_quota(limits, await storage.quota_problem() if limits else None)


async def _capabilities(
    world: DoctorWorld, ledger: Ledger, record: SiteRecord, identity: MountIdentity
) -> Sequence[Finding]:
    if mount_problems(record.target, identity):
        return check_capabilities(None, record.capabilities, "nothing is tried out on another file system")
    probed, error = await _ask(world, world.target.probe, timeout_s=_PROBE_TIMEOUT_S)
    if probed is not None:
        _record(world, ledger, record, probed)
    return check_capabilities(probed, record.capabilities, error)


def _record(world: DoctorWorld, ledger: Ledger, record: SiteRecord, probed: TargetCapabilities) -> None:
    at_s = world.clock.now_s()
    ledger.site.record_capabilities(probed, at_s)
    if probed == record.capabilities:
        return
    first = record.capabilities is None
    ledger.events.add(
        Event(
            at_s=at_s,
            kind=EventKind.CAPABILITIES_PROBED,
            severity=Severity.INFO if first else Severity.WARNING,
            subject="target",
            message="found out what the target keeps" if first else "the target keeps other things than before",
        )
    )


async def _ask(
    world: DoctorWorld, question: Callable[[], Answer], *, timeout_s: float = _LOOK_TIMEOUT_S
) -> tuple[Answer | None, str]:
    """The answer of a file system, or None and the reason why there is none."""
    try:
        return await world.blocking(question, timeout_s=timeout_s), ""
    except TimeoutError:
        return None, f"no answer within {timeout_s:.0f} s"
    except OSError as error:
        return None, error.strerror or str(error)
