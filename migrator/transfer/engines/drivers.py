"""fpsync and parsyncfp2 as drivers of whole trees, confined to one tree and one directory."""

import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.core.units import KIB, MIB, several
from migrator.fs.model import TargetCapabilities
from migrator.hosts.ports import Command, Completed
from migrator.transfer.engines.rsync import ProgressParser, bandwidth, capability_options
from migrator.transfer.engines.rules_rsync import JAIL_FAILED, Ended, EndedRsync, judge_rsync
from migrator.transfer.model import AttemptVerdict, StopReason, StreamCounters, StreamOutcome, StreamView
from migrator.transfer.ports import TAIL_BYTES, DriverView, DriverWork, Kept, Lines, StreamReader

_STOPPING = (
    StopReason.TARGET_FULL,
    StopReason.TARGET_QUOTA,
    StopReason.TARGET_READ_ONLY,
    StopReason.DISCONNECTED,
)
"""EIO is absent: the look-ups that follow find the file that it concerns."""
_PARTIAL = 23
_SIGNALLED = 128
_UNUSABLE = (126, 127)
_SHOWN_PARTS = 3
_SHOWN_BYTES = 300


class PartLog(Struct, frozen=True, kw_only=True):
    """Standard error of the stream of one part, or a section of it. `number` is None if the driver mixes all parts."""

    number: int | None
    stderr: bytes

    def __str__(self) -> str:
        return "" if self.number is None else f"part {self.number}: "


class EndedDriver(Ended, frozen=True, kw_only=True):
    """The end of a run. `parts` are the parts with messages; `stdout` and `stderr` may be truncated. `completed` and
    `crawl_failed` are fpsync's report on the whole run.
    """

    view: StreamView
    parts: Sequence[PartLog] = ()
    stdout: bytes = b""
    completed: bool = False
    crawl_failed: bool = False


def stop_of(parts: Sequence[PartLog], view: StreamView) -> tuple[StopReason, str] | None:
    """The first error that no file is to blame for, with the stream's message; None if there is none."""
    for part in parts:
        outcome = _judge_stream(part.stderr, view, exit_code=_PARTIAL)
        if outcome.verdict is AttemptVerdict.STOP and outcome.stop in _STOPPING:
            return outcome.stop, f"{part}{outcome.message}"
    return None


def _judge_stream(stderr: bytes, view: StreamView, *, exit_code: int) -> StreamOutcome:
    nothing = StreamCounters()
    return judge_rsync(
        EndedRsync(exit_code=exit_code, stderr=stderr, stderr_cut=True, tree=b"", names=(), view=view, counters=nothing)
    )


def _cut_short(name: str, ended: EndedDriver) -> StreamOutcome | None:
    """The outcome of a run that ended by the confinement, an error that no file is to blame for, or a signal."""
    if ended.exit_code == JAIL_FAILED:
        jail = _judge_stream(ended.stderr, ended.view, exit_code=JAIL_FAILED)
        return ended.outcome(jail.verdict, jail.message, jail.stop)
    if (stop := stop_of(ended.parts, ended.view)) is not None:
        return ended.outcome(AttemptVerdict.STOP, stop[1], stop[0])
    if ended.timed_out or ended.exit_code < 0 or ended.exit_code > _SIGNALLED:
        return ended.outcome(AttemptVerdict.INTERRUPTED, f"{name} was ended with {ended.exit_code}")
    return None


def _done(ended: EndedDriver) -> StreamOutcome:
    """DONE; the message names the parts with errors, and quotes the end of the output of the first few."""
    if not ended.parts:
        return ended.outcome(AttemptVerdict.DONE)
    shown = "; ".join(f"{part}{show(part.stderr[-_SHOWN_BYTES:].strip())}" for part in ended.parts[:_SHOWN_PARTS])
    return ended.outcome(AttemptVerdict.DONE, f"{several(len(ended.parts), 'part')} with errors: {shown}")


# fpsync 1.5.1 and 1.7 exit with 0, or with 1 for everything else: a usage error, a missing program, an interruption, a
# failure of fpart, and a complete run in which any part left a message. Only its own lines tell these apart; the
# messages are in its log directory, a file for each part. 128 and more: a signal.


FPSYNC_COMPLETED = re.compile(rb"\d+ <=== Fpsync completed with(?:out)? errors?\b")
FPSYNC_CRAWL_FAILED = re.compile(rb"\d+ <=== Fpart exited with errors")
FPSYNC_STARTED = re.compile(rb"\d+ => \[QMGR\] Starting job .*/(\d+) \(local\)")
FPSYNC_FINISHED = re.compile(rb"\d+ <= \[QMGR\] Job \d+:(\d+):local finished")
_FPSYNC_MISSING = re.compile(rb"Fpart is missing|not use?able locally|Cannot (?:create|record)")
_NOISE = re.compile(rb".*set: can't access tty; job control turned off")


def judge_fpsync(ended: EndedDriver) -> StreamOutcome:
    """STOP for errors that no file is to blame for, INTERRUPTED if a signal ended it, RETRY if it is incomplete; DONE
    otherwise, with a message if parts left any.
    """
    if (cut := _cut_short("fpsync", ended)) is not None:
        return cut
    lines = [line for line in ended.stderr.split(b"\n") if line and not _NOISE.fullmatch(line)]
    printed = b"\n".join(lines)[-_SHOWN_BYTES:]
    if ended.exit_code in _UNUSABLE or _FPSYNC_MISSING.search(printed):
        message = f"fpsync ended with {ended.exit_code}: {show(printed)}"
        return ended.outcome(AttemptVerdict.STOP, message, StopReason.TOOL_MISSING)
    if not ended.completed or ended.crawl_failed:
        why = "fpart could not read everything" if ended.crawl_failed else show(printed) or "no message"
        return ended.outcome(AttemptVerdict.RETRY, f"fpsync is incomplete (exit code {ended.exit_code}): {why}")
    return _done(ended)


# parsyncfp2 2.55 and 2.59 exit with 1 after `** FATAL ERROR **` on standard output, and with 0 otherwise, even if
# rsyncs failed; some versions exit while rsyncs still run. The exit code therefore proves nothing. The
# verdict uses the messages of its rsyncs on standard error, after all of its processes have ended.


MOST_CHUNKS = 5000
"""parsyncfp2 aborts above this number of chunks."""
OLDEST_VERSION = (2, 57)
"""Earlier versions do not accept a mounted file system as the target."""

_VERSION = re.compile(rb"^parsyncfp2 version (\d+)\.(\d+)", re.MULTILINE)
_FATAL = re.compile(rb"\*\* FATAL ERROR \*\*: *([^\n]*)")
_TOO_MANY = re.compile(rb"now exceeded \[\d+\] chunk files")
_HELPER_MISSING = re.compile(rb"REQUIRED utilities were not found|Can't (?:create|make|open)")
_COLOURS = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_RSYNC = re.compile(rb"rsync(?: error)?: |file has vanished: |migrator-jail: |ERROR: |WARNING: ")


def parsyncfp2_problem(script: bytes) -> str | None:
    """Why this parsyncfp2 script cannot be used; None if it can."""
    version = _VERSION.search(script)
    if version is None:
        return "it prints no version, so it is no parsyncfp2"
    found = int(version[1]), int(version[2])
    if found >= OLDEST_VERSION:
        return None
    shown, needed = (".".join(map(str, one)) for one in (found, OLDEST_VERSION))
    return f"parsyncfp2 {shown} copies to no mounted file system: {needed} is needed"


def judge_parsyncfp2(ended: EndedDriver) -> StreamOutcome:
    """STOP for errors that no file is to blame for, INTERRUPTED if a signal ended it, RETRY if it gave up; DONE
    otherwise, with a message if its rsyncs left any. `parts` are not used: the messages are on its standard error.
    """
    messages = b"\n".join(line for line in ended.stderr.split(b"\n") if _RSYNC.match(line))
    ended = replace(ended, parts=(PartLog(number=None, stderr=messages),) if messages else ())
    if (cut := _cut_short("parsyncfp2", ended)) is not None:
        return cut
    printed = _COLOURS.sub(b"", ended.stdout)
    fatal = _FATAL.search(printed)
    if ended.exit_code in _UNUSABLE or _HELPER_MISSING.search(printed):
        message = f"parsyncfp2 ended with {ended.exit_code}: {show(fatal[1] if fatal else ended.stderr[-200:])}"
        return ended.outcome(AttemptVerdict.STOP, message, StopReason.TOOL_MISSING)
    if _TOO_MANY.search(printed):
        return ended.outcome(AttemptVerdict.RETRY, f"parsyncfp2 gave up: it takes no more than {MOST_CHUNKS} chunks")
    if fatal or ended.exit_code:
        why = show(fatal[1]) if fatal else f"exit code {ended.exit_code}"
        return ended.outcome(AttemptVerdict.RETRY, f"parsyncfp2 gave up: {why}")
    return _done(ended)


def chunk_size_for(size_bytes: int, wished_bytes: int) -> int:
    """The chunk size for a tree: as requested, or larger if there would be too many chunks."""
    return max(wished_bytes, -(-size_bytes // (MOST_CHUNKS // 4)), 1)


# Arguments that drivers pass to their rsyncs: they contain no blanks, quotes or dollars, because the scripts paste them
# into shells.


_PLAIN_PATH = re.compile(rb"/[A-Za-z0-9._/+@%-]*")


def rsync_options(
    capabilities: TargetCapabilities, *, recopy: bool, bwlimit_bytes_per_s: int | None, privileged: bool, atimes: bool
) -> list[str]:
    """The options of the file chunks that follow, in short letters: both drivers refuse some long names.

    `-r` and `-a` are absent, since lists name every path. The chunks that follow set attributes of directories, so that
    a tree's root stays closed. rsync sends files whole.
    """
    makes_specials = capabilities.makes_devices and capabilities.makes_fifos and capabilities.makes_sockets
    optional = (
        (True, ["-lptgo", "--numeric-ids", "-W", "-O", "--no-implied-dirs", "--stderr=client"]),
        (privileged and makes_specials, ["-D"]),
        (recopy, ["-I"]),
        (atimes, ["-U"]),
        (atimes and privileged, ["--open-noatime"]),
        (not capabilities.syncfs_reaches_disks, ["--fsync"]),
        # An underscore instead of a blank needs no quotes.
        (True, capability_options(capabilities, blank="_")),
        (True, [word.decode("ascii") for word in bandwidth(bwlimit_bytes_per_s)]),
    )
    return [word for wanted, words in optional if wanted for word in words]


def search_path(programs: Sequence[bytes]) -> str:
    """PATH for a driver: the directories of its programs, then the usual ones."""
    own = [os.fsdecode(os.path.dirname(program)) for program in programs]
    return ":".join(dict.fromkeys([*own, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]))


class Driver(ABC):
    """A program that copies whole trees. It returns commands and starts no process itself. `files` are absolute paths:
    of the program, then of its dependencies. `privileged`: they run as root. `atimes`: access times are carried over.
    """

    name: ClassVar[str]
    """As in `--engine`."""

    def __init__(self, files: Sequence[bytes], *, privileged: bool, atimes: bool = False) -> None:
        self.files = tuple(files)
        self._privileged = privileged
        self._atimes = atimes

    def refusal(self, view: DriverView) -> str | None:
        """Why the driver cannot take a tree: it pastes the paths of both trees and of its directory into shell
        commands.
        """
        if all(map(_PLAIN_PATH.fullmatch, (view.source_tree, view.target_tree, view.work, *self.files))):
            return None
        return f"{self.name} can take no tree whose path holds anything but letters, digits and ._/+@%-"

    @abstractmethod
    def command(self, work: DriverWork, view: DriverView) -> Command:
        """The argv of a new run; its directory contains nothing of an earlier one."""

    @abstractmethod
    def reader(self, view: DriverView, directory: Path) -> "DriverReader":
        """A new reader for one run."""


_READ_BYTES = 1 << 20


class GrowingFile:
    """A file that another program appends to. Each call hands out the new content in pieces. A missing file counts as
    empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def hand_out(self, take: Callable[[bytes], None]) -> None:
        """Hand out everything added since the last call."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            while piece := os.pread(fd, _READ_BYTES, self._offset):
                self._offset += len(piece)
                take(piece)
        finally:
            os.close(fd)


def read_head(path: Path, limit_bytes: int) -> bytes:
    """The beginning of a file; empty if it is missing."""
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes)
    except OSError:
        return b""


class DriverReader(StreamReader):
    """Follows one run of a driver: its output, and the logs in its directory. `trouble` is set as soon as a stream
    reports an error that no file is to blame for: the driver itself would continue through its whole queue.
    """

    def __init__(self, view: DriverView, directory: Path, *, keep_bytes: int) -> None:
        super().__init__(keep_bytes=keep_bytes)
        self._view = view
        self._directory = directory
        self._files = 0
        self._size_bytes = 0
        self.trouble: tuple[StopReason, str] | None = None

    @property
    def counters(self) -> StreamCounters:
        return StreamCounters(files=self._files, size_bytes=self._size_bytes)

    def _find_trouble(self, part: PartLog) -> None:
        self.trouble = self.trouble or stop_of((part,), self._view)

    def _ended(self, completed: Completed) -> EndedDriver:
        return EndedDriver(
            exit_code=completed.exit_code,
            stderr=self._stderr.content,
            counters=self.counters,
            timed_out=completed.timed_out,
            view=self._view,
        )


# Directories of drivers in the state directory: `PASS/CHUNK/` holds a driver's run state and logs.


_KEPT = "log"
_CACHE = ".pfp2"


class DriverDirectories:
    """One directory for each tree of a pass, inaccessible to other users."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, pass_id: int, chunk: int) -> Path:
        """The directory of the present run."""
        return self._root / f"pass-{pass_id:06d}" / f"chunk-{chunk:06d}"

    def fresh(self, pass_id: int, chunk: int) -> Path:
        """Create the directory of a new run, and remove the contents of an earlier one. Raises OSError."""
        path = self.directory(pass_id, chunk)
        if path.exists():
            shutil.rmtree(path)
        path.mkdir(parents=True, mode=0o700)
        return path

    def clear(self, pass_id: int, chunk: int, *, keep_logs: bool) -> None:
        """Remove the run, but keep its logs if `keep_logs` is set."""
        run = self.directory(pass_id, chunk)
        if not keep_logs:
            shutil.rmtree(run, ignore_errors=True)
        for path in run.iterdir() if run.exists() else ():
            if path.is_dir() and path.name not in (_KEPT, _CACHE):
                shutil.rmtree(path)
        with suppress(OSError):
            run.parent.rmdir()


# fpsync: fpart cuts a tree into parts, and a number of rsyncs copy them.
#
# Checked with fpsync 1.5.1 (Debian 12) and 1.7. This module handles two behaviours: fpsync skips `.zfs`, `.snapshot*`
# and `.ckpt` by default, and on a full target it still processes its whole queue. An interrupted run is not resumed:
# rsync skips files that have arrived. The ordinary chunks that follow handle hard links between parts, errors of the
# crawl, and verification.


_PART_STDERR_BYTES = 64 * KIB
_MOST_PARTS_READ = 200


class Fpsync(Driver):
    """fpsync, fpart and rsync."""

    name = "fpsync"

    def command(self, work: DriverWork, view: DriverView) -> Command:
        fpsync, _, rsync = self.files
        limit = work.bwlimit_bytes_per_s
        words = rsync_options(
            work.capabilities,
            recopy=work.recopy,
            bwlimit_bytes_per_s=None if limit is None else limit // work.jobs,
            privileged=self._privileged,
            atimes=self._atimes,
        )
        words += [] if self._privileged else ["--chmod=Du+rwx"]
        words += ["--no-human-readable", "--info=progress2,stats2", "--outbuf=L"]
        return Command(
            argv=(
                *(fpsync, b"-n", b"%d" % work.jobs, b"-t", view.work, b"-vv"),
                *(b"-f", b"%d" % work.part_files, b"-s", b"%d" % work.part_bytes, b"-T", rsync),
                *(b"-o", " ".join(words).encode("ascii")),
                # These replace fpsync's own filters, which exclude files that may be users'. The following option is on
                # anyway.
                *(b"-O", b"-e"),
                view.source_tree,
                view.target_tree,
            ),
            environment={"PATH": search_path(self.files), "HOME": os.fsdecode(view.work)},
            timeout_s=None,
        )

    def reader(self, view: DriverView, directory: Path) -> "FpsyncReader":
        return FpsyncReader(view, directory)


class FpsyncReader(DriverReader):
    """fpsync's own lines show which parts are in flight; the logs of their rsyncs show the progress."""

    def __init__(self, view: DriverView, directory: Path) -> None:
        super().__init__(view, directory, keep_bytes=TAIL_BYTES)
        self._lines = Lines(self._line)
        self._running: dict[int, tuple[GrowingFile, ProgressParser]] = {}
        self._completed = False
        self._crawl_failed = False
        self._last_complaint = b""

    def stdout(self, piece: bytes) -> None:
        self._lines.add(piece)

    @property
    def counters(self) -> StreamCounters:
        for log, parser in self._running.values():
            log.hand_out(parser.take)
        return sum((parser.counters for _, parser in self._running.values()), super().counters)

    @property
    def stderr_tail(self) -> bytes:
        half = TAIL_BYTES // 2
        return self._stderr.last(half) + self._last_complaint[-half:]

    def outcome(self, completed: Completed) -> StreamOutcome:
        ended, parts = self._ended(completed), self._complaints()
        ended = replace(ended, parts=parts, completed=self._completed, crawl_failed=self._crawl_failed)
        return judge_fpsync(ended)

    def _line(self, line: bytes) -> None:
        if match := FPSYNC_STARTED.fullmatch(line):
            number = int(match[1])
            self._running[number] = (GrowingFile(self._log(number, "stdout")), ProgressParser())
        elif match := FPSYNC_FINISHED.fullmatch(line):
            self._part_ended(int(match[1]))
        self._completed = self._completed or FPSYNC_COMPLETED.match(line) is not None
        self._crawl_failed = self._crawl_failed or FPSYNC_CRAWL_FAILED.match(line) is not None

    def _part_ended(self, number: int) -> None:
        if number in self._running:
            log, parser = self._running.pop(number)
            log.hand_out(parser.take)
            self._files += parser.counters.files
            self._size_bytes += parser.counters.size_bytes
        if complaint := read_head(self._log(number, "stderr"), _PART_STDERR_BYTES):
            self._last_complaint = complaint
            self._find_trouble(PartLog(number=number, stderr=complaint))

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
        return next(self._directory.glob("log/*"), self._directory) / f"{number}.{what}"


# parsyncfp2: fpart cuts a tree into chunks by size, and a number of rsyncs copy them.
#
# Checked with the sources of parsyncfp2 2.55 and 2.59. This module sets `--maxload` out of reach, because suspended
# rsyncs may stay suspended. It makes parsyncfp2's chunks large enough for its limit of 5,000, keeps the bandwidth share
# from rounding to zero, chooses rsync options that pass the script's crude patterns, and puts cache and home into a
# directory of the run. The confinement waits for rsyncs that outlive the script. The ordinary chunks that follow handle
# names with newlines (its lists are lines), hard links between chunks, and failed rsyncs.


_UNREACHABLE_LOAD = b"1000000"
_KEPT_BYTES = MIB
_LOGGED = re.compile(rb".*\] ([<>ch][fLDS]\S+)_(\d+)")
"""A line of rsync's log under `--log-file-format=%i_%l`: the change, and the file's size."""


class Parsyncfp2(Driver):
    """parsyncfp2 and its dependencies."""

    name = "parsyncfp2"

    def command(self, work: DriverWork, view: DriverView) -> Command:
        """Always start a new run: resuming one needs the number of its next chunk, which is not known for certain."""
        words = rsync_options(
            work.capabilities,
            recopy=work.recopy,
            bwlimit_bytes_per_s=None,
            privileged=self._privileged,
            atimes=self._atimes,
        )
        options = (*words, "--log-file-format=%i_%l")
        limit = work.bwlimit_bytes_per_s
        # parsyncfp2 gets the root of a tree as one directory: its chunks name paths below, beginning with `./`.
        return Command(
            argv=(
                self.files[0],
                b"--NP=%d" % work.jobs,
                b"--chunksize=%d" % chunk_size_for(work.size_bytes, work.part_bytes),
                b"--startdir=" + view.source_tree,
                f"--ro={' '.join(options)}".encode("ascii"),
                # The limit is in KiB/s for all rsyncs together. parsyncfp2 divides it by their number, and 0 would mean
                # no limit.
                *(() if limit is None else (b"--maxbw=%d" % max(limit // KIB, work.jobs),)),
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
        return Parsyncfp2Reader(view, directory)


class Parsyncfp2Reader(DriverReader):
    """The logs of its rsyncs show the progress; their messages arrive on its standard error."""

    def __init__(self, view: DriverView, directory: Path) -> None:
        super().__init__(view, directory, keep_bytes=_KEPT_BYTES)
        self._stdout = Kept(_KEPT_BYTES, _KEPT_BYTES)
        self._messages = Lines(self._message)
        self._logs: dict[str, tuple[GrowingFile, Lines]] = {}

    def stdout(self, piece: bytes) -> None:
        self._stdout.add(piece)

    def stderr(self, piece: bytes) -> None:
        super().stderr(piece)
        self._messages.add(piece)

    @property
    def counters(self) -> StreamCounters:
        for path in self._directory.glob(f"{_CACHE}/rsync-log-*"):
            log, lines = self._logs.setdefault(path.name, (GrowingFile(path), Lines(self._logged)))
            log.hand_out(lines.add)
        return super().counters

    def outcome(self, completed: Completed) -> StreamOutcome:
        return judge_parsyncfp2(replace(self._ended(completed), stdout=self._stdout.content))

    def _logged(self, line: bytes) -> None:
        if match := _LOGGED.fullmatch(line):
            self._files += 1
            if match[1][:1] in b"<>":
                self._size_bytes += int(match[2])

    def _message(self, line: bytes) -> None:
        if line.startswith(b"rsync"):
            self._find_trouble(PartLog(number=None, stderr=line))


# Finding fpsync, parsyncfp2 and their dependencies on this host.


_SCRIPT_BYTES = 1 << 20
_HELPERS = ("fpart", "rsync", "scut", "stats", "perl", "ps", "awk", "ip")
"""The dependencies of parsyncfp2; it reports only some of them as missing."""


def locate_fpsync(*, path: str | None = None) -> Sequence[bytes]:
    """Find fpsync, fpart and rsync; `path` is a PATH as in the environment. Raises ToolFailed."""
    return [_find(name, path, "apt install fpart rsync") for name in ("fpsync", "fpart", "rsync")]


def locate_parsyncfp2(*, path: str | None = None) -> Sequence[bytes]:
    """Find parsyncfp2 and its dependencies. Raises ToolFailed, also for a version that cannot copy to a mounted file
    system.
    """
    install = "copy parsyncfp2, scut and stats from its repository into /usr/local/bin; apt install fpart iproute2"
    program = _find("parsyncfp2", path, install)
    helpers = [_find(name, path, install) for name in _HELPERS]
    with ToolFailed.of_files(f"{show(program)} cannot be read"), Path(os.fsdecode(program)).open("rb") as file:
        problem = parsyncfp2_problem(file.read(_SCRIPT_BYTES))
    if problem is not None:
        raise ToolFailed(f"{show(program)} cannot be used: {problem}", hint=install)
    return [program, *helpers]


def _find(name: str, path: str | None, install: str) -> bytes:
    found = shutil.which(name, path=path)
    if found is None:
        raise ToolFailed(f"{name} was not found", cause="it is not installed on this host", hint=install)
    return os.path.abspath(os.fsencode(found))
