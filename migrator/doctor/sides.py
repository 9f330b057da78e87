"""The source and the target: mounts, health, room, user trees, attributes that the target keeps."""

import asyncio
import errno
import os
import pwd
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.beegfs.model import LayoutRule
from migrator.beegfs.rules import check_quota, check_storage_targets
from migrator.beegfs.rules_layout import check_layout
from migrator.beegfs.tool import StorageReading, StorageTargets, read_storage
from migrator.bricks.add.model import AdditionSide
from migrator.bricks.drain.model import UNTOUCHED_STATES
from migrator.bricks.retire.model import RetirementState
from migrator.core.entry import ACL_ACCESS
from migrator.core.errors import Refused, ToolFailed, UsageError
from migrator.core.events import EventKind, Finding, Severity, failure, ok
from migrator.cutover.rules_writers import check_open_files
from migrator.doctor import rules, rules_machine
from migrator.doctor.call import (
    DoctorPorts,
    ask,
    real_path,
    rsync_version,
)
from migrator.doctor.trial import Trial
from migrator.fs.model import Capacity, MountIdentity, TargetCapabilities, mount_of
from migrator.fs.ports import FileSystem
from migrator.gluster.model import VolumeState, volume_state
from migrator.ledger.model import SiteRecord
from migrator.scan.rules import TreePattern, choose_trees, parse_patterns, parse_user_map
from migrator.scan.session import find_directories
from migrator.site import rules_guards
from migrator.site.filesystem import FileSystemCommand
from migrator.site.model import needs_rsync

if TYPE_CHECKING:
    from migrator.bricks.records import BrickLedger


PROBE_TIMEOUT_S = 300.0


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
    if unusable := rules.unusable_source(kind, ports.site.source.volume, identity):
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


def retired_source(ledger: "BrickLedger | None") -> SourceExamined | None:
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
    """True if a drain or an addition changed the layout of the volume's directories."""
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
    findings = rules.check_globs(matches, problem, fix, len(chosen))
    if users.map is not None and users.map.exists() and not problem:
        moved = set() if ports.ledger is None else {one.tree.path for one in ports.ledger.cutovers.all()}
        there = {path for _, paths in found for path in paths}
        findings += await asyncio.to_thread(_user_map, users.map, there | moved)
    catalog = ports.ledger.scans.latest() if ports.ledger is not None else None
    if catalog is not None and chosen:
        other = rules.check_catalog_trees(catalog.name, [tree.path for tree in catalog.trees], chosen)
        findings += [other] if other else []
    return findings


def _user_map(file: Path, trees: Collection[bytes]) -> list[Finding]:
    """Check that the map can be read, and its rows have an effect."""
    try:
        with UsageError.of_files(f"{file} cannot be read", hint="correct [users] map in site.toml"):
            users = parse_user_map(file.read_bytes())
    except UsageError as error:
        return [failure("users map", error.message, error.hint or "put it right")]
    return list(rules.check_user_map(users, trees, _unknown(users.values())))


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
        findings += rules_machine.check_syncing(identity.filesystem, await rsync_version(ports))
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
