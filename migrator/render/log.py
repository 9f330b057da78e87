"""Messages on standard error: by level, as text or JSON lines, with the levels of journald where it reads them.

Progress, events, notes and errors are messages. The other loggers of the program write to the log of a run
(`operations/run_files.py`), and here only with `verbose`.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

from migrator.core.paths import show

MESSAGES = logging.getLogger("migrator.messages")
_PROGRAM = logging.getLogger("migrator")
_PLAIN_FACTS = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
_FURTHER_LINES = (("cause", "  cause: "), ("hint", "  next:  "))
_PRIORITIES = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
"""sd-daemon(3)."""


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


class Text(logging.Formatter):
    """The message, with cause and next step below it; records of other loggers with level and logger before it."""

    def format(self, record: logging.LogRecord) -> str:
        """One or more lines."""
        if record.name != MESSAGES.name:
            return f"{record.levelname.lower()}: {record.name}: {record.getMessage()}"
        further = [f"{start}{words}" for name, start in _FURTHER_LINES if (words := vars(record).get(name))]
        return "\n".join([record.getMessage(), *further])


class _Journal(logging.Formatter):
    """Lines of another form with the level before each, as journald reads it."""

    def __init__(self, form: logging.Formatter) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        level = max((one for one in _PRIORITIES if one <= record.levelno), default=logging.DEBUG)
        return "\n".join(f"<{_PRIORITIES[level]}>{line}" for line in self._form.format(record).split("\n"))


class _Output(logging.Handler):
    """Writes to standard error, or to `stream`. Failed output is dropped: a closed terminal must not stop a copy."""

    stream: TextIO | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stream = self.stream or sys.stderr
            stream.write(f"{self.format(record)}\n")
            stream.flush()
        except (OSError, ValueError):
            return


_output = _Output()
_output.setFormatter(Text())
MESSAGES.addHandler(_output)
MESSAGES.propagate = False
MESSAGES.setLevel(logging.INFO)


def set_log(
    *,
    verbose: bool = False,
    quiet: bool = False,
    as_json: bool = False,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Choose the messages and their form for the rest of the process; may be called again.

    `quiet` leaves warnings and errors. `verbose` adds the records of all other loggers. Without a stream, standard error.
    """
    form = JsonLines() if as_json else Text()
    journal = not as_json and _is_journal(stream or sys.stderr, environment.get("JOURNAL_STREAM", ""))
    _output.setFormatter(_Journal(form) if journal else form)
    _output.stream = stream
    MESSAGES.setLevel(logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO)
    _PROGRAM.removeHandler(_output)
    _PROGRAM.setLevel(logging.NOTSET)
    if verbose:
        _PROGRAM.addHandler(_output)
        _PROGRAM.setLevel(logging.DEBUG)


def may_be_live() -> bool:
    """True if progress may be drawn over itself: only for messages of the usual level, as text."""
    return MESSAGES.level == logging.INFO and isinstance(_output.formatter, Text)


def _is_journal(stream: TextIO | None, journal: str) -> bool:
    """True if journald reads the stream: JOURNAL_STREAM holds its device and inode."""
    try:
        found = os.fstat(stream.fileno()) if stream is not None else None
    except (OSError, ValueError):
        return False
    return found is not None and journal == f"{found.st_dev}:{found.st_ino}"
