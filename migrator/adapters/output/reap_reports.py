"""Files about what is reaped: a list of all, and one file for each user, to be sent to him. Readable by their owner alone."""

import csv
import io
import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote_from_bytes

from migrator.domain.errors import UsageError
from migrator.domain.paths import show
from migrator.domain.reap import ReapAction, ReapReport, ReapRow, UserReap
from migrator.domain.tree import UserTree
from migrator.domain.units import NS_PER_S, format_count, format_size, several

COLUMNS = ("user", "tree", "path", "action", "size_bytes", "modified", "read", "uid", "gid")
"""Names are shown escaped: no cell holds a control character or a line's end."""

_MODE = 0o600
_DIRECTORY_MODE = 0o700
_FORMULA = ("=", "+", "-", "@")


class ReapCsv:
    """One CSV file with a line for every file that is matched."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begun = False

    def add(self, tree: UserTree, rows: Sequence[ReapRow]) -> None:
        """The next files of a tree. Raises UsageError where the file cannot be written."""
        lines = [] if self._begun else [COLUMNS]
        _write(self._file, _csv([*lines, *(_line(tree, row) for row in rows)]), append=self._begun)
        self._begun = True

    def close(self) -> None:
        """Leave a file with its head alone where nothing was matched."""
        if not self._begun:
            _write(self._file, _csv([COLUMNS]), append=False)


class UserFiles:
    """One CSV file for each user, in a directory that is made if need be."""

    def __init__(self, directory: Path) -> None:
        self._directory = _made(directory)
        self._open: dict[str, ReapCsv] = {}

    def add(self, tree: UserTree, rows: Sequence[ReapRow]) -> None:
        """The next files of a tree."""
        if tree.user not in self._open:
            self._open[tree.user] = ReapCsv(self._directory / user_file(tree.user, ".csv"))
        self._open[tree.user].add(tree, rows)


def write_texts(directory: Path, report: ReapReport) -> Sequence[Path]:
    """A text for each user. Raises UsageError where they cannot be written."""
    files = []
    place = _made(directory)
    for user in report.users:
        file = place / user_file(user.user, ".txt")
        _write(file, _text(report, user), append=False)
        files.append(file)
    return files


def user_file(user: str, suffix: str) -> str:
    """The name of a user's file: what cannot stand in a plain name is percent-escaped."""
    name = quote_from_bytes(user.encode("utf-8", "surrogateescape"), safe="")
    return ("%2E" + name[1:] if name.startswith(".") else name) + suffix


def _made(directory: Path) -> Path:
    try:
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{directory} cannot be made: {error.strerror}") from None
    return directory


def _write(file: Path, content: str, *, append: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_APPEND if append else os.O_TRUNC)
    try:
        with open(os.open(file, flags, _MODE), "wb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UsageError(f"{file} is no regular file")
            os.fchmod(stream.fileno(), _MODE)
            stream.write(content.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def _csv(lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _line(tree: UserTree, row: ReapRow) -> tuple[object, ...]:
    return (
        _cell(tree.user),
        _cell(show(row.tree)),
        _cell(show(row.path)),
        row.action.value,
        row.size_bytes,
        _day(row.mtime_ns),
        _day(row.atime_ns),
        row.uid,
        row.gid,
    )


def _cell(text: str) -> str:
    """Spreadsheets take what begins like a formula for one; a user chooses the names of his files."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _day(time_ns: int) -> str:
    try:
        return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return f"{time_ns // NS_PER_S} s"


_MEANS = {
    ReapAction.LIST: "They move as all others; this is for your information.",
    ReapAction.ARCHIVE: "They are packed into archives on the new file system, from which they can be restored.",
    ReapAction.SKIP: "They are NOT moved to the new file system.",
}


def _text(report: ReapReport, user: UserReap) -> str:
    lines = [f"Old or small files of {show(user.user.encode('utf-8', 'surrogateescape'))}", ""]
    for tree in user.trees:
        lines += [
            f"{show(tree.tree.path)}: {several(tree.files, 'file')} with {format_size(tree.size_bytes)}, "
            f"the oldest of {_day(tree.oldest_ns)}",
            f"  chosen: {tree.rule}",
            f"  {_MEANS[tree.action]}",
        ]
    lines += ["", "The directories that hold most of them:"]
    lines += [
        f"  {format_size(one.size_bytes):>10}  {format_count(one.files):>10}  {show(one.path)}"
        for one in user.directories
    ]
    lines += [
        "",
        f"To keep a directory as it is, with all that lies below it, put an empty file named {report.keep_file} into it.",
        f"This was counted in the scan {report.catalog}; what you change later moves as every other file does.",
    ]
    return "\n".join(lines) + "\n"
