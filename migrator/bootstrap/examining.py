"""What `doctor` looks at beyond this machine: the hosts of site.toml, and the programs that are sent there."""

import os

from migrator.adapters.engines.driver_programs import locate_fpsync, locate_parsyncfp2
from migrator.adapters.executors.host_room import look_at_room
from migrator.adapters.executors.host_roots import look_at_roots
from migrator.adapters.executors.site_hosts import names
from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.adapters.filesystems.posix import PosixSource
from migrator.adapters.filesystems.switching import SymlinkedPaths
from migrator.adapters.native.program import native_program
from migrator.adapters.plans.documents import PlanFiles
from migrator.bootstrap import Wiring
from migrator.bootstrap.hosts import site_hosts
from migrator.config.site import Site
from migrator.domain.switching import LinkPlace
from migrator.ports.hosts import Host
from migrator.stages.doctor.hosts import HostWorld
from migrator.stages.doctor.links import LinkWorld


def host_world(site: Site, source: PosixSource | GlusterSource) -> HostWorld:
    """The hosts of the site; who examines them closes them. Raises UsageError."""

    async def place_native(host: Host) -> bytes:
        return await native_program().place(host)

    return HostWorld(
        hosts=site_hosts(site),
        sections={name: section for section in site.source.hosts for name in names(section.name)},
        volume=source if isinstance(source, GlusterSource) else None,
        place_native=place_native,
        look_at_roots=look_at_roots,
        look_at_room=look_at_room,
    )


def link_world(wiring: Wiring) -> LinkWorld | None:
    """The links of the users, where they are to be switched."""
    place = link_place(wiring.site)
    if place is None:
        return None
    return LinkWorld(
        links=SymlinkedPaths(place),
        place=place,
        plans=lambda site_id: PlanFiles(wiring.site.site.plans_dir, site_id=site_id),
    )


def link_place(site: Site) -> LinkPlace | None:
    """Which links a cutover switches; None where a hook does it, or site.toml names none."""
    if site.cutover.switch != "symlink" or site.cutover.link is None:
        return None
    return LinkPlace(
        link=site.cutover.link,
        source_root=os.fsencode(site.source.mount),
        target_root=os.fsencode(site.target.root),
        volume=site.source.volume if site.source.kind == "gluster" else None,
    )


def find_driver(engine: str) -> object:
    """What an engine that is a driver needs. Raises ToolFailed."""
    return locate_fpsync() if engine == "fpsync" else locate_parsyncfp2()
