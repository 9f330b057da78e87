"""`tune`, `pause`, `resume`: a migration that goes on is held, or gets other limits."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from migrator import bootstrap
from migrator.bootstrap.local_time import window_standings
from migrator.cli.context import open_site, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import SIZE_NOT_ZERO, Duration, Figure
from migrator.cli.person import who
from migrator.cli.present import present
from migrator.domain.errors import ExitCode
from migrator.domain.governing import GoverningFacts, Limits
from migrator.stages.governing_facts import read_governing
from migrator.stages.tune import Tuning

if TYPE_CHECKING:
    from migrator.adapters.output.document import Document
    from migrator.config.site import Site

_LEAST_LATENCY_S = 0.001


@click.command("tune")
@click.option("-j", "--jobs", "--np", "jobs", type=click.IntRange(1, 1024), help="Maximum streams per host.")
@click.option(
    "--bwlimit", type=SIZE_NOT_ZERO, metavar="SIZE", help="Bytes per second for all streams together, e.g. 200MiB."
)
@click.option(
    "--max-latency",
    type=Duration(least_s=_LEAST_LATENCY_S),
    metavar="TIME",
    help="Latency of small operations above which streams are reduced, e.g. 50ms.",
)
@click.option("--max-load", type=Figure(min=0.0), help="Load of a host above which its streams are reduced.")
@click.option("--reset", is_flag=True, help="Drop earlier settings of `tune`.")
@verb
def tune_command(
    invocation: Invocation,
    *,
    jobs: int | None,
    bwlimit: int | None,
    max_latency: float | None,
    max_load: float | None,
    reset: bool,
) -> ExitCode:
    """Change limits of a running migration; they apply to chunks that start from now on.

    They override site.toml and the command line for all runs until `--reset`. Without options it shows the limits.
    """
    limits = Limits(jobs=jobs, bwlimit_bytes_per_s=bwlimit, max_latency_s=max_latency, max_load=max_load)
    if limits.nothing and not reset:
        site = open_site(invocation)
        wiring = bootstrap.Wiring(site)
        with wiring.ledger(read_only=True) as ledger:
            now_s = wiring.clock.now_s()
            shown = read_governing(
                ledger,
                now_s=now_s,
                is_gone=bootstrap.process_is_gone,
                given=_given(site),
                windows=window_standings(site, now_s),
            )
    else:
        with _tuning(invocation) as tuning:
            shown = tuning.tune(limits, reset=reset)
    present(invocation, shown, _as_document)
    return ExitCode.DONE


@click.command("pause")
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown by status.")
@verb
def pause_command(invocation: Invocation, *, reason: str) -> ExitCode:
    """Start no more chunks, passes and cutovers until `resume`; running ones finish."""
    with _tuning(invocation) as tuning:
        shown = tuning.pause(reason)
    present(invocation, shown, _as_document)
    return ExitCode.DONE


@click.command("resume")
@verb
def resume_command(invocation: Invocation) -> ExitCode:
    """Continue after `pause`."""
    with _tuning(invocation) as tuning:
        shown = tuning.resume()
    present(invocation, shown, _as_document)
    return ExitCode.DONE


@contextmanager
def _tuning(invocation: Invocation) -> Iterator[Tuning]:
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    with wiring.ledger() as ledger:
        yield Tuning(
            ledger=ledger,
            clock=wiring.clock,
            by=who(),
            given=_given(site),
            windows=partial(window_standings, site),
            is_gone=bootstrap.process_is_gone,
        )


def _given(site: "Site") -> Limits:
    return Limits(
        jobs=site.transfer.jobs,
        bwlimit_bytes_per_s=site.transfer.bwlimit_bytes_per_s,
        max_latency_s=site.governor.max_latency_s,
        max_load=site.governor.max_load,
    )


def _as_document(governing: GoverningFacts) -> "Document":
    from migrator.adapters.output.governing_document import governing_document  # noqa: PLC0415

    return governing_document(governing)
