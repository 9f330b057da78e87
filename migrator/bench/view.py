"""Documents of benchmarks: tables, intervals, published figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from migrator.bench.model import BenchmarkListing, BenchmarkState, BenchmarkSummary, Cleaning, Unit, scale_words
from migrator.bench.rules import StepComparison, SuiteComparison, compare
from migrator.bench.suites import publications
from migrator.core.statistics import Series
from migrator.core.units import GIB, KIB, MIB, format_count, format_size, several
from migrator.render import document as doc

_RATES = ((GIB, "GiB/s"), (MIB, "MiB/s"), (KIB, "KiB/s"), (1, "B/s"))
_PUBLISHED_IN = {Unit.SECONDS: "s", Unit.MILLISECONDS: "ms", Unit.BYTES_PER_S: "MB/s", Unit.OPERATIONS_PER_S: "ops/s"}
_DETAILS = {
    "bytes_per_s": ("rate", Unit.BYTES_PER_S),
    "p50_ms": ("p50", Unit.MILLISECONDS),
    "p90_ms": ("p90", Unit.MILLISECONDS),
    "p99_ms": ("p99", Unit.MILLISECONDS),
    "p999_ms": ("p99.9", Unit.MILLISECONDS),
    "max_ms": ("longest", Unit.MILLISECONDS),
    "reads": ("reads", None),
}


def summary_document(summary: BenchmarkSummary) -> doc.Document:
    """The result of `bench run` or of its dry run."""
    if summary.dry_run:
        sections = doc.sections(("Room", (_room(summary), *alerts(summary.notes))), ("Steps", [_steps(summary)]))
        return doc.Document(title="Benchmarks, dry run", subtitle=scale_words(summary.scale), sections=tuple(sections))
    # A finished suite without figures has the reason in its notes; errors of the others follow at the end.
    told = [result for result in summary.results if result.measurements or result.record.state is BenchmarkState.DONE]
    made = comparison_document(compare(told))
    numbers = " ".join(str(result.record.id) for result in summary.results)
    ends = [
        *alerts(summary.failures),
        *([doc.paragraph(f"Removed, left by killed calls: {', '.join(summary.removed)}.")] if summary.removed else []),
        doc.paragraph(f"Recorded: `migrator bench compare {numbers}` shows this again; --html adds charts."),
    ]
    return replace(made, sections=(*made.sections, *doc.sections(("End", ends))))


def _room(summary: BenchmarkSummary) -> doc.Table:
    rows = [
        (
            one.place.shown,
            format_size(one.need_bytes),
            format_size(one.free_bytes),
            format_count(one.need_inodes),
            doc.NONE if one.free_inodes is None else format_count(one.free_inodes),
        )
        for one in summary.room
    ]
    columns = [doc.wide("file system"), *map(doc.figure, ("needs", "free", "files made", "files free"))]
    return doc.table("", columns, rows, note="What the largest of the suites needs at a time, on all hosts together.")


def _steps(summary: BenchmarkSummary) -> doc.Table:
    rows = [
        (
            planned.name,
            step.title,
            " ".join(step.lanes[0]) + (f", and {len(step.lanes) - 1} more at once" if len(step.lanes) > 1 else ""),
            step.unit or "not measured",
        )
        for planned in summary.suites
        for step in planned.steps
    ]
    columns = [doc.text("suite"), doc.wide("step"), doc.wide("command"), doc.text("figure in")]
    note = "Commands that begin with @ are functions of the script that is sent to hosts."
    return doc.table("", columns, rows, note=note)


def listing_document(listing: BenchmarkListing) -> doc.Document:
    """The suites, and the recorded benchmarks."""
    suites = doc.table(
        "",
        [doc.text("suite"), doc.wide("what"), doc.wide("sizes"), doc.figure("needs")],
        [(one.name, one.title, one.sizes, format_size(one.need_bytes)) for one in listing.suites],
    )
    columns = [doc.figure("number"), doc.text("suite"), doc.figure("scale"), doc.figure("runs")]
    rows = [
        (
            str(record.id),
            record.suite,
            f"{record.scale:g}",
            str(record.runs),
            ", ".join(place.shown for place in record.places),
            record.state,
            doc.when(record.started_at_s),
        )
        for record in listing.benchmarks
    ]
    run = doc.table("", [*columns, doc.wide("on"), doc.text("state"), doc.text("begun")], rows)
    sections = doc.sections(
        ("Suites", [suites]), ("What was run", [run if rows else doc.paragraph("Nothing was run yet.")])
    )
    return doc.Document(title="Benchmarks", subtitle=scale_words(listing.scale), sections=tuple(sections))


def cleaning_document(cleaning: Cleaning) -> doc.Document:
    """The result of `bench clean`."""
    removed = doc.paragraph(", ".join(cleaning.removed) or "nothing was there")
    sections = doc.sections(("Removed", [removed]), ("Left", alerts(cleaning.left)))
    return doc.Document(title="Benchmarks", subtitle="what was left", sections=tuple(sections))


def comparison_document(comparisons: Sequence[SuiteComparison], *, charts: bool = False) -> doc.Document:
    """The measurements, suite by suite; with charts if there is room."""
    sections = doc.sections(
        *((doc.clean(f"{one.suite}: {one.title}"), comparison_blocks(one, charts=charts)) for one in comparisons)
    )
    scales = dict.fromkeys(scale_words(comparison.scale) for comparison in comparisons)
    return doc.Document(title="Benchmarks", subtitle=", ".join(scales), sections=tuple(sections))


def comparison_blocks(comparison: SuiteComparison, *, charts: bool) -> Iterator[doc.Block]:
    """One suite: figures, noise, chart, the load before, and published figures."""
    yield doc.facts(
        [
            ("benchmark", ", ".join(map(str, comparison.benchmarks))),
            ("scale", f"{scale_words(comparison.scale)}: {comparison.sizes}"),
            ("runs", f"{several(comparison.runs, 'run')} on each file system, in turns"),
            ("hosts", f"{', '.join(comparison.hosts)}, at {doc.when(comparison.started_at_s)}"),
        ]
    )
    yield from alerts(comparison.cautions)
    yield from (doc.paragraph(_sentence(note)) for note in comparison.notes)
    if not comparison.steps:
        yield doc.paragraph("Nothing was measured.")
        return
    rows = [
        (
            step.title,
            side.label,
            figure_words(side.figures, step.unit),
            format_count(side.figures.count),
            _in_unit(side.load, 1, ""),
            _details(side.details, step.unit),
        )
        for step in comparison.steps
        for side in step.sides
    ]
    columns = [
        doc.wide("test"),
        doc.text("on"),
        doc.figure("median (range)"),
        doc.figure("runs"),
        doc.figure("load"),
        doc.wide("also"),
    ]
    yield doc.table(
        "What was measured",
        columns,
        rows,
        note="Load: that of the hosts before the runs. Also: medians of what else was measured.",
    )
    verdicts = [(step.title, contrast.verdict) for step in comparison.steps for contrast in step.contrasts]
    if verdicts:
        yield doc.table(
            "What is beyond the noise",
            [doc.wide("test"), doc.wide("verdict")],
            verdicts,
            note="The ratio of the medians, and its interval, which holds in at least 9 of 10 cases; among many tests some may "
            "be wrong.",
        )
    if charts:
        yield from _bars(comparison)
    if any(step.published for step in comparison.steps):
        yield from _published(comparison)


def _details(details: Mapping[str, float], unit: Unit) -> str:
    return ", ".join(
        f"{words} {value_words(details[name], counted) if counted else format_count(round(details[name]))}"
        for name, (words, counted) in _DETAILS.items()
        if name in details and not (name == "bytes_per_s" and unit is Unit.BYTES_PER_S)
    )


def _bars(comparison: SuiteComparison) -> Iterator[doc.Block]:
    verdicts = [f"{step.title}: {contrast.verdict}." for step in comparison.steps for contrast in step.contrasts]
    said = ["Medians with their ranges; the bars of each test have a scale of their own.", *verdicts]
    groups = [
        (
            f"{step.title}, {'longer' if step.unit.more_is_better else 'shorter'} is better",
            [(side.label, side.figures.median, figure_words(side.figures, step.unit)) for side in step.sides],
        )
        for step in comparison.steps
    ]
    yield from doc.bars(f"{comparison.suite} at {scale_words(comparison.scale)}", " ".join(said), groups)


def _published(comparison: SuiteComparison) -> Iterator[doc.Block]:
    labels = list(dict.fromkeys(side.label for step in comparison.steps for side in step.sides))
    rows = [
        (
            step.title,
            f"{reference.publication}, {several(reference.hosts, 'host')}: {reference.work}",
            "; ".join(f"{system} {figures}" for system, figures in reference.figures.items())
            + f" {_PUBLISHED_IN[step.unit]}",
            *(_own(step, label) for label in labels),
        )
        for step in comparison.steps
        for reference in step.published
    ]
    yield doc.table(
        "Beside what was published",
        [
            doc.wide("test"),
            doc.wide("work there"),
            doc.wide("figures there"),
            *(doc.figure(f"{label}, here") for label in labels),
        ],
        rows,
        note=f"Theirs are at scale 1 on their machines, ours at {scale_words(comparison.scale)} on these: they show orders of "
        "magnitude and ratios, and nothing finer.",
    )
    for key in dict.fromkeys(reference.publication for step in comparison.steps for reference in step.published):
        publication = publications()[key]
        yield doc.paragraph(f"{key}: {publication.title}: {publication.setting}")


def _own(step: StepComparison, label: str) -> str:
    for side in step.sides:
        if side.label == label:
            # Decimal, as the published ones.
            decimal = step.unit is Unit.BYTES_PER_S
            return _in_unit(side.figures, 1e-6, "MB/s") if decimal else figure_words(side.figures, step.unit)
    return doc.NONE


def figure_words(values: Series, unit: Unit) -> str:
    """A median with its range, as `81.0 s (79.4 to 84)`."""
    return _in_unit(values, *_scaled(values.median, unit))


def value_words(value: float, unit: Unit) -> str:
    """A value with its unit."""
    factor, name = _scaled(value, unit)
    return f"{_digits(value * factor)} {name}"


def _scaled(value: float, unit: Unit) -> tuple[float, str]:
    """The factor for display, and the name of the resulting unit."""
    if unit is Unit.BYTES_PER_S:
        step, name = next((one for one in _RATES if value >= one[0]), _RATES[-1])
        return 1 / step, name
    if unit is Unit.SECONDS and value < 1:
        return 1e3, "ms"
    if unit is Unit.MILLISECONDS and 0 < value < 0.1:
        return 1e3, "µs"
    return 1.0, unit.value


def _in_unit(values: Series, factor: float, name: str) -> str:
    middle, least, most = (_digits(value * factor) for value in (values.median, values.least, values.most))
    return f"{middle} {name}".rstrip() + (f" ({least} to {most})" if values.count > 1 else "")


def _digits(value: float) -> str:
    """Three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.1e}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def alerts(sentences: Sequence[str]) -> Iterator[doc.Block]:
    """Sentences that must not be overlooked, as a block."""
    for sentence in sentences:
        yield doc.paragraph(_sentence(sentence), alert=True)
