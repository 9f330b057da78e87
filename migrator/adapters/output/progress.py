"""Progress on standard error: a live view on a terminal, a line every few seconds otherwise."""

from typing import Self, TextIO

from migrator.adapters.output.progress_lines import event_line, snapshot_line
from migrator.adapters.output.progress_view import ProgressView
from migrator.domain.events import Event
from migrator.domain.progress import Snapshot
from migrator.ports.clock import Clock

LINE_INTERVAL_S = 5.0


def open_progress(stream: TextIO, clock: Clock) -> ProgressView:
    """The view that suits a stream: live on a terminal, lines otherwise."""
    if stream.isatty():
        # What draws on a terminal is loaded only where there is one.
        from migrator.adapters.output.live_progress import ErrorConsole, LiveProgress  # noqa: PLC0415

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
