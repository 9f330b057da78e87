"""The head of a report: how far, until when, and whether that is ahead of what was said before."""

from collections.abc import Iterator

from migrator.adapters.output.document import Block, facts, paragraph, table, text
from migrator.adapters.output.progress_document import attention_words
from migrator.adapters.output.wording import NONE, percent, when
from migrator.decide.progress_facts import left_to_people
from migrator.domain.cutover import SETTLED_STATES
from migrator.domain.forecast import FARTHEST_S, CopyForecast
from migrator.domain.report import ReportFacts, StatusFacts, Tally
from migrator.domain.report_parts import SinceReport, Standing
from migrator.domain.units import format_count, format_duration, format_size, several

_STANDINGS = {
    Standing.AHEAD: "ahead",
    Standing.AS_EXPECTED: "as expected",
    Standing.BEHIND: "behind",
    Standing.UNKNOWN: "not comparable",
}


def headline_blocks(report: ReportFacts) -> Iterator[Block]:
    """What a manager reads if nothing else."""
    status = report.status
    if status.plan is None:
        yield paragraph("There is no plan yet: nothing is counted as moved or left.")
        return
    tally = status.overall
    pairs = [
        ("moved", _moved(tally)),
        ("left", f"{format_size(tally.left_bytes)} in {several(tally.left_files, 'file')}"),
        (
            "users",
            f"{format_count(tally.done_users)} of {format_count(tally.total_users)} copied, {_on_target(status)}",
        ),
        ("expected end of copying", _end(report)),
    ]
    if report.since is not None:
        pairs.append(("against the last report", _standing(report.since)))
    yield facts(pairs)
    if report.forecast is not None:
        yield paragraph(f"How the expected end was computed: {'; '.join(report.forecast.basis)}.")
    if report.since is not None:
        yield from since_blocks(report.since, report.forecast)


def _moved(tally: Tally) -> str:
    shares = ((tally.percent_bytes, "bytes"), (tally.percent_files, "files"))
    told = ", ".join(f"{percent(share)} of the {what}" for share, what in shares if share is not None)
    return told or "nothing is planned to be copied"


def _on_target(status: StatusFacts) -> str:
    moved = [one for one in status.cutovers if one.state in SETTLED_STATES]
    planned = {tree.tree.path for tree in status.trees}
    before = sum(one.tree.path not in planned for one in moved)
    words = f"{several(len(moved), 'user tree works', 'user trees work')} on the target"
    if not before:
        return words
    return f"{words}, {format_count(before)} of them by earlier plans: they are not in these figures"


def _end(report: ReportFacts) -> str:
    tally = report.status.overall
    if tally.left_files <= 0 and (tally.total_files > 0 or tally.done_users == tally.total_users):
        return "everything that is planned was copied"
    if left_to_people(report.status.trees):
        return f"everything that is planned was copied, apart from {attention_words(tally)}"
    forecast = report.forecast
    if forecast is None:
        return "not known: too little was copied to tell"
    return expected_end(forecast)


def expected_end(forecast: CopyForecast) -> str:
    """When the copying is expected to end, with its range, in words."""
    earliest, likely, latest = (
        _ahead(at_s, forecast) for at_s in (forecast.earliest_at_s, forecast.likely_at_s, forecast.latest_at_s)
    )
    if earliest == latest:
        return likely
    return f"{likely}; with a probability of {forecast.share * 100:.0f} % between {earliest} and {latest}"


def reaches(forecast: CopyForecast) -> bool:
    """Whether any of the range lies as near as forecasts go."""
    return forecast.earliest_at_s - forecast.made_at_s < FARTHEST_S


def _ahead(at_s: float, forecast: CopyForecast) -> str:
    if at_s - forecast.made_at_s >= FARTHEST_S:
        return "a time more than 100 years ahead"
    return when(at_s)


def _standing(since: SinceReport) -> str:
    words = _STANDINGS[since.standing]
    if since.end_moved_s is None or since.standing is Standing.UNKNOWN:
        return words
    moved = format_duration(abs(since.end_moved_s))
    return f"{words}: the expected end is {moved} {'later' if since.end_moved_s > 0 else 'earlier'}"


def since_blocks(since: SinceReport, forecast: CopyForecast | None) -> Iterator[Block]:
    """An earlier report beside this one, and why they differ."""
    earlier = since.earlier
    yield table(
        f"Since the report of {when(earlier.at_s)}",
        [text("what"), text("then"), text("now")],
        [
            ("copied", format_size(earlier.done_bytes), f"{format_size(since.done_bytes)} more"),
            ("files copied", format_count(earlier.done_files), f"{format_count(since.done_files)} more"),
            (
                "expected end",
                _when(earlier.likely_at_s),
                NONE if forecast is None else _ahead(forecast.likely_at_s, forecast),
            ),
            (
                "range",
                _range(earlier.earliest_at_s, earlier.latest_at_s),
                NONE if forecast is None else f"{when(forecast.earliest_at_s)} to {when(forecast.latest_at_s)}",
            ),
        ],
    )
    for reason in since.reasons:
        yield paragraph(f"{reason[:1].upper()}{reason[1:]}.")


def _range(from_s: float | None, to_s: float | None) -> str:
    return NONE if from_s is None and to_s is None else f"{_when(from_s)} to {_when(to_s)}"


def _when(at_s: float | None) -> str:
    return NONE if at_s is None else when(at_s)
