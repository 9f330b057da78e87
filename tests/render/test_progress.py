"""Progress: rarely enough, never in the way, and safe to look at."""

import io
import re
from dataclasses import replace

import pytest

from migrator.core.events import Event, EventKind, Severity
from migrator.core.progress import RunProgress, ScanProgress, StreamProgress, VerifyProgress
from migrator.render.document import NONE
from migrator.render.live import ErrorConsole, LiveProgress
from migrator.render.progress import LINE_INTERVAL_S, LineProgress, event_line, open_progress
from tests.support.fakes import VirtualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def scan(rows: int) -> ScanProgress:
    return ScanProgress(elapsed_s=10.0, rows=rows, directories_waiting=2, problems=1)


def run(streams: int = 2) -> RunProgress:
    return RunProgress(
        batch=3,
        step="files",
        elapsed_s=60.0,
        files=50,
        size_bytes=2**30,
        total_files=200,
        total_bytes=2**32,
        rate_bytes_per_s=2.0**20,
        rate_files_per_s=12.0,
        eta_s=None,
        bad_files=1,
        streams=tuple(
            StreamProgress(
                stream=number,
                host="gl1",
                chunk=number,
                tree=b"home/\x1b[31m\n\xff",
                files=1,
                size_bytes=5,
                total_files=2,
                total_bytes=10,
                rate_bytes_per_s=1.0,
                elapsed_s=1.0,
            )
            for number in range(streams)
        ),
    )


VERIFY = VerifyProgress(batch=3, elapsed_s=61.0, paths=1, total_paths=0, size_bytes=0, total_bytes=0, differences=2)
EVENT = Event(
    at_s=1_763_600_000.0,
    kind=EventKind.CHUNK_RETRIED,
    severity=Severity.WARNING,
    subject="chunk 7",
    message="bad\r\nnews \x1b[2J\u202e",
)


class TestLines:
    def test_come_at_most_every_few_seconds(self) -> None:
        stream, clock = io.StringIO(), VirtualClock()
        with LineProgress(stream, clock) as progress:
            for turn in range(int(LINE_INTERVAL_S * 8) * 2):
                progress.show(scan(turn))
                clock.at_s += 0.125
        lines = stream.getvalue().splitlines()
        assert [int(re.search(r"scan: (\d+)", line).group(1)) for line in lines] == [0, 40, 79]  # type: ignore[union-attr]

    def test_say_what_matters(self) -> None:
        stream, clock = io.StringIO(), VirtualClock()
        with LineProgress(stream, clock, interval_s=0.0) as progress:
            progress.show(run())
            progress.show(VERIFY)
            progress.event(EVENT)
        assert stream.getvalue().splitlines() == [
            "batch 3 files: 25.0 %, 1.0 GiB of 4.0 GiB, 50 of 200 files, 1.0 MiB/s, 12 files/s, 2 streams, "
            "time left not known yet, 1 bad file",
            f"verify batch 3: {NONE}, 1 of 0 paths, 0 B of 0 B compared, content of 0 B read, 2 differences, 1 min 1 s",
            r"00:53:20 warning: chunk 7: bad\x0d\x0anews \x1b[2J\xe2\x80\xae",
        ]

    def test_go_nowhere_when_nobody_reads(self) -> None:
        with LineProgress(Closed(), VirtualClock()) as progress:
            progress.show(scan(1))
            progress.event(EVENT)
        stream = io.StringIO()
        stream.close()
        with LineProgress(stream, VirtualClock()) as progress:
            progress.show(scan(1))


@pytest.mark.parametrize(
    ("subject", "message", "line"),
    [
        ("home/a", "home/a: Input/output error", "home/a: Input/output error"),
        ("a", "this is a directory", "a: this is a directory"),
    ],
)
def test_the_subject_is_not_said_twice(subject: str, message: str, line: str) -> None:
    event = replace(EVENT, severity=Severity.INFO, subject=subject, message=message)
    assert event_line(event) == f"00:53:20 {line}"


class TestLiveView:
    def test_shows_streams_and_ends_with_the_last_snapshot(self) -> None:
        stream, clock = Terminal(), VirtualClock()
        console = ErrorConsole(
            file=stream, force_terminal=True, width=120, height=40, color_system=None, highlight=False
        )
        with LiveProgress(console, clock) as progress:
            progress.show(run(20))
            drawn = stream.getvalue()
            progress.show(run(1))
            assert stream.getvalue() == drawn
            clock.at_s += 1.0
            progress.event(EVENT)
            progress.show(scan(5))
            progress.show(scan(6))
        written = stream.getvalue()
        assert r"home/\x1b[31m\x0a\xff" in written
        assert "and 4 more streams" in written
        assert "scan: 6 paths" in written.splitlines()[-1]
        assert r"bad\x0d\x0anews \x1b[2J" in written
        # Nothing of a name or a message reaches the terminal as a sequence of its own.
        assert "\x1b[31m" not in written
        assert "\x1b[2J" not in written
        assert "\u202e" not in written


def test_the_view_suits_the_stream() -> None:
    assert isinstance(open_progress(Terminal(), VirtualClock()), LiveProgress)
    assert isinstance(open_progress(io.StringIO(), VirtualClock()), LineProgress)
