"""The directory of one run: a log of JSON lines, and argv, list, stdout and stderr of every attempt."""

import json
import logging
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from migrator.core.errors import MigratorError
from migrator.core.paths import show
from migrator.hosts.ports import Command

LOGGER = "migrator"
_PLAIN_FACTS = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class RunFiles:
    """Makes run directories on a local disk."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir

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
        logger.setLevel(logging.INFO)
        try:
            yield RunDirectory(path)
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            handler.close()


class RunDirectory:
    """One run's directory. Attempts lie in `attempts/`."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._attempts = path / "attempts"

    def attempt(self, chunk: int, number: int, command: Command) -> "AttemptFiles":
        """Create the files of an attempt. Raises MigratorError if they cannot be written."""
        stem = self._attempts / f"chunk-{chunk:06d}-attempt-{number:06d}"
        try:
            self._attempts.mkdir(exist_ok=True)
            stem.with_suffix(".list").write_bytes(command.stdin)
            stem.with_suffix(".argv").write_text(_pasteable(command, stem.with_suffix(".list")) + "\n", "utf-8")
            return AttemptFiles(stem)
        except OSError as error:
            raise _unwritable(self._attempts, error) from error


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


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the `extra` fields. Names are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """A single line for any message."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in vars(record).items():
            if key not in _PLAIN_FACTS:
                line[key] = show(value) if isinstance(value, bytes) else value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


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
    words = [_quoted(word) for word in command.argv]
    if command.stdin:
        words.append(f"< {_quoted(os.fsencode(list_file))}")
    return " ".join(words)


def _quoted(word: bytes) -> str:
    text = word.decode("utf-8", "surrogateescape")
    if text.isprintable() and word.isascii():
        return shlex.quote(text)
    escaped = "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}" for byte in word)
    return f"$'{escaped}'"


def _unwritable(path: Path, error: OSError) -> MigratorError:
    return MigratorError(
        f"{path} cannot be written: {error.strerror or error}",
        cause="the disk of the state directory is full, or mounted read-only",
        hint="make room below [site] state_dir, then run the same command again",
    )
