"""`bench`: the field's benchmarks, on the source, the target and any other mounted file system."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from migrator import app
from migrator.app.doctor import SOURCE, TARGET, THIS_HOST, benchmark_world, host_names, place_of
from migrator.bench import model as bench_model
from migrator.bench.bench import clean_up, run_benchmarks
from migrator.bench.records import BenchmarkRecords
from migrator.bench.rules import SuiteComparison, compare
from migrator.bench.suites import suite
from migrator.bench.view import cleaning_document, comparison_document, listing_document, summary_document
from migrator.cli.call import Figure, open_site, open_wiring, present, run_stage, verb
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode, MigratorError, UsageError

_on = click.option(
    "--on",
    "words",
    multiple=True,
    metavar="source|target|PATH",
    help="source, target, or a directory on the file system; repeatable.",
)
_scale = click.option(
    "--scale",
    type=Figure(min=0, min_open=True, max=100),
    default=bench_model.DEFAULT_SCALE,
    show_default=True,
    help="Counts and sizes relative to the published ones.",
)
_SUITES = click.Choice([name.value for name in bench_model.SuiteName])
_suite = partial(click.option, "--suite", "suites", type=_SUITES, multiple=True)


@click.group("bench")
def bench() -> None:
    """Run published benchmarks on source, target and other file systems."""


@bench.command("run")
@_suite(required=True, help="Suite to run; repeatable.")
@_on
@_scale
@click.option(
    "--runs",
    type=click.IntRange(1, 1000),
    default=bench_model.DEFAULT_RUNS,
    show_default=True,
    help="Runs per file system.",
)
@click.option(
    "--hosts",
    multiple=True,
    metavar="NAMES",
    help="Hosts of site.toml that run each step together, or HOST:/PATH for another mount on one; repeatable.",
)
@click.option(
    "--accept-unknown-inodes",
    is_flag=True,
    help="Run although the number of free inodes is unknown.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Show the steps and the room they need; write nothing.")
@verb
def run_command(
    global_options: GlobalOptions,
    *,
    suites: Sequence[str],
    words: Sequence[str],
    scale: float,
    runs: int,
    hosts: Sequence[str],
    accept_unknown_inodes: bool,
    dry_run: bool,
) -> ExitCode:
    """Run suites on the file systems in turns, and print the results.

    Works in .migrator-bench in the root of each file system and removes it at the end. Results go to the ledger.
    """
    wiring = open_wiring(global_options)
    site = wiring.site
    if not words:
        raise UsageError(
            "--on is missing: name the file systems to measure",
            hint="add --on source --on target, or --on with a directory of another file system",
        )
    request = bench_model.BenchmarkRequest(
        suites=tuple(bench_model.SuiteName(name) for name in suites),
        places=_places(wiring, words),
        hosts=host_names(hosts),
        runs=runs,
        scale=scale,
        dry_run=dry_run,
        inodes_free={} if site.target.inodes_free is None else {"target": site.target.inodes_free},
        accept_unknown_inodes=accept_unknown_inodes,
    )
    with wiring.ledger(read_only=dry_run) as ledger:
        summary = run_stage(
            wiring,
            partial(benchmark_world, wiring, ledger),
            partial(run_benchmarks, request),
            when_interrupted="finished measurements are kept; the next call starts over",
        )
    return present(global_options, summary, summary_document)


@bench.command("list")
@_scale
@verb
def list_command(global_options: GlobalOptions, *, scale: float) -> ExitCode:
    """List the suites with their sizes, and past benchmarks.

    Without a site.toml or a ledger it lists only the suites.
    """
    records: tuple[bench_model.BenchmarkRecord, ...] = ()
    site = open_site(global_options) if global_options.site_file.exists() else None
    if site is not None and site.ledger_file.exists():
        with app.Wiring(site).ledger(read_only=True) as ledger:
            records = tuple(ledger.benchmarks.all())
    listing = bench_model.BenchmarkListing(
        scale=scale,
        suites=tuple(suite(name, scale) for name in bench_model.SuiteName),
        benchmarks=records,
    )
    return present(global_options, listing, listing_document)


@bench.command("compare")
@click.argument("numbers", metavar="[NUMBER...]", type=int, nargs=-1)
@_suite(help="Compare only this suite; repeatable.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write an HTML page with charts.")
@verb
def compare_command(
    global_options: GlobalOptions, *, numbers: Sequence[int], suites: Sequence[str], html: Path | None
) -> ExitCode:
    """Compare file systems with each other and with published figures.

    `bench list` has the numbers. Without any: the newest benchmark of each suite that was measured.
    """
    with open_wiring(global_options).ledger(read_only=True) as ledger:
        results = _chosen(ledger.benchmarks, numbers, suites)
    comparisons = compare(results)
    if html is not None:
        _write(html, comparisons)
    return present(global_options, comparisons, comparison_document)


@bench.command("clean")
@_on
@verb
def clean_command(global_options: GlobalOptions, *, words: Sequence[str]) -> ExitCode:
    """Remove what killed benchmarks of this site have left.

    `bench run` does so too, before it begins. It searches source and target, or what --on names, and the file systems of every
    benchmark that did not finish.
    """
    wiring = open_wiring(global_options)
    places = _places(wiring, words or (SOURCE, TARGET))
    with wiring.ledger() as ledger:
        cleaning = run_stage(wiring, partial(benchmark_world, wiring, ledger), partial(clean_up, places, THIS_HOST))
    return present(global_options, cleaning, cleaning_document)


def _places(wiring: app.Wiring, words: Sequence[str]) -> tuple[bench_model.MeasuredFileSystem, ...]:
    """Each place once, even if it is named several times."""
    return tuple(dict.fromkeys(place_of(wiring, word) for word in words))


def _chosen(
    records: "BenchmarkRecords", numbers: Sequence[int], suites: Sequence[str]
) -> list[bench_model.BenchmarkResult]:
    wanted = {bench_model.SuiteName(name) for name in suites} or set(bench_model.SuiteName)
    if numbers:
        chosen = [record for number in numbers if (record := records.read(number)).suite in wanted]
    else:
        newest: dict[bench_model.SuiteName, bench_model.BenchmarkRecord] = {}
        for record in reversed(records.all()):
            if record.suite not in newest and records.measurements(record.id):
                newest[record.suite] = record
        chosen = [newest[name] for name in bench_model.SuiteName if name in newest and name in wanted]
    results = [
        bench_model.BenchmarkResult(record=record, measurements=tuple(records.measurements(record.id)))
        for record in chosen
    ]
    # A benchmark chosen by number is shown even without measurements, with the reason.
    if not results or not (numbers or any(result.measurements for result in results)):
        raise UsageError("no measurements yet", hint="run `migrator bench run --suite NAME --on source --on target`")
    return results


def _write(file: Path, comparisons: Sequence[SuiteComparison]) -> None:
    # Loaded here because the template engine takes long to load.
    from migrator.render.html import to_html  # noqa: PLC0415

    with MigratorError.of_files(f"{file} cannot be written", hint="name another file"):
        file.write_text(to_html(comparison_document(comparisons, charts=True)), encoding="utf-8")
