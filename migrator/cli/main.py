"""The command line: `migrator --site FILE VERB`."""

from importlib import import_module
from pathlib import Path

import click

from migrator import __version__
from migrator.cli.invocation import Invocation

_VERBS = {
    "init": "migrator.cli.init:init_command",
    "doctor": "migrator.cli.doctor:doctor_command",
    "scan": "migrator.cli.scan:scan_command",
    "plan": "migrator.cli.plan:plan_command",
    "run": "migrator.cli.run:run_command",
    "tune": "migrator.cli.tune:tune_command",
    "pause": "migrator.cli.tune:pause_command",
    "resume": "migrator.cli.tune:resume_command",
    "reap": "migrator.cli.reap:reap",
    "verify": "migrator.cli.verify:verify_command",
    "announce": "migrator.cli.announce:announce_command",
    "backup": "migrator.cli.backup:backup_command",
    "cutover": "migrator.cli.cutover:cutover_command",
    "rollback": "migrator.cli.cutover:rollback_command",
    "purge": "migrator.cli.purge:purge_command",
    "status": "migrator.cli.status:status_command",
    "report": "migrator.cli.report:report_command",
    "metrics": "migrator.cli.metrics:metrics_command",
    "serve": "migrator.cli.serve:serve_command",
    "brick": "migrator.cli.brick_retire:brick",
    "bench": "migrator.cli.bench:bench",
    "lab": "migrator.cli.lab:lab",
}
"""Every verb with its command, in the order in which a migration needs them."""


class Verbs(click.Group):
    """A group whose verbs are loaded when they are asked for: no verb waits for the libraries of the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names, in the order of `--help`."""
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of this name, loaded; None where there is none."""
        if cmd_name in _VERBS:
            return self._loaded(cmd_name)
        # click proposes what may have been meant, from those that are loaded.
        self.load()
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        """As click's; who gives `--site` after the verb is told where it belongs."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name != "--site":
                raise
            words = "--site goes before the verb: migrator --site FILE VERB (or MIGRATOR_SITE)"
            raise click.UsageError(words, ctx=error.ctx) from None

    def load(self) -> dict[str, click.Command]:
        """All verbs, in the order in which a migration needs them."""
        return {name: self._loaded(name) for name in _VERBS}

    def _loaded(self, name: str) -> click.Command:
        if name not in self.commands:
            module, _, attribute = _VERBS[name].partition(":")
            self.add_command(getattr(import_module(module), attribute))
        return self.commands[name]


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
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
