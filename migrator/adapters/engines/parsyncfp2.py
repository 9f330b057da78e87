"""parsyncfp2 as a driver: fpart cuts a tree into chunks by size, and so many rsyncs at once copy them.

Written after the sources of parsyncfp2 2.55 and 2.59. What is guarded here: `--maxload` out of reach, since rsyncs that
it suspends may stay so; its own chunks large enough for its limit of 5,000; a share of the bandwidth that does not round
to none; rsync options in words that its crude patterns let pass; its cache and its home in a directory of the run; and
the rsyncs that it leaves behind when it ends are waited for (by the confinement). What is not: names with newlines (its
lists are lines), hard links between chunks, failed rsyncs. For these the ordinary chunks follow.
"""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.adapters.engines.driver_logs import GrowingFile, Kept, Lines
from migrator.adapters.engines.driver_options import is_plain, rsync_words, search_path
from migrator.decide.driver_parts import PartLog, stop_of
from migrator.decide.parsyncfp2_outcome import (
    EndedParsyncfp2,
    Parsyncfp2Features,
    chunk_size_for,
    judge_parsyncfp2,
)
from migrator.domain.transfer import Outcome, StopReason, StreamCounters
from migrator.domain.units import KIB, MIB
from migrator.ports.drivers import DriverView, DriverWork
from migrator.ports.processes import Command, Completed

_CACHE = ".pfp2"
_UNREACHABLE_LOAD = b"1000000"
_KEPT_BYTES = MIB
_TAIL_BYTES = 8 * KIB
_LOGGED = re.compile(rb".*\] ([<>ch][fLDS]\S+)_(\d+)")
"""A line of rsync's log under `--log-file-format=%i_%l`: what was done, and the file's size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsyncfp2Programs:
    """Absolute paths, and which parsyncfp2 it is."""

    program: bytes
    helpers: Sequence[bytes]
    features: Parsyncfp2Features


class Parsyncfp2:
    """Turns trees into runs of parsyncfp2. `privileged`: they run as root."""

    def __init__(self, programs: Parsyncfp2Programs, *, privileged: bool) -> None:
        self._programs = programs
        self._privileged = privileged

    @property
    def name(self) -> str:
        """As in `--engine`."""
        return "parsyncfp2"

    @property
    def files(self) -> Sequence[bytes]:
        """The programs."""
        return (self._programs.program, *self._programs.helpers)

    def refusal(self, view: DriverView) -> str | None:
        """It pastes the paths of both trees and of its directory into shell commands."""
        if all(map(is_plain, (view.source_tree, view.target_tree, view.work, *self.files))):
            return None
        return "parsyncfp2 can take no tree whose path holds anything but letters, digits and ._/+@%-"

    def command(self, work: DriverWork, view: DriverView, directory: Path) -> Command:
        """Always a new run: going on with one asks for the number of its next chunk, which nobody knows for sure."""
        if (directory / _CACHE).exists():
            shutil.rmtree(directory / _CACHE)
        words = rsync_words(
            work.capabilities, recopy=work.recopy, bwlimit_bytes_per_s=None, privileged=self._privileged
        )
        # The root of a tree is one directory for it: its chunks name paths below, beginning with `./`.
        return Command(
            argv=(
                self._programs.program,
                b"--NP=%d" % work.jobs,
                b"--chunksize=%d" % chunk_size_for(work.size_bytes, work.part_bytes),
                b"--startdir=" + view.source_tree,
                b"--%s=%s"
                % (
                    self._programs.features.rsync_option.encode("ascii"),
                    " ".join((*words.plain, "--log-file-format=%i_%l")).encode("ascii"),
                ),
                *_bandwidth(work),
                b"--maxload=" + _UNREACHABLE_LOAD,
                b"--altcache=" + view.work,
                b"--nowait",
                b"--verbose=1",
                b".",
                view.target_tree,
            ),
            environment={
                "PATH": search_path(self.files),
                "HOME": os.fsdecode(view.work),
                "USER": "root" if self._privileged else "user",
                "SHELL": "/bin/sh",
                "TERM": "dumb",
            },
            timeout_s=None,
        )

    def reader(self, view: DriverView, directory: Path) -> "Parsyncfp2Reader":
        """A new reader for one run."""
        return Parsyncfp2Reader(view, directory)


class Parsyncfp2Reader:
    """Follows one run: the logs of its rsyncs say how far it is, their messages come on its standard error."""

    def __init__(self, view: DriverView, directory: Path) -> None:
        self._view = view
        self._directory = directory
        self._stdout = Kept(_KEPT_BYTES)
        self._stderr = Kept(_KEPT_BYTES)
        self._messages = Lines(self._message)
        self._logs: dict[str, tuple[GrowingFile, Lines]] = {}
        self._files = 0
        self._size_bytes = 0
        self._trouble: tuple[StopReason, str] | None = None
        self._exit_code: int | None = None

    def stdout(self, piece: bytes) -> None:
        """Take a piece of standard output."""
        self._stdout.add(piece)

    def stderr(self, piece: bytes) -> None:
        """Take a piece of standard error."""
        self._stderr.add(piece)
        self._messages.add(piece)

    @property
    def counters(self) -> StreamCounters:
        """What all rsyncs have logged so far."""
        for path in self._directory.glob(f"{_CACHE}/rsync-log-*"):
            log, lines = self._logs.setdefault(path.name, (GrowingFile(path), Lines(self._logged)))
            log.hand_out(lines.add)
        return StreamCounters(files=self._files, size_bytes=self._size_bytes)

    @property
    def stderr_tail(self) -> bytes:
        """The last few KiB."""
        return self._stderr.last(_TAIL_BYTES)

    @property
    def exit_code(self) -> int | None:
        """Of a run that was judged."""
        return self._exit_code

    @property
    def trouble(self) -> tuple[StopReason, str] | None:
        """What an rsync said of a full target, or the like."""
        return self._trouble

    def outcome(self, completed: Completed) -> Outcome:
        """Judge the run."""
        self._exit_code = completed.exit_code
        return judge_parsyncfp2(
            EndedParsyncfp2(
                exit_code=completed.exit_code,
                stdout=self._stdout.content,
                stderr=self._stderr.content,
                counters=self.counters,
                source_tree=self._view.source_tree,
                target_tree=self._view.target_tree,
                timed_out=completed.timed_out,
            )
        )

    def _logged(self, line: bytes) -> None:
        if match := _LOGGED.fullmatch(line):
            self._files += 1
            if match[1][:1] in b"<>":
                self._size_bytes += int(match[2])

    def _message(self, line: bytes) -> None:
        if self._trouble is None and line.startswith(b"rsync"):
            found = stop_of(
                (PartLog(number=0, stderr=line),),
                source_tree=self._view.source_tree,
                target_tree=self._view.target_tree,
            )
            self._trouble = None if found is None else (found[0], found[1].partition(": ")[2])


def _bandwidth(work: DriverWork) -> Sequence[bytes]:
    """In KiB/s for all together; it divides by its number of rsyncs, and 0 would mean no limit."""
    if work.bwlimit_bytes_per_s is None:
        return ()
    return (b"--maxbw=%d" % max(work.bwlimit_bytes_per_s // KIB, work.jobs),)
