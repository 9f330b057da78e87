"""`doctor`: all preflight checks, each finding with its fix.

Its only change: if the target is the recorded one, it probes which attributes of a file the target keeps, records that in
the ledger, and writes as a run does; both in directories of its own.
"""

import asyncio
import errno
import os
import pwd
import shutil
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from migrator.beegfs.model import LayoutRule
from migrator.beegfs.rules import check_quota, check_storage_targets
from migrator.beegfs.rules_layout import check_layout
from migrator.beegfs.tool import StorageReading, StorageTargets, read_storage
from migrator.bricks.add.model import AdditionSide
from migrator.bricks.drain.model import UNTOUCHED_STATES
from migrator.bricks.retire.model import RetirementState
from migrator.core.clock import Clock
from migrator.core.entry import ACL_ACCESS, UserTree
from migrator.core.errors import MigratorError, Refused, ToolFailed, UsageError
from migrator.core.events import EventKind, Finding, Severity, failure, ok
from migrator.core.paths import join, show
from migrator.core.tasks import Blocking
from migrator.cutover.links import SymlinkedPaths, links_of, real_place
from migrator.cutover.rules_preflight import check_way_back
from migrator.cutover.rules_states import check_frozen, frozen_users
from migrator.cutover.rules_writers import check_open_files, search_gaps
from migrator.cutover.writers import WriterSearch
from migrator.doctor import rules
from migrator.doctor.configuration import check_mail, examine_hooks
from migrator.doctor.trial import Trial
from migrator.fs.model import Capacity, Mount, MountIdentity, TargetCapabilities, mount_of
from migrator.fs.ports import FileSystem, SourceFileSystem, TargetFileSystem
from migrator.gluster.model import VolumeState, volume_state
from migrator.gluster.volume import GlusterSource
from migrator.hooks.calls import Hooks
from migrator.hosts.connection import own_environment
from migrator.hosts.model import brick_problem, target_problem
from migrator.hosts.ports import Command, Completed, Host, HostLost, Hosts, Processes
from migrator.hosts.site import names, probe_room
from migrator.ledger.locks import Holders, of_tree
from migrator.ledger.model import SiteRecord
from migrator.native.program import native_program
from migrator.plan.document import PlanFiles
from migrator.reap.rules import atime_problem, check_atime
from migrator.scan.rules import BrickChoice, TreePattern, choose_trees, parse_patterns, parse_user_map, select_bricks
from migrator.scan.session import find_directories
from migrator.site import rules_guards
from migrator.site.config import HostSection, Site, SlurmSection
from migrator.site.filesystem import FileSystemCommand
from migrator.site.model import needs_rsync
from migrator.site.rules_links import check_link_names, check_links, naming_problem
from migrator.transfer.engines.drivers import locate_fpsync, locate_parsyncfp2
from migrator.transfer.executors import Executor

if TYPE_CHECKING:
    from migrator.bricks.records import BrickLedger

Answer = TypeVar("Answer")

# Hosts in site.toml


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
    gate = asyncio.Semaphore(_AT_ONCE)

    async def examine_host(name: str) -> rules.HostState | MigratorError:
        """The facts of a host, or why they are unknown."""
        async with gate:
            try:
                return await _sight(
                    site, sections[name], await hosts.reach(name), place_native, target=target, state=state
                )
            except MigratorError as error:
                return error

    try:
        looks = await asyncio.gather(*map(examine_host, sections))
    finally:
        await hosts.close()
    findings: list[Finding] = []
    offsets: dict[str, tuple[float, float]] = {}
    unreachable: dict[str, str] = {}
    for name, seen in zip(sections, looks, strict=True):
        if isinstance(seen, MigratorError):
            findings.append(rules.host_lost(name, seen.message, seen.cause, seen.hint))
            unreachable[name] = seen.message
            continue
        offsets[name] = (seen.facts.clock_offset_s, seen.facts.round_trip_s / 2)
        filesystem = target.filesystem if target is not None else None
        findings += rules.check_host(seen, target_filesystem=filesystem, reserve_bytes=site.transfer.reserve_bytes)
    findings += rules.check_host_clocks(offsets)
    if state is not None and volume is not None:
        findings += await _examine_way(site, sections, volume, state, reachable=list(offsets), unreachable=unreachable)
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
    return rules.check_brick_hosts(site.source.via, state, list(sections), way)


async def _sight(
    site: Site,
    section: HostSection,
    host: Host,
    place_native: Callable[[Host], Awaitable[bytes]],
    *,
    target: MountIdentity | None,
    state: VolumeState | None,
) -> rules.HostState:
    facts = await host.facts()
    place = None if section.target is None else os.fsencode(section.target / site.target.path)
    bricks: dict[str, str | None] = {}
    for brick in state.bricks if state is not None else ():
        if brick.host == host.name:
            roots = await host.roots(b"", brick.path)
            bricks[brick.name] = brick_problem(state.volume_id if state else None, roots, brick.name)
    room, problem = None, None
    if place is not None:
        room, error = await _answer(probe_room(host.processes, python=facts.python, path=place))
        roots = await host.roots(place, b"")
        problem = target_problem(target, roots, os.fsdecode(place)) or error or None
    native_problem, confinement_problem = await _native_problem(host, place_native), None
    if place is not None and native_problem is None and facts.effective_uid == 0:
        stream = Executor(host, source_root=b"", target_root=b"", compiled=lambda: place_native(host), facts=facts)
        confinement_problem = await stream.problem()
    return rules.HostState(
        facts=facts,
        bricks=bricks,
        target=None if place is None else os.fsdecode(place),
        target_problem=problem,
        room=room,
        native_problem=native_problem,
        confinement_problem=confinement_problem,
    )


async def _answer(question: Awaitable[Answer]) -> tuple[Answer | None, str]:
    """The answer of a host, or None and why it failed. Raises HostLost."""
    try:
        return await question, ""
    except HostLost:
        raise
    except ToolFailed as error:
        return None, error.message


async def _version(processes: Processes, program: bytes | None) -> bytes | None:
    """The output of `--version`; None if the program is missing or fails. Raises HostLost."""
    if program is None:
        return None
    completed, _ = await _answer(processes.run(Command(argv=(program, b"--version"), timeout_s=_VERSION_TIMEOUT_S)))
    return completed.stdout if completed is not None and not completed.failure else None


async def _native_problem(host: Host, place_native: Callable[[Host], Awaitable[bytes]]) -> str | None:
    """Run the compiled program there, and return the reason why it does not run; None if it does."""

    async def run() -> Completed:
        placed = await place_native(host)
        return await host.processes.run(Command(argv=(placed, b"--version"), timeout_s=_VERSION_TIMEOUT_S))

    completed, error = await _answer(run())
    return error if completed is None else completed.failure or None


# Links by which users reach their trees, if a cutover switches them


_TIMEOUT_S = 300.0


async def _links(ports: "DoctorPorts") -> list[Finding]:
    """A finding for every link of the active plan that cannot be switched now; none if no cutover is configured."""
    links, ledger = links_of(ports.site), ports.ledger
    if links is None:
        return []
    record = ledger.site.read() if ledger is not None else None
    active = ledger.plans.active() if ledger is not None else None
    if record is None or active is None:
        return [ok("links", f"{links.place.link}: checked once there is a plan")]
    try:
        plan, _ = PlanFiles(ports.site.site.plans_dir, site_id=record.site_id).read(active.name)
    except MigratorError as error:
        return [failure("links", error.message, error.hint or "make a plan: `migrator plan`")]
    trees = tuple(tree for batch in plan.batches for tree in batch.trees)
    try:
        looked = await ports.blocking(lambda: _look_at_links(links, trees), timeout_s=_TIMEOUT_S)
        return [*check_link_names(links.place.link, trees), *looked]
    except TimeoutError:
        return [
            failure("links", f"no answer within {_TIMEOUT_S:.0f} s", "check the mounts that they lead to: one may hang")
        ]
    except OSError as error:
        fix = "repair the file system that holds them"
        return [failure("links", f"links cannot be read: {error.strerror or error}", fix)]


def _look_at_links(links: SymlinkedPaths, trees: tuple[UserTree, ...]) -> list[Finding]:
    place = real_place(links.place)
    real = {tree.path: (join(place.source_root, tree.path), join(place.target_root, tree.path)) for tree in trees}
    looks = [(tree, links.read_link(tree)) for tree in trees if naming_problem(place.link, tree) is None]
    return check_links(place, looks, real=real, euid=os.geteuid())


# Ports, and queries of file systems


LOOK_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 300.0


class DoctorPorts(Struct, frozen=True, kw_only=True):
    """The ports of `doctor`. `ledger` is None before `init`; `mounts` are the current ones of this machine. By default no
    command is at work. `confinement_problem` returns why streams cannot be confined here, None if they can. `find_driver`
    raises ToolFailed if the driver cannot be used. `require_newest` raises Refused if the ledger is an older one. Checks
    are left out if `hosts`, `hooks` or `target_writers` is None, or if `storage` is (the target has no storage targets).
    """

    site: Site
    source: SourceFileSystem
    target: TargetFileSystem
    ledger: "BrickLedger | None"
    processes: Processes
    clock: Clock
    blocking: Blocking
    mounts: Sequence[Mount]
    confinement_problem: Callable[[], Awaitable[str | None]]
    find_program: Callable[[str], str | None] = shutil.which
    euid: int = field(default_factory=os.geteuid)
    kernel: str = field(default_factory=lambda: os.uname().release)
    hosts: Hosts | None = None
    place_native: Callable[[Host], Awaitable[bytes]] = lambda host: native_program().place(host)
    find_driver: Callable[[str], object] = lambda engine: _DRIVERS[engine]()
    hooks: Hooks | None = None
    target_writers: WriterSearch | None = None
    storage: StorageTargets | None = None
    source_tool: FileSystemCommand | None = None
    target_tool: FileSystemCommand | None = None
    holders: Holders = tuple
    require_newest: Callable[[], None] | None = None


async def ask(
    ports: DoctorPorts, question: Callable[[], Answer], *, timeout_s: float = LOOK_TIMEOUT_S
) -> tuple[Answer | None, str]:
    """The answer of a file system, or None and the reason."""
    try:
        return await ports.blocking(question, timeout_s=timeout_s), ""
    except TimeoutError:
        return None, f"no answer within {timeout_s:.0f} s"
    except OSError as error:
        return None, error.strerror or str(error)


def real_path(path: bytes) -> bytes:
    """The path with symlinks resolved. Only for file systems that answered before: it may hang with its mount."""
    return os.path.realpath(path)


async def _kind(where: str, tool: FileSystemCommand | None, identity: MountIdentity | None) -> list[Finding]:
    """What is special about the kind of a side, the room by its own command, and the layout of new files."""
    if (
        tool is None
        or identity is None
        or rules_guards.kind_problem(identity.filesystem, identity.mounted_from, tool.kind.name, where=where)
    ):
        return []
    findings = rules.check_kind(where, tool.kind, identity.filesystem)
    for check, question in ((f"{where} room", tool.kind.room), (f"{where} layout", tool.kind.layout)):
        if question is None:
            continue
        try:
            findings += rules.check_answer(check, await tool.ask(question))
        except ToolFailed as error:
            message = f"{error.message}; statfs is used instead" if question is tool.kind.room else error.message
            findings += rules.check_answer(check, None, message, error.hint)
    return findings


# This machine: programs, hooks, state directory, clock


_VERSION_TIMEOUT_S = 30.0
_DRIVERS: Mapping[str, Callable[[], object]] = {"fpsync": locate_fpsync, "parsyncfp2": locate_parsyncfp2}


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
    findings.append(rules.check_clock(ports.clock.now_s(), events[0].at_s if events else None))
    return findings


async def _tools(ports: DoctorPorts) -> list[Finding]:
    site, rsync, euid = ports.site, ports.find_program("rsync"), ports.euid
    findings = [rules.check_kernel(ports.kernel)]
    findings.append(rules.check_rsync(rsync, await _rsync_version(ports), engine=site.transfer.engine))
    if site.source.kind == "gluster":
        findings.append(rules.check_gluster(site.source.gluster, ports.find_program(site.source.gluster)))
    findings.append(rules.check_user(euid))
    findings.append(rules.check_confinement(euid, await ports.confinement_problem() if euid == 0 else None))
    return findings + _engine(ports)


def _engine(ports: DoctorPorts) -> list[Finding]:
    engine = ports.site.transfer.engine
    if engine in _DRIVERS:
        try:
            ports.find_driver(engine)
        except ToolFailed as error:
            fix = error.hint or f"install {engine}, or set [transfer] engine to `auto`"
            return [failure("engine", f"[transfer] engine is `{engine}`: {error.message}", fix)]
    return [ok("engine", f"`{engine}`")]


async def _rsync_version(ports: DoctorPorts) -> bytes | None:
    program = ports.find_program("rsync")
    return await _version(ports.processes, None if program is None else os.fsencode(program))


async def _journal(ports: DoctorPorts) -> list[Finding]:
    """Whether the ledger is the newest one, by the journal on the target."""
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
    return rules.check_state_directory(
        directory, filesystem=mount.filesystem if mount else None, free_bytes=free_bytes, roots=roots
    )


def _existing(directory: bytes) -> bytes:
    """The directory or its nearest existing parent: `init` creates the state directory."""
    path = Path(os.fsdecode(directory))
    return os.fsencode(next(place for place in (path, *path.parents) if place.exists()))


# The source: mount, volume, user trees


class SourceExamined(Struct, frozen=True, kw_only=True):
    """The findings about the source; its mount; its room including use, if known; and the volume, if it is one."""

    findings: Sequence[Finding]
    identity: MountIdentity | None
    room: Capacity | None
    state: VolumeState | None


async def examine_source(ports: DoctorPorts, record: SiteRecord | None) -> SourceExamined:
    """Check the source. `record` is what `init` recorded, None before it."""
    identity, error = await ask(ports, ports.source.identity)
    kind = ports.site.source.kind
    findings = [rules.check_mount("source", kind, record.source if record else None, identity, error)]
    findings += await _kind("source", ports.source_tool, identity)
    state: VolumeState | None = None
    if unusable := rules_guards.unusable_source(kind, ports.site.source.volume, identity):
        findings.append(unusable)
    else:
        try:
            health = await ports.source.health()
        except (OSError, ToolFailed) as caught:
            findings += rules.check_health(None, str(caught))
        else:
            findings += rules.check_health(health)
            state = volume_state(health)
    if state is not None:
        findings += rules.check_lookups(state, moved=_bricks_moved(ports.ledger, state))
        findings += rules.check_strange_files(ports.ledger.scans.strange() if ports.ledger is not None else ())
    if state is not None and ports.site.cutover.link is not None:
        findings += check_open_files(state, vouched=ports.site.cutover.freeze == "hook")
    room = None
    if identity is not None:
        findings.append(rules.check_source_acls(shown=await _shows_acls(ports, ports.source)))
        if not rules_guards.kind_problem(identity.filesystem, identity.mounted_from, kind, where="the source"):
            findings += await _user_trees(ports)
        room = await _room(ports)
    return SourceExamined(findings=findings, identity=identity, room=room, state=state)


def _retired(ledger: "BrickLedger | None") -> SourceExamined | None:
    """The source of a finished migration: its volume is stopped for good."""
    newest = ledger.retirements.newest() if ledger is not None else None
    if newest is None or newest.state is not RetirementState.RETIRED:
        return None
    finding = ok("source", f"volume {newest.volume} is retired: its content is proven to be on the target")
    return SourceExamined(findings=[finding], identity=None, room=None, state=None)


async def _room(ports: DoctorPorts) -> Capacity | None:
    root = real_path(ports.source.root)
    mount = mount_of(ports.mounts, root)
    if mount is None or mount.point != root:
        return None  # a plain directory: the usage of its disk is that of other files too
    room, _ = await ask(ports, ports.source.capacity)
    return room


def _bricks_moved(ledger: "BrickLedger | None", state: VolumeState) -> bool:
    """Whether a drain or an addition changed the layout of the volume's directories."""
    if ledger is None:
        return False
    drained = (one.volume_id for one in ledger.drains.all() if one.state not in UNTOUCHED_STATES)
    added = (one.volume_id for one in ledger.additions.all() if one.side is AdditionSide.SOURCE)
    return state.volume_id in {*drained, *added}


async def _user_trees(ports: DoctorPorts) -> list[Finding]:
    """The directories that [users] trees makes user trees, as in a scan."""
    users = ports.site.users
    chosen: set[bytes] = set()

    def find() -> tuple[list[tuple[TreePattern, Sequence[bytes]]], str, str]:
        found: list[tuple[TreePattern, Sequence[bytes]]] = []
        try:
            patterns = parse_patterns(users.trees, "[users] trees")
            found += [(pattern, find_directories(ports.source, pattern)) for pattern in patterns]
            exclude = parse_patterns(users.exclude, "[users] exclude")
            chosen.update(tree.path for tree in choose_trees(found, exclude, {}))
        except (UsageError, Refused) as error:
            return found, error.message, error.hint or "correct [users] in site.toml"
        return found, "", ""

    answer, error = await ask(ports, find)
    if answer is None:
        return [failure("user trees", f"unknown: {error}", "fix the findings of the source first")]
    found, problem, fix = answer
    matches = [(pattern.text, len(paths)) for pattern, paths in found]
    findings = rules_guards.check_globs(matches, problem, fix, len(chosen))
    if users.map is not None and users.map.exists() and not problem:
        moved = set() if ports.ledger is None else {one.tree.path for one in ports.ledger.cutovers.all()}
        there = {path for _, paths in found for path in paths}
        findings += await asyncio.to_thread(_user_map, users.map, there | moved)
    catalog = ports.ledger.scans.latest() if ports.ledger is not None else None
    if catalog is not None and chosen:
        other = rules_guards.check_catalog_trees(catalog.name, [tree.path for tree in catalog.trees], chosen)
        findings += [other] if other else []
    return findings


def _user_map(file: Path, trees: Collection[bytes]) -> list[Finding]:
    """Whether the map can be read, and its rows have an effect."""
    try:
        with UsageError.of_files(f"{file} cannot be read", hint="correct [users] map in site.toml"):
            users = parse_user_map(file.read_bytes())
    except UsageError as error:
        return [failure("users map", error.message, error.hint or "put it right")]
    return list(rules_guards.check_user_map(users, trees, _unknown(users.values())))


def _unknown(users: Iterable[str]) -> set[str]:
    """Those of these users that this machine does not know."""
    unknown: set[str] = set()
    for user in set(users):
        try:
            pwd.getpwnam(user)
        except KeyError:
            unknown.add(user)
    return unknown


async def _shows_acls(ports: DoctorPorts, filesystem: FileSystem) -> bool | None:
    """A query for an ACL fails with ENOTSUP on a mount without ACLs, and with ENODATA on one with ACLs."""

    def has_acls() -> bool | None:
        try:
            os.getxattr(filesystem.root, os.fsdecode(ACL_ACCESS))
        except OSError as error:
            return {errno.ENODATA: True, errno.ENOTSUP: False}.get(error.errno or 0)
        return True

    shown, _ = await ask(ports, has_acls)
    return shown


# The target: mount, storage targets, room, attributes that it keeps


async def examine_target(
    ports: DoctorPorts, record: SiteRecord | None, source_room: Capacity | None
) -> tuple[list[Finding], MountIdentity | None]:
    """The findings about the target, and its mount. `record` is what `init` recorded, None before it. If the recorded
    target is mounted, this probes which attributes of a file it keeps and records them in the ledger.
    """
    identity, error = await ask(ports, ports.target.identity)
    kind = ports.site.target.kind
    findings = [rules.check_mount("target", kind, record.target if record else None, identity, error)]
    findings += await _kind("target", ports.target_tool, identity)
    if ports.target_tool is not None and ports.target_tool.kind.health is not None:
        findings += rules.check_answer("target health", await ports.target_tool.state())
    # Queried even if the mount does not answer: this may be the reason.
    storage = await read_storage(ports.storage)
    if ports.storage is not None:
        findings += check_storage_targets(storage.seen, storage.failure, storage.hint)
        findings += await _layout(ports.site.target.layout_rules, ports.storage, storage)
        findings += await _quota(ports, ports.storage)
    if identity is None:
        return findings, None
    if needs_rsync(ports.site.transfer.engine):
        findings += rules.check_syncing(identity.filesystem, await _rsync_version(ports))
    room, error = await ask(ports, ports.target.capacity)
    findings += rules.check_target_room(
        None if room is None else storage.room(room),
        source_room,
        inodes_free=ports.site.target.inodes_free,
        reserve_bytes=ports.site.transfer.reserve_bytes,
        error=error,
    )
    if record is None or ports.ledger is None:
        findings.append(
            failure("target keeps", "unknown before `init`", "run `migrator init`, then `migrator doctor` again")
        )
        return findings, identity
    findings += await _capabilities(ports, ports.ledger, record, identity)
    return findings, identity


async def _layout(rules: Sequence[LayoutRule], targets: StorageTargets, storage: StorageReading) -> list[Finding]:
    pools: Mapping[str, int] | None = None if storage.seen is None else {}
    licence_problem = None
    if pools is not None and any(rule.stripe.pool for rule in rules):
        try:
            pools = await targets.pools()
        except ToolFailed:
            pools = None
        licence_problem = await targets.licence_problem()
    return check_layout(rules, pools, licence_problem)


async def _quota(ports: DoctorPorts, storage: StorageTargets) -> list[Finding]:
    try:
        limits = len(await ports.source.quotas())
    except (OSError, ToolFailed):
        return []  # unknown room of the source is a finding of the source
    if not limits or (problem := await storage.quota_problem()) is None:
        return check_quota(limits, None)
    return check_quota(limits, problem, await storage.licence_problem())


async def _capabilities(
    ports: DoctorPorts, ledger: "BrickLedger", record: SiteRecord, identity: MountIdentity
) -> Sequence[Finding]:
    if rules_guards.mount_problems(record.target, identity):
        return rules.check_capabilities(
            None, record.capabilities, "the probe does not run on an unrecorded file system"
        )
    probed, error = await ask(ports, ports.target.probe, timeout_s=PROBE_TIMEOUT_S)
    if probed is None:
        return rules.check_capabilities(None, record.capabilities, error)
    _record(ports, ledger, record, probed)
    trial = Trial(
        target=ports.target, capabilities=probed, processes=ports.processes, blocking=ports.blocking, euid=ports.euid
    )
    return [*rules.check_capabilities(probed, record.capabilities, error), await trial.check()]


def _record(ports: DoctorPorts, ledger: "BrickLedger", record: SiteRecord, probed: TargetCapabilities) -> None:
    at_s = ports.clock.now_s()
    ledger.site.record_capabilities(probed, at_s)
    if probed == record.capabilities:
        return
    severity, message = Severity.WARNING, "the capabilities of the target changed"
    if record.capabilities is None:
        severity, message = Severity.INFO, "probed the capabilities of the target"
    ledger.events.note(at_s, EventKind.CAPABILITIES_PROBED, severity, "target", message)


# Slurm, if its nodes move the data


_PROGRAMS = ("srun", "squeue", "scancel", "scontrol", "sinfo")
_PASSED_ON = ("SLURM_CONF", "HOME")
_SLURM_TIMEOUT_S = 60.0
_SAID_LINES = 3


async def examine_slurm(
    processes: Processes, find_program: Callable[[str], str | None], section: SlurmSection
) -> list[Finding]:
    """Whether its programs are installed, a controller answers, and there are enough nodes."""
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
    return [rules.check_slurm_nodes(nodes.stdout.decode("utf-8", "replace"), section.nodes)]


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


# The verb


async def examine(ports: DoctorPorts) -> tuple[Finding, ...]:
    """All findings, in the order in which they are best fixed. May be called at any time, also during a run. A file
    system that does not answer is a finding after 30 seconds. Raises LedgerCorrupt and other errors of the ledger.
    """
    record = ports.ledger.site.read() if ports.ledger is not None else None
    findings = [*_frozen(ports), *await examine_machine(ports)]
    source = _retired(ports.ledger) or await examine_source(ports, record)
    findings += source.findings
    on_target, target = await examine_target(ports, record, source.room)
    findings += on_target
    sides = (
        ("source", ports.site.source.kind, ports.source.root, source.identity),
        ("target", ports.site.target.kind, os.fsencode(ports.site.target.mount), target),
    )
    # Resolve only paths of file systems that answered: a mount that hangs must not hang this check.
    answered = [(side, kind, real_path(root)) for side, kind, root, identity in sides if identity is not None]
    findings += rules_guards.check_places(answered, ports.mounts, source.identity, target)
    findings += _reaping(ports, source)
    if ports.hosts is not None:
        recorded = record.target if record is not None else None
        volume = ports.source if isinstance(ports.source, GlusterSource) else None
        state = source.state
        findings += await examine_hosts(
            ports.site, ports.hosts, volume, ports.place_native, target=recorded, state=state
        )
    findings += await _links(ports)
    findings += await _way_back(ports, target)
    if ports.site.transfer.movers == "slurm":
        findings += await examine_slurm(ports.processes, ports.find_program, ports.site.slurm)
    return tuple(findings)


def _frozen(ports: DoctorPorts) -> list[Finding]:
    if ports.ledger is None:
        return []
    held = {name for holder in ports.holders() for name in holder.names}
    users = frozen_users(ports.ledger.cutovers.under_way(), at_work=lambda tree: of_tree(tree) in held)
    return check_frozen(users, now_s=ports.clock.now_s())


async def _way_back(ports: DoctorPorts, target: MountIdentity | None) -> list[Finding]:
    if ports.target_writers is None or target is None:
        return []
    cutover = ports.site.cutover
    try:
        found = await ports.target_writers(())
    except (MigratorError, OSError):
        doubts = None
    else:
        doubts = search_gaps(found, vouched=cutover.freeze == "hook")
    return check_way_back(doubts, required=cutover.require_rollback)


def _reaping(ports: DoctorPorts, source: SourceExamined) -> list[Finding]:
    """Whether the source keeps access times, if a rule of [reap] uses them; no finding if the source did not answer."""
    needed = source.identity is not None and ports.site.reap.policy.needs_atime
    mount = mount_of(ports.mounts, real_path(ports.source.root)) if needed else None
    options = None if source.state is None else dict(source.state.options)
    return check_atime(needed, atime_problem(ports.site.source.kind, options, mount) if needed else None)
