"""The command line: `migrator --site FILE VERB`."""

import os
from importlib import import_module
from pathlib import Path

import click

from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode
from migrator.core.version import version_and_commit
from migrator.render.log import MESSAGES, set_log

_VERBS = {
    "init": ("migrator.cli.doctor:init_command", "write site.toml, create the ledger, record both file systems"),
    "doctor": ("migrator.cli.doctor:doctor_command", "check the site; print each finding with its fix"),
    "config": ("migrator.cli.config:config", "check site.toml, hooks and mail.ini; list the settings"),
    "scan": ("migrator.cli.scan:scan_command", "scan the source into a new catalog"),
    "plan": ("migrator.cli.plan:plan_command", "rank users, make batches, forecast, schedule the bricks"),
    "run": ("migrator.cli.run:run_command", "copy batches: a seed pass, then delta passes"),
    "tune": ("migrator.cli.run:tune_command", "change or show the limits of a running migration"),
    "pause": ("migrator.cli.run:pause_command", "start no more chunks, passes and cutovers"),
    "resume": ("migrator.cli.run:resume_command", "continue after a pause"),
    "reap": ("migrator.cli.reap:reap", "list, release, archive, restore old and tiny files"),
    "verify": ("migrator.cli.verify:verify_command", "compare both sides including content"),
    "announce": ("migrator.cli.announce:announce_command", "announce the move to users"),
    "backup": ("migrator.cli.announce:backup_command", "record a backup of the target"),
    "cutover": ("migrator.cli.cutover:cutover_command", "move users one after the other"),
    "rollback": ("migrator.cli.cutover:rollback_command", "move users back with their later changes"),
    "purge": ("migrator.cli.purge:purge_command", "free the source of moved users; needs proof"),
    "status": ("migrator.cli.status:status_command", "show the current progress; --watch: live"),
    "report": ("migrator.cli.report:report_command", "report for management"),
    "metrics": ("migrator.cli.metrics:metrics_command", "metrics for Prometheus"),
    "serve": ("migrator.cli.metrics:serve_command", "serve the report as a web page"),
    "brick": ("migrator.cli.brick:brick", "list, drain, stop, add, retire bricks; show progress"),
    "bench": ("migrator.cli.bench:bench", "run published benchmarks on both file systems"),
    "lab": ("migrator.cli.lab:lab", "a lab on this machine: up, churn, down"),
}
"""Every verb with its command and its line in `--help`, in the order in which a migration needs them."""


class Verbs(click.Group):
    """A group that loads a verb on use, so that no verb waits for the libraries of the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names, in the order of `--help`."""
        return list(_VERBS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """One uncut line for each verb, without loading any."""
        with formatter.section("Verbs, in the order in which a migration needs them"):
            formatter.write_dl([(name, words) for name, (_, words) in _VERBS.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of this name, loaded; None where there is none."""
        if cmd_name in _VERBS:
            return self._loaded(cmd_name)
        # click suggests similar names among the loaded verbs.
        self.load()
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        """As click's, with a hint for an option of the program after the verb, and a message for an interrupt while a verb is loaded."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            MESSAGES.error("migrator: interrupted", extra={"hint": "no work was started; run the same command again"})
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
        except click.NoSuchOption as error:
            if error.option_name not in {name for option in self.params for name in option.opts}:
                raise
            words = f"{error.option_name} goes before the verb: migrator [OPTIONS] VERB"
            raise click.UsageError(words, ctx=error.ctx) from None

    def load(self) -> dict[str, click.Command]:
        """All verbs, in the order in which a migration needs them."""
        return {name: self._loaded(name) for name in _VERBS}

    def _loaded(self, name: str) -> click.Command:
        if name not in self.commands:
            module, _, attribute = _VERBS[name][0].partition(":")
            self.add_command(getattr(import_module(module), attribute))
        return self.commands[name]


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"migrator, version {version_and_commit()}")
        context.exit()


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--site",
    "site_file",
    envvar="MIGRATOR_SITE",
    default="site.toml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Configuration of the site (or MIGRATOR_SITE).",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and the commit, and exit.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also log the work in detail; progress is not redrawn.")
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors; print no progress.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of messages on standard error; json: one object per line.",
)
@click.option("--no-color", is_flag=True, help="Print no colours (also with NO_COLOR set).")
@click.pass_context
def main(
    context: click.Context, site_file: Path, *, verbose: bool, quiet: bool, log_format: str, no_color: bool
) -> None:
    """Move the users of a production GlusterFS volume to BeeGFS, one after the other, and prove every copy."""
    if verbose and quiet:
        raise click.UsageError("--verbose and --quiet exclude each other")
    set_log(verbose=verbose, quiet=quiet, as_json=log_format == "json")
    if no_color:
        os.environ["NO_COLOR"] = "1"  # read by rich, and inherited by hooks
    context.obj = GlobalOptions(site_file=site_file)
