"""`status --watch`: the whole screen of a terminal, and plain lines elsewhere."""

import select
import signal
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
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
from migrator.core.events import Event
from migrator.core.paths import show
from migrator.core.probe import Probe
from migrator.core.states import BatchState, ChunkState, PassKind, PassState
from migrator.core.units import DAY_S, format_count, format_duration, format_rate, format_size, several
from migrator.cutover.model import CutoverFacts, CutoverState
from migrator.render.charts import sparkline
from migrator.render.document import LINE_CHARACTERS, Paragraph, clean, percent, shortened, verified_words, when
from migrator.render.progress import EVENT_STYLES, event_line, share
from migrator.report.model import (
    BatchFacts,
    RunFacts,
    RunLife,
    StatusFacts,
    StreamAtWork,
    Tally,
    TreeFacts,
    TreeState,
    WatchFacts,
)
from migrator.report.rules import left_to_people
from migrator.report.view_status import attention_words
from migrator.transfer.view import governing_blocks

_LABEL_CELLS = 11
_LEAST_ROWS = 2
_PARTS_PER_SCREEN = 6
_BAR_CELLS = 20
_SLOW_PROBE_S = 1.0
_LIFE_STYLES = {RunLife.AT_WORK: "green", RunLife.SILENT: "bold red", RunLife.KILLED: "bold red", RunLife.ENDED: ""}
_CUTOVER_RESTS = frozenset(
    {CutoverState.RETAINED, CutoverState.PURGED, CutoverState.REVERTED, CutoverState.PLANNED, CutoverState.THAWED}
)
_DRAIN_RESTS = OUT_STATES | {DrainState.STOPPED}
_TREE_ORDER = (TreeState.COPYING, TreeState.ATTENTION, TreeState.PLANNED, TreeState.COPIED, TreeState.VERIFIED)


def watch(stream: TextIO, snapshots: Iterator[tuple[WatchFacts, str, float]]) -> None:
    """Show snapshots until Ctrl-C, SIGTERM, or the end of the reader: on the whole screen of a capable terminal, otherwise the
    first one in full and then a plain line for each change, without control codes. The iterator gives the facts, why they could
    not be refreshed (empty: they are new), and the seconds until the next ones. Only the main thread may call it.
    """
    console = Console(file=stream, highlight=False)
    # Without requested events, poll reports only that the reader is gone.
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    before: WatchFacts | None = None
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
class _Part:
    """Rows under one label, below a summary. `count`: how many things they show, for the label."""

    name: str
    rows: Sequence[Sequence[Text]]
    summary: Text | None = None
    style: str = "dim"
    count: int = 0


def screen(facts: WatchFacts, problem: str = "", *, height: int) -> RenderableType:
    """A snapshot for a terminal of some lines: parts in order of importance, long lists cut. `problem` says why these facts could
    not be refreshed. What does not fit is cut at the right and at the bottom.
    """
    status = facts.status
    parts = (
        _runs_part(status),
        *_progress_parts(facts),
        _waits_part(status),
        _streams_part(facts),
        _allowed_part(status),
        _bricks_part(status),
        _batches_part(status),
        _users_part(status),
        _probes_part(status),
        _events_part(status),
    )
    most = max(height // _PARTS_PER_SCREEN, _LEAST_ROWS)
    grid = Table.grid(padding=(0, 0), expand=True)
    grid.add_column(width=_LABEL_CELLS, no_wrap=True)
    grid.add_column(ratio=1, no_wrap=True)
    for part in parts:
        body: list[RenderableType] = [] if part.summary is None else [part.summary]
        if part.rows:
            body.append(_table(part.rows[:most]))
        if len(part.rows) > most:
            body.append(Text(f"and {len(part.rows) - most} more", "dim"))
        if body:
            label = f"{part.name} {part.count}" if 0 < part.count < 100 else part.name
            grid.add_row(Text(label, part.style), Group(*body))
    head = [_line((problem, "bold red"))] if problem else []
    return Group(_title(facts), *head, grid)


def _table(rows: Sequence[Sequence[Text]]) -> RenderableType:
    """Rows of cells below each other; columns that are empty take no room. If there is too little, names and words are cut before
    figures.
    """
    columns = max(map(len, rows))
    if columns == 1:
        return Group(*(row[0] for row in rows))
    shown = [at for at in range(columns) if any(len(row) > at and row[at].plain for row in rows)]
    grid = Table.grid(padding=(0, 2))
    for at in shown:
        grid.add_column(no_wrap=any(len(row) > at and row[at].justify for row in rows), overflow="ellipsis")
    for row in rows:
        grid.add_row(*(row[at] if len(row) > at else "" for at in shown))
    return grid


def _line(*pieces: str | tuple[str, str], right: bool = False) -> Text:
    """One line of text from pieces, each with an optional style. Markup is not interpreted, control characters are escaped."""
    parts = [(clean(one), "") if isinstance(one, str) else (clean(one[0]), one[1]) for one in pieces]
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis", justify="right" if right else None)


def _figure(words: str, style: str = "") -> Text:
    return _line((words, style), right=True)


def _name(name: str, style: str = "") -> Text:
    """A name; a long one is cut in the middle, because names differ at their ends."""
    return _line((shortened(clean(name), LINE_CHARACTERS), style))


def _title(facts: WatchFacts) -> Table:
    status = facts.status
    at = datetime.fromtimestamp(status.at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    name = f"Migration of {status.site}" if status.site is not None else "Migration"
    plan = f", plan {status.plan.name}" if status.plan is not None else ""
    grid = Table.grid(expand=True, padding=(0, 2))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(_line((name, "bold"), (plan, "dim")), _line(at))
    return grid


def _lines(*lines: Text) -> list[tuple[Text]]:
    return [(line,) for line in lines]


def _runs_part(status: StatusFacts) -> _Part:
    rows = [_line((_run_words(run, status.at_s), _LIFE_STYLES[run.life])) for run in _runs_of_interest(status.runs)]
    return _Part("at work", _lines(*rows or [_line("nothing, and nothing was yet")]))


def _runs_of_interest(runs: Sequence[RunFacts]) -> Sequence[RunFacts]:
    """The newest run of every verb that has not ended; without any, the newest run."""
    newest: dict[str, RunFacts] = {}
    for run in runs:
        newest.setdefault(run.verb, run)
    return [run for run in newest.values() if run.life is not RunLife.ENDED] or list(runs[:1])


def _run_words(run: RunFacts, now_s: float) -> str:
    who = f"{run.verb} (process {run.pid})"
    match run.life:
        case RunLife.AT_WORK:
            since = format_duration(max(now_s - run.started_at_s, 0.0))
            return f"{who} for {since}, last heartbeat {format_duration(run.silent_s)} ago"
        case RunLife.SILENT:
            return f"{who}: no heartbeat for {format_duration(run.silent_s)}: it hangs, or was killed"
        case RunLife.KILLED:
            return f"{who} was killed {format_duration(run.silent_s)} ago: run the same command again to resume"
        case RunLife.ENDED:
            ago = max(now_s - (run.finished_at_s or run.started_at_s), 0.0)
            return f"nothing; {who} ended {format_duration(ago)} ago with exit code {run.exit_code}"


def _progress_parts(facts: WatchFacts) -> Iterator[_Part]:
    """Progress, rate and estimates."""
    status = facts.status
    if status.plan is None:
        yield _Part("copied", (), _line("there is no plan yet: nothing is counted as done or left"))
        return
    under_way = sum(one.done_bytes for one in facts.streams if one.pass_kind is PassKind.SEED)
    yield _Part("copied", (), _bar(status.overall, "cyan", under_way))
    yield _Part("verified", (), _bar(status.verified, "green"))
    yield _Part("rate", (), _rate(facts))
    yield _Part("left", _lines(*_left(status)))


def _bar(tally: Tally, style: str, under_way_bytes: int = 0) -> Text:
    # If all files are empty, the share counts files.
    done, total = (tally.done_bytes, tally.total_bytes) if tally.total_bytes else (tally.done_files, tally.total_files)
    full = int(min(done / total if total else 0.0, 1.0) * _BAR_CELLS)
    return _line(
        ("█" * full, style),
        ("░" * (_BAR_CELLS - full), "dim"),
        (f" {share(done, total)}", "bold"),
        f"  {format_size(tally.done_bytes)} of {format_size(tally.total_bytes)}",
        f", {format_count(tally.done_files)} of {several(tally.total_files, 'file')}",
        # Whole chunks count as done.
        (f", {format_size(under_way_bytes)} in flight" if under_way_bytes else "", "dim"),
    )


def _rate(facts: WatchFacts) -> Text:
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


def _left(status: StatusFacts) -> Iterator[Text]:
    if not status.estimates:
        done = status.overall.total_files and not status.overall.left_files and not status.overall.left_bytes
        words = "nothing: everything in the plan is copied" if done else "no basis for an estimate yet"
        if left_to_people(status.trees):
            words = f"{attention_words(status.overall)}; everything else in the plan is copied"
        yield _line(words)
    for one in status.estimates:
        about = (f"about {format_duration(one.left_s)}", "bold")
        yield _line(about, f", until {when(one.finish_at_s)}", (f" ({one.basis})", "dim"))


def _waits_part(status: StatusFacts) -> _Part:
    """What is blocked and why, with the next step."""
    rows = [_line((one.subject, "yellow"), f": {one.on}", (f" ({one.hint})", "dim")) for one in status.blocked]
    bad = several(status.attention_total, "file needs", "files need")
    summary = _line((f"{bad} attention", "yellow")) if status.attention_total else None
    return _Part("waits", _lines(*rows), summary, style="yellow")


def _allowed_part(status: StatusFacts) -> _Part:
    """How many streams may run and why, and the limits that operators set."""
    blocks = governing_blocks(status.governing)
    return _Part("allowed", _lines(*(_line(block.text) for block in blocks if isinstance(block, Paragraph))))


def _events_part(status: StatusFacts) -> _Part:
    """Warnings and errors, newest first; with the date if older than a day."""

    def words(event: Event) -> str:
        date = f"{when(event.at_s).split()[0]} " if status.at_s - event.at_s >= DAY_S else ""
        return f"{date}{event_line(event)}"

    return _Part("events", _lines(*(_line((words(event), EVENT_STYLES[event.severity])) for event in status.events)))


def _streams_part(facts: WatchFacts) -> _Part:
    """Streams at work, or after a killed run those that it left in the ledger."""
    live = any(run.life is RunLife.AT_WORK for run in facts.status.runs)
    at_work = sorted(facts.streams, key=lambda one: (one.confirming, one.attempt_id))
    several_passes = len({(one.batch, one.pass_kind, one.pass_number) for one in at_work}) > 1
    rows = [
        (
            _name(show(one.tree)),
            _line((_pass_words(one) if several_passes else "", "dim")),
            _line(f"chunk {one.chunk}"),
            _name(_where(one)),
            _figure(_share(one)),
            _figure(_stream_rate(one, live), "bold" if live else "dim"),
        )
        for one in at_work
    ]
    return _Part("streams", rows, count=len(rows))


def _pass_words(one: StreamAtWork) -> str:
    number = "" if one.pass_kind is PassKind.SEED else f" {one.pass_number}"
    return f"batch {one.batch} {one.pass_kind.value}{number}"


def _where(one: StreamAtWork) -> str:
    if one.brick is None:
        return f"{one.host}, mount"
    return one.brick if one.brick.startswith(f"{one.host}:") else f"{one.host}, {one.brick}"


def _share(one: StreamAtWork) -> str:
    done, total = (one.done_bytes, one.size_bytes) if one.size_bytes else (one.done_files, one.files)
    return share(done, total) if total else ""


def _stream_rate(one: StreamAtWork, live: bool) -> str:
    if one.confirming:
        return "to be confirmed"
    if one.rate_bytes_per_s is None:
        return "just begun" if live else "was just begun"
    return f"{'' if live else 'was '}{format_rate(one.rate_bytes_per_s)}"


def _bricks_part(status: StatusFacts) -> _Part:
    """Drains and additions of bricks; drains that ended come last."""
    drains = sorted(status.drains, key=lambda one: one.state in _DRAIN_RESTS)
    rows = [
        _brick_row(one, "" if one.left_files is None else f"{several(one.left_files, 'file')} left") for one in drains
    ]
    rows += [_brick_row(one, f"{several(one.moved_files, 'file')} moved") for one in status.additions]
    return _Part("bricks", rows)


def _brick_row(one: DrainStanding | AdditionStanding, words: str) -> tuple[Text, ...]:
    failed = one.state in (DrainState.FAILED, AdditionState.FAILED)
    style = "red" if one.failures else "yellow" if one.skipped else "dim"
    return (
        _name(f"{one.bricks[0]} +{len(one.bricks) - 1}" if len(one.bricks) > 1 else "".join(one.bricks)),
        _line((one.state.value, "bold red" if failed else "bold")),
        _figure(words),
        _line((_bad(one.failures, one.skipped), style)),
        _figure("" if one.left_s is None else f"about {format_duration(one.left_s)}"),
    )


def _bad(failures: int, skipped: int) -> str:
    words = [several(failures, "failure")] if failures else []
    words += [f"{format_count(skipped)} skipped"] if skipped else []
    return ", ".join(words)


def _probes_part(status: StatusFacts) -> _Part:
    """Latency of small operations on both sides."""
    return _Part("probes", _lines(*(_probe_line(one, status.at_s) for one in status.probes)))


def _probe_line(one: Probe, now_s: float) -> Text:
    age = (f", {format_duration(max(now_s - one.at_s, 0.0))} ago", "dim")
    if one.times is None:
        words = f"failed: {one.failure}" if one.waited_s is None else f"no answer for {one.waited_s:,.0f} s"
        return _line(one.side.value, " ", (words, "bold red"), age)
    times = one.times
    named = (
        ("create", times.create_s),
        ("sync", times.sync_s),
        ("stat", times.stat_s),
        ("unlink", times.unlink_s),
        ("readdir", times.readdir_s),
        ("write", times.write_s),
    )
    taken = (
        (f", {name} {took_s * 1000.0:,.1f} ms", "red" if took_s >= _SLOW_PROBE_S else "") for name, took_s in named
    )
    return _line(one.side.value, *taken, age)


def _batches_part(status: StatusFacts) -> _Part:
    """Batches by state, then those in progress or blocked, then the others."""
    rows = [_batch_row(one) for one in sorted(status.batches, key=_batch_order)]
    return _Part("batches", rows, _line(*_counted(one.state.value for one in status.batches)) if rows else None)


def _batch_order(one: BatchFacts) -> tuple[int, int]:
    if one.passes and one.passes[-1].state is not PassState.DONE:
        return (0, one.number)
    return ({BatchState.PLANNED: 2, BatchState.VERIFIED: 3}.get(one.state, 1), one.number)


def _batch_row(one: BatchFacts) -> tuple[Text, ...]:
    waiting = sum(one.chunks.get(state, 0) for state in (ChunkState.PENDING, ChunkState.RUNNING, ChunkState.FAILED))
    state = one.state.value
    if one.state is BatchState.VERIFIED:
        state = verified_words(one.verification.percent_content if one.verification else None)
    elif one.passes and one.passes[-1].state is PassState.STOPPED:
        state = f"{state}, stopped"
    return (
        _figure(str(one.number), "bold"),
        _line((state, "green" if one.state is BatchState.VERIFIED else "")),
        _figure(percent(one.tally.percent_bytes)),
        _figure(f"{format_size(one.tally.left_bytes)} left"),
        _figure(f"{several(waiting, 'chunk')} left"),
        _line((several(one.attention.bad, "bad file") if one.attention.bad else "", "yellow")),
    )


def _users_part(status: StatusFacts) -> _Part:
    """Users by state, then those in a cutover, those being copied, and the others."""
    stopped = {one.number for one in status.batches if one.passes and one.passes[-1].state is not PassState.RUNNING}
    trees = sorted(status.trees, key=lambda one: (_TREE_ORDER.index(one.state), one.rank))
    rows = [_cutover_row(one, status.at_s) for one in status.cutovers if one.state not in _CUTOVER_RESTS]
    rows += [_tree_row(one, _tree_state(one, stopped)) for one in trees]
    counts = [*_counted(_tree_state(one, stopped) for one in status.trees)]
    if status.cutovers:
        counts += ["; cut over: ", *_counted(one.state.value for one in status.cutovers)]
    return _Part("users", rows, _line(*counts) if counts else None)


def _cutover_row(one: CutoverFacts, now_s: float) -> tuple[Text, ...]:
    since = "" if one.frozen_since_s is None else f"frozen for {format_duration(max(now_s - one.frozen_since_s, 0.0))}"
    style = "bold yellow"
    return _name(one.tree.user, style), _name(show(one.tree.path)), _line((one.state.value, style)), _figure(since)


def _tree_state(one: TreeFacts, stopped: Container[int]) -> str:
    if one.state is TreeState.COPYING and one.batch in stopped:
        return "stopped"
    return one.state.value.replace("-", " ")


def _tree_row(one: TreeFacts, state: str) -> tuple[Text, ...]:
    return (
        _name(one.tree.user),
        _name(show(one.tree.path)),
        _line(state),
        _figure(percent(one.tally.percent_bytes)),
        _figure(f"{format_size(one.tally.left_bytes)} left"),
    )


def _counted(states: Iterable[str]) -> Iterator[str | tuple[str, str]]:
    for place, (state, count) in enumerate(Counter(states).items()):
        yield ", " if place else ""
        yield (format_count(count), "bold")
        yield f" {state.replace('-', ' ')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One item of the line output. It is printed again when its `state` changes; `words` may change all the time."""

    subject: str
    state: str
    words: str
    waits: bool = False


def change_lines(before: WatchFacts | None, now: WatchFacts) -> Iterator[str]:
    """Every item of the first snapshot, then only changed items, and the events since the previous snapshot."""
    at = datetime.fromtimestamp(now.status.at_s, UTC).strftime("%H:%M:%S")
    items = _by_place(now.status)
    known = {} if before is None else _by_place(before.status)
    for place, one in items.items():
        if place not in known or known[place].state != one.state:
            yield _change(at, one.subject, one.words)
    for place, one in known.items():
        if one.waits and place not in items:
            yield _change(at, one.subject, "no longer")
    for event in now.news:
        yield event_line(event)


def _change(at: str, subject: str, words: str) -> str:
    return shortened(clean(f"{at} {subject}: {words}"), LINE_CHARACTERS)


def _by_place(status: StatusFacts) -> dict[tuple[str, str], _Item]:
    # Several blockers may have the same subject.
    return {(one.subject, one.state if one.waits else ""): one for one in _items(status)}


def _items(status: StatusFacts) -> Iterator[_Item]:
    for run in _runs_of_interest(status.runs):
        words = _run_change(run, status.at_s)
        yield _Item(subject=f"{run.verb} (run {run.id}, process {run.pid})", state=run.life.value, words=words)
    if status.plan is not None:
        done = (status.overall.done_bytes, status.overall.done_files, status.overall.done_users)
        yield _Item(subject="copied", state=str(done), words=", ".join(_progress_change(status)))
    yield from _batches_and_users(status)
    yield from _brick_changes(status)
    for probe in status.probes:
        words = "no answer" if probe.times is None else "answers"
        words = f"failed: {probe.failure}" if probe.failure else words
        yield _Item(subject=f"probe of the {probe.side.value}", state=words, words=words)
    governor = status.governing.governor
    if status.governing.at_work and governor is not None:
        words = f"{governor.streams} of {governor.most}: {governor.reason}"
        state = f"{governor.gate.value} {governor.bound.value} {governor.streams} {governor.most}"
        yield _Item(subject="streams that may be at work", state=state, words=words)
    for one in status.blocked:
        # Some contain a duration, which is no change.
        state = "".join(character for character in one.on if not character.isdigit())
        yield _Item(subject=f"waits: {one.subject}", state=state, words=one.on, waits=True)


def _run_change(run: RunFacts, now_s: float) -> str:
    match run.life:
        case RunLife.AT_WORK:
            return f"at work since {when(run.started_at_s)}"
        case RunLife.SILENT:
            return f"no heartbeat since {when(now_s - run.silent_s)}: it hangs, or was killed"
        case RunLife.KILLED:
            return "was killed; run the same command again to resume"
        case RunLife.ENDED:
            return f"ended with exit code {run.exit_code}"


def _progress_change(status: StatusFacts) -> Iterator[str]:
    tally = status.overall
    yield percent(tally.percent_bytes)
    yield f"{format_size(tally.done_bytes)} of {format_size(tally.total_bytes)}"
    yield f"{format_count(tally.done_files)} of {several(tally.total_files, 'file')}"
    if status.rate is not None:
        yield format_rate(status.rate.rate_bytes_per_s)
    if status.estimates:
        yield f"about {format_duration(status.estimates[0].left_s)} left"


def _batches_and_users(status: StatusFacts) -> Iterator[_Item]:
    for batch in status.batches:
        bad = f", {several(batch.attention.bad, 'bad file')}" if batch.attention.bad else ""
        words = f"{batch.state.value}{bad}"
        yield _Item(subject=f"batch {batch.number}", state=words, words=words)
    for tree in status.trees:
        words = tree.state.value.replace("-", " ")
        yield _Item(subject=f"user {tree.tree.user}, {show(tree.tree.path)}", state=words, words=words)
    for cutover in status.cutovers:
        subject = f"cutover of {cutover.tree.user}, {show(cutover.tree.path)}"
        yield _Item(subject=subject, state=f"{cutover.attempt} {cutover.state.value}", words=cutover.state.value)


def _brick_changes(status: StatusFacts) -> Iterator[_Item]:
    for drain in status.drains:
        left = "" if drain.left_files is None else f"{several(drain.left_files, 'file')} left"
        words = ", ".join(filter(None, (drain.state.value, left, _bad(drain.failures, drain.skipped))))
        yield _Item(subject=f"drain of {' '.join(drain.bricks)}", state=words, words=words)
    for added in status.additions:
        moved = f"{several(added.moved_files, 'file')} moved"
        words = ", ".join(filter(None, (added.state.value, moved, _bad(added.failures, added.skipped))))
        yield _Item(subject=f"addition of {' '.join(added.bricks)}", state=words, words=words)
