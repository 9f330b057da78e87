"""`reap restore`: restore files from archives, with content and all attributes."""

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.catalog.model import ArchivedMember
from migrator.core.clock import Clock
from migrator.core.errors import ExitCode, MigratorError, Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import is_beneath, show
from migrator.core.progress import Progress
from migrator.core.tasks import in_thread
from migrator.core.units import format_count, several
from migrator.fs.model import TargetCapabilities
from migrator.fs.reading import ReadingFileSystem
from migrator.ledger.event_log import emit_event
from migrator.ledger.locks import Locks, of_tree
from migrator.reap.archive import EXAMPLES, ProvenArchives, check
from migrator.reap.archives import TarIndex
from migrator.reap.files import MountedArchiveFolders, restore_file
from migrator.reap.model import NotRestored, Restored, archive_name
from migrator.reap.rules import GlobMatcher

if TYPE_CHECKING:
    from migrator.reap.records import ReapLedger

_GLOB_BYTES = frozenset(b"*?[")
_IN_THE_WAY = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EXDEV})


class RestoreRequest(Struct, frozen=True, kw_only=True):
    """The archived files of these trees that match one of the patterns. Patterns are relative to the tree, or begin
    with the tree's own path.

    A pattern that is the path of an archived file, or of a directory with some, is taken literally; otherwise, one with
    wildcards is a glob of `migrator.reap.rules`. `in_place`: restore to the files' own places on the target.
    """

    trees: tuple[bytes, ...]
    patterns: tuple[bytes, ...]
    in_place: bool
    overwrite: bool = False


class RestorePorts(Struct, frozen=True, kw_only=True):
    """The environment of a restore. Attributes that the `capabilities` of the destination lack are not set."""

    folders: MountedArchiveFolders
    destination: ReadingFileSystem
    capabilities: TargetCapabilities
    ledger: "ReapLedger"
    locks: Locks
    progress: Progress
    clock: Clock


async def restore(request: RestoreRequest, ports: RestorePorts) -> tuple[Restored, ...]:
    """Restore each file from the newest archive that has it. Existing files are overwritten only on request.

    May be called again. Raises UsageError if no archived file matches; Refused if an index differs from the ledger's,
    and in place while the user is frozen; LockHeld in place while another command works on the tree. A file whose content differs from its digest is not restored.
    """
    return await in_thread(partial(_restore, request, ports))


def _restore(request: RestoreRequest, ports: RestorePorts, stop: threading.Event) -> tuple[Restored, ...]:
    archives = ProvenArchives(ports.ledger.archives, ports.folders)
    matches = ((tree, _choose(archives, tree, request.patterns)) for tree in request.trees)
    chosen = [(tree, choices) for tree, choices in matches if choices]
    if not chosen:
        raise UsageError(
            f"nothing that is archived is called {' or '.join(map(show, request.patterns))}",
            hint="paths and globs are relative to the user's tree, as in `letters/2014` or `*.log`",
        )
    written = [tree for tree, _ in chosen] if request.in_place else []
    with ports.locks.hold("reap restore", *map(of_tree, written)):
        for tree in written:
            _check_cutover(ports, tree)
        return tuple(_restored(request, ports, chosen, stop=stop))


def _restored(
    request: RestoreRequest,
    ports: RestorePorts,
    chosen: Sequence[tuple[bytes, Sequence[tuple[TarIndex, Sequence[ArchivedMember]]]]],
    *,
    stop: threading.Event,
) -> Iterator[Restored]:
    for tree, choices in chosen:
        one = Restored(tree=tree)
        for archive, members in choices:
            _restore_members(request, ports, archive, members, done=one, stop=stop)
        if one.restored:
            with MigratorError.of_files(
                f"files restored to {show(tree)} may not be on the disks",
                hint="repair the file system, then restore again with --overwrite",
            ):
                ports.destination.sync()
        summary = f"{several(one.restored, 'file')} restored from archives"
        if one.not_restored:
            summary += f"; {format_count(one.not_restored)} not"
        severity, subject = Severity.WARNING if one.not_restored else Severity.INFO, f"tree {show(tree)}"
        emit_event(ports, EventKind.FILES_RESTORED, severity, subject, summary, run_id=None, without_run=True)
        yield one


def exit_code(trees: Sequence[Restored]) -> ExitCode:
    """ATTENTION if a requested file was not restored."""
    return ExitCode.ATTENTION if any(tree.not_restored for tree in trees) else ExitCode.DONE


def _restore_members(
    request: RestoreRequest,
    ports: RestorePorts,
    archive: TarIndex,
    members: Sequence[ArchivedMember],
    *,
    done: Restored,
    stop: threading.Event,
) -> None:
    """Restore the chosen members of one archive, and count them in `done`."""
    number = archive.record.number
    with (
        Refused.of_files(
            f"archive {number} of {show(done.tree)} cannot be read",
            cause="it was removed, or something else lies in its place",
            hint="bring it back from a backup of the target",
        ),
        ports.folders.open(done.tree) as folder,
        folder.open(archive_name(number)) as stream,
    ):
        for member in members:
            check(stop)
            why = _put_back(request, ports, member, archive.content(stream, member))
            if not why:
                done.restored += 1
                done.size_bytes += member.entry.size_bytes
                continue
            done.not_restored += 1
            if len(done.examples) < EXAMPLES:
                done.examples.append(NotRestored(path=member.entry.path, reason=why))


def _put_back(request: RestoreRequest, ports: RestorePorts, member: ArchivedMember, content: Iterator[bytes]) -> str:
    """Restore a member; the reason if that failed, otherwise empty."""
    try:
        restore_file(
            ports.destination.beneath,
            member,
            content,
            ports.capabilities,
            overwrite=request.overwrite,
            owners=ports.destination.owners,
        )
    except FileExistsError:
        return "something is there already; --overwrite replaces it"
    except Refused as refused:
        return refused.message
    except OSError as error:
        in_the_way = "a symlink or a file is in the way: " if error.errno in _IN_THE_WAY else ""
        return f"{in_the_way}{error.strerror or error}"
    return ""


def _choose(
    archives: ProvenArchives, tree: bytes, patterns: Sequence[bytes]
) -> list[tuple[TarIndex, Sequence[ArchivedMember]]]:
    """Choose the members to restore, each from the newest archive that has it."""
    proven = archives.newest_first(tree)
    cut = len(tree) + 1 if tree else 0
    is_wanted = _wanted((path[cut:] for archive in proven for path in archive.paths()), tree, patterns)
    taken: set[bytes] = set()
    choices: list[tuple[TarIndex, Sequence[ArchivedMember]]] = []
    for archive in proven:
        paths = [path for path in archive.paths() if path not in taken and is_wanted(path[cut:])]
        taken.update(paths)
        members = sorted(archive.find(paths).values(), key=lambda member: member.offset_bytes)
        if members:
            choices.append((archive, members))
    return choices


def _wanted(paths: Iterator[bytes], tree: bytes, patterns: Sequence[bytes]) -> Callable[[bytes], bool]:
    """A predicate for the requested paths. Literal matches come first, because names may contain wildcards."""
    names = {pattern.strip(b"/") for pattern in patterns}
    if tree:
        names |= {name[len(tree) + 1 :] for name in names if is_beneath(name, tree)}
    everything = b"" in names or b"." in names
    met: set[bytes] = set()
    for path in paths:
        met.update(above for above in _with_above(path) if above in names)
    globs = GlobMatcher([name for name in names - met if name and _GLOB_BYTES.intersection(name)])
    return lambda path: everything or any(above in met for above in _with_above(path)) or globs.matches(path)


def _with_above(path: bytes) -> Iterator[bytes]:
    yield path
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _check_cutover(ports: RestorePorts, tree: bytes) -> None:
    newest = ports.ledger.cutovers.latest(tree)
    if newest is not None and newest.under_way:
        raise Refused(
            f"nothing is restored to {show(tree)} now: its cutover is {newest.state.value}",
            cause="the comparison in a freeze would count restored files as differences",
            hint="wait until the user is thawed, or restore elsewhere with --to",
        )
