"""The command line: `migrator --site FILE VERB`."""

from importlib import import_module
from pathlib import Path

import click

from migrator import __version__
from migrator.cli.invocation import Invocation
from migrator.domain.errors import ExitCode

_VERBS = {
    "init": ("migrator.cli.init:init_command", "write site.toml, create the ledger, record both file systems"),
    "doctor": ("migrator.cli.doctor:doctor_command", "preflight: every finding with its fix"),
    "scan": ("migrator.cli.scan:scan_command", "a new catalog of the whole source"),
    "plan": ("migrator.cli.plan:plan_command", "ranking, batches, room, forecast, when bricks are free"),
    "run": ("migrator.cli.run:run_command", "copy batches: a seed pass, then delta passes"),
    "tune": ("migrator.cli.tune:tune_command", "other limits while a run goes on; what is in force"),
    "pause": ("migrator.cli.tune:pause_command", "begin no more chunks, passes and cutovers"),
    "resume": ("migrator.cli.tune:resume_command", "go on after a pause"),
    "reap": ("migrator.cli.reap:reap", "old and tiny files: list, release, archive, restore"),
    "verify": ("migrator.cli.verify:verify_command", "compare both sides, content included"),
    "announce": ("migrator.cli.announce:announce_command", "tell users ahead when they will be moved"),
    "backup": ("migrator.cli.backup:backup_command", "write down that the target was backed up"),
    "cutover": ("migrator.cli.cutover:cutover_command", "move users for good, one after the other"),
    "rollback": ("migrator.cli.cutover:rollback_command", "move users back, with what they changed since"),
    "purge": ("migrator.cli.purge:purge_command", "free the source of users who are moved, against proof"),
    "status": ("migrator.cli.status:status_command", "how far it is, now; --watch: live"),
    "report": ("migrator.cli.report:report_command", "for management: how far, until when, and why"),
    "metrics": ("migrator.cli.metrics:metrics_command", "progress and signs of life for Prometheus"),
    "serve": ("migrator.cli.serve:serve_command", "the report as a local page that keeps itself up to date"),
    "brick": ("migrator.cli.brick_retire:brick", "list, drain, stop, add, retire bricks; their status"),
    "bench": ("migrator.cli.bench:bench", "the field's benchmarks on source, target and others"),
    "lab": ("migrator.cli.lab:lab", "a rehearsal on this machine: up, churn, down"),
}
"""Every verb with its command and what `--help` says of it, in the order in which a migration needs them."""


class Verbs(click.Group):
    """A group whose verbs are loaded when they are asked for: no verb waits for the libraries of the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names, in the order of `--help`."""
        return list(_VERBS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """One line each, which says all of it: nothing is cut off, and no verb is loaded for it."""
        with formatter.section("Verbs, in the order in which a migration needs them"):
            formatter.write_dl([(name, words) for name, (_, words) in _VERBS.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of this name, loaded; None where there is none."""
        if cmd_name in _VERBS:
            return self._loaded(cmd_name)
        # click proposes what may have been meant, from those that are loaded.
        self.load()
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        """As click's; who gives `--site` after the verb is told where it belongs, and who interrupts while a verb is
        loaded is told that nothing was begun.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("migrator: interrupted\n  next:  nothing was begun; give the same command again", err=True)
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
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
            module, _, attribute = _VERBS[name][0].partition(":")
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
    """Move the users of a production GlusterFS volume to BeeGFS, one after the other, with proofs of every copy."""
    context.obj = Invocation(site_file=site_file)
