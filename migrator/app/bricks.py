"""Wiring of drains, additions and retirements."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.app import OperationPorts, Wiring
from migrator.app.hosts import endpoints, probe_world, reached
from migrator.app.scan import bricks, whole_scan
from migrator.beegfs.model import Reachability, TargetKind
from migrator.bricks.add.call import AdditionPorts, DirectoryPorts
from migrator.bricks.add.model import TargetRoom
from migrator.bricks.drain.audit import LeftListFile
from migrator.bricks.drain.call import DrainPorts
from migrator.bricks.drain.directory_times import DirectoryTimes
from migrator.bricks.drain.leftovers import VolumeNames
from migrator.bricks.known_directories import DirectoryFiles, MountedDirectories
from migrator.bricks.retire.cover import WriteList, cover_paths
from migrator.bricks.retire.model import Uncovered
from migrator.bricks.retire.retire import RetirementPorts
from migrator.bricks.shields import Shields
from migrator.bricks.throttle import ThrottleRules
from migrator.catalog.walk_rows import entries_of
from migrator.core.clock import local_time
from migrator.core.errors import UsageError
from migrator.core.paths import percent_escape
from migrator.core.progress import Progress
from migrator.core.tasks import result_or_none
from migrator.cutover.writers import brick_writers, open_on_bricks
from migrator.gluster import probes, reports
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.volume import GlusterSource
from migrator.hosts.ports import Hosts
from migrator.native.program import native_program
from migrator.site.config import Site

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger


# ---
# The common parts of all these verbs


@contextmanager
def open_volume(wiring: Wiring) -> Iterator[GlusterSource]:
    """The volume, for the length of the block. Raises UsageError if the source is not a Gluster volume."""
    with wiring.source() as source:
        if not isinstance(source, GlusterSource):
            raise UsageError(
                "the source has no bricks: it is no Gluster volume",
                hint='bricks are there where site.toml has `[source] kind = "gluster"`',
            )
        yield source


@asynccontextmanager
async def host_versions(
    wiring: Wiring,
) -> AsyncIterator[Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]] | None]:
    """A function that queries hosts of site.toml for their GlusterFS versions, for the length of the block; None if it
    names no hosts.
    """
    if not wiring.site.source.hosts:
        yield None
        return
    async with reached(wiring.site) as hosts:
        yield lambda names: probes.gluster_versions(hosts, names)


class _Ports(OperationPorts):
    """The ports that all verbs on bricks have."""

    back_up: Callable[[str], None]
    volume: GlusterVolumeCommands


def _ports(wiring: Wiring, source: GlusterSource, ledger: "MigrationLedger", progress: Progress) -> _Ports:
    back_up, volume = partial(ledger.back_up, wiring.site.site.state_dir), GlusterVolumeCommands(source.commands)
    return {"back_up": back_up, "volume": volume, **wiring.operation_ports(ledger, progress)}


# ---
# Additions of bricks


@asynccontextmanager
async def addition_ports(
    wiring: Wiring, source: GlusterSource, ledger: "MigrationLedger", progress: Progress
) -> AsyncIterator[AdditionPorts]:
    """The ports of an addition, for the length of the block. Raises UsageError."""
    site = wiring.site
    async with reached(site) as hosts, bricks(site, source, via="mount", hosts=hosts) as found:
        yield AdditionPorts(
            places=partial(probes.probe_new_places, hosts),
            disks=partial(probes.probe_disks, hosts, full=False),
            versions=partial(probes.gluster_versions, hosts),
            target_room=lambda: _room(wiring),
            **_ports(wiring, source, ledger, progress),
            throttle=throttle_rules(site),
            shields=_shields(wiring, hosts),
            probing=probe_world(wiring, ledger),
            scan=whole_scan(wiring, source, ledger, progress, found, via="bricks") if site.source.hosts else None,
            blamed=partial(probes.blamed_in_set, hosts),
            strange=partial(reports.still_strange_on, _reports(hosts)),
            directories=DirectoryPorts(
                walks=reports.HostDirectories(_reports(hosts)),
                memory=DirectoryFiles(wiring.site.site.state_dir / "additions"),
                mender=MountedDirectories(wiring.source_root),
                mount=wiring.source_root,
            ),
        )


async def _room(wiring: Wiring) -> TargetRoom:
    """The size of the target; unknown parts are None."""
    storage = wiring.storage_targets()
    # The size by statfs remains known.
    seen = None if storage is None else await result_or_none(storage.state())
    # A target that is only registered takes no files.
    online = (TargetKind.STORAGE, Reachability.ONLINE)
    known = None if seen is None else sum((one.kind, one.reachability) == online for one in seen.targets)
    return TargetRoom(total_bytes=await asyncio.to_thread(_total, wiring), storage_targets=known)


def _total(wiring: Wiring) -> int | None:
    try:
        with wiring.target() as target:
            return target.capacity().total_bytes
    except OSError:
        return None


def _reports(hosts: Hosts) -> reports.BrickReports:
    return reports.BrickReports(hosts, native_program().place)


def _shields(wiring: Wiring, hosts: Hosts) -> Shields:
    return Shields(
        reports=_reports(hosts), root=wiring.source_root, directory=wiring.site.shields_dir, blocking=wiring.blocking
    )


def throttle_rules(site: Site) -> ThrottleRules:
    """The limits on Gluster's moves, by this machine's clock."""
    return ThrottleRules(
        throttle=site.drain.throttle,
        windows=site.drain.windows,
        local_time=local_time,
        max_latency_s=site.governor.max_latency_s,
    )


# ---
# `brick drain` and `brick stop`


@asynccontextmanager
async def drain_ports(
    wiring: Wiring, source: GlusterSource, ledger: "MigrationLedger", progress: Progress
) -> AsyncIterator[DrainPorts]:
    """The ports of a drain, for the length of the block. Raises UsageError."""
    site = wiring.site
    async with reached(site) as hosts, bricks(site, source, via="mount", hosts=hosts) as found:
        if found is None:
            raise UsageError("the source has no bricks: it is no Gluster volume")

        yield DrainPorts(
            source=source,
            walks=found,
            read_block=entries_of,
            left_list=LeftListFile,
            contents=lambda: wiring.catalog_reads(ledger),
            versions=partial(probes.gluster_versions, hosts),
            open_files=partial(open_on_bricks, hosts),
            places=lambda some, volume_id: probes.probe_places(hosts, some, volume_id=volume_id),
            disks=partial(probes.probe_disks, hosts, full=True),
            throttle=throttle_rules(site),
            shields=_shields(wiring, hosts),
            probing=probe_world(wiring, ledger),
            **_ports(wiring, source, ledger, progress),
            retain_s=site.cutover.retain_s,
            marks=partial(reports.marks_on_bricks, _reports(hosts)),
            strange=partial(reports.still_strange_on, _reports(hosts)),
            names=VolumeNames(source.root),
            times=DirectoryTimes(
                walks=reports.HostDirectories(_reports(hosts)),
                memory=DirectoryFiles(site.site.state_dir / "drains"),
                mount=MountedDirectories(wiring.source_root),
                blocking=wiring.blocking,
            ),
        )


# ---
# The retirement of the source volume


_LIST = "uncovered.tsv"


@asynccontextmanager
async def retirement_ports(
    wiring: Wiring, source: GlusterSource, ledger: "MigrationLedger", progress: Progress
) -> AsyncIterator[RetirementPorts]:
    """The ports of a retirement, for the length of the block. Raises UsageError."""
    site = wiring.site
    async with reached(site) as hosts, bricks(site, source, via=site.source.via, hosts=hosts) as found:
        yield RetirementPorts(
            source=source,
            writers=partial(brick_writers, hosts, tuple(hosts.names), source, wiring.processes),
            endpoints=endpoints(wiring, source, hosts),
            scan=whole_scan(wiring, source, ledger, progress, found, via=site.source.via),
            cover=partial(
                cover_paths,
                wiring.closed_catalogs(ledger),
                name_seed=ledger.site.required().name_seed,
                scratch=wiring.scratch,
            ),
            manifests=wiring.manifests(ledger),
            list_to=_list_to,
            **_ports(wiring, source, ledger, progress),
        )


@contextmanager
def _list_to(directory: str) -> Iterator[tuple[WriteList, str]]:
    """Writes one line per path: why it is uncovered, its bytes, the path percent-escaped. Replaces an earlier list."""
    file = Path(directory) / _LIST
    with file.open("w", encoding="ascii") as opened:

        def write(found: Iterable[Uncovered]) -> None:
            opened.writelines(f"{one.kind.value}\t{one.size_bytes}\t{percent_escape(one.path)}\n" for one in found)

        yield write, str(file)
