"""`status --watch`: the whole screen of a terminal, and plain lines elsewhere."""

import os
import select
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import zip_longest
from typing import TextIO

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.bricks.add.model import AdditionStanding, AdditionState
from migrator.bricks.drain.model import OUT_STATES, DrainStanding, DrainState
from migrator.core.paths import show
from migrator.core.probe import Probe
from migrator.core.states import BatchState
from migrator.core.units import DAY_S, format_count, format_duration, format_rate, format_size, format_time, several
from migrator.render.charts import sparkline
from migrator.render.document import LINE_CHARACTERS, Paragraph, clean, percent, shortened, when
from migrator.render.progress import EVENT_STYLES, event_line, share
from migrator.report import model
from migrator.report.rules import newest_runs
from migrator.report.view_status import describe_milestone, expected_end
from migrator.transfer.view import governing_blocks

_LABEL_CELLS = 11
_LEAST_ROWS = 2
_PARTS_PER_SCREEN = 6
_BAR_CELLS = 20
_UNCUT_CELLS = 24
"""Shorter cells, such as figures, are not cut as long as names and sentences can be."""

_SLOW_PROBE_S = 1.0
_BATCH_ORDER = {BatchState.PLANNED: 1, BatchState.VERIFIED: 2}
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
    """Show snapshots until KeyboardInterrupt, as which every verb ends by a signal, or the end of the reader: on the
    whole screen of a capable terminal, otherwise as plain lines without control codes. The iterator yields the facts,
    the reason why they could not be refreshed (empty: they are new), and the seconds until the next ones. Only the main
    thread may call it.
    """
    console = Console(file=stream, highlight=False)
    # Without requested events, poll reports only that the reader has closed its end.
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    before: model.WatchFacts | None = None
    with ExitStack() as stack:
        stack.enter_context(suppress(KeyboardInterrupt))
        # A signal right before `poll` would only be handled after it: the pipe ends the wait.
        woken, wake = os.pipe()
        for end in (woken, wake):
            stack.callback(os.close, end)
        os.set_blocking(wake, False)
        stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(wake))
        poll.register(woken, select.POLLIN)
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


# --- Without a terminal


def change_lines(before: model.WatchFacts | None, now: model.WatchFacts) -> Iterator[str]:
    """The operations in progress, the progress, each new blocker, then the events since the previous snapshot."""
    at = format_time(now.status.at_s, "%H:%M:%S")
    known = set() if before is None else {state for state, _ in _states(before.status)}
    for state, words in _states(now.status):
        if state not in known:
            yield shortened(clean(f"{at} {words}"), LINE_CHARACTERS)
    yield from map(event_line, now.news)


def _states(status: model.MigrationStatus) -> Iterator[tuple[object, str]]:
    """Lines, each with the state whose change makes it worth a line: durations and rates change all the time."""
    for one in status.frozen:
        words = "" if one.at_work else f"; no command is at work: {one.hint}"
        yield (one.tree, one.state, one.at_work), f"frozen: {one.tree.user}: {one.state.value}{words}"
    for run in newest_runs(status.runs):
        yield (run.id, run.life), f"{run.verb} (process {run.pid}): {_describe_run(run, status.at_s)}"
    if status.plan is not None:
        forecast = status.forecast
        left = [] if forecast is None else [f"about {format_duration(forecast.left_s)} left"]
        done = f"copied: {percent(status.overall.percent_bytes)}: {_describe_done(status.overall)}"
        yield ("copied", status.overall), ", ".join((done, *left))
    for blocker in status.blocked:
        yield (blocker.subject, blocker.hint), f"blocked: {blocker.subject}: {blocker.on}, {blocker.hint}"
    for step in status.next_steps:
        yield (step.subject, step.hint), f"next: {step.subject}: {step.state}, {step.hint}"


# --- On a terminal


class _Row(Struct, frozen=True):
    """Words in columns."""

    words: tuple[str, ...]
    style: str = ""


_Part = tuple[str, Text | None, Sequence[_Row]]
"""A label, a summary, and rows below it."""


def screen(facts: model.WatchFacts, problem: str = "", *, height: int) -> RenderableType:
    """A snapshot for a terminal of some lines: parts in order of importance, long lists cut. `problem` is the reason
    why these facts could not be refreshed. Text that does not fit is cut at the right and at the bottom.
    """
    most = max(height // _PARTS_PER_SCREEN, _LEAST_ROWS)
    grid = Table.grid(padding=(0, 0), expand=True)
    grid.add_column(width=_LABEL_CELLS, no_wrap=True)
    grid.add_column(ratio=1, no_wrap=True)
    for label, summary, rows in _parts(facts):
        body: list[RenderableType] = [] if summary is None else [summary]
        if rows:
            body.append(_table(rows[:most]))
        if len(rows) > most:
            body.append(Text(f"and {len(rows) - most} more", "dim"))
        if body:
            grid.add_row(Text(label, "yellow" if label == "blocked" else "dim"), Group(*body))
    head = [_line((problem, "bold red"))] if problem else []
    return Group(_title(facts.status), *head, grid)


def _parts(facts: model.WatchFacts) -> Iterator[_Part]:
    """Everything that is shown, in order of importance."""
    status = facts.status
    yield "frozen", None, list(_frozen_rows(status))
    yield "at work", None, list(_run_rows(status)) or [_Row(("no runs yet",))]
    yield from _progress_parts(facts)
    bad = several(status.attention_total, "file needs", "files need")
    attention = _line((f"{bad} attention", "yellow")) if status.attention_total else None
    yield "blocked", attention, [_Row((one.subject, one.on, one.hint)) for one in status.blocked]
    yield "next", None, [_Row((one.subject, one.state, one.hint)) for one in status.next_steps]
    yield f"streams {len(facts.streams) or ''}", None, list(_stream_rows(facts))
    limits = [block.text for block in governing_blocks(status.governing) if isinstance(block, Paragraph)]
    yield "allowed", None, [_Row((text,)) for text in limits]
    yield "bricks", None, list(_brick_rows(status))
    batches = sorted(status.batches, key=lambda one: (_BATCH_ORDER.get(one.state, 0), one.number))
    yield "batches", _counted(one.state.value for one in batches), list(map(_batch_row, batches))
    yield "users", _counted(one.state.value for one in status.trees), list(_user_rows(status))
    yield "probes", None, [_probe_row(one, status.at_s) for one in status.probes]
    yield "events", None, list(_event_rows(status))


def _table(rows: Sequence[_Row]) -> RenderableType:
    """Rows in columns; columns that are empty take no room."""
    grid = Table.grid(padding=(0, 2))
    columns = [column for column in zip_longest(*(row.words for row in rows), fillvalue="") if any(column)]
    for column in columns:
        grid.add_column(no_wrap=len(columns) > 1 and max(map(len, column)) <= _UNCUT_CELLS, overflow="ellipsis")
    for row, words in zip(rows, zip(*columns, strict=True), strict=True):
        grid.add_row(*(_line((shortened(word, LINE_CHARACTERS), row.style)) for word in words))
    return grid


def _line(*pieces: str | tuple[str, str]) -> Text:
    """One line of text from pieces, each with an optional style. Markup is not interpreted, control characters are escaped."""
    parts = [(clean(one), "") if isinstance(one, str) else (clean(one[0]), one[1]) for one in pieces]
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _counted(states: Iterable[str]) -> Text | None:
    counts = Counter(states)
    return _line(", ".join(f"{format_count(count)} {state}" for state, count in counts.items())) if counts else None


def _title(status: model.MigrationStatus) -> Table:
    at = format_time(status.at_s, "%Y-%m-%d %H:%M:%S %Z")
    name = f"Migration of {status.site}" if status.site is not None else "Migration"
    plan = f", plan {status.plan.name}" if status.plan is not None else ""
    grid = Table.grid(expand=True, padding=(0, 2))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(_line((name, "bold"), (plan, "dim")), _line(at))
    return grid


# --- Parts of the screen


def _run_rows(status: model.MigrationStatus) -> Iterator[_Row]:
    """The runs that have not ended; without any, the newest run."""
    runs = [run for run in newest_runs(status.runs) if run.life is not model.RunLife.ENDED]
    styles = {model.RunLife.AT_WORK: "green", model.RunLife.ENDED: ""}
    for run in runs or status.runs[:1]:
        words = (f"{run.verb} (process {run.pid})", _describe_run(run, status.at_s))
        yield _Row(words, styles.get(run.life, "bold red"))


def _describe_run(run: model.RunStatus, now_s: float) -> str:
    match run.life:
        case model.RunLife.AT_WORK:
            since = format_duration(max(now_s - run.started_at_s, 0.0))
            return f"for {since}, last heartbeat {format_duration(run.silent_s)} ago"
        case model.RunLife.SILENT:
            return f"no heartbeat for {format_duration(run.silent_s)}: it hangs"
        case model.RunLife.KILLED:
            return f"was killed {format_duration(run.silent_s)} ago: run the same command again to resume"
        case model.RunLife.ENDED:
            ago = max(now_s - (run.finished_at_s or run.started_at_s), 0.0)
            return f"ended {format_duration(ago)} ago with exit code {run.exit_code}"


def _progress_parts(facts: model.WatchFacts) -> Iterator[_Part]:
    """Progress, rate and expected end."""
    status = facts.status
    if status.plan is None:
        yield "copied", _line("there is no plan yet, so progress is unknown"), ()
        return
    yield "copied", _bar(status.overall, "cyan"), ()
    yield "verified", _bar(status.verified, "green"), ()
    yield "moved", _bar(status.moved, "green"), ()
    yield "rate", _rate(facts), ()
    whole = [f"all done: {describe_milestone(one)}" for one in status.milestones if one.goal is model.Goal.COMPLETE]
    yield "end", None, [_Row((words,)) for words in (expected_end(status), *whole)]


def _describe_done(tally: model.ProgressCounts) -> str:
    sizes = f"{format_size(tally.done_bytes)} of {format_size(tally.total_bytes)}"
    return f"{sizes}, {format_count(tally.done_files)} of {several(tally.total_files, 'file')}"


def _bar(tally: model.ProgressCounts, style: str) -> Text:
    # If all files are empty, the share counts files.
    done, total = (tally.done_bytes, tally.total_bytes) if tally.total_bytes else (tally.done_files, tally.total_files)
    full = int(min(done / total if total else 0.0, 1.0) * _BAR_CELLS)
    return _line(
        ("█" * full, style),
        ("░" * (_BAR_CELLS - full), "dim"),
        (f" {share(done, total)}", "bold"),
        f"  {_describe_done(tally)}",
    )


def _rate(facts: model.WatchFacts) -> Text:
    status = facts.status
    point = status.rate or status.last_rate
    if point is None:
        return _line("no files were copied yet")
    return _line(
        (format_rate(point.rate_bytes_per_s), "bold" if status.rate is not None else ""),
        f", {point.rate_files_per_s:,.0f} files/s",
        "  " if status.rate is not None else f", until {when(point.at_s)}  ",
        (sparkline(facts.rates, len(facts.rates)), "cyan"),
    )


def _stream_rows(facts: model.WatchFacts) -> Iterator[_Row]:
    """Streams at work, or after a killed run those that it left in the ledger."""
    live = any(run.life is model.RunLife.AT_WORK for run in facts.status.runs)
    for one in sorted(facts.streams, key=lambda one: one.attempt_id):
        done = share(one.done_bytes, one.size_bytes) if one.size_bytes else share(one.done_files, one.files)
        rate = "just begun" if one.rate_bytes_per_s is None else format_rate(one.rate_bytes_per_s)
        place = one.brick or "mount"
        where = place if place.startswith(f"{one.host}:") else f"{one.host}, {place}"
        work = f"batch {one.batch} {one.pass_kind.value} {one.pass_number or ''}".rstrip()
        yield _Row((show(one.tree), f"{work}, chunk {one.chunk}", where, done, rate if live else f"was {rate}"))


def _brick_rows(status: model.MigrationStatus) -> Iterator[_Row]:
    """Drains and additions of bricks; drains that ended come last."""
    drains = sorted(status.drains, key=lambda one: one.state in OUT_STATES)
    bricks: list[AdditionStanding | DrainStanding] = [*status.additions, *drains]
    for one in bricks:
        failed = one.failures or one.state in (DrainState.FAILED, AdditionState.FAILED)
        words = (
            f"{one.bricks[0]} +{len(one.bricks) - 1}" if len(one.bricks) > 1 else "".join(one.bricks),
            one.state.value,
            f"{several(one.moved_files, 'file')} moved",
            several(one.failures, "failure") if one.failures else "",
            f"{format_count(one.skipped)} skipped" if one.skipped else "",
            "" if one.left_s is None else f"about {format_duration(one.left_s)}",
        )
        yield _Row(words, "red" if failed else "yellow" if one.skipped else "")


def _batch_row(one: model.BatchStatus) -> _Row:
    bad = several(one.attention.bad, "bad file") if one.attention.bad else ""
    left = f"{format_size(one.tally.left_bytes)} left"
    words = (str(one.number), one.state.value, bad, percent(one.tally.percent_bytes), left)
    return _Row(words, "yellow" if bad else "green" if one.state is BatchState.VERIFIED else "")


def _frozen_rows(status: model.MigrationStatus) -> Iterator[_Row]:
    """Users who cannot work now, first those whom no command thaws."""
    for one in status.frozen:
        since = f"for {format_duration(max(status.at_s - one.since_s, 0.0))}"
        words = (f"{one.tree.user}, {show(one.tree.path)}", one.state.value, since, "" if one.at_work else one.hint)
        yield _Row(words, "bold yellow" if one.at_work else "bold red")


def _user_rows(status: model.MigrationStatus) -> Iterator[_Row]:
    """Users by state."""
    for one in sorted(status.trees, key=lambda one: (_TREE_ORDER.index(one.state), one.rank)):
        left = f"{format_size(one.tally.left_bytes)} left"
        tree = f"{one.tree.user}, {show(one.tree.path)}"
        yield _Row((tree, one.state.value, percent(one.tally.percent_bytes), left))


def _probe_row(one: Probe, now_s: float) -> _Row:
    """Latency of small operations on one side."""
    age = f"{format_duration(max(now_s - one.at_s, 0.0))} ago"
    if one.times is None:
        words = f"failed: {one.failure}" if one.waited_s is None else f"no answer for {one.waited_s:,.0f} s"
        return _Row((one.side.value, words, age), "bold red")
    named = {name: getattr(one.times, f"{name}_s") for name in ("create", "sync", "stat", "unlink", "readdir", "write")}
    words = ", ".join(f"{name} {took_s * 1000.0:,.1f} ms" for name, took_s in named.items())
    return _Row((one.side.value, words, age), "red" if max(named.values()) >= _SLOW_PROBE_S else "")


def _event_rows(status: model.MigrationStatus) -> Iterator[_Row]:
    """Warnings and errors, newest first; with the date if older than a day."""
    for event in status.events:
        date = f"{when(event.at_s).split()[0]} " if status.at_s - event.at_s >= DAY_S else ""
        yield _Row((f"{date}{event_line(event)}",), EVENT_STYLES[event.severity])
