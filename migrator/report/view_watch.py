"""`status --watch`: the whole screen of a terminal, and plain lines elsewhere."""

import select
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType
from typing import NoReturn, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.bricks.add.model import AdditionStanding, AdditionState
from migrator.bricks.drain.model import OUT_STATES, DrainStanding, DrainState
from migrator.core.paths import show
from migrator.core.probe import Probe
from migrator.core.states import BatchState, ChunkState, PassKind, PassState
from migrator.core.units import DAY_S, format_count, format_duration, format_rate, format_size, several
from migrator.cutover.model import CutoverFacts, CutoverState
from migrator.render.charts import sparkline
from migrator.render.document import LINE_CHARACTERS, Paragraph, clean, percent, shortened, verified_words, when
from migrator.render.progress import EVENT_STYLES, event_line, share
from migrator.report import model
from migrator.report.view_status import all_copied
from migrator.transfer.view import governing_blocks

_LABEL_CELLS = 11
_LEAST_ROWS = 2
_PARTS_PER_SCREEN = 6
_BAR_CELLS = 20
_UNCUT_CELLS = 24
"""Shorter cells, such as figures, are not cut as long as names and sentences can be."""

_SLOW_PROBE_S = 1.0
_LIFE_STYLES = {
    model.RunLife.AT_WORK: "green",
    model.RunLife.SILENT: "bold red",
    model.RunLife.KILLED: "bold red",
    model.RunLife.ENDED: "",
}
_CUTOVER_RESTS = frozenset(
    {CutoverState.RETAINED, CutoverState.PURGED, CutoverState.REVERTED, CutoverState.PLANNED, CutoverState.THAWED}
)
_DRAIN_RESTS = OUT_STATES | {DrainState.STOPPED}
_TREE_ORDER = (
    model.TreeState.COPYING,
    model.TreeState.ATTENTION,
    model.TreeState.PLANNED,
    model.TreeState.COPIED,
    model.TreeState.VERIFIED,
    model.TreeState.MOVED,
    model.TreeState.PURGED,
    model.TreeState.EXCLUDED,
)


def watch(stream: TextIO, snapshots: Iterator[tuple[model.WatchFacts, str, float]]) -> None:
    """Show snapshots until Ctrl-C, SIGTERM, or the end of the reader: on the whole screen of a capable terminal, otherwise the
    first one in full and then a plain line for each change, without control codes. The iterator gives the facts, why they could
    not be refreshed (empty: they are new), and the seconds until the next ones. Only the main thread may call it.
    """
    console = Console(file=stream, highlight=False)
    # Without requested events, poll reports only that the reader is gone.
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    before: model.WatchFacts | None = None
    with ExitStack() as stack:
        stack.enter_context(suppress(KeyboardInterrupt))
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _end))
        live = None
        if stream.isatty() and not console.is_dumb_terminal:
            live = stack.enter_context(Live(console=console, screen=True, auto_refresh=False))
        for facts, problem, pause_s in snapshots:
            if live is not None:
                live.update(screen(facts, problem, height=console.height), refresh=True)
            else:
                lines = [problem] if problem else change_lines(before, facts)
                stream.write("".join(f"{line}\n" for line in lines))
                stream.flush()
                before = facts
            if poll.poll(pause_s * 1000.0):
                return


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class _Row:
    """A subject, and words about it in columns. Without a terminal a row is printed when its `state` is new, because words change
    all the time; a row without a state is not printed.
    """

    subject: str
    words: tuple[str, ...] = ()
    state: str | None = None
    style: str = ""
    on_screen: bool = True


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows under one label, below a summary. `passing`: rows are there or not, instead of changing their state."""

    name: str
    rows: Sequence[_Row]
    summary: Text | None = None
    style: str = "dim"
    passing: bool = False


def _parts(facts: model.WatchFacts) -> Iterator[_Part]:
    """Everything that is shown, in order of importance."""
    status = facts.status
    runs = [_run_row(run, status.at_s) for run in _runs_of_interest(status.runs)]
    yield _Part("at work", runs or [_Row("nothing was run yet")])
    yield from _progress_parts(facts)
    yield _waits_part(status)
    yield _Part(f"streams {len(facts.streams) or ''}", _stream_rows(facts))
    limits = [block.text for block in governing_blocks(status.governing) if isinstance(block, Paragraph)]
    yield _Part("allowed", [_Row(text, state=_undated(text)) for text in limits], passing=True)
    yield _Part("bricks", _brick_rows(status))
    yield _batches_part(status)
    yield _users_part(status)
    yield _Part("probes", [_probe_row(one, status.at_s) for one in status.probes])


# --- On a terminal


def screen(facts: model.WatchFacts, problem: str = "", *, height: int) -> RenderableType:
    """A snapshot for a terminal of some lines: parts in order of importance, long lists cut. `problem` says why these facts could
    not be refreshed. What does not fit is cut at the right and at the bottom.
    """
    most = max(height // _PARTS_PER_SCREEN, _LEAST_ROWS)
    grid = Table.grid(padding=(0, 0), expand=True)
    grid.add_column(width=_LABEL_CELLS, no_wrap=True)
    grid.add_column(ratio=1, no_wrap=True)
    for part in (*_parts(facts), _events_part(facts.status)):
        body: list[RenderableType] = [] if part.summary is None else [part.summary]
        rows = [row for row in part.rows if row.on_screen]
        if rows:
            body.append(_table(rows[:most]))
        if len(rows) > most:
            body.append(Text(f"and {len(rows) - most} more", "dim"))
        if body:
            grid.add_row(Text(part.name, part.style), Group(*body))
    head = [_line((problem, "bold red"))] if problem else []
    return Group(_title(facts.status), *head, grid)


def _table(rows: Sequence[_Row]) -> RenderableType:
    """Rows in columns; columns that are empty take no room."""
    cells = [(row.subject, *row.words) for row in rows]
    grid = Table.grid(padding=(0, 2))
    shown = [at for at in range(max(map(len, cells))) if any(len(row) > at and row[at] for row in cells)]
    for at in shown:
        longest = max(len(row[at]) for row in cells if len(row) > at)
        grid.add_column(no_wrap=len(shown) > 1 and longest <= _UNCUT_CELLS, overflow="ellipsis")
    for row, words in zip(rows, cells, strict=True):
        grid.add_row(
            *(_line((shortened(words[at], LINE_CHARACTERS) if len(words) > at else "", row.style)) for at in shown)
        )
    return grid


def _line(*pieces: str | tuple[str, str]) -> Text:
    """One line of text from pieces, each with an optional style. Markup is not interpreted, control characters are escaped."""
    parts = [(clean(one), "") if isinstance(one, str) else (clean(one[0]), one[1]) for one in pieces]
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _title(status: model.StatusFacts) -> Table:
    at = datetime.fromtimestamp(status.at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    name = f"Migration of {status.site}" if status.site is not None else "Migration"
    plan = f", plan {status.plan.name}" if status.plan is not None else ""
    grid = Table.grid(expand=True, padding=(0, 2))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(_line((name, "bold"), (plan, "dim")), _line(at))
    return grid


def _events_part(status: model.StatusFacts) -> _Part:
    """Warnings and errors, newest first; with the date if older than a day."""
    rows = []
    for event in status.events:
        date = f"{when(event.at_s).split()[0]} " if status.at_s - event.at_s >= DAY_S else ""
        rows.append(_Row(f"{date}{event_line(event)}", style=EVENT_STYLES[event.severity]))
    return _Part("events", rows)


# --- Without a terminal


def change_lines(before: model.WatchFacts | None, now: model.WatchFacts) -> Iterator[str]:
    """Every row of the first snapshot, then only those with a new state, and the events since the previous snapshot."""
    at = datetime.fromtimestamp(now.status.at_s, UTC).strftime("%H:%M:%S")
    known = {} if before is None else _by_place(before)
    found = _by_place(now)
    for place, (part, row) in found.items():
        if place not in known or known[place][1].state != row.state:
            yield _change(at, part, row, ", ".join(filter(None, row.words)))
    for place, (part, row) in known.items():
        if part.passing and place not in found:
            yield _change(at, part, row, "no longer")
    for event in now.news:
        yield event_line(event)


def _change(at: str, part: _Part, row: _Row, words: str) -> str:
    return shortened(clean(": ".join(filter(None, (f"{at} {part.name}", row.subject, words)))), LINE_CHARACTERS)


def _by_place(facts: model.WatchFacts) -> dict[tuple[str, str], tuple[_Part, _Row]]:
    rows = [(part, row) for part in _parts(facts) for row in part.rows if row.state is not None]
    return {(part.name, f"{row.state}" if part.passing else row.subject): (part, row) for part, row in rows}


def _undated(words: str) -> str:
    """Words without their figures: a longer duration is no change."""
    return "".join(character for character in words if not character.isdigit())


# --- Runs and progress


def _runs_of_interest(runs: Sequence[model.RunFacts]) -> Sequence[model.RunFacts]:
    """The newest run of every verb that has not ended; without any, the newest run."""
    newest: dict[str, model.RunFacts] = {}
    for run in runs:
        newest.setdefault(run.verb, run)
    return [run for run in newest.values() if run.life is not model.RunLife.ENDED] or list(runs[:1])


def _run_row(run: model.RunFacts, now_s: float) -> _Row:
    return _Row(f"{run.verb} (process {run.pid})", (_run_words(run, now_s),), run.life.value, _LIFE_STYLES[run.life])


def _run_words(run: model.RunFacts, now_s: float) -> str:
    match run.life:
        case model.RunLife.AT_WORK:
            since = format_duration(max(now_s - run.started_at_s, 0.0))
            return f"for {since}, last heartbeat {format_duration(run.silent_s)} ago"
        case model.RunLife.SILENT:
            return f"no heartbeat for {format_duration(run.silent_s)}: it hangs, or was killed"
        case model.RunLife.KILLED:
            return f"was killed {format_duration(run.silent_s)} ago: run the same command again to resume"
        case model.RunLife.ENDED:
            ago = max(now_s - (run.finished_at_s or run.started_at_s), 0.0)
            return f"ended {format_duration(ago)} ago with exit code {run.exit_code}"


def _progress_parts(facts: model.WatchFacts) -> Iterator[_Part]:
    """Progress, rate and estimates."""
    status = facts.status
    if status.plan is None:
        yield _Part("copied", (), _line("there is no plan yet: nothing is counted as done or left"))
        return
    tally, left = status.overall, tuple(_left(status))
    under_way = sum(one.done_bytes for one in facts.streams if one.pass_kind is PassKind.SEED)
    changed = _Row(
        percent(tally.percent_bytes),
        (
            _done_words(tally),
            "" if status.rate is None else format_rate(status.rate.rate_bytes_per_s),
            *(f"{one.subject} left" for one in left[:1] if status.estimates),
        ),
        state=f"{tally.done_bytes} {tally.done_files} {tally.done_users}",
        on_screen=False,
    )
    yield _Part("copied", [changed], _bar(tally, "cyan", under_way))
    yield _Part("verified", (), _bar(status.verified, "green"))
    yield _Part("moved", (), _bar(status.moved, "green"))
    yield _Part("rate", (), _rate(facts))
    yield _Part("left", left)


def _done_words(tally: model.Tally) -> str:
    sizes = f"{format_size(tally.done_bytes)} of {format_size(tally.total_bytes)}"
    return f"{sizes}, {format_count(tally.done_files)} of {several(tally.total_files, 'file')}"


def _bar(tally: model.Tally, style: str, under_way_bytes: int = 0) -> Text:
    # If all files are empty, the share counts files.
    done, total = (tally.done_bytes, tally.total_bytes) if tally.total_bytes else (tally.done_files, tally.total_files)
    full = int(min(done / total if total else 0.0, 1.0) * _BAR_CELLS)
    return _line(
        ("█" * full, style),
        ("░" * (_BAR_CELLS - full), "dim"),
        (f" {share(done, total)}", "bold"),
        f"  {_done_words(tally)}",
        # Whole chunks count as done.
        (f", {format_size(under_way_bytes)} in flight" if under_way_bytes else "", "dim"),
    )


def _rate(facts: model.WatchFacts) -> Text:
    status = facts.status
    point = status.rate or status.last_rate
    if point is None:
        return _line("nothing was copied yet")
    rates = facts.rates
    span = f", at most {format_rate(max(rates))} in {format_duration(facts.rates_span_s * len(rates))}" if rates else ""
    return _line(
        (format_rate(point.rate_bytes_per_s), "bold" if status.rate is not None else ""),
        f", {point.rate_files_per_s:,.0f} files/s",
        "" if status.rate is not None else f", until {when(point.at_s)}",
        (f"{span}  ", "dim"),
        (sparkline(rates, len(rates)), "cyan"),
    )


def _left(status: model.StatusFacts) -> Iterator[_Row]:
    for one in status.estimates:
        yield _Row(f"about {format_duration(one.left_s)}", (f"until {when(one.finish_at_s)}", one.basis))
    if not status.estimates:
        yield _Row(all_copied(status) or "no basis for an estimate yet")


def _waits_part(status: model.StatusFacts) -> _Part:
    """What is blocked and why, with the next step."""
    rows = [_Row(one.subject, (one.on, one.hint), f"{one.subject} {_undated(one.on)}") for one in status.blocked]
    bad = several(status.attention_total, "file needs", "files need")
    summary = _line((f"{bad} attention", "yellow")) if status.attention_total else None
    return _Part("waits", rows, summary, style="yellow", passing=True)


# --- Streams and bricks


def _stream_rows(facts: model.WatchFacts) -> list[_Row]:
    """Streams at work, or after a killed run those that it left in the ledger."""
    live = any(run.life is model.RunLife.AT_WORK for run in facts.status.runs)
    at_work = sorted(facts.streams, key=lambda one: (one.confirming, one.attempt_id))
    several_passes = len({(one.batch, one.pass_kind, one.pass_number) for one in at_work}) > 1
    return [
        _Row(
            show(one.tree),
            (
                f"batch {one.batch} {one.pass_kind.value} {one.pass_number or ''}" if several_passes else "",
                f"chunk {one.chunk}",
                _where(one),
                share(one.done_bytes, one.size_bytes) if one.size_bytes else share(one.done_files, one.files),
                _stream_rate(one, live),
            ),
        )
        for one in at_work
    ]


def _where(one: model.StreamAtWork) -> str:
    if one.brick is None:
        return f"{one.host}, mount"
    return one.brick if one.brick.startswith(f"{one.host}:") else f"{one.host}, {one.brick}"


def _stream_rate(one: model.StreamAtWork, live: bool) -> str:
    if one.confirming:
        return "to be confirmed"
    rate = "just begun" if one.rate_bytes_per_s is None else format_rate(one.rate_bytes_per_s)
    return rate if live else f"was {rate}"


def _brick_rows(status: model.StatusFacts) -> list[_Row]:
    """Drains and additions of bricks; drains that ended come last."""
    drains = sorted(status.drains, key=lambda one: one.state in _DRAIN_RESTS)
    rows = [
        _brick_row(one, "" if one.left_files is None else f"{several(one.left_files, 'file')} left") for one in drains
    ]
    return rows + [_brick_row(one, f"{several(one.moved_files, 'file')} moved") for one in status.additions]


def _brick_row(one: DrainStanding | AdditionStanding, files: str) -> _Row:
    failures = several(one.failures, "failure") if one.failures else ""
    words = (one.state.value, files, failures, f"{format_count(one.skipped)} skipped" if one.skipped else "")
    failed = one.failures or one.state in (DrainState.FAILED, AdditionState.FAILED)
    left = "" if one.left_s is None else f"about {format_duration(one.left_s)}"
    return _Row(
        f"{one.bricks[0]} +{len(one.bricks) - 1}" if len(one.bricks) > 1 else "".join(one.bricks),
        (*words, left),
        state=" ".join(words),
        style="red" if failed else "yellow" if one.skipped else "",
    )


# --- Batches, users, probes


def _batches_part(status: model.StatusFacts) -> _Part:
    """Batches by state, then those in progress or blocked, then the others."""
    rows = [_batch_row(one) for one in sorted(status.batches, key=_batch_order)]
    return _Part("batches", rows, _counted(one.state.value for one in status.batches) if rows else None)


def _batch_order(one: model.BatchFacts) -> tuple[int, int]:
    if one.passes and one.passes[-1].state is not PassState.DONE:
        return (0, one.number)
    return ({BatchState.PLANNED: 2, BatchState.VERIFIED: 3}.get(one.state, 1), one.number)


def _batch_row(one: model.BatchFacts) -> _Row:
    waiting = sum(one.chunks.get(state, 0) for state in (ChunkState.PENDING, ChunkState.RUNNING, ChunkState.FAILED))
    state = one.state.value
    if one.state is BatchState.VERIFIED:
        state = verified_words(one.verification.percent_content if one.verification else None)
    elif one.passes and one.passes[-1].state is PassState.STOPPED:
        state = f"{state}, stopped"
    bad = several(one.attention.bad, "bad file") if one.attention.bad else ""
    left = f"{format_size(one.tally.left_bytes)} left"
    return _Row(
        str(one.number),
        (state, bad, percent(one.tally.percent_bytes), left, f"{several(waiting, 'chunk')} left"),
        state=f"{state} {bad}",
        style="yellow" if bad else "green" if one.state is BatchState.VERIFIED else "",
    )


def _users_part(status: model.StatusFacts) -> _Part:
    """Users by state; the users in a cutover, those being copied, the others, and cutovers that ended."""
    stopped = {one.number for one in status.batches if one.passes and one.passes[-1].state is not PassState.RUNNING}
    cutovers = [(one.state in _CUTOVER_RESTS, one) for one in status.cutovers]
    trees = sorted(status.trees, key=lambda one: (_TREE_ORDER.index(one.state), one.rank))
    plan = "" if status.plan is None else status.plan.name
    states = {one.tree.path: _tree_state(one, one.plan == plan and one.batch in stopped) for one in trees}
    rows = [_cutover_row(one, status.at_s) for rests, one in cutovers if not rests]
    rows += [_tree_row(one, states[one.tree.path]) for one in trees]
    rows += [_cutover_row(one, status.at_s) for rests, one in cutovers if rests]
    counts = _counted(states[one.tree.path] for one in status.trees)
    if cutovers:
        counts = Text.assemble(counts, "; cut over: ", _counted(one.state.value for _, one in cutovers))
    return _Part("users", rows, counts if rows else None)


def _cutover_row(one: CutoverFacts, now_s: float) -> _Row:
    since = "" if one.frozen_since_s is None else f"frozen for {format_duration(max(now_s - one.frozen_since_s, 0.0))}"
    return _Row(
        f"cutover of {one.tree.user}, {show(one.tree.path)}",
        (one.state.value, since),
        state=f"{one.attempt} {one.state.value}",
        style="" if one.state in _CUTOVER_RESTS else "bold yellow",
    )


def _tree_state(one: model.TreeFacts, stopped: bool) -> str:
    return "stopped" if stopped and one.state is model.TreeState.COPYING else one.state.value.replace("-", " ")


def _tree_row(one: model.TreeFacts, state: str) -> _Row:
    left = f"{format_size(one.tally.left_bytes)} left"
    return _Row(f"{one.tree.user}, {show(one.tree.path)}", (state, percent(one.tally.percent_bytes), left), state)


def _counted(states: Iterable[str]) -> Text:
    return _line(
        ", ".join(f"{format_count(count)} {state.replace('-', ' ')}" for state, count in Counter(states).items())
    )


def _probe_row(one: Probe, now_s: float) -> _Row:
    """Latency of small operations on one side."""
    age = f"{format_duration(max(now_s - one.at_s, 0.0))} ago"
    if one.times is None:
        words = f"failed: {one.failure}" if one.waited_s is None else f"no answer for {one.waited_s:,.0f} s"
        return _Row(one.side.value, (words, age), _undated(words), "bold red")
    named = {name: getattr(one.times, f"{name}_s") for name in ("create", "sync", "stat", "unlink", "readdir", "write")}
    words = ", ".join(f"{name} {took_s * 1000.0:,.1f} ms" for name, took_s in named.items())
    return _Row(one.side.value, (words, age), "answers", "red" if max(named.values()) >= _SLOW_PROBE_S else "")
