"""The hosts that site.toml names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from migrator.adapters.executors.local_host import LocalHost
from migrator.adapters.executors.site_hosts import HostSpec, SiteHosts, expand
from migrator.config.site import Site


def site_hosts(site: Site) -> SiteHosts:
    """The hosts of site.toml, each reached at first use; the caller closes them. Raises UsageError."""
    return SiteHosts(host_specs(site), local=lambda name: LocalHost(name=name), lease_s=site.transfer.lease_s)


@asynccontextmanager
async def reached(site: Site) -> AsyncIterator[SiteHosts]:
    """The same, closed at the end of the block."""
    hosts = site_hosts(site)
    try:
        yield hosts
    finally:
        await hosts.close()


def host_specs(site: Site) -> dict[str, HostSpec]:
    """How each host is reached. Raises UsageError."""
    return expand(
        {
            section.name: HostSpec(ssh=section.ssh, options=section.options, python=section.python)
            for section in site.source.hosts
        }
    )
