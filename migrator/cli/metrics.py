"""`metrics` and `serve`."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrator import app
from migrator.app.hosts import window_standings
from migrator.cli.call import duration, open_wiring, plan_option, report_error, run_to_end, verb
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode, Interrupted, MigratorError, UsageError
from migrator.notices.model import CALENDAR
from migrator.render.log import MESSAGES
from migrator.render.text import to_json
from migrator.report.kept_reports import REPORT_FILES, KeptReports
from migrator.report.model import ReadPlan, ReportFacts
from migrator.report.report import read_report
from migrator.report.rules_metrics import MetricFamily
from migrator.report.status import forecast_settings, read_metrics
from migrator.report.watch import pause_s

if TYPE_CHECKING:
    from migrator.report.serve import Server


# --- `serve`


_LEAST_INTERVAL_S = 1.0


@click.command("serve")
@plan_option
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    default="127.0.0.1:9466",
    show_default=True,
    help="Address and port (0: any free one). Non-local addresses need --token-file.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="Require the token in this file (mode 0600, at least 16 characters). Without it a new one is printed.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Additional host name that requests may use; repeatable.",
)
@click.option(
    "--interval",
    "interval_s",
    type=duration(_LEAST_INTERVAL_S),
    default="10s",
    show_default=True,
    help="Refresh interval.",
)
@click.option(
    "--published",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Serve the report that `report --output DIRECTORY` wrote: needs no root, no site.toml and no ledger; has no /metrics.",
)
@verb
def serve_command(
    global_options: GlobalOptions,
    *,
    plan_name: str | None,
    published: Path | None,
    listen: str,
    token_file: Path | None,
    names: tuple[str, ...],
    interval_s: float,
) -> ExitCode:
    """Serve the report as a read-only web page that refreshes itself, and /metrics, until Ctrl-C or SIGTERM."""
    from migrator.report import serve as serving  # noqa: PLC0415

    if published is not None:
        if plan_name is not None:
            raise UsageError(
                "--plan and --published exclude each other: --plan reads the ledger, --published a finished report",
                hint="leave one out",
            )
        routes = serving.published_routes(published, (*REPORT_FILES, CALENDAR))
        server = serving.listen(listen, routes, token_file=token_file, names=names)
        return _until_stopped(_serve(global_options, server))
    wiring = open_wiring(global_options)
    # Report a problem with the ledger here, not to the first browser.
    wiring.ledger(read_only=True).close()
    kept = KeptReports(directory=wiring.site.site.state_dir / "reports")

    def read() -> ReportFacts:
        with wiring.ledger(read_only=True) as ledger:
            now_s = wiring.clock.now_s()
            plans = wiring.plans(None)
            against = kept.comparisons(now_s=now_s)
            return read_report(
                ledger,
                plans,
                now_s=now_s,
                plan=plan_name,
                holders=wiring.locks().holders,
                against=against,
                settings=forecast_settings(wiring.site),
            )

    routes = serving.report_routes(read, interval_s=interval_s)
    read_plan = cache(wiring.plans(None).read)
    routes |= serving.metrics_routes(lambda: _read(wiring, plan_name, read_plan))
    server = serving.listen(listen, routes, token_file=token_file, names=names)
    return _until_stopped(_serve(global_options, server))


async def _serve(global_options: GlobalOptions, server: "Server") -> None:
    """Serve until cancelled. Prints the address, with `--json` as one line for programs."""
    where = server.listening
    opening = f"{where.url}?token={where.token or '...'}"

    def announce() -> None:
        if global_options.as_json:
            click.echo(to_json(where, indent=None), nl=False)
        else:
            MESSAGES.info("migrator: the report at %s (Ctrl-C ends it)", opening)

    await server.serve(announce)


def _until_stopped(work: Coroutine[Any, Any, None]) -> ExitCode:
    """Work until a signal, which is the normal end."""
    with suppress(Interrupted):
        run_to_end(work, when_interrupted="")
    return ExitCode.DONE


# --- `metrics`


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
    type=duration(_LEAST_INTERVAL_S),
    help="With --textfile: rewrite it at this interval until Ctrl-C or SIGTERM.",
)
@verb
def metrics_command(
    global_options: GlobalOptions,
    *,
    plan_name: str | None,
    textfile: Path | None,
    interval_s: float | None,
) -> ExitCode:
    """Print metrics for Prometheus: progress, rates, errors, drains, freezes, heartbeats. `serve` has them at /metrics."""
    if textfile is not None and textfile.suffix != ".prom":
        raise UsageError(
            f"the name {textfile.name} does not end in .prom",
            cause="node_exporter reads no other files",
            hint=f"name it {textfile.with_suffix('.prom')}",
        )
    if interval_s is not None and textfile is None:
        raise UsageError("--interval requires --textfile", hint="with `serve`, Prometheus sets the interval")
    wiring = open_wiring(global_options)
    read_plan = cache(wiring.plans(None).read)
    families = _read(wiring, plan_name, read_plan)
    if textfile is not None:
        from migrator.report.prometheus import write_metrics  # noqa: PLC0415

        file = textfile
        write_metrics(file, families)
        if interval_s is not None:
            again = _repeat(lambda: write_metrics(file, _read(wiring, plan_name, read_plan)), wiring, interval_s)
            return _until_stopped(again)
        return ExitCode.DONE
    if global_options.as_json:
        click.echo(to_json(families), nl=False)
    else:
        from migrator.report.prometheus import to_prometheus  # noqa: PLC0415

        click.echo(to_prometheus(families).decode(), nl=False)
    return ExitCode.DONE


def _read(wiring: app.Wiring, plan: str | None, read_plan: ReadPlan) -> Sequence[MetricFamily]:
    with wiring.ledger(read_only=True) as ledger:
        now_s = wiring.clock.now_s()
        windows = window_standings(wiring.site, now_s)
        return read_metrics(
            ledger,
            now_s=now_s,
            plan=plan,
            holders=wiring.locks().holders,
            windows=windows,
            read_plan=read_plan,
            settings=forecast_settings(wiring.site),
        )


async def _repeat(write: Callable[[], None], wiring: app.Wiring, interval_s: float) -> None:
    """Write until cancelled. A failure is reported, the previous file stays, and the next interval tries again."""
    took_s = 0.0
    while True:
        await asyncio.sleep(pause_s(interval_s, took_s))
        began_s = wiring.clock.monotonic_s()
        try:
            await asyncio.to_thread(write)
        except MigratorError as error:
            report_error(error)
        took_s = wiring.clock.monotonic_s() - began_s
