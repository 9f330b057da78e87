"""`doctor`: whether everything is as a migration needs it."""

from contextlib import ExitStack

import click

from migrator import bootstrap
from migrator.adapters.output.finding_document import finding_document
from migrator.bootstrap.examining import find_driver, host_world, link_world
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.present import present
from migrator.domain.errors import ExitCode
from migrator.domain.finding import FindingStatus
from migrator.stages.doctor import DoctorWorld, examine


@click.command("doctor")
@verb
def doctor_command(invocation: Invocation) -> ExitCode:
    """Check the site and print each finding with its fix; probe what the target preserves of a file."""
    wiring = bootstrap.Wiring(open_site(invocation))
    with ExitStack() as stack:
        source, target = stack.enter_context(wiring.source()), stack.enter_context(wiring.target())
        there = wiring.site.ledger_file.exists()
        world = DoctorWorld(
            site=wiring.site,
            source=source,
            target=target,
            ledger=stack.enter_context(wiring.ledger()) if there else None,
            processes=wiring.processes,
            clock=wiring.clock,
            blocking=wiring.blocking(),
            mounts=bootstrap.mounts(),
            confinement_problem=wiring.executor().problem,
            hosts=host_world(wiring.site, source),
            find_driver=find_driver,
            hooks=wiring.hooks(),
            links=link_world(wiring),
            storage=wiring.storage_targets(),
        )
        findings = run_to_end(examine(world), when_interrupted="run `migrator doctor` again")
    present(invocation, findings, finding_document)
    failed = any(finding.status is FindingStatus.FAILURE for finding in findings)
    return ExitCode.FAILED if failed else ExitCode.DONE
