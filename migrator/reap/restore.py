"""`reap restore`: restore files from archives, with content and all attributes."""

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from migrator.core.clock import Clock
from migrator.core.errors import ExitCode, MigratorError, Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import is_beneath, show
from migrator.core.progress import Progress
from migrator.core.units import format_count, several
from migrator.cutover.model import UNDER_WAY_STATES
from migrator.fs.model import TargetCapabilities
from migrator.fs.reading import ReadingFileSystem
from migrator.ledger.call import say
from migrator.reap.archive import EXAMPLES, ProvenArchives, check, in_thread
from migrator.reap.archives import TarIndex
from migrator.reap.files import MountedArchiveFolders, restore_file
from migrator.reap.model import ArchivedMember, NotRestored, Restored, archive_name
from migrator.reap.rules import GlobMatcher

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger

_GLOB_BYTES = frozenset(b"*?[")
_IN_THE_WAY = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EXDEV})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """The archived files of these trees that match one of the patterns. Patterns are relative to the tree, or begin
    with the tree's own path.

    A pattern that is the path of an archived file, or of a directory with some, is taken literally; otherwise, one with
    wildcards is a glob of `migrator.reap.rules`. `in_place`: restore to the files' own places on the target.
    """

    trees: tuple[bytes, ...]
    patterns: tuple[bytes, ...]
    in_place: bool
    overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoringWorld:
    """The environment of a restore. Attributes that the `capabilities` of the destination lack are not set."""

    folders: MountedArchiveFolders
    destination: ReadingFileSystem
    capabilities: TargetCapabilities
    ledger: "Ledger"
    progress: Progress
    clock: Clock


async def restore(request: RestoreRequest, world: RestoringWorld) -> tuple[Restored, ...]:
    """Restore each file from the newest archive that has it. Existing files are overwritten only on request.

    May be called again. Raises UsageError if no archived file matches; Refused if an index differs from the ledger's,
    and in place while the user is frozen. A file whose content differs from its digest is not restored.
    """
    return await in_thread(partial(_restore, request, world))


def _restore(request: RestoreRequest, world: RestoringWorld, stop: threading.Event) -> tuple[Restored, ...]:
    archives = ProvenArchives(world.ledger.archives, world.folders)
    chosen: list[tuple[bytes, list[tuple[TarIndex, Sequence[ArchivedMember]]]]] = []
    for tree in request.trees:
        if request.in_place:
            _check_cutover(world, tree)
        chosen.append((tree, _choose(archives, tree, request.patterns)))
    if not any(choices for _, choices in chosen):
        raise UsageError(
            f"nothing that is archived is called {' or '.join(map(show, request.patterns))}",
            hint="paths and globs are relative to the user's tree, as in `letters/2014` or `*.log`",
        )
    done: list[Restored] = []
    for tree, choices in chosen:
        restoring = _Restoring(request=request, world=world)
        for archive, members in choices:
            restoring.restore(tree, archive, members, stop)
        if restoring.restored:
            try:
                world.destination.sync()
            except OSError as error:
                raise MigratorError(
                    f"what was restored of {show(tree)} may not be on the disks: {error.strerror or error}",
                    hint="mend the file system, then restore again with --overwrite",
                ) from error
        done.append(
            Restored(
                tree=tree,
                restored=restoring.restored,
                size_bytes=restoring.size_bytes,
                not_restored=restoring.not_restored,
                examples=tuple(restoring.examples),
            )
        )
        said = f"{several(restoring.restored, 'file')} restored from archives"
        if restoring.not_restored:
            said += f"; {format_count(restoring.not_restored)} not"
        severity, subject = Severity.WARNING if restoring.not_restored else Severity.INFO, f"tree {show(tree)}"
        say(world, EventKind.FILES_RESTORED, severity, subject, said, run_id=None, without_run=True)
    return tuple(done)


def exit_code(trees: Sequence[Restored]) -> ExitCode:
    """ATTENTION if a requested file was not restored."""
    return ExitCode.ATTENTION if any(tree.not_restored for tree in trees) else ExitCode.DONE


@dataclass(slots=True, kw_only=True)
class _Restoring:
    """Restores files of one tree."""

    request: RestoreRequest
    world: RestoringWorld
    restored: int = 0
    size_bytes: int = 0
    not_restored: int = 0
    examples: list[NotRestored] = field(default_factory=list)

    def restore(self, tree: bytes, archive: TarIndex, members: Sequence[ArchivedMember], stop: threading.Event) -> None:
        """Restore the chosen members of one archive."""
        number = archive.record.number
        try:
            with (
                self.world.folders.open(tree) as folder,
                folder.open(archive_name(number)) as stream,
            ):
                for member in members:
                    check(stop)
                    self._put_back(member, archive.content(stream, member))
        except OSError as error:
            raise Refused(
                f"archive {number} of {show(tree)} cannot be read: {error.strerror or error}",
                cause="it was removed, or something else lies in its place",
                hint="bring it back from a backup of the target",
            ) from error

    def _put_back(self, member: ArchivedMember, content: Iterator[bytes]) -> None:
        root, overwrite = self.world.destination.beneath, self.request.overwrite
        try:
            restore_file(root, member, content, self.world.capabilities, overwrite=overwrite)
        except FileExistsError:
            self._leave(member, "something is there already; --overwrite replaces it")
        except Refused as refused:
            self._leave(member, refused.message)
        except OSError as error:
            in_the_way = "a symlink or a file is in the way: " if error.errno in _IN_THE_WAY else ""
            self._leave(member, f"{in_the_way}{error.strerror or error}")
        else:
            self.restored += 1
            self.size_bytes += member.entry.size_bytes

    def _leave(self, member: ArchivedMember, reason: str) -> None:
        self.not_restored += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(NotRestored(path=member.entry.path, reason=reason))


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


def _check_cutover(world: RestoringWorld, tree: bytes) -> None:
    newest = world.ledger.cutovers.latest(tree)
    if newest is not None and newest.state in UNDER_WAY_STATES:
        raise Refused(
            f"nothing is restored to {show(tree)} now: its cutover is {newest.state.value}",
            cause="what comes to the target in a freeze would be found as a difference",
            hint="wait until the user is thawed, or restore elsewhere with --to",
        )
