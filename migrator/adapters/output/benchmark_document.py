"""Benchmarks for people: tables as mean ± standard error, what is beyond the noise, and what others have published."""

from collections.abc import Iterator, Mapping, Sequence

from migrator.adapters.output.document import (
    BarChart,
    BarLine,
    Block,
    Document,
    Section,
    Table,
    clean,
    facts,
    figure,
    paragraph,
    table,
    text,
    wide,
)
from migrator.adapters.output.wording import NONE, when
from migrator.decide.benchmark_comparison import Busy, Side, StepComparison, SuiteComparison, statements
from migrator.decide.benchmark_statistics import Series
from migrator.domain.benchmark import Unit, runs_words, scale_words
from migrator.domain.benchmark_reference import PUBLICATIONS
from migrator.domain.units import GIB, KIB, MIB, format_count, several

_RATES = ((GIB, "GiB/s"), (MIB, "MiB/s"), (KIB, "KiB/s"), (1, "B/s"))
_FEWEST_MS = 0.1
"""Less is shown in microseconds."""
_SHOWN_DETAILS = {
    "bytes_per_s": "rate",
    "p50_ms": "p50",
    "p90_ms": "p90",
    "p99_ms": "p99",
    "p999_ms": "p99.9",
    "max_ms": "longest",
    "reads": "reads",
    "slowest_file_bytes_per_s": "slowest file",
    "fastest_file_bytes_per_s": "fastest file",
}


def comparison_document(comparisons: Sequence[SuiteComparison], *, charts: bool = False) -> Document:
    """What was measured, suite by suite; with charts where there is room for them."""
    return Document(
        title="Benchmarks",
        subtitle=", ".join(dict.fromkeys(scale_words(comparison.scale) for comparison in comparisons)),
        sections=tuple(
            Section(
                title=clean(f"{comparison.suite}: {comparison.title}"),
                blocks=tuple(comparison_blocks(comparison, charts=charts)),
            )
            for comparison in comparisons
        ),
    )


def comparison_blocks(comparison: SuiteComparison, *, charts: bool) -> Iterator[Block]:
    """One suite: figures, noise, chart, the load before, and what was published."""
    yield facts(
        [
            ("benchmark", ", ".join(map(str, comparison.benchmarks))),
            ("scale", f"{scale_words(comparison.scale)}: {comparison.sizes}"),
            ("runs", f"{runs_words(comparison.runs)} on each file system, in turns"),
            ("hosts", f"{', '.join(comparison.hosts)}, at {when(comparison.started_at_s)}"),
        ]
    )
    yield from alerts(comparison.cautions)
    yield from (paragraph(_sentence(note)) for note in comparison.notes)
    if not comparison.steps:
        yield paragraph("Nothing was measured.")
        return
    yield from (paragraph(_sentence(one)) for one in statements(comparison))
    yield _figures(comparison)
    yield from _also(comparison)
    verdicts = [(step.title, contrast.verdict) for step in comparison.steps for contrast in step.contrasts]
    if verdicts:
        yield table(
            "What is beyond the noise",
            [wide("test"), wide("verdict")],
            verdicts,
            note="Pair by pair: each run on the one file system with the run on the other that was next to it. "
            "Intervals hold in 19 of 20 cases; among many tests one may be wrong.",
        )
    if charts:
        yield _chart(comparison)
    yield _background(comparison.background)
    if any(step.references for step in comparison.steps):
        yield from _published(comparison)


def _figures(comparison: SuiteComparison) -> Table:
    rows = [
        (
            step.title,
            side.label,
            mean_words(side.figures, step.unit),
            *(
                "" if value is None else value_words(value, step.unit)
                for value in (side.figures.median, side.figures.least, side.figures.most, side.figures.trimmed_mean)
            ),
            format_count(side.figures.count),
        )
        for step in comparison.steps
        for side in step.sides
    ]
    columns = [
        wide("test"),
        text("on"),
        figure("mean ± SEM"),
        figure("median"),
        figure("min"),
        figure("max"),
        figure("trimmed 25 %"),
        figure("runs"),
    ]
    return table("What was measured", columns, rows)


def _also(comparison: SuiteComparison) -> Iterator[Block]:
    rows = [
        (step.title, side.label, details)
        for step in comparison.steps
        for side in step.sides
        if (details := _details(side.details, step.unit))
    ]
    if rows:
        yield table("What else was measured, means over the runs", [wide("test"), text("on"), wide("also")], rows)


def _details(details: Mapping[str, float], unit: Unit) -> str:
    shown = []
    for name, words in _SHOWN_DETAILS.items():
        if name not in details or (name == "bytes_per_s" and unit is Unit.BYTES_PER_S):
            continue
        value = details[name]
        if name.endswith("_ms"):
            said = value_words(value, Unit.MILLISECONDS)
        elif name.endswith("bytes_per_s"):
            said = value_words(value, Unit.BYTES_PER_S)
        else:
            said = format_count(round(value))
        shown.append(f"{words} {said}")
    return ", ".join(shown)


def _chart(comparison: SuiteComparison) -> BarChart:
    groups = tuple(
        (
            clean(f"{step.title}, {_better(step.unit)}"),
            tuple(
                BarLine(
                    label=clean(side.label),
                    value=side.figures.mean,
                    error=side.figures.sem,
                    text=mean_words(side.figures, step.unit),
                )
                for side in step.sides
            ),
        )
        for step in comparison.steps
    )
    return BarChart(
        title=clean(f"{comparison.suite} at {scale_words(comparison.scale)}"),
        summary=clean(
            " ".join(
                [
                    "Means with their standard errors; the bars of each test have a scale of their own, from 0 at the axis.",
                    *(_sentence(one) for one in statements(comparison)),
                ]
            )
        ),
        groups=groups,
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _better(unit: Unit) -> str:
    return "longer is better" if unit.more_is_better else "shorter is better"


def _background(busy: Sequence[Busy]) -> Table:
    rows = [
        (
            one.label,
            NONE if one.load is None else _plus_minus(one.load, 1.0, ""),
            NONE if one.disk_bytes_per_s is None else _rate_words(one.disk_bytes_per_s),
            NONE if one.network_bytes_per_s is None else _rate_words(one.network_bytes_per_s),
        )
        for one in busy
    ]
    return table(
        "Just before the runs, on the hosts",
        [text("on"), figure("load average"), figure("disks"), figure("network")],
        rows,
    )


def _published(comparison: SuiteComparison) -> Iterator[Block]:
    rows = [
        (
            step.title,
            f"{reference.publication}, {several(reference.hosts, 'host')}: {reference.work}",
            "; ".join(f"{system} {figures}" for system, figures in reference.figures)
            + (" s" if reference.unit is Unit.SECONDS else " ms" if reference.unit is Unit.MILLISECONDS else ""),
            *(_own(step, label) for label in _labels(comparison)),
        )
        for step in comparison.steps
        for reference in step.references
    ]
    labels = [figure(f"{label}, here") for label in _labels(comparison)]
    yield table(
        "Beside what was published",
        [wide("test"), wide("work there"), wide("figures there"), *labels],
        rows,
        note=f"Theirs are at scale 1 on their machines, ours at {scale_words(comparison.scale)} on these: they show orders of "
        "magnitude and ratios, and nothing finer.",
    )
    keys = dict.fromkeys(reference.publication for step in comparison.steps for reference in step.references)
    for key in keys:
        publication = PUBLICATIONS[key]
        yield paragraph(f"{key}: {publication.title}: {publication.setting}")


def _labels(comparison: SuiteComparison) -> list[str]:
    return list(dict.fromkeys(side.label for step in comparison.steps for side in step.sides))


def _own(step: StepComparison, label: str) -> str:
    sides: list[Side] = [side for side in step.sides if side.label == label]
    if not sides:
        return NONE
    if step.unit is Unit.BYTES_PER_S:
        return _rate_words(sides[0].figures, decimal=True)
    return mean_words(sides[0].figures, step.unit)


def mean_words(values: Series, unit: Unit) -> str:
    """A mean with its standard error, as `81.0 ± 0.71 s`."""
    if unit is Unit.BYTES_PER_S:
        return _rate_words(values)
    factor, name = _scaled(values.mean, unit)
    return _plus_minus(values, factor, name)


def value_words(value: float, unit: Unit) -> str:
    """A value with its unit."""
    if unit is Unit.BYTES_PER_S:
        step, name = _rate_step(value)
        return f"{_digits(value / step)} {name}"
    factor, name = _scaled(value, unit)
    return f"{_digits(value * factor)} {name}"


def _scaled(value: float, unit: Unit) -> tuple[float, str]:
    """By what it is multiplied to be shown, and the name of its unit then."""
    if unit is Unit.SECONDS and value < 1:
        return 1e3, "ms"
    if unit is Unit.MILLISECONDS and 0 < value < _FEWEST_MS:
        return 1e3, "µs"
    return 1.0, unit.value


def _rate_words(values: Series, *, decimal: bool = False) -> str:
    """Both figures in one unit; decimal, as those that were published."""
    if decimal:
        return _plus_minus(values, 1e-6, "MB/s")
    step, name = _rate_step(values.mean)
    return _plus_minus(values, 1 / step, name)


def _rate_step(bytes_per_s: float) -> tuple[int, str]:
    return next((one for one in _RATES if bytes_per_s >= one[0]), _RATES[-1])


def _plus_minus(values: Series, factor: float, name: str) -> str:
    error = "" if values.sem is None else f" ± {_digits(values.sem * factor)}"
    return f"{_digits(values.mean * factor)}{error} {name}".rstrip()


def _digits(value: float) -> str:
    """Three digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.1e}"


def alerts(sentences: Sequence[str]) -> Iterator[Block]:
    """Sentences that must not be overlooked."""
    for sentence in sentences:
        yield paragraph(_sentence(sentence), alert=True)
