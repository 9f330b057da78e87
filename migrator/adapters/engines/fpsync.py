"""fpsync as a driver: fpart cuts a tree into parts, and so many rsyncs at once copy them.

Written after fpsync 1.5.1 (Debian 12) and 1.7. What is guarded here: it leaves out `.zfs`, `.snapshot*` and `.ckpt`
unless told otherwise; a run can only be gone on with where rsync's path was given (`-T`) and the crawl had ended; and
it goes through all of its queue on a full target. What is not: hard links between parts, errors of the crawl, and that
nothing is verified. For these the ordinary chunks follow.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.adapters.engines.driver_logs import GrowingFile, Kept, Lines, read_head
from migrator.adapters.engines.driver_options import is_plain, rsync_words, search_path
from migrator.adapters.engines.progress import ProgressParser
from migrator.decide.driver_parts import PartLog, stop_of
from migrator.decide.fpsync_outcome import EndedFpsync, judge_fpsync, parse_line
from migrator.domain.transfer import Outcome, StopReason, StreamCounters
from migrator.domain.units import KIB, MIB
from migrator.ports.drivers import DriverView, DriverWork
from migrator.ports.processes import Command, Completed

_TAIL_BYTES = 8 * KIB
_PART_STDERR_BYTES = 64 * KIB
_MOST_PARTS_READ = 200
_RUN_PARTS = ("parts", "log", "queue", "work")
_OPTIONS_FILE = "options"


@dataclass(frozen=True, slots=True, kw_only=True)
class FpsyncPrograms:
    """Absolute paths."""

    fpsync: bytes
    fpart: bytes
    rsync: bytes


class Fpsync:
    """Turns trees into runs of fpsync. `privileged`: they run as root."""

    def __init__(self, programs: FpsyncPrograms, *, privileged: bool) -> None:
        self._programs = programs
        self._privileged = privileged

    @property
    def name(self) -> str:
        """As in `--engine`."""
        return "fpsync"

    @property
    def files(self) -> Sequence[bytes]:
        """The programs."""
        return (self._programs.fpsync, self._programs.fpart, self._programs.rsync)

    def refusal(self, view: DriverView) -> str | None:
        """It pastes the paths of both trees and of its directory into shell scripts."""
        paths = (view.source_tree, view.target_tree, view.work, *self.files)
        if all(map(is_plain, paths)):
            return None
        return "fpsync can take no tree whose path holds anything but letters, digits and ._/+@%-"

    def command(self, work: DriverWork, view: DriverView, directory: Path) -> Command:
        """A new run, or the one that was interrupted, where its crawl had ended and it was asked for the same."""
        asked = self._new_run(work, view)
        resumed = None if work.recopy else _resumable(directory, asked)
        if resumed is None:
            _clear(directory)
            (directory / _OPTIONS_FILE).write_bytes(_written(asked))
            words: tuple[bytes, ...] = asked
        else:
            _put_old_complaints_aside(directory / "log" / resumed)
            words = (b"-r", os.fsencode(resumed))
        return Command(
            argv=(self._programs.fpsync, b"-n", b"%d" % work.jobs, b"-t", view.work, b"-vv", *words),
            environment={"PATH": search_path(self.files), "HOME": os.fsdecode(view.work)},
            timeout_s=None,
        )

    def reader(self, view: DriverView, directory: Path) -> "FpsyncReader":
        """A new reader for one run."""
        return FpsyncReader(view, directory)

    def _new_run(self, work: DriverWork, view: DriverView) -> tuple[bytes, ...]:
        limit = work.bwlimit_bytes_per_s
        words = rsync_words(
            work.capabilities,
            recopy=work.recopy,
            bwlimit_bytes_per_s=None if limit is None else limit // work.jobs,
            privileged=self._privileged,
        )
        counted = ("--no-human-readable", "--info=progress2,stats2", "--outbuf=L")
        return (
            b"-f",
            b"%d" % work.part_files,
            b"-s",
            b"%d" % work.part_bytes,
            b"-T",
            self._programs.rsync,
            b"-o",
            " ".join((*words.plain, *words.noisy, *counted)).encode("ascii"),
            # Instead of its own: those leave out files that may be users'. This one is on anyway.
            b"-O",
            b"-e",
            view.source_tree,
            view.target_tree,
        )


class FpsyncReader:
    """Follows one run: its own lines say which parts are under way, rsync's logs how far they are."""

    def __init__(self, view: DriverView, directory: Path) -> None:
        self._view = view
        self._directory = directory
        self._lines = Lines(self._line)
        self._stderr = Kept(_TAIL_BYTES)
        self._running: dict[int, tuple[GrowingFile, ProgressParser]] = {}
        self._files = 0
        self._size_bytes = 0
        self._completed = False
        self._crawl_failed = False
        self._trouble: tuple[StopReason, str] | None = None
        self._exit_code: int | None = None
        self._last_complaint = b""

    def stdout(self, piece: bytes) -> None:
        """Take a piece of standard output."""
        self._lines.add(piece)

    def stderr(self, piece: bytes) -> None:
        """Take a piece of standard error."""
        self._stderr.add(piece)

    @property
    def counters(self) -> StreamCounters:
        """What all parts of this run have brought so far."""
        files, size_bytes = self._files, self._size_bytes
        for log, parser in self._running.values():
            log.hand_out(parser.take)
            files += parser.counters.files
            size_bytes += parser.counters.size_bytes
        return StreamCounters(files=files, size_bytes=size_bytes)

    @property
    def stderr_tail(self) -> bytes:
        """Its own last words, and the last complaint of a part."""
        return (self._stderr.last(_TAIL_BYTES // 2) + self._last_complaint[-_TAIL_BYTES // 2 :])[-_TAIL_BYTES:]

    @property
    def exit_code(self) -> int | None:
        """Of a run that was judged."""
        return self._exit_code

    @property
    def trouble(self) -> tuple[StopReason, str] | None:
        """What a part that has ended said of a full target, or the like."""
        return self._trouble

    def outcome(self, completed: Completed) -> Outcome:
        """Judge the run."""
        self._exit_code = completed.exit_code
        counters = self.counters
        return judge_fpsync(
            EndedFpsync(
                exit_code=completed.exit_code,
                completed=self._completed,
                crawl_failed=self._crawl_failed,
                stderr=self._stderr.content,
                parts=self._complaints(),
                counters=counters,
                source_tree=self._view.source_tree,
                target_tree=self._view.target_tree,
                timed_out=completed.timed_out,
            )
        )

    def _line(self, line: bytes) -> None:
        said = parse_line(line)
        if said is None:
            return
        if said.started is not None:
            self._running[said.started] = (GrowingFile(self._log(said.started, "stdout")), ProgressParser())
        if said.finished is not None:
            self._part_ended(said.finished)
        self._completed = self._completed or said.completed
        self._crawl_failed = self._crawl_failed or said.crawl_failed

    def _part_ended(self, number: int) -> None:
        if number in self._running:
            log, parser = self._running.pop(number)
            log.hand_out(parser.take)
            self._files += parser.counters.files
            self._size_bytes += parser.counters.size_bytes
        said = read_head(self._log(number, "stderr"), _PART_STDERR_BYTES)
        if said:
            self._last_complaint = said
            self._trouble = self._trouble or stop_of(
                (PartLog(number=number, stderr=said),),
                source_tree=self._view.source_tree,
                target_tree=self._view.target_tree,
            )

    def _complaints(self) -> tuple[PartLog, ...]:
        found = sorted(
            (int(path.stem), path)
            for path in self._directory.glob("log/*/*.stderr")
            if path.stem.isdigit() and path.stat().st_size
        )
        return tuple(
            PartLog(number=number, stderr=read_head(path, _PART_STDERR_BYTES))
            for number, path in found[:_MOST_PARTS_READ]
        )

    def _log(self, number: int, what: str) -> Path:
        run = next(iter(_runs(self._directory / "log")), "")
        return self._directory / "log" / run / f"{number}.{what}"


def _resumable(directory: Path, asked: tuple[bytes, ...]) -> str | None:
    """The run that lies in the directory, where fpsync can go on with it: after the crawl, before the end."""
    if read_head(directory / _OPTIONS_FILE, MIB) != _written(asked):
        return None
    runs = _runs(directory / "queue")
    if len(runs) != 1:
        return None
    queue = directory / "queue" / runs[0]
    others = (directory / kind / runs[0] for kind in _RUN_PARTS)
    whole = all((queue / flag).is_file() for flag in ("info", "fp_done")) and all(path.is_dir() for path in others)
    return runs[0] if whole else None


def _put_old_complaints_aside(log: Path) -> None:
    """Parts that ended with errors are not done again by fpsync: the chunks that follow bring what they left out."""
    for path in log.glob("*.stderr"):
        if path.stat().st_size:
            path.replace(path.with_suffix(".earlier"))


def _clear(directory: Path) -> None:
    (directory / _OPTIONS_FILE).unlink(missing_ok=True)
    for kind in _RUN_PARTS:
        if (directory / kind).exists():
            shutil.rmtree(directory / kind)


def _runs(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir() if path.is_dir())
    except OSError:
        return []


def _written(words: Sequence[bytes]) -> bytes:
    return b"".join(word + b"\0" for word in words)
