"""`serve`: the report as a page that reads the ledger anew by itself. It changes nothing."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrator import bootstrap
from migrator.adapters.output.json_form import to_json
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import Duration, plan_option
from migrator.domain.errors import ExitCode, Interrupted
from migrator.domain.report import ReportFacts
from migrator.stages.report import read_report

if TYPE_CHECKING:
    from migrator.bootstrap.serving import Server

_LEAST_INTERVAL_S = 1.0


def served(function: Callable[..., None]) -> Callable[..., None]:
    """What every verb takes that listens: `--token-file` and `--name`."""
    function = click.option(
        "--name",
        "names",
        multiple=True,
        metavar="NAME",
        help="Additional host name that requests may use; repeatable.",
    )(function)
    return click.option(
        "--token-file",
        type=click.Path(path_type=Path),
        help="Require the token in this file (mode 0600, at least 16 characters).",
    )(function)


@click.command("serve")
@plan_option
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:9466",
    show_default=True,
    help="Address and port (0: any free one). Non-local addresses need --token-file.",
)
@served
@click.option(
    "--interval",
    "interval_s",
    type=Duration(least_s=_LEAST_INTERVAL_S),
    default="10s",
    show_default=True,
    help="Refresh interval.",
)
@verb
def serve_command(
    invocation: Invocation,
    *,
    plan_name: str | None,
    listen: str,
    token_file: Path | None,
    names: tuple[str, ...],
    interval_s: float,
) -> ExitCode:
    """Serve the report as a read-only web page that refreshes itself, until Ctrl-C or SIGTERM."""
    wiring = bootstrap.Wiring(open_site(invocation))
    # What is wrong with the ledger is said here, and not to the first browser.
    wiring.ledger(read_only=True).close()
    from migrator.bootstrap import serving  # noqa: PLC0415 - its libraries are loaded only for this

    def read() -> ReportFacts:
        with wiring.ledger(read_only=True) as ledger:
            now_s = wiring.clock.now_s()
            plans = wiring.plans(None)
            return read_report(ledger, plans, now_s=now_s, plan=plan_name, is_gone=bootstrap.process_is_gone)

    routes = serving.report_routes(read, interval_s=interval_s)
    server = serving.listen(listen, routes, token_file=token_file, names=names)
    return serve_until_stopped(serve(invocation, server, "the report"))


async def serve(invocation: Invocation, server: "Server", what: str, path: str = "") -> None:
    """Serve until it is cancelled, and say where, also to whoever reads a pipe."""
    where = server.listening
    token = " (append ?token=..., once)" if where.token and not path else ""

    def announce() -> None:
        if invocation.as_json:
            click.echo(to_json(where, indent=None), nl=False)
        else:
            click.echo(f"migrator: {what} at {where.url}{path}{token}; Ctrl-C ends it", err=True)

    await server.serve(announce)


def serve_until_stopped(work: Coroutine[Any, Any, None]) -> ExitCode:
    """Serve until a signal comes, which is how this ends."""
    with suppress(Interrupted):
        run_to_end(work, when_interrupted="")
    return ExitCode.DONE
