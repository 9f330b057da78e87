"""`status`: how far it is. It reads the ledger and disturbs nothing."""

import click

from migrator import bootstrap
from migrator.adapters.output.status_document import status_document
from migrator.cli.context import open_site, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import plan_option
from migrator.cli.present import present
from migrator.domain.errors import ExitCode
from migrator.stages.status import read_status


@click.command("status")
@plan_option
@verb
def status_command(invocation: Invocation, plan_name: str | None) -> ExitCode:
    """How far the migration is, now; works beside a run."""
    wiring = bootstrap.Wiring(open_site(invocation))
    with wiring.ledger(read_only=True) as ledger:
        status = read_status(ledger, now_s=wiring.clock.now_s(), plan=plan_name, is_gone=bootstrap.process_is_gone)
    present(invocation, status, status_document)
    return ExitCode.DONE
