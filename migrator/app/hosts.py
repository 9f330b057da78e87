"""Wiring of hosts, probes and the facts for schedules."""

import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from migrator.app import Wiring
from migrator.core.clock import local_time
from migrator.core.errors import ToolFailed
from migrator.core.probe import PROBE_LOCK, ProbeSide
from migrator.core.windows import WindowStanding, standings
from migrator.fs.ports import SourceFileSystem
from migrator.fs.probing import DirectoryProber, ProbePorts, probing
from migrator.gluster.volume import GlusterSource
from migrator.hosts.model import TARGET_HOSTS
from migrator.hosts.site import HostSpec, SiteHosts, expand
from migrator.native.program import native_program
from migrator.plan.schedule.schedule import PlanScheduling
from migrator.site.config import Site

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger
    from migrator.cutover.writers import Endpoints


def format_time(at_s: float) -> str:
    """A local time for people: `Mon 2030-01-31 19:00`."""
    return time.strftime("%a %Y-%m-%d %H:%M", time.localtime(at_s))


def window_standings(site: Site, at_s: float) -> tuple[WindowStanding, ...]:
    """The windows of [transfer] at a local time."""
    return standings(site.transfer.windows, at_s, local_time, format_time)


# Hosts


@asynccontextmanager
async def reached(site: Site, specs: Mapping[str, HostSpec] | None = None) -> AsyncIterator[SiteHosts]:
    """The hosts of site.toml, or other ones, for the length of the block; connected at first use. Raises UsageError."""
    hosts = SiteHosts(
        host_specs(site) if specs is None else specs, lease_s=site.transfer.lease_s, writers=writer_specs(site)
    )
    try:
        yield hosts
    finally:
        await hosts.close()


@asynccontextmanager
async def connecting(
    site: Site, source: SourceFileSystem, *, via: str | None = None, ahead: bool = True
) -> AsyncIterator[SiteHosts]:
    """As `reached`. With `ahead`, the brick servers are connected and sent the compiled program, and the volume is asked, from
    now on, while the caller loads the rest of the program. `via` is another than that of site.toml.
    """
    async with reached(site) as hosts:
        if ahead and isinstance(source, GlusterSource):
            source.begin()
            if (via or site.source.via) != "mount":
                hosts.begin(hosts.names, native_program().place)
        yield hosts


def host_specs(site: Site) -> dict[str, HostSpec]:
    """How to reach each host. Raises UsageError."""
    return expand(
        {
            section.name: HostSpec(ssh=section.ssh, options=section.options, python=section.python)
            for section in site.source.hosts
        }
    )


def writer_specs(site: Site) -> dict[str, HostSpec]:
    """How to reach each host of the target. Raises UsageError."""
    return expand(
        {
            section.name: HostSpec(ssh=section.ssh, options=section.options, python=section.python)
            for section in site.target.hosts
        },
        of=TARGET_HOSTS,
    )


def endpoints(wiring: Wiring, source: GlusterSource, hosts: SiteHosts) -> "Endpoints":
    """The connections to bricks that are this site's own, or Gluster's."""
    from migrator.cutover.writers import own_clients

    names, volume = tuple(hosts.names), source.commands.volume
    return lambda: own_clients(hosts, names, wiring.processes, volume=volume, mount=wiring.source_root)


# Probes


Result = TypeVar("Result")


def probe_world(wiring: Wiring, ledger: "MigrationLedger") -> ProbePorts:
    """The ports of probing."""
    monotonic_s = wiring.clock.monotonic_s
    return ProbePorts(
        probers={
            ProbeSide.SOURCE: DirectoryProber(wiring.source_root, monotonic_s),
            ProbeSide.TARGET: DirectoryProber(wiring.target_root, monotonic_s),
        },
        keep=lambda probe: ledger.later(partial(ledger.probes.add, probe)),
        alone=partial(wiring.locks().hold, "probing of both file systems", PROBE_LOCK, noted=False),
        clock=wiring.clock,
        blocking=wiring.blocking,
        interval_s=wiring.site.governor.probe_interval_s,
    )


async def beside_probes(wiring: Wiring, ledger: "MigrationLedger", work: Coroutine[Any, Any, Result]) -> Result:
    """Run some work while both file systems are probed, unless another process of the site probes. For verbs that load
    the users' file systems but do not probe.
    """
    async with probing(probe_world(wiring, ledger)):
        return await work


# The volume, for the schedule


async def probe_for_schedule(source: SourceFileSystem) -> PlanScheduling | None:
    """The current volume; None if the source has no bricks."""
    if not isinstance(source, GlusterSource):
        return None
    try:
        return PlanScheduling(volume=await source.overview())
    except ToolFailed as error:
        return PlanScheduling(volume=None, problem=error.message)
