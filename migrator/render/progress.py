"""Progress on standard error: live on a terminal, plain lines elsewhere."""

import logging
from contextlib import AbstractContextManager
from typing import Protocol, Self, TextIO, assert_never

from migrator.core import progress
from migrator.core.clock import Clock
from migrator.core.events import Event, EventKind, Severity
from migrator.core.units import format_count, format_duration, format_rate, format_size, format_time, several
from migrator.render.document import LINE_CHARACTERS, clean, percent, shortened
from migrator.render.log import MESSAGES, may_be_live

LINE_INTERVAL_S = 5.0
_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}
EVENT_STYLES = {Severity.INFO: "", Severity.WARNING: "yellow", Severity.ERROR: "red"}


class ProgressView(progress.Progress, AbstractContextManager[progress.Progress], Protocol):
    """Shows progress until the end of a `with` block, and the last snapshot once more at its end."""


def open_progress(stream: TextIO, clock: Clock) -> ProgressView:
    """The view for a stream: live on a terminal if messages have their usual level and form, otherwise messages."""
    if stream.isatty() and may_be_live():
        # Loaded here because only a terminal needs it.
        from migrator.render.live import ErrorConsole, LiveProgress  # noqa: PLC0415

        return LiveProgress(ErrorConsole(file=stream, highlight=False), clock)
    return LineProgress(clock)


class LineProgress(ProgressView):
    """Plain lines: the first snapshot that has something, then at most one every few seconds, and the last; every event."""

    def __init__(self, clock: Clock, *, interval_s: float = LINE_INTERVAL_S) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._written_s: float | None = None
        self._waiting: progress.Snapshot | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._waiting is not None:
            MESSAGES.info("%s", snapshot_line(self._waiting))
            self._waiting = None

    def show(self, snapshot: progress.Snapshot) -> None:
        """Write the snapshot, or keep it for later if the last line is recent."""
        if isinstance(snapshot, progress.ScanProgress) and not (snapshot.rows or snapshot.problems):
            return
        now_s = self._clock.monotonic_s()
        if self._written_s is not None and now_s - self._written_s < self._interval_s:
            self._waiting = snapshot
            return
        self._written_s, self._waiting = now_s, None
        MESSAGES.info("%s", snapshot_line(snapshot))

    def event(self, event: Event) -> None:
        """Write the event at once."""
        if not is_printed_at_end(event):
            extra = {"kind": event.kind.value, "subject": event.subject}
            MESSAGES.log(_LEVELS[event.severity], "%s", event_line(event), extra=extra)


def snapshot_line(snapshot: progress.Snapshot) -> str:
    """The progress of a stage in one line."""
    match snapshot:
        case progress.ScanProgress():
            rate = snapshot.rows / snapshot.elapsed_s if snapshot.elapsed_s > 0 else 0.0
            parts = [f"scan: {several(snapshot.rows, 'path')}", f"{rate:,.0f}/s", _left_to_read(snapshot)]
            if snapshot.problems:
                parts.append(f"{format_count(snapshot.problems)} could not be read")
            parts.append(format_duration(snapshot.elapsed_s))
        case progress.RunProgress():
            parts = [
                f"batch {snapshot.batch} {snapshot.step.replace('_', ' ')}: {share(snapshot.size_bytes, snapshot.total_bytes)}",
                f"{format_size(snapshot.size_bytes)} of {format_size(snapshot.total_bytes)}",
                f"{format_count(snapshot.files)} of {several(snapshot.total_files, 'file')}",
            ]
            if snapshot.streams:
                parts += [
                    format_rate(snapshot.rate_bytes_per_s),
                    f"{snapshot.rate_files_per_s:,.0f} files/s",
                    several(len(snapshot.streams), "stream"),
                    "time left unknown" if snapshot.eta_s is None else f"{format_duration(snapshot.eta_s)} left",
                ]
            if snapshot.bad_files:
                parts.append(several(snapshot.bad_files, "bad file"))
        case progress.VerifyProgress():
            parts = [
                f"verify batch {snapshot.batch}: {share(snapshot.paths, snapshot.total_paths)}",
                f"{format_count(snapshot.paths)} of {several(snapshot.total_paths, 'path')}",
                f"{format_size(snapshot.size_bytes)} of {format_size(snapshot.total_bytes)} compared",
                f"content of {format_size(snapshot.digested_bytes)} read",
                *([f"of {format_size(snapshot.carried_bytes)} known"] if snapshot.carried_bytes else []),
                several(snapshot.differences, "difference"),
                format_duration(snapshot.elapsed_s),
            ]
        case progress.PurgeProgress():
            rate = snapshot.names / snapshot.elapsed_s if snapshot.elapsed_s > 0 else 0.0
            parts = [
                f"purge of {snapshot.user}, {snapshot.step}: {share(snapshot.names, snapshot.total_names)}",
                f"{format_count(snapshot.names)} of {several(snapshot.total_names, 'name')}",
                f"{rate:,.0f}/s",
                format_duration(snapshot.elapsed_s),
            ]
            if snapshot.kept:
                parts.append(f"{several(snapshot.kept, 'path')} not proven on the target")
        case progress.DrainProgress():
            parts = _drain(snapshot)
        case _:
            assert_never(snapshot)
    return clean(", ".join(parts))


def _drain(snapshot: progress.DrainProgress) -> list[str]:
    parts = [f"{snapshot.step} {' '.join(snapshot.bricks)}: {_moved(snapshot)}"]
    if snapshot.bytes_per_s is not None and snapshot.files_per_s is not None:
        parts += [format_rate(snapshot.bytes_per_s), f"{snapshot.files_per_s:,.1f} files/s"]
    parts.append("time left unknown" if snapshot.left_s is None else f"{format_duration(snapshot.left_s)} left")
    if snapshot.failures:
        parts.append(several(snapshot.failures, "failure"))
    if snapshot.skipped:
        parts.append(f"{format_count(snapshot.skipped)} skipped")
    return [*parts, format_duration(snapshot.elapsed_s)]


def _moved(snapshot: progress.DrainProgress) -> str:
    """The moved share of the files on the bricks. It may exceed the whole: a host that drains a brick also moves files
    on its other bricks for the new layout, and Gluster counts both together.
    """
    files, total_files = snapshot.files, snapshot.total_files
    size_bytes, total_bytes = snapshot.size_bytes, snapshot.total_bytes
    if total_files is None or total_bytes is None:
        return f"{several(files, 'file')}, {format_size(size_bytes)}"
    if files > total_files or size_bytes > total_bytes:
        return f"{several(files, 'file')}, {format_size(size_bytes)}, with what other bricks had to move"
    return f"{format_count(files)} of {several(total_files, 'file')}, {format_size(size_bytes)} of {format_size(total_bytes)}"


def is_printed_at_end(event: Event) -> bool:
    """True if the command ends with this event: its message or its result then includes the event, so it is not
    printed twice.
    """
    refused = event.kind is EventKind.GUARD_REFUSED and event.severity is Severity.ERROR
    return refused or event.kind is EventKind.POOL_STOPPED


def event_line(event: Event) -> str:
    """An event in one line: `23:30:25 warning: home/alice/x: Input/output error`. The subject is omitted if the message
    begins with it.
    """
    at = format_time(event.at_s, "%H:%M:%S")
    severity = "" if event.severity is Severity.INFO else f"{event.severity.value}: "
    subject, message = clean(event.subject), clean(event.message or event.kind.value)
    parts = [message] if message.startswith(subject) else [subject, message]
    return f"{at} {severity}{': '.join(shortened(part, LINE_CHARACTERS) for part in parts)}"


def share(done: int, total: int) -> str:
    """A share in percent, at most 100 %."""
    return percent(min(100.0 * done / total, 100.0) if total > 0 else None)


def _left_to_read(snapshot: progress.ScanProgress) -> str:
    if not snapshot.bricks:
        return several(snapshot.directories_waiting, "directory waits", "directories wait")
    ended = sum(brick.ended for brick in snapshot.bricks)
    return f"{format_count(ended)} of {several(len(snapshot.bricks), 'brick')} read"
