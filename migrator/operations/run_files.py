"""One call of a verb: its entry in the ledger, and its directory with a log of JSON lines, and argv, list, stdout and
stderr of every attempt.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from migrator.core.clock import Clock
from migrator.core.errors import ExitCode, Interrupted, MigratorError
from migrator.core.paths import shell_quoted
from migrator.core.progress import Progress
from migrator.core.tasks import Blocking, beside
from migrator.hosts.ports import Command
from migrator.ledger.locks import Locks, of_call
from migrator.ledger.model import RunRecord
from migrator.render.log import JsonLines

if TYPE_CHECKING:
    from migrator.hooks.calls import Hooks
    from migrator.hooks.records import HookLedger
    from migrator.ledger.ledger import Ledger

LOGGER = "migrator"


HEARTBEAT_INTERVAL_S = 5.0
_HEARTBEAT = "heartbeat"


class CallPorts(Struct, frozen=True, kw_only=True):
    """The ports of every verb that is recorded and calls hooks. `tokens` returns a new random token for each call."""

    hooks: "Hooks"
    ledger: "HookLedger"
    locks: Locks
    files: "RunFiles"
    progress: Progress
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]


@dataclass(slots=True, kw_only=True)
class RecordedRun:
    """A call in progress. The caller sets `exit_code`, unless it raises."""

    id: int
    directory: "RunDirectory"
    exit_code: ExitCode = ExitCode.FAILED


class RunFiles:
    """Makes run directories on a local disk."""

    def __init__(self, runs_dir: Path, locks: Locks) -> None:
        self._runs_dir = runs_dir
        self._locks = locks

    @contextmanager
    def open(self, verb: str, at_s: float) -> Iterator["RunDirectory"]:
        """Create a new directory, named by verb and time. Raises MigratorError if it cannot be created."""
        stamp = datetime.fromtimestamp(at_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        try:
            path = _new_directory(self._runs_dir, f"{verb}-{stamp}")
            handler = logging.FileHandler(path / "log.jsonl", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise _unwritable(self._runs_dir, error) from error
        handler.setFormatter(JsonLines())
        logger = logging.getLogger(LOGGER)
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(min(level or logging.INFO, logging.INFO))
        try:
            yield RunDirectory(path)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            handler.close()

    @asynccontextmanager
    async def recorded(
        self, ledger: "Ledger", clock: Clock, *, verb: str, pid: int, log: logging.Logger | None = None
    ) -> AsyncIterator[RecordedRun]:
        """Record a call for the length of the block, with a run directory and a heartbeat. An error is logged, if there
        is a log, and raised again. The end of the call is written last, so a call that was killed has a heartbeat and
        no end. The lock of the call is held until then.
        """
        at_s, runs = clock.now_s(), ledger.runs
        with self.open(verb, at_s) as directory, self._locks.hold(verb, of_call(directory.path)):
            run_id = runs.start(verb=verb, pid=pid, at_s=at_s, directory=directory.path)
            run = RecordedRun(id=run_id, directory=directory)
            try:
                async with beside(_beat(ledger, clock, run), "the heartbeat"):
                    yield run
            except (asyncio.CancelledError, Interrupted):
                run.exit_code = ExitCode.INTERRUPTED
                raise
            except MigratorError as error:
                run.exit_code = error.exit_code
                if log is not None:
                    log.error("%s", error.message, extra={"hint": error.hint})  # noqa: TRY400 (no traceback: it was expected)
                raise
            finally:
                runs.finish(run_id, clock.now_s(), run.exit_code.value)


async def _beat(ledger: "Ledger", clock: Clock, run: RecordedRun) -> None:
    """Renew the heartbeat of a call until cancelled: in its directory too, for while another process holds the ledger."""
    while True:
        await clock.sleep(HEARTBEAT_INTERVAL_S)
        with suppress(OSError):
            (Path(run.directory.path) / _HEARTBEAT).write_text(str(clock.now_s()), "ascii")
        ledger.later(lambda: ledger.runs.heartbeat(run.id, clock.now_s()))


def last_heard_s(run: RunRecord) -> float:
    """When a call renewed its heartbeat for the last time."""
    try:
        return max(run.heartbeat_at_s, float((Path(run.directory) / _HEARTBEAT).read_text("ascii")))
    except (OSError, ValueError):
        return run.heartbeat_at_s


class RunDirectory:
    """One run's directory. Attempts lie in `attempts/`."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._attempts = path / "attempts"

    def attempt(self, chunk: int, number: int, command: Command) -> "AttemptFiles":
        """Create the files of an attempt. Raises MigratorError if they cannot be written."""
        stem = self._attempts / _stem(chunk, number)
        try:
            self._attempts.mkdir(exist_ok=True)
            stem.with_suffix(".list").write_bytes(command.stdin)
            stem.with_suffix(".argv").write_text(_pasteable(command, stem.with_suffix(".list")) + "\n", "utf-8")
            return AttemptFiles(stem)
        except OSError as error:
            raise _unwritable(self._attempts, error) from error

    def output(self, chunk: int, number: int) -> bytes:
        """The standard output of an attempt that has ended. Raises OSError."""
        return self._output(chunk, number).read_bytes()

    def remove_output(self, chunk: int, number: int) -> None:
        """Remove the standard output of an attempt. May be called again. Raises OSError."""
        self._output(chunk, number).unlink(missing_ok=True)

    def _output(self, chunk: int, number: int) -> Path:
        return self._attempts / f"{_stem(chunk, number)}.stdout"


def _stem(chunk: int, number: int) -> str:
    return f"chunk-{chunk:06d}-attempt-{number:06d}"


class AttemptFiles:
    """The output of one attempt, written as it arrives."""

    def __init__(self, stem: Path) -> None:
        self._stem = stem
        # Unbuffered, so that the last output of a stream is on disk after a crash too.
        self._stdout: BinaryIO = open(stem.with_suffix(".stdout"), "wb", buffering=0)  # noqa: SIM115
        self._stderr: BinaryIO = open(stem.with_suffix(".stderr"), "wb", buffering=0)  # noqa: SIM115

    def stdout(self, piece: bytes) -> None:
        """Append to standard output. Raises MigratorError."""
        self._write(self._stdout, piece)

    def stderr(self, piece: bytes) -> None:
        """Append to standard error. Raises MigratorError."""
        self._write(self._stderr, piece)

    def close(self, *, keep_list: bool) -> None:
        """Close the files; remove the list unless `keep_list` is set. May be called again."""
        self._stdout.close()
        self._stderr.close()
        if not keep_list:
            with suppress(OSError):
                self._stem.with_suffix(".list").unlink()

    def _write(self, file: BinaryIO, piece: bytes) -> None:
        try:
            file.write(piece)
        except OSError as error:
            raise _unwritable(self._stem, error) from error


def _new_directory(parent: Path, name: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
            continue
        return path


def _pasteable(command: Command, list_file: Path) -> str:
    r"""The command as a shell takes it (bytes that are no plain text as `$'\xNN'`), its list as standard input."""
    words = [shell_quoted(word) for word in command.argv]
    if command.stdin:
        words.append(f"< {shell_quoted(os.fsencode(list_file))}")
    return " ".join(words)


def _unwritable(path: Path, error: OSError) -> MigratorError:
    return MigratorError(
        f"{path} cannot be written: {error.strerror or error}",
        cause="the disk of the state directory is full, or mounted read-only",
        hint="make room below [site] state_dir, then run the same command again",
    )
