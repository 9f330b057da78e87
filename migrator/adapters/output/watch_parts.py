"""The lines of `status --watch` that are not tables: what is at work, how far it is, what waits, what happened. Pure."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.chart import sparkline
from migrator.adapters.output.document import Paragraph
from migrator.adapters.output.governing_document import governing_blocks
from migrator.adapters.output.progress_document import attention_words
from migrator.adapters.output.progress_lines import event_line
from migrator.adapters.output.watch_layout import Line, Part, Rank, Span, cells_of
from migrator.adapters.output.wording import percent, when
from migrator.decide.progress_facts import left_to_people
from migrator.domain.events import Event, Severity
from migrator.domain.report import RunFacts, RunLife, StatusFacts, Tally, percent_of
from migrator.domain.states import PassKind
from migrator.domain.units import DAY_S, format_count, format_duration, format_rate, format_size, several
from migrator.domain.watch import WatchFacts

_ALL_ESTIMATES = 120
_BAR_CELLS = (8, 30)
_SEVERITY_STYLES = {Severity.INFO: "", Severity.WARNING: "yellow", Severity.ERROR: "red"}
_LIFE_STYLES = {RunLife.AT_WORK: "green", RunLife.SILENT: "bold red", RunLife.KILLED: "bold red", RunLife.ENDED: ""}


def run_part(status: StatusFacts) -> Part:
    """What is at work, and whether it still gives signs of life."""
    shown = runs_of_interest(status.runs)
    lines = tuple((Span(run_words(run, status.at_s), _LIFE_STYLES[run.life]),) for run in shown)
    return Part(
        label="at work", lines=lines or ((Span("nothing, and nothing was yet"),),), rank=Rank.RUN, least=len(lines) or 1
    )


def runs_of_interest(runs: Sequence[RunFacts]) -> Sequence[RunFacts]:
    """The newest call of every verb that has not ended in order; where there is none, the newest call of all."""
    newest: dict[str, RunFacts] = {}
    for run in runs:
        newest.setdefault(run.verb, run)
    return [run for run in newest.values() if run.life is not RunLife.ENDED] or list(runs[:1])


def run_words(run: RunFacts, now_s: float) -> str:
    """A run in one line."""
    who = f"{run.verb} (process {run.pid})"
    match run.life:
        case RunLife.AT_WORK:
            since = format_duration(max(now_s - run.started_at_s, 0.0))
            return f"{who} for {since}, last sign of life {format_duration(run.silent_s)} ago"
        case RunLife.SILENT:
            return f"{who}: no sign of life for {format_duration(run.silent_s)}: it hangs, or was killed"
        case RunLife.KILLED:
            return f"{who} was killed {format_duration(run.silent_s)} ago: the same command again goes on"
        case RunLife.ENDED:
            ago = max(now_s - (run.finished_at_s or run.started_at_s), 0.0)
            return f"nothing; {who} ended {format_duration(ago)} ago with exit code {run.exit_code}"


def progress_parts(facts: WatchFacts, width: int) -> Iterator[Part]:
    """How far, how fast, until when."""
    status = facts.status
    if status.plan is None:
        yield Part(
            label="copied",
            lines=((Span("there is no plan yet: nothing is counted as done or left"),),),
            rank=Rank.COPIED,
        )
        return
    under_way = sum(one.done_bytes for one in facts.streams if one.pass_kind is PassKind.SEED)
    yield Part(label="copied", lines=(_bar(status.overall, width, "cyan", under_way),), rank=Rank.COPIED)
    yield Part(label="verified", lines=(_bar(status.verified, width, "green"),), rank=Rank.VERIFIED)
    yield Part(label="rate", lines=(_rate(facts, width),), rank=Rank.RATE)
    yield Part(label="left", lines=tuple(_left(status))[: None if width >= _ALL_ESTIMATES else 1], rank=Rank.LEFT)


def _bar(tally: Tally, width: int, style: str, under_way_bytes: int = 0) -> Line:
    # Where there are empty files alone, they are the share.
    done, total = (tally.done_bytes, tally.total_bytes) if tally.total_bytes else (tally.done_files, tally.total_files)
    words: Line = (
        Span(f" {percent(percent_of(done, total))}", "bold"),
        Span(f"  {format_size(tally.done_bytes)} of {format_size(tally.total_bytes)}"),
        Span(f", {format_count(tally.done_files)} of {several(tally.total_files, 'file')}"),
    )
    # Whole chunks count as done; what their streams have brought so far is said where there is room.
    under_way = Span(f", {format_size(under_way_bytes)} under way" if under_way_bytes else "", "dim")
    if width - cells_of(words) - under_way.cells >= _BAR_CELLS[0]:
        words = (*words, under_way)
    cells = min(max(width - cells_of(words), _BAR_CELLS[0]), _BAR_CELLS[1])
    full = int(min(done / total if total else 0.0, 1.0) * cells)
    return (Span("█" * full, style), Span("░" * (cells - full), "dim"), *words)


def _rate(facts: WatchFacts, width: int) -> Line:
    status = facts.status
    point = status.rate or status.last_rate
    if point is None:
        return (Span("nothing was copied yet"),)
    words: Line = (
        Span(format_rate(point.rate_bytes_per_s), "bold" if status.rate is not None else ""),
        Span(f", {point.rate_files_per_s:,.0f} files/s"),
        Span("" if status.rate is not None else f", until {when(point.at_s)}"),
    )
    # The line is only as long as the room beside the words: what is older goes first.
    room = width - cells_of(words) - 2
    if room < 8 or not facts.rates:
        return words
    rates = facts.rates[-min(room, len(facts.rates)) :]
    line = (*words, Span("  "), Span(sparkline(rates, len(rates)), "cyan"))
    span = format_duration(facts.rates_span_s * len(rates))
    told = Span(f" {span}, at most {format_rate(max(rates))}", "dim")
    return (*line, told) if cells_of(line) + told.cells <= width else line


def _left(status: StatusFacts) -> Iterator[Line]:
    if not status.estimates:
        done = status.overall.total_files and not status.overall.left_files and not status.overall.left_bytes
        words = "nothing: all that is planned is copied" if done else "no basis for an estimate yet"
        if left_to_people(status.trees):
            words = f"{attention_words(status.overall)}; all else that is planned is copied"
        yield (Span(words),)
    for one in status.estimates:
        yield (
            Span(f"about {format_duration(one.left_s)}", "bold"),
            Span(f", until {when(one.finish_at_s)}"),
            Span(f" ({one.basis})", "dim"),
        )


def waits_part(status: StatusFacts, width: int) -> Part:
    """What cannot go on, why, and what to do about it where there is room."""
    lines: list[Line] = []
    for one in status.blocked:
        said: Line = (Span(one.subject, "yellow"), Span(f": {one.on}"))
        hint = Span(f" ({one.hint})", "dim")
        lines.append((*said, hint) if cells_of(said) + hint.cells <= width else said)
    if status.attention_total:
        lines.append((Span(f"{several(status.attention_total, 'file needs', 'files need')} attention", "yellow"),))
    return Part(label="waits", lines=tuple(lines), rank=Rank.WAITS, least=2, style="yellow")


def allowed_part(status: StatusFacts) -> Part:
    """How many streams may be at work and why, and what people have set."""
    paragraphs = [block for block in governing_blocks(status.governing) if isinstance(block, Paragraph)]
    return Part(label="allowed", lines=tuple((Span(block.text),) for block in paragraphs), rank=Rank.ALLOWED)


def events_part(status: StatusFacts) -> Part:
    """Warnings and errors, newest first; of those that are older than a day the date is said too."""
    lines = tuple((Span(_event(event, status.at_s), _SEVERITY_STYLES[event.severity]),) for event in status.events)
    return Part(label="events", lines=lines, rank=Rank.EVENTS)


def _event(event: Event, now_s: float) -> str:
    date = f"{when(event.at_s).split()[0]} " if now_s - event.at_s >= DAY_S else ""
    return f"{date}{event_line(event)}"
