"""The live view of progress on a terminal."""

from collections.abc import Sequence
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from migrator.core.clock import Clock
from migrator.core.events import Event
from migrator.core.paths import show
from migrator.core.progress import DrainProgress, PurgeProgress, RunProgress, ScanProgress, Snapshot, VerifyProgress
from migrator.core.units import format_count, format_rate
from migrator.render.document import LINE_CHARACTERS, clean, shortened
from migrator.render.progress import EVENT_STYLES, ProgressView, event_line, is_printed_at_end, share, snapshot_line

VIEW_INTERVAL_S = 0.25

_ROWS_SHOWN = 16
_BAR_WIDTH = 60
_HOST_CHARACTERS = 16


class ErrorConsole(Console):
    """A console on standard error. On a broken pipe, Rich would end the program, but a copy must continue."""

    def on_broken_pipe(self) -> None:
        """Suppress all further output."""
        self.quiet = True


class LiveProgress(ProgressView):
    """A view at the bottom of a terminal, redrawn a few times a second; events scroll above it."""

    def __init__(self, console: ErrorConsole, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._drawn_s: float | None = None
        self._last: Snapshot | None = None
        # No redirection: standard output may be a file with JSON.
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
        """Draw the snapshot, unless the last drawing is too recent."""
        self._last = snapshot
        now_s = self._clock.monotonic_s()
        if self._drawn_s is not None and now_s - self._drawn_s < VIEW_INTERVAL_S:
            return
        self._drawn_s = now_s
        try:
            self._live.update(view(snapshot), refresh=True)
        except (OSError, ValueError):
            return

    def event(self, event: Event) -> None:
        """Print the event above the view."""
        if is_printed_at_end(event):
            return
        try:
            self._console.print(Text(event_line(event), style=EVENT_STYLES[event.severity], overflow="fold"))
        except (OSError, ValueError):
            return


def view(snapshot: Snapshot) -> RenderableType:
    """A snapshot as a live view: one line, a bar, and the bricks or streams at work."""
    parts: list[RenderableType] = [Text(snapshot_line(snapshot), style="bold", overflow="fold")]
    match snapshot:
        case ScanProgress():
            parts.append(_bricks(snapshot))
        case RunProgress():
            parts += [_bar(snapshot.size_bytes, snapshot.total_bytes), _streams(snapshot)]
        case VerifyProgress():
            parts.append(_bar(snapshot.paths, snapshot.total_paths))
        case PurgeProgress():
            parts.append(_bar(snapshot.names, snapshot.total_names))
        case DrainProgress():
            if snapshot.total_bytes is not None:
                parts.append(_bar(snapshot.size_bytes, snapshot.total_bytes))
    # Leave the cursor on an empty line: an echoed ^C would otherwise wrap a line that is redrawn.
    return Group(*parts, Text(""))


def _bar(done: int, total: int) -> Table:
    # A bar alone does not end its line; a grid does.
    grid = Table.grid()
    grid.add_row(ProgressBar(total=max(float(total), 1.0), completed=float(done), width=_BAR_WIDTH))
    return grid


def _bricks(snapshot: ScanProgress) -> RenderableType:
    # Bricks in progress are listed first.
    at_work = sorted(snapshot.bricks, key=lambda brick: (brick.ended, brick.brick))
    rows = [
        (
            clean(brick.brick),
            f"{format_count(brick.rows)} entries",
            "read" if brick.ended else f"{brick.rows / brick.elapsed_s if brick.elapsed_s > 0 else 0.0:,.0f}/s",
        )
        for brick in at_work
    ]
    return _table(rows, 0, "bricks")


def _streams(snapshot: RunProgress) -> RenderableType:
    # Hosts are shown only if there are several.
    several_hosts = len({stream.host for stream in snapshot.streams}) > 1
    rows = [
        (
            str(stream.stream),
            *([shortened(clean(stream.host), _HOST_CHARACTERS)] if several_hosts else []),
            f"chunk {stream.chunk}",
            show(stream.tree),
            f"{format_count(stream.files)} of {format_count(stream.total_files)}",
            share(stream.size_bytes, stream.total_bytes),
            format_rate(stream.rate_bytes_per_s),
        )
        for stream in sorted(snapshot.streams, key=lambda stream: stream.stream)
    ]
    return _table(rows, 3 if several_hosts else 2, "streams")


def _table(rows: Sequence[Sequence[str]], name_at: int, what: str) -> RenderableType:
    """The first rows; the column of names gets the remaining width, figures after it are aligned right."""
    grid = Table.grid(padding=(0, 2), expand=True)
    for at in range(len(rows[0]) if rows else 0):
        is_name = at == name_at
        grid.add_column(
            justify="right" if at > name_at else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if is_name else None,
        )
    for row in rows[:_ROWS_SHOWN]:
        grid.add_row(*(Text(shortened(cell, LINE_CHARACTERS), no_wrap=True, overflow="ellipsis") for cell in row))
    more = [Text(f"and {len(rows) - _ROWS_SHOWN} more {what}", style="dim")] if len(rows) > _ROWS_SHOWN else []
    return Group(grid, *more)
