"""How far the copying is, how fast it goes, and until when it may last."""

from collections.abc import Iterator

from migrator.adapters.output.document import Bar, Block, Section, figure, paragraph, table, text, wide
from migrator.adapters.output.wording import percent, verified_words, when
from migrator.decide.progress_facts import left_to_people
from migrator.domain.ledger_sums import ThroughputPoint
from migrator.domain.report import StatusFacts, Tally, percent_of
from migrator.domain.units import format_count, format_duration, format_rate, format_size, several

_COUNTED_STREAMS = 0.1
_MOSTLY = 0.9


def progress_section(status: StatusFacts) -> Section:
    """How far, how fast, until when."""
    return Section(title="How far it is", blocks=tuple(_progress(status)))


def _progress(status: StatusFacts) -> Iterator[Block]:
    if status.plan is None:
        yield paragraph("There is no plan yet: nothing is counted as done or left.")
        return
    tally = status.overall
    yield _bar("copied", tally, "copied")
    content = percent_of(status.verified_content_bytes, status.verified.done_bytes)
    yield _bar("verified", status.verified, verified_words(content))
    if status.verified.done_bytes > status.verified_content_bytes:
        yield paragraph(
            f"Of the verified bytes the content of {format_size(status.verified_content_bytes)} "
            f"({percent(content)}) was compared on "
            "both sides; of the rest the attributes only (type, size, times, owner, mode, ACLs)."
        )
    yield table(
        "Done and left",
        [text("what"), figure("total"), figure("done"), figure("left"), figure("done, %"), figure("verified")],
        [
            (
                "bytes",
                format_size(tally.total_bytes),
                format_size(tally.done_bytes),
                format_size(tally.left_bytes),
                percent(tally.percent_bytes),
                format_size(status.verified.done_bytes),
            ),
            (
                "files",
                format_count(tally.total_files),
                format_count(tally.done_files),
                format_count(tally.left_files),
                percent(tally.percent_files),
                format_count(status.verified.done_files),
            ),
            (
                "users",
                format_count(tally.total_users),
                format_count(tally.done_users),
                format_count(tally.left_users),
                percent(tally.percent_users),
                format_count(status.verified.done_users),
            ),
        ],
        note=f"Counted by the plan {status.plan.name} of {when(status.plan.created_at_s)}, in whole chunks: what a "
        "stream is copying counts as done when its chunk is.",
    )
    if status.rate is not None:
        yield paragraph(f"Now: {_rate(status.rate)}.")
    elif status.last_rate is not None:
        yield paragraph(
            f"Nothing is being copied now. Last, until {when(status.last_rate.at_s)}: {_rate(status.last_rate)}."
        )
    if status.estimates:
        yield table(
            "When it will be copied",
            [text("about"), figure("left"), wide("on the basis of")],
            [(when(one.finish_at_s), format_duration(one.left_s), one.basis) for one in status.estimates],
        )
    elif tally.total_files and not tally.left_files and not tally.left_bytes:
        yield paragraph("Everything that is planned has been copied.")
    elif left_to_people(status.trees):
        yield paragraph(f"Everything that is planned has been copied, apart from {attention_words(tally)}.")
    else:
        yield paragraph("There is no basis for an estimate yet.")
    if status.vanished_total:
        yield paragraph(
            f"{several(status.vanished_total, 'listed file')} had been deleted by their users before their turn came: "
            "that is normal."
        )


def attention_words(tally: Tally) -> str:
    """What is left where only that is left which failed each time."""
    return f"{several(tally.left_files, 'file')} that {'needs' if tally.left_files == 1 else 'need'} attention"


def _rate(rate: ThroughputPoint) -> str:
    words = f"{format_rate(rate.rate_bytes_per_s)} and {rate.rate_files_per_s:,.1f} files/s{with_streams(rate)}"
    span = format_duration(rate.span_s)
    if rate.busy_s < rate.span_s * _MOSTLY:
        return f"{words}, over {format_duration(rate.busy_s)} of work within {span}"
    return f"{words}, over {span}"


def with_streams(point: ThroughputPoint) -> str:
    """How many streams there were on average; empty where they were too short to be counted."""
    return f" with {point.streams:.1f} streams" if point.streams >= _COUNTED_STREAMS else ""


def _bar(label: str, tally: Tally, done: str) -> Bar:
    if not tally.total_bytes and tally.total_files:
        # Empty files are files too.
        share = tally.done_files / tally.total_files
        counts = f"{format_count(tally.done_files)} of {format_count(tally.total_files)}"
        return Bar(label=label, share=share, text=f"{percent(tally.percent_files)} of the files {done}, {counts}")
    share = tally.done_bytes / tally.total_bytes if tally.total_bytes else 0.0
    return Bar(
        label=label,
        share=share,
        text=f"{percent(tally.percent_bytes)} of the bytes {done}, {format_size(tally.done_bytes)} of "
        f"{format_size(tally.total_bytes)}",
    )
