"""Wiring of `report`."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.app import Wiring, processes
from migrator.core.progress import Progress
from migrator.render.html import print_pdf
from migrator.report.report import SendWorld, require_report_hooks, send_report

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger


def make_pdf(page: Path, pdf: Path) -> None:
    """Print a page. Raises ToolFailed."""
    asyncio.run(print_pdf(processes(), page.resolve(), pdf))


def require_hooks(wiring: Wiring) -> None:
    """Raise Refused if no hook would send a report."""
    asyncio.run(require_report_hooks(wiring.hooks(), wiring.blocking()))


async def send(wiring: Wiring, ledger: "Ledger", progress: Progress, directory: Path, plan: str | None) -> str:
    """Pass a report, by its absolute directory, to the hooks. Returns and raises as `send_report`."""
    world = SendWorld(
        **wiring.operation_ports(ledger, progress),
        source_root=wiring.source_root,
        target_root=wiring.target_root,
        pid=os.getpid(),
    )
    return await send_report(world, os.fsencode(directory), plan)
