"""Progress on standard error: a live view on a terminal, a line every few seconds otherwise."""

from contextlib import AbstractContextManager
from typing import Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from migrator.adapters.output.document import clean
from migrator.adapters.output.progress_lines import Snapshot, event_line, share, snapshot_line
from migrator.adapters.output.wording import LINE_CHARACTERS, shortened
from migrator.domain.events import Event, Severity
from migrator.domain.paths import show
from migrator.domain.progress import RunProgress, ScanProgress, VerifyProgress
from migrator.domain.units import format_count, format_rate, format_size
from migrator.ports.clock import Clock
from migrator.ports.progress import Progress

LINE_INTERVAL_S = 5.0
VIEW_INTERVAL_S = 0.25

_STREAMS_SHOWN = 16
_USERS_SHOWN = 10
_BAR_WIDTH = 60
_HOST_CHARACTERS = 16
_EVENT_STYLES = {Severity.INFO: "", Severity.WARNING: "yellow", Severity.ERROR: "red"}


class ProgressView(Progress, AbstractContextManager[Progress], Protocol):
    """Progress that is shown until the end of a `with` block, where the last snapshot is shown once more."""


def open_progress(stream: TextIO, clock: Clock) -> ProgressView:
    """The view that suits a stream: live on a terminal, lines otherwise."""
    if stream.isatty():
        return LiveProgress(ErrorConsole(file=stream, highlight=False), clock)
    return LineProgress(stream, clock)


class LineProgress(ProgressView):
    """Plain lines: the first snapshot, then at most one every few seconds, and the last; every event."""

    def __init__(self, stream: TextIO, clock: Clock, *, interval_s: float = LINE_INTERVAL_S) -> None:
        self._stream = stream
        self._clock = clock
        self._interval_s = interval_s
        self._written_s: float | None = None
        self._waiting: Snapshot | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._waiting is not None:
            self._write(snapshot_line(self._waiting))
            self._waiting = None

    def show(self, snapshot: Snapshot) -> None:
        """Write the snapshot, or keep it where the last one is fresh."""
        now_s = self._clock.monotonic_s()
        if self._written_s is not None and now_s - self._written_s < self._interval_s:
            self._waiting = snapshot
            return
        self._written_s, self._waiting = now_s, None
        self._write(snapshot_line(snapshot))

    def event(self, event: Event) -> None:
        """Write the event at once."""
        self._write(event_line(event))

    def _write(self, line: str) -> None:
        # Standard error may be closed or its reader gone: that is no reason to stop a copy.
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError):
            return


class ErrorConsole(Console):
    """A console on standard error. Rich ends the whole program where nobody reads any more; a copy must go on."""

    def on_broken_pipe(self) -> None:
        """Write nothing from here on."""
        self.quiet = True


class LiveProgress(ProgressView):
    """A view at the bottom of a terminal, drawn anew a few times a second; events scroll by above it."""

    def __init__(self, console: ErrorConsole, clock: Clock, *, interval_s: float = VIEW_INTERVAL_S) -> None:
        self._console = console
        self._clock = clock
        self._interval_s = interval_s
        self._drawn_s: float | None = None
        self._last: Snapshot | None = None
        # What else is printed is nobody's business here: standard output may be a file with JSON.
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._live.stop()
            if self._last is not None:
                self._console.print(Text(snapshot_line(self._last)))
        except (OSError, ValueError):
            return

    def show(self, snapshot: Snapshot) -> None:
        """Draw the snapshot, where the last drawing is old enough."""
        self._last = snapshot
        now_s = self._clock.monotonic_s()
        if self._drawn_s is not None and now_s - self._drawn_s < self._interval_s:
            return
        self._drawn_s = now_s
        try:
            self._live.update(view(snapshot), refresh=True)
        except (OSError, ValueError):
            return

    def event(self, event: Event) -> None:
        """Print the event above the view."""
        try:
            self._console.print(Text(event_line(event), style=_EVENT_STYLES[event.severity], overflow="fold"))
        except (OSError, ValueError):
            return


def view(snapshot: Snapshot) -> RenderableType:
    """A snapshot as a live view: one line, a bar, and what is at work."""
    parts: list[RenderableType] = [Text(snapshot_line(snapshot), style="bold", overflow="fold")]
    match snapshot:
        case ScanProgress():
            parts.append(_users(snapshot))
        case RunProgress():
            parts.append(_bar(snapshot.size_bytes, snapshot.total_bytes))
            parts.append(_streams(snapshot))
        case VerifyProgress():
            parts.append(_bar(snapshot.paths, snapshot.total_paths))
    # The cursor waits on a line of its own: the ^C that a terminal echoes must not wrap what is to be drawn over.
    return Group(*parts, Text(""))


def _bar(done: int, total: int) -> Table:
    # A bar alone does not end its line; a grid does.
    grid = Table.grid()
    grid.add_row(ProgressBar(total=max(float(total), 1.0), completed=float(done), width=_BAR_WIDTH))
    return grid


def _users(snapshot: ScanProgress) -> Table:
    grid = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right"):
        grid.add_column(justify=justify)
    heaviest = sorted(snapshot.by_user, key=lambda user: (-user[2], user[0]))
    for user, rows, size_bytes in heaviest[:_USERS_SHOWN]:
        grid.add_row(
            Text(shortened(clean(user), LINE_CHARACTERS)),
            Text(f"{format_count(rows)} paths"),
            Text(format_size(size_bytes)),
        )
    if len(heaviest) > _USERS_SHOWN:
        grid.add_row(Text(f"and {len(heaviest) - _USERS_SHOWN} more users", style="dim"), "", "")
    return grid


def _streams(snapshot: RunProgress) -> RenderableType:
    # The tree gets what the figures leave; the hosts are told apart only where there are several.
    grid = Table.grid(padding=(0, 2), expand=True)
    shown = sorted(snapshot.streams, key=lambda stream: stream.stream)[:_STREAMS_SHOWN]
    several_hosts = len({stream.host for stream in snapshot.streams}) > 1
    grid.add_column(justify="right", no_wrap=True)
    if several_hosts:
        grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for _ in range(3):
        grid.add_column(justify="right", no_wrap=True)
    for stream in shown:
        grid.add_row(
            Text(str(stream.stream), style="dim"),
            *([Text(shortened(clean(stream.host), _HOST_CHARACTERS))] if several_hosts else []),
            Text(f"chunk {stream.chunk}"),
            Text(shortened(show(stream.tree), LINE_CHARACTERS), overflow="ellipsis", no_wrap=True),
            Text(f"{format_count(stream.files)} of {format_count(stream.total_files)}"),
            Text(share(stream.size_bytes, stream.total_bytes)),
            Text(format_rate(stream.rate_bytes_per_s)),
        )
    parts: list[RenderableType] = [grid]
    if len(snapshot.streams) > _STREAMS_SHOWN:
        parts.append(Text(f"and {len(snapshot.streams) - _STREAMS_SHOWN} more streams", style="dim"))
    return Group(*parts)
