"""`metrics`: for Prometheus. It reads the ledger and disturbs nothing."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from migrator import bootstrap
from migrator.bootstrap.local_time import window_standings
from migrator.cli.context import describe_error, open_site, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import Duration, plan_option
from migrator.cli.serve import serve, serve_until_stopped, served
from migrator.domain.errors import ExitCode, MigratorError, UsageError
from migrator.domain.metrics import MetricFamily
from migrator.stages.metrics import read_metrics
from migrator.stages.watch import pause_s

_LEAST_INTERVAL_S = 1.0


@click.command("metrics")
@plan_option
@click.option(
    "--textfile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write this file (NAME.prom) for the textfile collector of node_exporter.",
)
@click.option(
    "--interval",
    "interval_s",
    type=Duration(least_s=_LEAST_INTERVAL_S),
    help="With --textfile: rewrite it at this interval until Ctrl-C or SIGTERM.",
)
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    help="Serve http://ADDRESS:PORT/metrics, e.g. 127.0.0.1:9465. Non-local addresses need --token-file.",
)
@served
@verb
def metrics_command(
    invocation: Invocation,
    *,
    plan_name: str | None,
    textfile: Path | None,
    interval_s: float | None,
    listen: str | None,
    token_file: Path | None,
    names: tuple[str, ...],
) -> ExitCode:
    """Print or serve metrics for Prometheus: progress, rates, errors, drains, freezes, heartbeats."""
    _check(textfile, interval_s, listen, token_file, names)
    wiring = bootstrap.Wiring(open_site(invocation))
    # Whatever is wrong is said before anything is served.
    families = _read(wiring, plan_name)
    if listen is not None:
        from migrator.bootstrap import serving  # noqa: PLC0415 - its libraries are loaded only for this

        routes = serving.metrics_routes(lambda: _read(wiring, plan_name))
        server = serving.listen(listen, routes, token_file=token_file, names=names)
        return serve_until_stopped(serve(invocation, server, "metrics", "metrics"))
    if textfile is not None:
        from migrator.adapters.output.prometheus import write_metrics  # noqa: PLC0415

        file = textfile
        write_metrics(file, families)
        if interval_s is not None:
            again = _repeat(lambda: write_metrics(file, _read(wiring, plan_name)), wiring, interval_s)
            return serve_until_stopped(again)
        return ExitCode.DONE
    if invocation.as_json:
        from migrator.adapters.output.json_form import to_json  # noqa: PLC0415

        click.echo(to_json(families), nl=False)
    else:
        from migrator.adapters.output.prometheus import to_prometheus  # noqa: PLC0415

        click.echo(to_prometheus(families).decode(), nl=False)
    return ExitCode.DONE


def _check(
    textfile: Path | None,
    interval_s: float | None,
    listen: str | None,
    token_file: Path | None,
    names: tuple[str, ...],
) -> None:
    if textfile is not None and listen is not None:
        raise UsageError("--textfile excludes --listen", hint="give one of them; both may run beside each other")
    if textfile is not None and textfile.suffix != ".prom":
        raise UsageError(
            f"the name {textfile.name} does not end with .prom",
            cause="node_exporter reads no other files",
            hint=f"name it {textfile.with_suffix('.prom')}",
        )
    if interval_s is not None and textfile is None:
        raise UsageError("--interval is for --textfile", hint="with --listen, Prometheus says how often")
    if listen is None and (token_file is not None or names):
        raise UsageError("--token-file and --name are for --listen", hint="add --listen 127.0.0.1:9465")


def _read(wiring: bootstrap.Wiring, plan: str | None) -> Sequence[MetricFamily]:
    with wiring.ledger(read_only=True) as ledger:
        now_s = wiring.clock.now_s()
        windows = window_standings(wiring.site, now_s)
        return read_metrics(ledger, now_s=now_s, plan=plan, is_gone=bootstrap.process_is_gone, windows=windows)


async def _repeat(write: Callable[[], None], wiring: bootstrap.Wiring, interval_s: float) -> None:
    """Until it is cancelled. What fails is reported and tried again: the file before stays."""
    took_s = 0.0
    while True:
        await asyncio.sleep(pause_s(interval_s, took_s))
        began_s = wiring.clock.monotonic_s()
        try:
            await asyncio.to_thread(write)
        except MigratorError as error:
            click.echo(describe_error(error), err=True)
        took_s = wiring.clock.monotonic_s() - began_s
