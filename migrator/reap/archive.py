"""`reap archive`: pack the files that a plan's reap list selects, read the archives back, and only then count them."""

import asyncio
import errno
import hashlib
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.beegfs.tool import StorageTargets, words_for_full
from migrator.catalog.model import ArchivedMember
from migrator.core.clock import Clock
from migrator.core.entry import Entry, UserTree
from migrator.core.errors import ExitCode, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.progress import Progress
from migrator.core.tasks import DaemonExecutor, in_thread
from migrator.core.units import NS_PER_S, format_count, format_size, several
from migrator.fs.ports import FileSystem, TargetFileSystem
from migrator.ledger.event_log import emit_event
from migrator.reap import model
from migrator.reap.archives import AGAIN, DIGEST_BYTES, Damaged, TarDraft, TarIndex, digest_of, unusable
from migrator.reap.files import HeldFolder, MemberReader, MountedArchiveFolders, OpenMember
from migrator.reap.records import ArchiveRecords
from migrator.site.guards import mounts_not_recorded

if TYPE_CHECKING:
    from migrator.reap.records import ReapLedger

# --- Proven archives: read by archiving, restoring, verifying and purging


class ProvenArchives:
    """The content of proven archives. Thread-safe. The indexes of a tree are read on first use and kept (some hundred
    bytes per member), so an instance does not see archives made later.
    """

    def __init__(self, records: "ArchiveRecords", folders: MountedArchiveFolders) -> None:
        self._records = records
        self._folders = folders
        self._lock = threading.Lock()
        self._held: dict[bytes, tuple[TarIndex, ...]] = {}

    def of_block(self, tree: bytes, paths: Sequence[bytes]) -> Mapping[bytes, ArchivedMember]:
        """Find paths in the proven archives of the tree, each in the newest one that has it. Use `same_file` to check
        whether the file on the source is still the archived one. Raises Refused if an archive or its index is missing
        or differs from the ledger's.
        """
        found: dict[bytes, ArchivedMember] = {}
        for archive in self.newest_first(tree):
            found |= archive.find(path for path in paths if path not in found)
        return found

    def newest_first(self, tree: bytes) -> tuple[TarIndex, ...]:
        """The indexes of the proven archives of a tree. Raises Refused if one is unreadable or differs from the ledger's."""
        with self._lock:
            held = self._held.get(tree)
            if held is None:
                held = self._held[tree] = self._read(tree)
        return held

    def problems(self, tree: bytes) -> Sequence[str]:
        """Read every proven archive of the tree completely, from the target's disks, and return the problems; empty if
        all are intact. Call it before the archived files are deleted. Nothing is cached.
        """
        found: list[str] = []
        for record in self._records.of_tree(tree):
            if record.state is model.ArchiveState.PROVEN:
                try:
                    with self._folders.open(tree) as folder:
                        why = read_back(folder, record)
                except (FileNotFoundError, NotADirectoryError):
                    why = "it is not there any more"
                except OSError as error:
                    why = f"it cannot be read: {error.strerror or error}"
                if why:
                    found.append(f"archive {record.number} of {show(tree)}: {why}")
        return found

    def _read(self, tree: bytes) -> tuple[TarIndex, ...]:
        proven = [record for record in self._records.of_tree(tree) if record.state is model.ArchiveState.PROVEN]
        if not proven:
            return ()
        try:
            with self._folders.open(tree) as folder:
                return tuple(read_index(folder, record) for record in reversed(proven))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Refused(
                f"archives of {show(tree)} that were read back are not on the target any more",
                cause="somebody removed them, or the target is not mounted",
                hint=AGAIN,
            ) from error
        except OSError as error:
            raise Refused(
                f"the archives of {show(tree)} cannot be read: {error.strerror or error}",
                cause="the target does not answer as it should, or something else lies in their place",
                hint="look into the directory on the target, then run the same command again",
            ) from error


def read_back(folder: HeldFolder, record: model.ArchiveRecord) -> str:
    """Read a whole archive from the disks and compare it with its index, and both with the ledger: every byte, every
    digest. Returns the problem; empty if the archive is intact. Raises OSError.
    """
    try:
        index = read_index(folder, record)
        with folder.open(model.archive_name(record.number)) as archive:
            digest = hashlib.file_digest(archive, partial(hashlib.blake2b, digest_size=DIGEST_BYTES))
            if digest.hexdigest() != record.written.archive_digest:
                return "the archive is not the one that was written"
            index.check(archive)
    except Damaged as error:
        return f"the archive: {error}"
    except Refused as refused:
        return refused.message
    return ""


def read_index(folder: HeldFolder, record: model.ArchiveRecord) -> TarIndex:
    """The index of one archive, whose size is checked. Raises Refused if either differs from the ledger's,
    FileNotFoundError, OSError.
    """
    name = model.archive_name(record.number)
    with folder.open(name) as archive:
        if archive.seek(0, os.SEEK_END) != record.written.archive_bytes:
            raise unusable(record, name, "it has another size")
    name = model.index_name(record.number)
    with folder.open(name) as stored:
        content = stored.read(record.written.index_bytes + 1)
    if digest_of(content) != record.written.index_digest:
        raise unusable(record, name, "it is not the one that was written")
    return TarIndex(record, content)


# --- The stage
#
# The order makes it safe to kill at any moment: files under partial names, synced; the ledger, as written; the final
# names; a read-back from the disks; the ledger, as proven. Only proven archives count. The next call first recovers
# from a killed one: partial files are removed; written archives are read back, or become void.


EXAMPLES = 20
_AT_ONCE = 16
_READERS = 8
"""Threads that open and read this number of files each, ahead of packing. A file holds no more memory than a small
one."""

Rows = Callable[[bytes], Iterator[Sequence[model.ReapRow]]]
Opened = Sequence[tuple[model.ReapRow, OpenMember | model.LeftOut]]


class ArchiveRequest(Struct, frozen=True, kw_only=True):
    """The trees to archive, of one batch of a plan."""

    plan: str
    batch: int
    trees: tuple[UserTree, ...]
    limits: model.ArchiveLimits
    settle_s: float = model.SETTLE_S


class ArchivePorts(Struct, frozen=True, kw_only=True):
    """The environment of archiving. `rows` yields the rows of a tree that the reap list selects for archives."""

    source: FileSystem
    target: TargetFileSystem
    members: MemberReader
    folders: MountedArchiveFolders
    rows: Rows
    ledger: "ReapLedger"
    progress: Progress
    clock: Clock
    storage: StorageTargets | None = None


async def archive_trees(request: ArchiveRequest, ports: ArchivePorts) -> tuple[model.TreeArchived, ...]:
    """Archive the selected files of each tree. Repeating the call resumes one that was stopped or killed.

    Must not run twice at the same time, nor concurrently with a run. Raises Refused if a mount is not the recorded
    one, or if not only root can access an archive directory. Raises MigratorError if the target fails or an archive
    cannot be read back.
    """
    done: list[model.TreeArchived] = []
    for tree in request.trees:
        await asyncio.to_thread(_check_mounts, ports)
        try:
            done.append(await in_thread(_Tree(request=request, ports=ports, tree=tree).archive))
        except OSError as error:
            full = await words_for_full(ports.storage) if error.errno == errno.ENOSPC else ""
            raise MigratorError(
                f"archiving {show(tree.path)} stopped: {'; '.join(filter(None, (error.strerror or str(error), full)))}",
                cause="the target is full, read-only or does not answer, or something else is in the place of the tree",
                hint="correct that, then run the same command again: finished archives count",
            ) from error
    await asyncio.to_thread(_check_mounts, ports)
    return tuple(done)


def exit_code(trees: Sequence[model.TreeArchived]) -> ExitCode:
    """ATTENTION if a file is neither archived nor copied otherwise. The next delta pass copies changed files."""
    lasting = (model.LeftOutReason.FRESH, model.LeftOutReason.UNREADABLE)
    left = any(tree.left_out.get(reason) for tree in trees for reason in lasting)
    return ExitCode.ATTENTION if left else ExitCode.DONE


@dataclass(slots=True, kw_only=True)
class _Tree:
    """Archives one tree: recovers, then packs members into archives of bounded size. Blocking."""

    request: ArchiveRequest
    ports: ArchivePorts
    tree: UserTree
    _already: int = 0
    _open: tuple[int, TarDraft, ExitStack] | None = None
    _made: list[model.ArchiveRecord] = field(default_factory=list)
    _left_out: Counter[str] = field(default_factory=Counter)
    _examples: list[model.LeftOut] = field(default_factory=list)

    def archive(self, stop: threading.Event) -> model.TreeArchived:
        """Archive the files that are not archived yet; ends early after `stop`."""
        ports, path = self.ports, self.tree.path
        nothing = model.TreeArchived(tree=path, user=self.tree.user, left_out={})
        state = self._cutover_state()
        if state is not None:
            skipped = f"its cutover is {state}: nothing is copied to it any more"
            self._event(EventKind.FILES_ARCHIVED, Severity.INFO, f"nothing is archived: {skipped}")
            return replace(nothing, skipped=skipped)
        records = self._records.of_tree(path)
        if not next(ports.rows(path), ()) and not records:
            return nothing
        self._make_tree()
        with ports.folders.make(path) as folder:
            self._recover(folder, records)
            try:
                for opened in self._opened():
                    self._pack(folder, opened, stop)
                self._finish(folder)
            finally:
                self._abandon(folder)
        result = replace(
            nothing,
            archives=len(self._made),
            members=sum(record.written.members for record in self._made),
            content_bytes=sum(record.written.content_bytes for record in self._made),
            archive_bytes=sum(record.written.archive_bytes + record.written.index_bytes for record in self._made),
            already=self._already,
            left_out=dict(sorted(self._left_out.items())),
            examples=tuple(self._examples),
        )
        self._event(EventKind.FILES_ARCHIVED, Severity.INFO, _summary(result))
        return result

    @property
    def _records(self) -> "ArchiveRecords":
        return self.ports.ledger.archives

    def _recover(self, folder: HeldFolder, records: Sequence[model.ArchiveRecord]) -> None:
        """Recover from a killed call: remove partial archives, read back written ones, and make void (and remove)
        those that are lost or fail. Files unknown to the ledger are not touched.

        Call it before any file is archived, while the source still has all files.
        """
        _remove_partial(folder)
        there = frozenset(folder.names())
        for record in records:
            names = (model.archive_name(record.number), model.index_name(record.number))
            if record.state is not model.ArchiveState.VOID:
                why = self._problem(folder, record) if there.issuperset(names) else "it is not there any more"
                if not why:
                    if record.state is model.ArchiveState.WRITTEN:
                        self._enter(record, model.ArchiveState.PROVEN)
                    continue
                self._enter(record, model.ArchiveState.VOID, why)
                summary = f"archive {record.number} of {show(record.tree)} is void: {why}; its files are archived again"
                self._event(EventKind.ARCHIVE_VOID, Severity.WARNING, summary)
            folder.remove([name for name in names if name in there])

    def _problem(self, folder: HeldFolder, record: model.ArchiveRecord) -> str:
        """The problem of a written archive, or of the size or the index of a proven one; empty if there is none."""
        if record.state is model.ArchiveState.WRITTEN:
            return read_back(folder, record)
        try:
            read_index(folder, record)
        except Refused as refused:
            return refused.message
        return ""

    def _opened(self) -> Iterator[Opened]:
        """The files to pack, in blocks, opened and read by several threads while earlier ones are packed."""
        rows, readers = self._to_pack(), DaemonExecutor()
        ahead: deque[Future[Opened]] = deque()
        try:
            while block := list(islice(rows, _AT_ONCE)):
                ahead.append(readers.submit(self._open_all, block))
                if len(ahead) == _READERS:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for one in ahead:
                _close(one.result())

    def _to_pack(self) -> Iterator[model.ReapRow]:
        archived = ProvenArchives(self._records, self.ports.folders)
        for rows in self.ports.rows(self.tree.path):
            known = archived.of_block(self.tree.path, [row.path for row in rows])
            for row in rows:
                member = known.get(row.path)
                if member is not None and model.is_listed(row, member.entry):
                    self._already += 1
                else:
                    yield row

    def _open_all(self, rows: Sequence[model.ReapRow]) -> Opened:
        settled_ns = int((self.ports.clock.now_s() - self.request.settle_s) * NS_PER_S)
        return [(row, self.ports.members.open(row, settled_before_ns=settled_ns)) for row in rows]

    def _pack(self, folder: HeldFolder, opened: Opened, stop: threading.Event) -> None:
        """Add members in order. All are released, even on failure."""
        try:
            for row, member in opened:
                check(stop)
                if isinstance(member, model.LeftOut):
                    left_out: model.LeftOut | None = member
                else:
                    left_out = self._room_for(folder, member).add(member, gfid=row.gfid)
                if left_out is not None:
                    self._left_out[left_out.reason.value] += 1
                    if len(self._examples) < EXAMPLES:
                        self._examples.append(left_out)
        finally:
            _close(opened)

    def _room_for(self, folder: HeldFolder, member: OpenMember) -> TarDraft:
        limits = self.request.limits
        if self._open is not None and (draft := self._open[1]).members > 0:
            too_much = draft.content_bytes + member.entry.size_bytes > limits.max_bytes
            if draft.members >= limits.max_members or too_much:
                self._finish(folder)
        if self._open is None:
            self._open = self._begin(folder)
        return self._open[1]

    def _begin(self, folder: HeldFolder) -> tuple[int, TarDraft, ExitStack]:
        """The number of a new archive, its draft, and its open files."""
        # Numbers are never reused, not even those of files that are not in the ledger (it may be a restored backup).
        taken = [record.number for record in self._records.of_tree(self.tree.path)]
        taken += [number for name in folder.names() if (number := model.number_of(name)) is not None]
        number = max(taken, default=0) + 1
        with ExitStack() as files:
            archive = files.enter_context(folder.create(model.archive_name(number)))
            index = files.enter_context(folder.create(model.index_name(number)))
            draft = TarDraft(
                self.tree.path,
                archive,
                index,
                algorithm=self.ports.members.algorithm,
                frame_bytes=self.request.limits.frame_bytes,
            )
            return number, draft, files.pop_all()

    def _finish(self, folder: HeldFolder) -> None:
        """Close the open archive: rename it, read it back, and record it as proven."""
        if self._open is None:
            return
        (number, draft, files), self._open = self._open, None
        with files:
            written = draft.close()
        if written.members == 0:
            _remove_partial(folder)
            return
        tree = self.tree.path
        record = self._records.add(
            plan=self.request.plan,
            batch=self.request.batch,
            tree=tree,
            number=number,
            written=written,
            at_s=self.ports.clock.now_s(),
        )
        names = (model.archive_name(number), model.index_name(number))
        folder.publish(names)
        if why := read_back(folder, record):
            self._enter(record, model.ArchiveState.VOID, why)
            folder.remove(names)
            summary = f"archive {record.number} of {show(tree)} could not be read back as it was written: {why}"
            self._event(EventKind.ARCHIVE_VOID, Severity.ERROR, summary)
            raise MigratorError(
                summary,
                cause="the target, the network or the memory of this machine changes what is written",
                hint="find out why before anything else is moved; the same command then makes the archive again",
            )
        self._enter(record, model.ArchiveState.PROVEN)
        self._made.append(record)
        summary = f"archive {record.number}: {several(written.members, 'file')}, {format_size(written.content_bytes)}"
        summary += f" in {format_size(written.archive_bytes)}, read back"
        self._event(EventKind.FILES_ARCHIVED, Severity.INFO, summary)

    def _abandon(self, folder: HeldFolder) -> None:
        """Remove the open archive, if any."""
        if self._open is not None:
            files, self._open = self._open[2], None
            files.close()
            _remove_partial(folder)

    def _make_tree(self) -> None:
        directory = self.ports.folders.path(self.tree.path)
        if self.ports.source.look(directory) is not None:
            raise Refused(
                f"nothing is archived of {show(self.tree.path)}: the user has {show(directory)} on the source",
                cause="a copy of it would lie where the archives are kept on the target",
                hint="let the user rename it, or except the user in site.toml with [reap.users]",
            )
        components = self.tree.path.split(b"/")
        above = [b"/".join(components[:depth]) for depth in range(1, len(components))]
        like = [entry for path in above if isinstance(entry := self.ports.source.look(path), Entry)]
        self.ports.target.make_parents(self.tree.path, like)

    def _cutover_state(self) -> str | None:
        """The state of a cutover in flight, during which the tree on the target must not be touched."""
        self.ports.ledger.cutovers.require_apart([self.tree.path])
        newest = self.ports.ledger.cutovers.latest(self.tree.path)
        return newest.state.value if newest is not None and newest.has_begun() else None

    def _enter(self, record: model.ArchiveRecord, state: model.ArchiveState, reason: str = "") -> None:
        self._records.enter(record.id, state, at_s=self.ports.clock.now_s(), reason=reason)

    def _event(self, kind: EventKind, severity: Severity, message: str) -> None:
        emit_event(self.ports, kind, severity, f"tree {show(self.tree.path)}", message, run_id=None, without_run=True)


class _Stopped(Exception):
    """The work was cancelled."""


def check(stop: threading.Event) -> None:
    """To be called by the work of `in_thread` at short intervals."""
    if stop.is_set():
        raise _Stopped


def _remove_partial(folder: HeldFolder) -> None:
    folder.remove([name for name in folder.names() if model.is_partial(name)])


def _close(opened: Opened) -> None:
    for _, one in opened:
        if not isinstance(one, model.LeftOut):
            one.close()


def _check_mounts(ports: ArchivePorts) -> None:
    site = ports.ledger.site.required()
    problems = mounts_not_recorded(site, ports.source, ports.target)
    if problems:
        raise Refused(
            "nothing is archived: " + "; ".join(problems),
            cause="a mount is not as it has to be",
            hint="mount the right one, check with `migrator doctor`, then run the same command again",
        )


def _summary(result: model.TreeArchived) -> str:
    summary = f"{several(result.members, 'file')} ({format_size(result.content_bytes)}) archived in "
    summary += f"{several(result.archives, 'archive')} of {format_size(result.archive_bytes)}, read back"
    if result.already:
        summary += f"; {format_count(result.already)} were archived before"
    for reason, count in result.left_out.items():
        summary += f"; {format_count(count)} left out: {reason}"
    return summary
