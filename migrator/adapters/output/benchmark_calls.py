"""What calls of `bench` did, or would do; the suites; what was taken away."""

from collections.abc import Sequence

from migrator.adapters.output.benchmark_document import alerts, comparison_document
from migrator.adapters.output.document import Block, Document, Section, Table, figure, paragraph, table, text, wide
from migrator.adapters.output.wording import NONE, when
from migrator.decide.benchmark_comparison import compare
from migrator.domain.benchmark import BenchmarkRecord, BenchmarkState, scale_words
from migrator.domain.benchmark_run import BenchmarkListing, BenchmarkSummary, Cleaning, PlaceRoom
from migrator.domain.units import format_count, format_size


def summary_document(summary: BenchmarkSummary) -> Document:
    """What `bench run` did, or would do."""
    if summary.dry_run:
        return Document(
            title="Benchmarks, dry run",
            subtitle=scale_words(summary.scale),
            sections=(
                Section(title="Room", blocks=(_room(summary.room), *alerts(summary.notes))),
                Section(title="Steps", blocks=(_steps(summary),)),
            ),
        )
    # One that went through without figures has its reason in its notes; why others failed is told at the end.
    told = [result for result in summary.results if result.measurements or result.record.state is BenchmarkState.DONE]
    made = comparison_document(compare(told))
    ends: list[Block] = [*alerts(summary.failures)]
    if summary.removed:
        ends.append(paragraph(f"Taken away, left by killed calls: {', '.join(summary.removed)}."))
    numbers = " ".join(str(result.record.id) for result in summary.results)
    ends.append(paragraph(f"Written down: `migrator bench compare {numbers}` shows this again; --html adds charts."))
    return Document(
        title=made.title, subtitle=made.subtitle, sections=(*made.sections, Section(title="End", blocks=tuple(ends)))
    )


def _room(room: Sequence[PlaceRoom]) -> Table:
    rows = [
        (
            one.place.shown,
            format_size(one.need_bytes),
            format_size(one.free_bytes),
            format_count(one.need_inodes),
            NONE if one.free_inodes is None else format_count(one.free_inodes),
        )
        for one in room
    ]
    columns = [wide("file system"), figure("needs"), figure("free"), figure("files made"), figure("files free")]
    return table("", columns, rows, note="What the largest of the suites needs at a time, on all hosts together.")


def _steps(summary: BenchmarkSummary) -> Table:
    rows = [
        (step.suite, step.step, " ".join(step.does), step.unit or "not measured", step.left_out)
        for step in summary.steps
    ]
    return table("", [text("suite"), wide("step"), wide("does"), text("figure in"), wide("left out")], rows)


def listing_document(listing: BenchmarkListing) -> Document:
    """The suites, and what was run."""
    suites = table(
        "",
        [text("suite"), wide("what"), wide("sizes"), figure("needs")],
        [(one.name, one.title, one.sizes, format_size(one.need_bytes)) for one in listing.suites],
    )
    run: Block = paragraph("Nothing was run yet.")
    if listing.benchmarks:
        run = table(
            "",
            [
                figure("number"),
                text("suite"),
                figure("scale"),
                figure("runs"),
                wide("on"),
                text("state"),
                text("begun"),
            ],
            [_record(record) for record in listing.benchmarks],
        )
    return Document(
        title="Benchmarks",
        subtitle=scale_words(listing.scale),
        sections=(Section(title="Suites", blocks=(suites,)), Section(title="What was run", blocks=(run,))),
    )


def _record(record: BenchmarkRecord) -> tuple[str, ...]:
    return (
        str(record.id),
        record.suite,
        f"{record.scale:g}",
        str(record.runs),
        ", ".join(place.shown for place in record.places),
        record.state,
        when(record.started_at_s),
    )


def cleaning_document(cleaning: Cleaning) -> Document:
    """What `bench clean` did."""
    removed = ", ".join(cleaning.removed) or "nothing was there"
    return Document(
        title="Benchmarks",
        subtitle="what was left",
        sections=(
            Section(title="Taken away", blocks=(paragraph(removed),)),
            *((Section(title="Left", blocks=tuple(alerts(cleaning.left))),) if cleaning.left else ()),
        ),
    )
