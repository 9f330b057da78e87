"""Reaping as tables, and as CSV and text files for users."""

import os
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote_from_bytes

from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from migrator.core.paths import show
from migrator.core.units import NS_PER_S, format_count, format_duration, format_size, several
from migrator.reap import model
from migrator.render import document
from migrator.render.document import text
from migrator.render.text import as_csv, csv_text
from migrator.site.model import ReapAction

# --- Tables


_DIRECTORIES = 10


def reap_report_document(report: model.ReapReport) -> document.Document:
    """The report of `reap list`."""
    subtitle = f"in the catalog {report.catalog}, by the rules of {document.when(report.at_s)}"
    if not report.users:
        return document.page(
            "Old and tiny files", ("User by user", [document.paragraph("The rules match no file.")]), subtitle=subtitle
        )
    parts = (("User by user", _users(report)), ("By directory", [_directories(report)]))
    return document.page("Old and tiny files", *parts, subtitle=subtitle)


def _directories(report: model.ReapReport) -> document.Block:
    biggest = sorted(
        ((user, one) for user in report.users for one in user.directories),
        key=lambda found: (-found[1].size_bytes, found[1].path),
    )
    rows = ((user.user, show(one.path), format_count(one.files), format_size(one.size_bytes)) for user, one in biggest)
    columns = [document.paths("user"), document.paths("directory"), document.figure("files"), document.figure("bytes")]
    return document.table("", columns, rows, limit=_DIRECTORIES)


def _users(report: model.ReapReport) -> Iterator[document.Block]:
    cells: document.Cells[tuple[model.UserReap, model.ReapedTree]] = (
        (document.paths("user"), lambda found: found[0].user),
        (document.paths("tree"), lambda found: show(found[1].tree.path)),
        (document.figure("files"), lambda found: format_count(found[1].files)),
        (document.figure("bytes"), lambda found: format_size(found[1].size_bytes)),
        (document.figure("share"), lambda found: document.share(found[1].size_bytes, found[0].all_bytes)),
        (document.figure("oldest"), lambda found: document.when(found[1].oldest_ns / NS_PER_S)),
        (document.wide("action"), lambda found: ACTION_WORDS[found[1].action]),
    )
    yield document.records("", cells, ((user, tree) for user in report.users for tree in user.trees))
    for rule in dict.fromkeys(tree.rule for user in report.users for tree in user.trees):
        yield document.paragraph(f"Chosen: {rule}.")
    saved = model.Savings(
        size_bytes=sum(user.saves.size_bytes for user in report.users),
        inodes=sum(user.saves.inodes for user in report.users),
        seconds=sum(user.saves.seconds for user in report.users),
    )
    yield document.paragraph(f"That saves {describe_savings(saved)} ({report.basis}).")


ACTION_WORDS = {
    ReapAction.LIST: "listed, move as all others",
    ReapAction.ARCHIVE: "archived",
    ReapAction.SKIP: "not moved",
}


def describe_savings(saved: model.Savings) -> str:
    """Bytes, inodes and hours."""
    return f"{format_size(saved.size_bytes)}, {several(saved.inodes, 'inode')} and {format_duration(saved.seconds)} of copying"


def plan_reap_blocks(reap: model.PlanReap) -> Iterator[document.Block]:
    """The reaping of a plan by action, with its savings."""
    trees = {action: [tree for tree in reap.trees if tree.action is action] for action in ReapAction}
    cells: document.Cells[tuple[ReapAction, Sequence[model.ReapedTree]]] = (
        (document.wide("old and tiny files"), lambda found: ACTION_WORDS[found[0]]),
        (document.figure("trees"), lambda found: format_count(len(found[1]))),
        (document.figure("files"), lambda found: format_count(sum(tree.files for tree in found[1]))),
        (document.figure("bytes"), lambda found: format_size(sum(tree.size_bytes for tree in found[1]))),
    )
    yield document.records("", cells, ((action, some) for action, some in trees.items() if some))
    pairs = [("saves", describe_savings(reap.saved))]
    if reap.listed.inodes:
        pairs.append(("would save, if skipped", describe_savings(reap.listed)))
    yield document.facts(pairs)


def released_document(released: model.Released) -> document.Document:
    """The result of `reap release`."""
    words = (
        f"{several(released.files, 'file')} of {released.user} with {format_size(released.size_bytes)}, which plan "
        f"{released.plan} skips, may be deleted with the source."
    )
    shown = (document.paragraph(words, alert=True), *(document.paragraph(show(path)) for path in released.examples))
    return document.page("Given up", ("With the source", shown))


# --- CSV and text files: one list of everything, and one file for each user. Mode 0600.


COLUMNS = ("user", "tree", "path", "action", "size_bytes", "modified", "read", "uid", "gid")
"""Names are escaped, so no cell has control characters or line ends."""

_MODE = 0o600
_DIRECTORY_MODE = 0o700


class ReapCsv:
    """One CSV file with a line for each matched file. Methods raise UsageError if it cannot be written."""

    def __init__(self, file: Path) -> None:
        self._file = file
        _write(file, as_csv([COLUMNS]), append=False)

    def add(self, tree: UserTree, rows: Sequence[model.ReapRow]) -> None:
        """Write the next files of a tree."""
        _write(self._file, as_csv([_line(tree, row) for row in rows]), append=True)


def write_texts(directory: Path, report: model.ReapReport) -> None:
    """Write a text for each user, in a directory that is created if it is missing; a user's name is percent-escaped.
    Raises UsageError if that fails.
    """
    with UsageError.of_files(f"{directory} cannot be made"):
        directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    for user in report.users:
        name = quote_from_bytes(user.user.encode("utf-8", "surrogateescape"), safe="")
        escaped = "%2E" + name[1:] if name.startswith(".") else name
        _write(directory / f"{escaped}.txt", _text(report, user), append=False)


def _write(file: Path, content: str, *, append: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_APPEND if append else os.O_TRUNC)
    with UsageError.of_files(f"{file} cannot be written"), open(os.open(file, flags, _MODE), "wb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise UsageError(f"{file} is no regular file")
        os.fchmod(stream.fileno(), _MODE)
        stream.write(content.encode("utf-8", "backslashreplace"))


def _line(tree: UserTree, row: model.ReapRow) -> tuple[object, ...]:
    return (
        csv_text(tree.user),
        csv_text(show(row.tree)),
        csv_text(show(row.path)),
        row.action.value,
        row.size_bytes,
        _day(row.mtime_ns),
        _day(row.atime_ns),
        row.uid,
        row.gid,
    )


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


def _text(report: model.ReapReport, user: model.UserReap) -> str:
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
        f"To keep a directory as it is, with all that lies below it, put an empty file named {model.KEEP_FILE} into it.",
        f"This was counted in the scan {report.catalog}; what you change later moves as every other file does.",
    ]
    return "\n".join(lines) + "\n"


# --- Archives


def archived_document(trees: Sequence[model.TreeArchived]) -> document.Document:
    """The result of `reap archive`."""
    return document.page("Archives", ("Archived", _archived(trees)))


def restored_document(trees: Sequence[model.Restored]) -> document.Document:
    """The result of `reap restore`."""
    return document.page("Restored from archives", ("Restored", _restored(trees)))


_ARCHIVED: document.Cells[model.TreeArchived] = (
    (document.paths("user"), lambda tree: tree.user),
    (document.paths("tree"), lambda tree: show(tree.tree)),
    (document.figure("archives"), lambda tree: format_count(tree.archives)),
    (document.figure("files"), lambda tree: format_count(tree.members)),
    (document.figure("content"), lambda tree: format_size(tree.content_bytes)),
    (document.figure("on the target"), lambda tree: format_size(tree.archive_bytes)),
    (document.figure("archived before"), lambda tree: format_count(tree.already)),
    (document.figure("left out"), lambda tree: format_count(sum(tree.left_out.values()))),
)


def _archived(trees: Sequence[model.TreeArchived]) -> Iterator[document.Block]:
    yield document.records("", _ARCHIVED, trees)
    for tree in trees:
        if tree.skipped:
            yield document.paragraph(f"{show(tree.tree)}: nothing is archived: {tree.skipped}", alert=True)
    left = [(show(one.path), one.reason.value, one.detail) for tree in trees for one in tree.examples]
    if left:
        yield document.paragraph(
            "Files that changed since the plan move like any other file, with the next delta pass. Fresh or unreadable files "
            "stay only on the source until this command has archived them."
        )
        yield document.table("Left out, some of them", [document.paths("path"), text("reason"), text("detail")], left)


_RESTORED: document.Cells[model.Restored] = (
    (document.paths("tree"), lambda tree: show(tree.tree)),
    (document.figure("files"), lambda tree: format_count(tree.restored)),
    (document.figure("content"), lambda tree: format_size(tree.size_bytes)),
    (document.figure("not restored"), lambda tree: format_count(tree.not_restored)),
)


def _restored(trees: Sequence[model.Restored]) -> Iterator[document.Block]:
    yield document.records("", _RESTORED, trees)
    left = [(show(one.path), one.reason) for tree in trees for one in tree.examples]
    if left:
        yield document.table("Not restored, some of them", [document.paths("path"), document.paths("reason")], left)
