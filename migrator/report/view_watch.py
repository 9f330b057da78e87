"""`status --watch` on a terminal and elsewhere."""

import os
import select
import signal
import sys
import termios
import tty
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from time import monotonic
from types import FrameType
from typing import Self, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from migrator.bricks.add.model import ADDITION_ENDED_STATES, AdditionStanding, AdditionState
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

_NO_WRAP = "\x1b[?7l"
_WRAP = "\x1b[?7h"
_END_KEYS = frozenset(b"qQ")

_LEAST_WIDTH, _LEAST_HEIGHT = 20, 4
_TWO_COLUMNS = 150
_LABEL_CELLS = 11
_LEAST_NAME = 16
_GAP = 2
_WIDE = 100
"""The least number of cells beside the labels for optional details."""

_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_RULE = " \N{BOX DRAWINGS LIGHT VERTICAL} "

_IMPORTANCE: tuple[str, ...] = ("at work", "copied", "rate", "left", "waits", "streams", "allowed", "bricks")
_IMPORTANCE += ("batches", "users", "verified", "probes", "events")
"""The order in which parts get lines in a small window."""

_SLOW_PROBE_S = 1.0
_LIFE_STYLES = {RunLife.AT_WORK: "green", RunLife.SILENT: "bold red", RunLife.KILLED: "bold red", RunLife.ENDED: ""}
_CUTOVER_RESTS = frozenset(
    {CutoverState.RETAINED, CutoverState.PURGED, CutoverState.REVERTED, CutoverState.PLANNED, CutoverState.THAWED}
)
_DRAIN_RESTS = OUT_STATES | {DrainState.STOPPED}
_TREE_ORDER = (TreeState.COPYING, TreeState.ATTENTION, TreeState.PLANNED, TreeState.COPIED, TreeState.VERIFIED)


def open_watch(stream: TextIO) -> "WatchView":
    """The view for a stream: full screen on a capable terminal, plain lines otherwise."""
    console = Console(file=stream, highlight=False)
    if stream.isatty() and not console.is_dumb_terminal:
        return WatchScreen(console)
    return WatchLines(stream)


class WatchView:
    """Shows snapshots until SIGINT, SIGTERM, a key, or the end of the reader; a signal never interrupts a snapshot halfway.
    Only the main thread may enter it.
    """

    def __init__(self, *also: signal.Signals) -> None:
        """`also` are more signals that end a wait; `_signalled` handles them."""
        self._also = also
        self._stack = ExitStack()
        self._poll = select.poll()
        self._ended = False
        self._came: set[int] = set()

    def __enter__(self) -> Self:
        self._reading, writing = os.pipe()
        for descriptor in (self._reading, writing):
            os.set_blocking(descriptor, False)
            self._stack.callback(os.close, descriptor)
        self._poll.register(self._reading, select.POLLIN)
        self._stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writing))
        for number in (signal.SIGINT, signal.SIGTERM):
            self._stack.callback(signal.signal, number, signal.signal(number, self._end))
        for number in self._also:
            self._stack.callback(signal.signal, number, signal.signal(number, lambda came, _: self._came.add(came)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        if self._ended:
            # The second signal while a snapshot is read.
            raise KeyboardInterrupt
        self._ended = True

    def show(self, facts: WatchFacts, problem: str = "") -> None:
        """Show a snapshot. With a `problem` it is the previous one, because of that problem."""
        raise NotImplementedError

    def wait(self, pause_s: float) -> bool:
        """Wait until the next snapshot is due. Returns False at the end."""
        until_s = monotonic() + pause_s
        while not self._ended and (left_s := until_s - monotonic()) > 0:
            for descriptor, _ in self._poll.poll(left_s * 1000.0):
                if descriptor == self._reading:
                    with suppress(BlockingIOError):
                        os.read(descriptor, 512)
                elif self._ends(descriptor):
                    return False
            if self._came:
                self._signalled()
                self._came.clear()
        return not self._ended

    def _ends(self, _descriptor: int) -> bool:
        """Whether an event of this descriptor ends the view."""
        return True

    def _signalled(self) -> None:
        """Handle the signals in `_came`."""


class WatchLines(WatchView):
    """Prints the first snapshot in full, then a plain line for each change, without control codes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        # Without requested events, poll reports only that the reader is gone, which ends the view.
        self._poll.register(stream.fileno(), 0)
        self._before: WatchFacts | None = None
        self._problem = ""

    def show(self, facts: WatchFacts, problem: str = "") -> None:
        """Write the changes. Raises BrokenPipeError if the reader is gone."""
        lines = [problem] if problem and problem != self._problem else []
        self._problem = problem
        if not problem:
            lines += change_lines(self._before, facts)
            self._before = facts
        if lines:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()


class WatchScreen(WatchView):
    """Uses the whole terminal at its current size, and restores its content at the end."""

    def __init__(self, console: Console, keys: TextIO = sys.stdin) -> None:
        super().__init__(signal.SIGWINCH, signal.SIGTSTP)
        self._console = console
        self._keys = keys
        self._screen = ExitStack()
        self._shown: tuple[WatchFacts, str] | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._screen.close()
        super().__exit__()

    def _begin(self) -> None:
        self._screen = stack = ExitStack()
        if self._keys.isatty():
            stack.enter_context(_single_keys(self._keys.fileno()))
            self._poll.register(self._keys.fileno(), select.POLLIN)
        live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live = stack.enter_context(live)
        # Some names are wider than computed: cut them at the edge instead of wrapping.
        self._write(_NO_WRAP)
        stack.callback(self._write, _WRAP)

    def _write(self, control: str) -> None:
        self._console.file.write(control)
        self._console.file.flush()

    def show(self, facts: WatchFacts, problem: str = "") -> None:
        """Draw a snapshot."""
        self._shown = (facts, problem)
        self._live.update(Screenful(facts, problem), refresh=True)

    def _ends(self, descriptor: int) -> bool:
        pressed = os.read(descriptor, 64)
        if not pressed:
            self._poll.unregister(descriptor)
        return bool(_END_KEYS & set(pressed))

    def _signalled(self) -> None:
        if signal.SIGTSTP in self._came:
            # Give the terminal back to the shell until this process is in the foreground again.
            self._screen.close()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._begin()
        if self._shown is not None:
            self.show(*self._shown)


@contextmanager
def _single_keys(descriptor: int) -> Iterator[None]:
    """Read keys without Enter and without echo; Ctrl-C still sends a signal."""
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows under one label. In a small window it gets `least` lines, after the more important parts."""

    name: str
    rows: Sequence[RenderableType]
    least: int = 1
    style: str = "dim"
    count: int = 0
    resting: bool = False

    @property
    def rank(self) -> int:
        return len(_IMPORTANCE) if self.resting else _IMPORTANCE.index(self.name)


_Lines = list[list[Segment]]


class Screenful:
    """A snapshot, laid out for the size of the terminal at the time of drawing."""

    def __init__(self, facts: WatchFacts, problem: str = "") -> None:
        """`problem` says why these facts could not be refreshed."""
        self._facts = facts
        self._problem = problem

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = max(options.max_width, _LEAST_WIDTH), max(options.height or options.size.height, _LEAST_HEIGHT)
        head: list[RenderableType] = [_title(self._facts)]
        if self._problem:
            head.append(_line((self._problem, "bold red")))
        lines = _rendered(console, head, width)
        room = height - len(lines) - 1
        left_out: list[str] = []
        for body in self._bodies(console, width, room, left_out):
            lines += body
        lines = [*lines, *([] for _ in range(height))][: height - 1]
        hidden = f"no room for: {', '.join(left_out)}" if left_out else ""
        lines += _rendered(console, [_sides(_line((hidden, "dim")), _line(("q ends", "dim")))], width)
        for line in lines:
            yield from line
            yield Segment.line()

    def _bodies(self, console: Console, width: int, height: int, left_out: list[str]) -> Iterator[_Lines]:
        facts, status = self._facts, self._facts.status
        wide = width >= _TWO_COLUMNS
        right = (width - len(_RULE)) * 2 // 5 if wide else width
        left = width - len(_RULE) - right if wide else width
        room, right_room = left - _LABEL_CELLS, right - _LABEL_CELLS
        top = [_runs_part(status), *_progress_parts(facts, width - _LABEL_CELLS)]
        work = [
            _waits_part(status, room),
            _streams_part(facts, room),
            _allowed_part(status),
            _bricks_part(status, room),
        ]
        counts = [_batches_part(status, right_room), _users_part(status, right_room)]
        felt = [_probes_part(status, room), _events_part(status)]
        if not wide:
            yield _arranged(console, [*top, *work, *counts, *felt], width, height, left_out)
            return
        above = _arranged(console, top, width, height, left_out, airy=False)
        yield [*above, []]
        below = max(height - len(above) - 1, 0)
        one = _arranged(console, [*work, *felt], left, below, left_out)
        other = _arranged(console, counts, right, below, left_out)
        rule = Segment(_RULE, console.get_style("dim"))
        pairs = zip_longest(one, other, fillvalue=list[Segment]())
        yield [[*Segment.adjust_line_length(line, left), rule, *beside] for line, beside in pairs]


def _rendered(console: Console, rows: Sequence[RenderableType], width: int) -> _Lines:
    return console.render_lines(Group(*rows), console.options.update(width=max(width, 1)), pad=False)


def _arranged(
    console: Console, parts: Sequence[_Part], width: int, height: int, left_out: list[str], *, airy: bool = True
) -> _Lines:
    """The parts below each other in at most `height` lines: their least lines by importance, then one more for each in turn.
    Remaining lines become blank lines between the parts. Parts without room are added to `left_out`.
    """
    wanted = {part.name: _rendered(console, part.rows, width - _LABEL_CELLS) for part in parts if part.rows}
    by_rank = sorted((part for part in parts if part.rows), key=lambda part: part.rank)
    given: Counter[str] = Counter()
    left = height
    for part in by_rank:
        given[part.name] = min(part.least, len(wanted[part.name]), left)
        left -= given[part.name]
    while left > 0 and (hungry := [name for name in (one.name for one in by_rank) if given[name] < len(wanted[name])]):
        given.update(hungry[:left])
        left -= len(hungry[:left])
    shown = [part for part in parts if given[part.name]]
    left_out += [part.name.split()[0] for part in parts if part.rows and not given[part.name]]
    airy = airy and left >= len(shown) - 1
    lines: _Lines = []
    for place, part in enumerate(shown):
        if airy and place:
            lines.append([])
        body = wanted[part.name]
        hidden = len(body) - given[part.name]
        for number, line in enumerate(body[: given[part.name]]):
            label = "" if number else f"{part.name} {part.count}" if 0 < part.count < 100 else part.name
            if number and hidden and number == given[part.name] - 1:
                label = f"+{hidden} more"
            style = console.get_style("dim" if number else part.style)
            lines.append([Segment(set_cell_size(label, _LABEL_CELLS), style), *line])
    return lines


def _line(*pieces: str | tuple[str, str]) -> Text:
    """One line of text from pieces, each with an optional style. Markup is not interpreted, control characters are escaped."""
    parts = [(clean(one), "") if isinstance(one, str) else (clean(one[0]), one[1]) for one in pieces]
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _sides(left: Text, right: Text) -> Table:
    grid = Table.grid(expand=True, padding=(0, _GAP))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return grid


class _Name:
    """A name in a cell. A long name is cut in the middle, because names differ at their ends."""

    def __init__(self, name: str, style: str = "") -> None:
        self.plain = clean(name)
        self._style = style

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        cells = cell_len(self.plain)
        return Measurement(min(cells, _LEAST_NAME), cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text, kept = self.plain, options.max_width - 1
        if cell_len(text) > options.max_width:
            tail = set_cell_size(text[::-1], kept // 2)[::-1].strip()
            text = set_cell_size(text, kept - kept // 2).strip() + _ELLIPSIS + tail
        yield Text(text, self._style, no_wrap=True, overflow="crop")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column. On a narrow terminal, columns with the greatest `drop` are left out first, those with 0 never."""

    right: bool = False
    drop: int = 0


_LEFT, _RIGHT = _Column(), _Column(right=True)
_Cell = Text | _Name


def _table(columns: Sequence[_Column], rows: Sequence[Sequence[_Cell]], room: int) -> list[RenderableType]:
    """Rows as a grid. Empty columns take no room; names are cut before other cells."""
    cells = [max((cell_len(row[at].plain) for row in rows), default=0) for at in range(len(columns))]
    named = [any(isinstance(row[at], _Name) for row in rows) for at in range(len(columns))]
    least = [min(one, _LEAST_NAME) if name else one for one, name in zip(cells, named, strict=True)]
    shown = [at for at, one in enumerate(cells) if one]
    while sum(least[at] + _GAP for at in shown) - _GAP > room and any(columns[at].drop for at in shown):
        shown.remove(max(shown, key=lambda at: columns[at].drop))
    if not shown:
        return []
    grid = Table.grid(padding=(0, _GAP))
    for at in shown:
        grid.add_column(justify="right" if columns[at].right else "left", no_wrap=not named[at])
    for row in rows:
        grid.add_row(*(row[at] for at in shown))
    return [grid]


def _title(facts: WatchFacts) -> Table:
    status = facts.status
    at = datetime.fromtimestamp(status.at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    name = f"Migration of {status.site}" if status.site is not None else "Migration"
    plan = f", plan {status.plan.name}" if status.plan is not None else ""
    return _sides(_line((name, "bold"), (plan, "dim")), _line(at))


def _runs_part(status: StatusFacts) -> _Part:
    shown = _runs_of_interest(status.runs)
    rows = [_line((_run_words(run, status.at_s), _LIFE_STYLES[run.life])) for run in shown]
    return _Part("at work", rows or [_line("nothing, and nothing was yet")], least=len(rows) or 1)


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


def _progress_parts(facts: WatchFacts, room: int) -> Iterator[_Part]:
    """Progress, rate and estimates."""
    status = facts.status
    if status.plan is None:
        yield _Part("copied", [_line("there is no plan yet: nothing is counted as done or left")])
        return
    under_way = sum(one.done_bytes for one in facts.streams if one.pass_kind is PassKind.SEED)
    yield _Part("copied", [_bar(status.overall, room, "cyan", under_way)])
    yield _Part("verified", [_bar(status.verified, room, "green")])
    yield _Part("rate", [_rate(facts, room)])
    yield _Part("left", list(_left(status))[: None if room >= _WIDE else 1])


def _bar(tally: Tally, room: int, style: str, under_way_bytes: int = 0) -> Text:
    # If all files are empty, the share counts files.
    done, total = (tally.done_bytes, tally.total_bytes) if tally.total_bytes else (tally.done_files, tally.total_files)
    cells = 30 if room >= _WIDE else 10
    full = int(min(done / total if total else 0.0, 1.0) * cells)
    return _line(
        ("█" * full, style),
        ("░" * (cells - full), "dim"),
        (f" {share(done, total)}", "bold"),
        f"  {format_size(tally.done_bytes)} of {format_size(tally.total_bytes)}",
        f", {format_count(tally.done_files)} of {several(tally.total_files, 'file')}",
        # Whole chunks count as done.
        (f", {format_size(under_way_bytes)} under way" if under_way_bytes else "", "dim"),
    )


def _rate(facts: WatchFacts, room: int) -> Text:
    status = facts.status
    point = status.rate or status.last_rate
    if point is None:
        return _line("nothing was copied yet")
    words = _line(
        (format_rate(point.rate_bytes_per_s), "bold" if status.rate is not None else ""),
        f", {point.rate_files_per_s:,.0f} files/s",
        "  " if status.rate is not None else f", until {when(point.at_s)}  ",
    )
    # The sparkline fills the room beside the words with the newest rates.
    rates = facts.rates[-max(room - words.cell_len, 1) :]
    words.append(sparkline(rates, len(rates)), "cyan")
    if rates and room >= _WIDE:
        span = format_duration(facts.rates_span_s * len(rates))
        words.append(f" {span}, at most {format_rate(max(rates))}", "dim")
    return words


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


def _waits_part(status: StatusFacts, room: int) -> _Part:
    """What is blocked and why, with the next step if there is room."""
    rows: list[Text] = []
    for one in status.blocked:
        said, hint = _line((one.subject, "yellow"), f": {one.on}"), _line((f" ({one.hint})", "dim"))
        rows.append(said.append_text(hint) if said.cell_len + hint.cell_len <= room else said)
    if status.attention_total:
        rows.append(_line((f"{several(status.attention_total, 'file needs', 'files need')} attention", "yellow")))
    return _Part("waits", rows, least=2, style="yellow")


def _allowed_part(status: StatusFacts) -> _Part:
    """How many streams may run and why, and the limits that operators set."""
    paragraphs = [block for block in governing_blocks(status.governing) if isinstance(block, Paragraph)]
    return _Part("allowed", [_line(block.text) for block in paragraphs])


def _events_part(status: StatusFacts) -> _Part:
    """Warnings and errors, newest first; with the date if older than a day."""

    def words(event: Event) -> str:
        date = f"{when(event.at_s).split()[0]} " if status.at_s - event.at_s >= DAY_S else ""
        return f"{date}{event_line(event)}"

    return _Part("events", [_line((words(event), EVENT_STYLES[event.severity])) for event in status.events])


def _streams_part(facts: WatchFacts, room: int) -> _Part:
    """Streams at work, or after a killed run those that it left in the ledger."""
    now_s = facts.status.at_s
    live = any(run.life is RunLife.AT_WORK for run in facts.status.runs)
    at_work = sorted(facts.streams, key=lambda one: (one.confirming, one.attempt_id))
    several_passes = len({(one.batch, one.pass_kind, one.pass_number) for one in at_work}) > 1
    columns = (
        _LEFT,
        _LEFT if several_passes else _Column(drop=5),
        _LEFT,
        _Column(drop=2),
        _RIGHT,
        _Column(right=True, drop=4),
        _Column(right=True, drop=1),
        _Column(right=True, drop=3),
    )
    rows = [
        (
            _Name(show(one.tree)),
            _line((_pass_words(one), "dim")),
            _line(f"chunk {one.chunk}"),
            _Name(_where(one)),
            _line(_share(one)),
            _line(f"{format_count(one.done_files)} of {several(one.files, 'file')}"),
            _line((_stream_rate(one, live), "bold" if live else "dim")),
            _line((format_duration(max(now_s - one.started_at_s, 0.0)), "dim")),
        )
        for one in at_work
    ]
    return _Part("streams", _table(columns, rows, room), least=2, count=len(rows))


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


def _bricks_part(status: StatusFacts, room: int) -> _Part:
    """Drains and additions of bricks; ended ones come last."""
    drains = sorted(status.drains, key=lambda one: one.state in _DRAIN_RESTS)
    additions = sorted(status.additions, key=lambda one: one.state in ADDITION_ENDED_STATES)
    rows = [_brick_row(one, _drain_left(one)) for one in drains]
    rows += [
        _brick_row(one, (f"{several(one.moved_files, 'file')} moved", format_size(one.moved_bytes)))
        for one in additions
    ]
    columns = (
        _LEFT,
        _LEFT,
        _RIGHT,
        _Column(right=True, drop=2),
        _RIGHT,
        _Column(right=True, drop=1),
        _Column(right=True, drop=3),
    )
    resting = all(one.state in _DRAIN_RESTS for one in drains) and all(
        one.state in ADDITION_ENDED_STATES for one in additions
    )
    return _Part("bricks", _table(columns, rows, room), resting=resting)


def _drain_left(one: DrainStanding) -> tuple[str, str]:
    return (
        "" if one.left_files is None else f"{several(one.left_files, 'file')} left",
        "" if one.left_bytes is None else f"{format_size(one.left_bytes)} left",
    )


def _brick_row(one: DrainStanding | AdditionStanding, words: tuple[str, str]) -> tuple[_Cell, ...]:
    failed = one.state in (DrainState.FAILED, AdditionState.FAILED)
    style = "red" if one.failures else "yellow" if one.skipped else "dim"
    return (
        _Name(f"{one.bricks[0]} +{len(one.bricks) - 1}" if len(one.bricks) > 1 else "".join(one.bricks)),
        _line((one.state.value, "bold red" if failed else "bold")),
        *map(_line, words),
        _line((_bad(one.failures, one.skipped) or "no failure", style)),
        _line("" if one.bytes_per_s is None else format_rate(one.bytes_per_s)),
        _line("" if one.left_s is None else f"about {format_duration(one.left_s)}"),
    )


def _bad(failures: int, skipped: int) -> str:
    words = [several(failures, "failure")] if failures else []
    words += [f"{format_count(skipped)} skipped"] if skipped else []
    return ", ".join(words)


def _probes_part(status: StatusFacts, room: int) -> _Part:
    """Latency of small operations on both sides."""
    columns = (_LEFT, _LEFT, _LEFT, _LEFT, _LEFT, _Column(drop=1), _Column(drop=2), _Column(drop=3))
    return _Part("probes", _table(columns, [_probe_row(one, status.at_s) for one in status.probes], room), least=2)


def _probe_row(one: Probe, now_s: float) -> tuple[_Cell, ...]:
    age = _line((f"{format_duration(max(now_s - one.at_s, 0.0))} ago", "dim"))
    if one.times is None:
        style = "bold red"
        words = _Name(f"failed: {one.failure}", style)
        said = words if one.waited_s is None else _line((f"no answer for {one.waited_s:,.0f} s", style))
        return (_line(one.side.value), said, *(_line() for _ in range(5)), age)
    times = one.times
    named = (
        ("create", times.create_s),
        ("sync", times.sync_s),
        ("stat", times.stat_s),
        ("unlink", times.unlink_s),
        ("readdir", times.readdir_s),
        ("write", times.write_s),
    )
    return (_line(one.side.value), *(_took(name, took_s) for name, took_s in named), age)


def _took(name: str, took_s: float) -> Text:
    slow = took_s >= _SLOW_PROBE_S
    return _line((f"{name} {took_s:,.1f} s" if slow else f"{name} {1000.0 * took_s:,.1f} ms", "red" if slow else ""))


def _batches_part(status: StatusFacts, room: int) -> _Part:
    """Batches by state, then those in progress or blocked, then the others."""
    columns = (_RIGHT, _LEFT, _RIGHT, _RIGHT, _Column(right=True, drop=1), _Column(drop=2))
    rows = [_batch_row(one) for one in sorted(status.batches, key=_batch_order)]
    counts = [_line(*_counted(one.state.value for one in status.batches))] if rows else []
    return _Part("batches", [*counts, *_table(columns, rows, room)])


def _batch_order(one: BatchFacts) -> tuple[int, int]:
    if one.passes and one.passes[-1].state is not PassState.DONE:
        return (0, one.number)
    return ({BatchState.PLANNED: 2, BatchState.VERIFIED: 3}.get(one.state, 1), one.number)


def _batch_row(one: BatchFacts) -> tuple[_Cell, ...]:
    waiting = sum(one.chunks.get(state, 0) for state in (ChunkState.PENDING, ChunkState.RUNNING, ChunkState.FAILED))
    state = one.state.value
    if one.state is BatchState.VERIFIED:
        state = verified_words(one.verification.percent_content if one.verification else None)
    elif one.passes and one.passes[-1].state is PassState.STOPPED:
        state = f"{state}, stopped"
    return (
        _line((str(one.number), "bold")),
        _line((state, "green" if one.state is BatchState.VERIFIED else "")),
        _line(percent(one.tally.percent_bytes)),
        _line(f"{format_size(one.tally.left_bytes)} left"),
        _line(f"{several(waiting, 'chunk')} left"),
        _line((several(one.attention.bad, "bad file") if one.attention.bad else "", "yellow")),
    )


def _users_part(status: StatusFacts, room: int) -> _Part:
    """Users by state, then those in a cutover, those being copied, and the others."""
    columns = (_LEFT, _Column(drop=1), _LEFT, _RIGHT, _RIGHT)
    stopped = {one.number for one in status.batches if one.passes and one.passes[-1].state is not PassState.RUNNING}
    trees = sorted(status.trees, key=lambda one: (_TREE_ORDER.index(one.state), one.rank))
    rows = [_cutover_row(one, status.at_s) for one in status.cutovers if one.state not in _CUTOVER_RESTS]
    rows += [_tree_row(one, _tree_state(one, stopped)) for one in trees]
    counts = [*_counted(_tree_state(one, stopped) for one in status.trees)]
    if status.cutovers:
        counts += ["; cut over: ", *_counted(one.state.value for one in status.cutovers)]
    return _Part("users", [*([_line(*counts)] if counts else []), *_table(columns, rows, room)])


def _cutover_row(one: CutoverFacts, now_s: float) -> tuple[_Cell, ...]:
    begun_s = one.frozen_since_s
    since = "" if begun_s is None else f"frozen for {format_duration(max(now_s - begun_s, 0.0))}"
    style = "bold yellow"
    return (
        _Name(one.tree.user, style),
        _Name(show(one.tree.path)),
        _line((one.state.value, style)),
        _line(since),
        _line(),
    )


def _tree_state(one: TreeFacts, stopped: Container[int]) -> str:
    if one.state is TreeState.COPYING and one.batch in stopped:
        return "stopped"
    return one.state.value.replace("-", " ")


def _tree_row(one: TreeFacts, state: str) -> tuple[_Cell, ...]:
    return (
        _Name(one.tree.user),
        _Name(show(one.tree.path)),
        _line(state),
        _line(percent(one.tally.percent_bytes)),
        _line(f"{format_size(one.tally.left_bytes)} left"),
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
