"""Documents of benchmarks: tables, intervals, published figures."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from migrator.bench import model
from migrator.bench.rules import StepComparison, StepFigures, SuiteComparison, compare
from migrator.bench.suites import publications
from migrator.core.statistics import Series
from migrator.core.units import GIB, KIB, MIB, format_count, format_size, several
from migrator.render import document as doc

_RATES = ((GIB, "GiB/s"), (MIB, "MiB/s"), (KIB, "KiB/s"), (1, "B/s"))
_PUBLISHED_IN = {
    model.FigureUnit.SECONDS: "s",
    model.FigureUnit.MILLISECONDS: "ms",
    model.FigureUnit.BYTES_PER_S: "MB/s",
    model.FigureUnit.OPERATIONS_PER_S: "ops/s",
}
_DETAILS = {
    "bytes_per_s": ("rate", model.FigureUnit.BYTES_PER_S),
    "p50_ms": ("p50", model.FigureUnit.MILLISECONDS),
    "p90_ms": ("p90", model.FigureUnit.MILLISECONDS),
    "p99_ms": ("p99", model.FigureUnit.MILLISECONDS),
    "p999_ms": ("p99.9", model.FigureUnit.MILLISECONDS),
    "max_ms": ("longest", model.FigureUnit.MILLISECONDS),
    "reads": ("reads", None),
}


_ROOM: doc.Cells[model.PlaceRoom] = (
    (doc.wide("file system"), lambda one: one.place.shown),
    (doc.figure("needs"), lambda one: format_size(one.need_bytes)),
    (doc.figure("free"), lambda one: format_size(one.free_bytes)),
    (doc.figure("files made"), lambda one: format_count(one.need_inodes)),
    (doc.figure("files free"), lambda one: doc.known(one.free_inodes, format_count)),
)


def _command(planned: tuple[str, model.Step]) -> str:
    first, *others = planned[1].lanes
    return " ".join(first) + (f", and {len(others)} more at once" if others else "")


_STEP: doc.Cells[tuple[str, model.Step]] = (
    (doc.text("suite"), lambda planned: planned[0]),
    (doc.wide("step"), lambda planned: planned[1].title),
    (doc.wide("command"), _command),
    (doc.text("figure in"), lambda planned: planned[1].unit or "not measured"),
)


def summary_document(summary: model.BenchmarkSummary) -> doc.Document:
    """The result of `bench run` or of its dry run."""
    if summary.dry_run:
        room = doc.records(
            "", _ROOM, summary.room, note="What the largest of the suites needs at a time, on all hosts together."
        )
        note = "Commands that begin with @ are functions of the script that is sent to hosts."
        steps = ((planned.name, step) for planned in summary.suites for step in planned.steps)
        parts = (("Room", (room, *alerts(summary.notes))), ("Steps", [doc.records("", _STEP, steps, note=note)]))
        return doc.page("Benchmarks, dry run", *parts, subtitle=model.format_scale(summary.scale))
    # A finished suite without figures has the reason in its notes; errors of the others follow at the end.
    results = [
        result for result in summary.results if result.measurements or result.record.state is model.BenchmarkState.DONE
    ]
    made = comparison_document(compare(results))
    numbers = " ".join(str(result.record.id) for result in summary.results)
    ends = [
        *alerts(summary.failures),
        *([doc.paragraph(f"Removed, left by killed calls: {', '.join(summary.removed)}.")] if summary.removed else []),
        doc.paragraph(f"Recorded: `migrator bench compare {numbers}` shows this again; --html adds charts."),
    ]
    return replace(made, sections=(*made.sections, *doc.sections(("End", ends))))


_SUITE: doc.Cells[model.Suite] = (
    (doc.text("suite"), lambda one: one.name),
    (doc.wide("what"), lambda one: one.title),
    (doc.wide("sizes"), lambda one: one.sizes),
    (doc.figure("needs"), lambda one: format_size(one.need_bytes)),
)

_RECORD: doc.Cells[model.BenchmarkRecord] = (
    (doc.figure("number"), lambda record: str(record.id)),
    (doc.text("suite"), lambda record: record.suite),
    (doc.figure("scale"), lambda record: f"{record.scale:g}"),
    (doc.figure("runs"), lambda record: str(record.runs)),
    (doc.wide("on"), lambda record: ", ".join(place.shown for place in record.places)),
    (doc.text("state"), lambda record: record.state),
    (doc.text("begun"), lambda record: doc.when(record.started_at_s)),
)


def listing_document(listing: model.BenchmarkListing) -> doc.Document:
    """The suites, and the recorded benchmarks."""
    none = [] if listing.benchmarks else [doc.paragraph("Nothing was run yet.")]
    return doc.page(
        "Benchmarks",
        ("Suites", [doc.records("", _SUITE, listing.suites)]),
        ("Benchmarks run", [doc.records("", _RECORD, listing.benchmarks), *none]),
        subtitle=model.format_scale(listing.scale),
    )


def cleaning_document(cleaning: model.Cleaning) -> doc.Document:
    """The result of `bench clean`."""
    removed = doc.paragraph(", ".join(cleaning.removed) or "nothing was there")
    return doc.page("Benchmarks", ("Removed", [removed]), ("Left", alerts(cleaning.left)), subtitle="leftovers")


def comparison_document(comparisons: Sequence[SuiteComparison], *, charts: bool = False) -> doc.Document:
    """The measurements, suite by suite; with charts if there is room."""
    parts = ((doc.clean(f"{one.suite}: {one.title}"), comparison_blocks(one, charts=charts)) for one in comparisons)
    scales = dict.fromkeys(model.format_scale(comparison.scale) for comparison in comparisons)
    return doc.page("Benchmarks", *parts, subtitle=", ".join(scales))


_MEASURED: doc.Cells[tuple[StepComparison, StepFigures]] = (
    (doc.wide("test"), lambda found: found[0].title),
    (doc.text("on"), lambda found: found[1].label),
    (doc.figure("median (range)"), lambda found: format_median(found[1].figures, found[0].unit)),
    (doc.figure("runs"), lambda found: format_count(found[1].figures.count)),
    (doc.figure("load"), lambda found: _in_unit(found[1].load, 1, "")),
    (doc.wide("also"), lambda found: _details(found[1].details, found[0].unit)),
)


def comparison_blocks(comparison: SuiteComparison, *, charts: bool) -> Iterator[doc.Block]:
    """One suite: figures, noise, chart, the load before, and published figures."""
    yield doc.facts(
        [
            ("benchmark", ", ".join(map(str, comparison.benchmarks))),
            ("scale", f"{model.format_scale(comparison.scale)}: {comparison.sizes}"),
            ("runs", f"{several(comparison.runs, 'run')} on each file system, in turns"),
            ("hosts", f"{', '.join(comparison.hosts)}, at {doc.when(comparison.started_at_s)}"),
        ]
    )
    yield from alerts(comparison.cautions)
    yield from (doc.paragraph(_sentence(note)) for note in comparison.notes)
    if not comparison.steps:
        yield doc.paragraph("Nothing was measured.")
        return
    if any(side.verdict for step in comparison.steps for side in step.sides):
        yield from _verdicts(comparison)
        return
    yield doc.records(
        "Measurements",
        _MEASURED,
        ((step, side) for step in comparison.steps for side in step.sides),
        note="Load: that of the hosts before the runs. Also: medians of what else was measured.",
    )
    verdicts = [(step.title, contrast.verdict) for step in comparison.steps for contrast in step.contrasts]
    if verdicts:
        yield doc.table(
            "Differences beyond the noise",
            [doc.wide("test"), doc.wide("verdict")],
            verdicts,
            note="The ratio of the medians, and its interval, which holds in at least 9 of 10 cases; among many tests some may "
            "be wrong.",
        )
    if charts:
        yield from _bars(comparison)
    if any(step.published for step in comparison.steps):
        yield from _published(comparison)


def _verdicts(comparison: SuiteComparison) -> Iterator[doc.Block]:
    sides = [(step, side) for step in comparison.steps for side in step.sides]
    yield doc.table(
        "Checks",
        [doc.wide("check"), doc.text("on"), doc.wide("verdict")],
        [(step.title, side.label, side.verdict) for step, side in sides],
        note="At once: on the first look after the change was confirmed. Late: from the first look on. Wrong for good: still so "
        "70 s later.",
    )
    evidence = [(step.title, side.label, words) for step, side in sides for words in side.evidence]
    if evidence:
        yield doc.table("Evidence", [doc.wide("check"), doc.text("on"), doc.wide("observation")], evidence)


def _details(details: Mapping[str, float], unit: model.FigureUnit) -> str:
    return ", ".join(
        f"{words} {format_figure(details[name], counted) if counted else format_count(round(details[name]))}"
        for name, (words, counted) in _DETAILS.items()
        if name in details and not (name == "bytes_per_s" and unit is model.FigureUnit.BYTES_PER_S)
    )


def _bars(comparison: SuiteComparison) -> Iterator[doc.Block]:
    verdicts = [f"{step.title}: {contrast.verdict}." for step in comparison.steps for contrast in step.contrasts]
    notes = ["Medians with their ranges; the bars of each test have a scale of their own.", *verdicts]
    groups = [
        (
            f"{step.title}, {'longer' if step.unit.more_is_better else 'shorter'} is better",
            [(side.label, side.figures.median, format_median(side.figures, step.unit)) for side in step.sides],
        )
        for step in comparison.steps
    ]
    yield from doc.bars(f"{comparison.suite} at {model.format_scale(comparison.scale)}", " ".join(notes), groups)


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
        note=f"Theirs are at scale 1 on their machines, ours at {model.format_scale(comparison.scale)} on these: they show orders of "
        "magnitude and ratios, and nothing finer.",
    )
    for key in dict.fromkeys(reference.publication for step in comparison.steps for reference in step.published):
        publication = publications()[key]
        yield doc.paragraph(f"{key}: {publication['title']}: {publication['setting']}")


def _own(step: StepComparison, label: str) -> str:
    for side in step.sides:
        if side.label == label:
            # Decimal, as the published ones.
            decimal = step.unit is model.FigureUnit.BYTES_PER_S
            return _in_unit(side.figures, 1e-6, "MB/s") if decimal else format_median(side.figures, step.unit)
    return doc.NONE


def format_median(values: Series, unit: model.FigureUnit) -> str:
    """A median with its range, as `81.0 s (79.4 to 84)`."""
    return _in_unit(values, *_scaled(values.median, unit))


def format_figure(value: float, unit: model.FigureUnit) -> str:
    """A value with its unit."""
    factor, name = _scaled(value, unit)
    return f"{_digits(value * factor)} {name}"


def _scaled(value: float, unit: model.FigureUnit) -> tuple[float, str]:
    """The factor for display, and the name of the resulting unit."""
    if unit is model.FigureUnit.BYTES_PER_S:
        step, name = next((one for one in _RATES if value >= one[0]), _RATES[-1])
        return 1 / step, name
    if unit is model.FigureUnit.SECONDS and value < 1:
        return 1e3, "ms"
    if unit is model.FigureUnit.MILLISECONDS and 0 < value < 0.1:
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
