"""What benchmarks are made of."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache

from migrator.adapters.executors.host_roots import look_at_roots
from migrator.adapters.executors.local_host import LocalHost
from migrator.adapters.executors.site_hosts import SiteHosts, names
from migrator.adapters.far_source import far_argv, far_source
from migrator.adapters.ledger.sqlite import SqliteLedger
from migrator.bootstrap import Wiring
from migrator.bootstrap.hosts import reached
from migrator.decide.host_roots import target_problem
from migrator.decide.site_guards import mount_problems
from migrator.domain.benchmark import Place
from migrator.domain.errors import MigratorError, UsageError
from migrator.domain.paths import show
from migrator.domain.site import MountIdentity
from migrator.ports.hosts import Host
from migrator.ports.progress import Progress
from migrator.stages.benchmark_hosts import HostWorkloads
from migrator.stages.benchmarks import BenchmarkWorld

THIS_HOST = "localhost"
SOURCE, TARGET = "source", "target"


class _Hosts:
    """The hosts of the site, and this machine without being named in site.toml."""

    def __init__(self, site: SiteHosts, local: LocalHost) -> None:
        self._site = site
        self._local = local

    async def reach(self, name: str) -> Host:
        """As the port says."""
        if name == THIS_HOST and name not in self._site.names:
            return self._local
        return await self._site.reach(name)

    async def close(self) -> None:
        """As the port says."""
        await asyncio.gather(self._site.close(), self._local.close())


@cache
def benchmark_script(python: bytes) -> tuple[bytes, ...]:
    """What the script of benchmarks is called by on a host with this Python."""
    return far_argv(python, far_source("migrator.adapters.benchmarks", ("far_bench",)))


@asynccontextmanager
async def benchmark_world(wiring: Wiring, ledger: SqliteLedger, progress: Progress) -> AsyncIterator[BenchmarkWorld]:
    """The ports of benchmarks, for the length of the block. Raises UsageError."""
    async with reached(wiring.site) as site_hosts:
        hosts = _Hosts(site_hosts, LocalHost(wiring.processes))
        try:
            yield BenchmarkWorld(
                workloads=HostWorkloads(hosts, benchmark_script),
                records=ledger.benchmarks,
                locks=wiring.locks(),
                progress=progress,
                clock=wiring.clock,
                not_expected=lambda place: _not_expected(wiring, ledger, place),
                not_there=lambda host, place: _not_there(hosts, ledger, host, place),
                tokens=lambda: secrets.token_hex(16),
            )
        finally:
            await hosts.close()


def place_of(wiring: Wiring, word: str) -> Place:
    """What `--on` names: `source`, `target`, or a directory, which must not be one of the users'. Raises UsageError."""
    roots = {SOURCE: wiring.source_root, TARGET: wiring.target_root}
    if word in roots:
        return Place(label=word, root=roots[word])
    root = os.fsencode(word)
    if not root.startswith(b"/"):
        raise UsageError(
            f"--on {show(root)} is neither source nor target, and no absolute path",
            hint="name a directory of the file system from the root on, as in --on /mnt/beegfs",
        )
    root = os.path.normpath(root)
    for label, known in roots.items():
        # The root itself is not looked at: it may be a mount that does not answer, and nobody has named it.
        there = _with_real_parent(os.path.normpath(known))
        relative = os.path.relpath(os.path.realpath(root), there)
        if relative == b".":
            return Place(label=label, root=known)
        if relative != b".." and not relative.startswith(b"../"):
            raise UsageError(
                f"--on {show(root)} lies in the {label}",
                cause="scans would list what is made there, and whoever works there could exchange it",
                hint=f"give --on {label}: it is the same file system",
            )
    return Place(label=show(root), root=root)


def _with_real_parent(path: bytes) -> bytes:
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def host_names(words: Sequence[str]) -> tuple[str, ...]:
    """The hosts that `--hosts` names, each once, as ClusterShell reads them; this machine without any. Raises UsageError."""
    found = [name for word in words for name in ([word] if word.isalnum() else names(word))]
    return tuple(dict.fromkeys(found)) or (THIS_HOST,)


def _not_expected(wiring: Wiring, ledger: SqliteLedger, place: Place) -> tuple[str, ...]:
    """Why what is mounted is not what `init` recorded. Of other directories nothing was recorded."""
    known = ledger.site.read()
    if place.label not in (SOURCE, TARGET):
        return ()
    if known is None:
        return ("nothing was recorded: run `migrator init`",)
    recorded = known.source if place.label == SOURCE else known.target
    return mount_problems(recorded, _mounted(wiring, place.label), where=f"the {place.label}")


async def _not_there(hosts: _Hosts, ledger: SqliteLedger, name: str, place: Place) -> str | None:
    """Why another host does not have the source, or the target, at the same path. This machine was looked at already."""
    known = ledger.site.read()
    if place.label not in (SOURCE, TARGET) or known is None or name == THIS_HOST:
        return None
    host = await hosts.reach(name)
    roots = await look_at_roots(host.processes, python=(await host.identity()).python, target=place.root, brick=b"")
    recorded = known.source if place.label == SOURCE else known.target
    return target_problem(recorded, roots, show(place.root), where=f"the {place.label}")


def _mounted(wiring: Wiring, label: str) -> MountIdentity | None:
    try:
        with wiring.source() if label == SOURCE else wiring.target() as filesystem:
            return filesystem.identity()
    except (OSError, MigratorError):
        return None
