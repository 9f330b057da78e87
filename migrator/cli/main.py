"""The command line: `migrator --site FILE VERB`."""

from pathlib import Path

import click

from migrator import __version__
from migrator.cli import lab, migrate, prepare, show
from migrator.cli.context import Invocation


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--site",
    "site_file",
    envvar="MIGRATOR_SITE",
    default="site.toml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The site's configuration (or MIGRATOR_SITE).",
)
@click.version_option(__version__, prog_name="migrator")
@click.pass_context
def main(context: click.Context, site_file: Path) -> None:
    """Move a production GlusterFS volume to BeeGFS, user by user, and prove every byte."""
    context.obj = Invocation(site_file=site_file)


for command in (*prepare.COMMANDS, *migrate.COMMANDS, *show.COMMANDS, lab.lab):
    main.add_command(command)
