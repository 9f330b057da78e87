"""`config check`."""

import click

from migrator.cli.call import details_option, open_wiring, present, run_to_end, verb
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode
from migrator.doctor.configuration import check_configuration
from migrator.doctor.view import configuration_document


@click.group("config")
def config() -> None:
    """Check the files that configure a site."""


@config.command("check")
@details_option
@verb
def check_command(global_options: GlobalOptions, *, details: bool) -> ExitCode:
    """Check site.toml, the map of users, hooks and mail.ini, and list the settings; touch no mount and no host.

    Exit code 2 means that something has to be corrected. `doctor` checks mounts, hosts and programs too.
    """
    wiring = open_wiring(global_options)
    check = run_to_end(check_configuration(wiring.site, wiring.hooks(), wiring.blocking))
    return present(global_options, check, lambda check: configuration_document(check, details=details))
