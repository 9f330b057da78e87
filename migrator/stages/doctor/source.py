"""What `doctor` looks at on the source: the mount, the volume, user trees."""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.decide.freezing import check_open_files
from migrator.decide.site_checks import check_health, check_lookups, check_mount, check_source_acls, check_strange_files
from migrator.decide.site_guards import kind_problem
from migrator.decide.site_places import check_catalog_trees, check_globs, unusable_source
from migrator.decide.trees import TreePattern, choose_trees, parse_patterns
from migrator.domain.addition import AdditionSide
from migrator.domain.brick import SourceHealth, VolumeState
from migrator.domain.drain import UNTOUCHED_STATES
from migrator.domain.entry import ACL_ACCESS
from migrator.domain.errors import Refused, ToolFailed, UsageError
from migrator.domain.finding import Finding, failure
from migrator.domain.freezing import FreezeWay
from migrator.domain.mounts import mount_of
from migrator.domain.scan import StrangeFiles
from migrator.domain.site import Capacity, MountIdentity
from migrator.ports.filesystem import FileSystem
from migrator.ports.ledger import Ledger
from migrator.ports.site import SiteRecord
from migrator.stages.doctor.world import DoctorWorld, ask, real_path
from migrator.stages.scan.finding import find_directories


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceExamined:
    """The findings about the source; what is mounted; its room, which says what it has in use, where that can be told; and
    the volume, where it is one.
    """

    findings: Sequence[Finding]
    identity: MountIdentity | None
    room: Capacity | None
    state: VolumeState | None


async def examine_source(world: DoctorWorld, record: SiteRecord | None) -> SourceExamined:
    """Look at the source. `record` is what `init` recorded, None before it."""
    identity, error = await ask(world, world.source.identity)
    kind = world.site.source.kind
    findings = [check_mount("source", kind, record.source if record else None, identity, error)]
    state: VolumeState | None = None
    if unusable := unusable_source(kind, world.site.source.volume, identity):
        findings.append(unusable)
    else:
        health, error = await _health(world)
        findings += check_health(health, error)
        state = health.state if health is not None else None
    if state is not None:
        findings += check_lookups(state, moved=_bricks_moved(world.ledger, state))
        findings += check_strange_files(_strange(world.ledger))
    if state is not None and world.site.cutover.link is not None:
        findings += check_open_files(state, FreezeWay(world.site.cutover.freeze))
    room = None
    if identity is not None:
        findings.append(check_source_acls(shown=await _shows_acls(world, world.source)))
        if not kind_problem(identity, kind, where="the source"):
            findings += await _user_trees(world)
        room = await _room(world)
    return SourceExamined(findings=findings, identity=identity, room=room, state=state)


async def _room(world: DoctorWorld) -> Capacity | None:
    root = real_path(world.source.root)
    mount = mount_of(world.mounts, root)
    if mount is None or mount.point != root:
        return None  # a plain directory: what its disk has in use says nothing
    room, _ = await ask(world, world.source.capacity)
    return room


def _bricks_moved(ledger: Ledger | None, state: VolumeState) -> bool:
    """Whether a drain or an addition has given directories of the volume another layout."""
    if ledger is None:
        return False
    drained = (one.volume_id for one in ledger.drains.all() if one.state not in UNTOUCHED_STATES)
    added = (one.volume_id for one in ledger.additions.all() if one.side is AdditionSide.SOURCE)
    return state.volume_id in {*drained, *added}


def _strange(ledger: Ledger | None) -> Sequence[StrangeFiles]:
    record = None if ledger is None else ledger.scans.of_bricks()
    return () if record is None else record.strange


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

    answer, error = await ask(world, find)
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

    def look() -> bool | None:
        try:
            os.getxattr(filesystem.root, os.fsdecode(ACL_ACCESS))
        except OSError as error:
            return {errno.ENODATA: True, errno.ENOTSUP: False}.get(error.errno or 0)
        return True

    shown, _ = await ask(world, look)
    return shown
