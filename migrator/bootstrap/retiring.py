"""What retiring the source volume is made of."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from migrator.adapters.catalog.cover import CoverParquetFiles
from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.adapters.filesystems.gluster_retirements import GlusterRetirements
from migrator.adapters.ledger.sqlite import SqliteLedger
from migrator.adapters.writers.clients import known_endpoints
from migrator.adapters.writers.search import BrickWriters
from migrator.bootstrap import Wiring, new_token
from migrator.bootstrap.hosts import reached
from migrator.bootstrap.ledger_backups import backing_up
from migrator.bootstrap.scanning import bricks, whole_scan
from migrator.domain.errors import UsageError
from migrator.domain.paths import percent_escape
from migrator.domain.retirement import Endpoint, Uncovered
from migrator.ports.progress import Progress
from migrator.stages.bricks.retire_context import RetirementWorld, WriteList

_LIST = "uncovered.tsv"


@asynccontextmanager
async def retirement_world(
    wiring: Wiring, source: GlusterSource, ledger: SqliteLedger, progress: Progress
) -> AsyncIterator[RetirementWorld]:
    """The ports of a retirement, for the length of the block. Raises UsageError."""
    site = wiring.site
    volume = site.source.volume
    if volume is None:
        raise UsageError("[source] volume is missing", hint="name the Gluster volume in site.toml")
    async with reached(site) as hosts, bricks(site, source, via=site.source.via, hosts=hosts) as found:

        async def endpoints() -> tuple[Mapping[str, Endpoint], tuple[str, ...]]:
            return await known_endpoints(
                hosts, tuple(hosts.names), wiring.processes, volume=volume, mount=wiring.source_root
            )

        yield RetirementWorld(
            volume=GlusterRetirements(source.commands, volume=volume),
            source=source,
            target_root=wiring.target_root,
            writers=BrickWriters(hosts, tuple(hosts.names), source, processes=wiring.processes),
            endpoints=endpoints,
            scan=whole_scan(wiring, source, ledger, progress, found, via=site.source.via),
            cover=CoverParquetFiles(site.catalogs_dir, temp_dir=wiring.temp_dir),
            manifests=wiring.manifests(),
            list_to=_list_to,
            back_up=backing_up(ledger, site.site.state_dir),
            hooks=wiring.hooks(),
            ledger=ledger,
            locks=wiring.locks(),
            files=wiring.run_files(),
            progress=progress,
            clock=wiring.clock,
            blocking=wiring.blocking(),
            tokens=new_token,
        )


@contextmanager
def _list_to(directory: str) -> Iterator[tuple[WriteList, str]]:
    """A line a path: why it is uncovered, bytes, the path percent-escaped. A list of an earlier look is replaced."""
    file = Path(directory) / _LIST
    with file.open("w", encoding="ascii") as opened:

        def write(found: Iterable[Uncovered]) -> None:
            opened.writelines(f"{one.kind.value}\t{one.size_bytes}\t{percent_escape(one.path)}\n" for one in found)

        yield write, str(file)
