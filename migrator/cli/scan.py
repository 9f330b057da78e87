"""`scan`: read the source into a catalog."""

import asyncio
import sys

import click

from migrator.app import Wiring
from migrator.app.scan import WORKERS, scan_request
from migrator.app.scan import bricks as bricks_of
from migrator.catalog.model import CatalogRecord
from migrator.cli.call import open_wiring, present, run_to_end, verb
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode
from migrator.render.progress import open_progress
from migrator.report.view_records import catalog_document
from migrator.scan.scan import scan


def scan_source(
    wiring: Wiring, *, resumed_by: str, via: str | None = None, jobs: int = WORKERS, restart: bool = False
) -> CatalogRecord:
    """Scan the source, with progress on standard error; the verb `resumed_by` resumes it after an
    interruption. Raises as `scan`.
    """
    site = wiring.site
    request = scan_request(site, via=via, workers=jobs, restart=restart)
    with wiring.source() as source, open_progress(sys.stderr, wiring.clock) as shown:

        async def scanned() -> CatalogRecord:
            async with bricks_of(site, source, via=request.via) as walks:
                # The ledger is loaded while the hosts are being connected.
                with await asyncio.to_thread(wiring.ledger) as ledger, wiring.locks().hold("scan", "scan"):
                    catalogs = await asyncio.to_thread(wiring.catalogs)
                    if walks is not None and request.via != "mount":
                        # Loaded in the background while the volume and the bricks are checked.
                        asyncio.get_running_loop().run_in_executor(None, catalogs.load_for_bricks)
                    return await scan(
                        request,
                        source=source,
                        ledger=ledger,
                        catalogs=catalogs,
                        progress=shown,
                        clock=wiring.clock,
                        walks=walks,
                    )

        return run_to_end(scanned(), when_interrupted=f"run `migrator {resumed_by}` again")


@click.command("scan")
@click.option(
    "--via", type=click.Choice(["auto", "bricks", "mount"]), help="How to read the source (default: site.toml)."
)
@click.option(
    "-j", "--jobs", "--np", "jobs", type=click.IntRange(1, 256), default=WORKERS, show_default=True, help="Workers."
)
@click.option("--restart", is_flag=True, help="Start over instead of resuming.")
@verb
def scan_command(global_options: GlobalOptions, via: str | None, jobs: int, restart: bool) -> ExitCode:
    """Scan the source into a new catalog; a killed scan of the mount is resumed."""
    wiring = open_wiring(global_options)
    record = scan_source(wiring, via=via, jobs=jobs, restart=restart, resumed_by="scan")
    present(global_options, record, catalog_document)
    return ExitCode.DONE if record.whole else ExitCode.ATTENTION
