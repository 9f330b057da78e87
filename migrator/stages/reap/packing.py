"""Writing the archives of one tree, one after the other, and taking up what a killed call left. Blocking."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from migrator.adapters.archives.tar import TarArchives, TarDraft
from migrator.adapters.filesystems.archive_folders import HeldFolder
from migrator.domain.archives import (
    ArchiveLimits,
    ArchiveRecord,
    ArchiveState,
    LeftOut,
    TreeArchived,
    archive_name,
    index_name,
    is_partial,
    number_of,
)
from migrator.domain.errors import MigratorError, Refused
from migrator.domain.paths import show
from migrator.domain.reap import ReapRow
from migrator.ports.archives import ArchiveRecords, OpenMember
from migrator.ports.clock import Clock
from migrator.stages.reap.archived import read_archive, read_back

EXAMPLES = 20


def recover(
    folder: HeldFolder,
    archive_format: TarArchives,
    records: Sequence[ArchiveRecord],
    ledger: ArchiveRecords,
    clock: Clock,
) -> Sequence[str]:
    """Take up what is there: parts of archives are removed, what was written is read back, what cannot be read back or was
    lost becomes void and is removed. Files that the ledger does not know are not touched.

    To be called while the source still has everything, before anything is archived. Returns what became void, in words.
    """
    folder.remove([name for name in folder.names() if is_partial(name)])
    there = frozenset(folder.names())
    said: list[str] = []
    for record in records:
        names = (archive_name(record.number), index_name(record.number))
        if record.state is not ArchiveState.VOID:
            why = "" if there.issuperset(names) else "it is not there any more"
            if record.state is ArchiveState.WRITTEN:
                why = why or read_back(folder, archive_format, record)
                if not why:
                    ledger.prove(record.id, at_s=clock.now_s())
            else:
                why = why or _problem(folder, archive_format, record)
            if not why:
                continue
            ledger.void(record.id, why, at_s=clock.now_s())
            said.append(f"archive {record.number} of {show(record.tree)} is void: {why}; its files are archived again")
        folder.remove([name for name in names if name in there])
    return said


class Packing:
    """Writes members into archives of bounded size. `finish` at the end, and `abandon` in any case."""

    def __init__(
        self,
        folder: HeldFolder,
        archive_format: TarArchives,
        ledger: ArchiveRecords,
        clock: Clock,
        *,
        plan: str,
        batch: int,
        tree: bytes,
        limits: ArchiveLimits,
        made: Callable[[ArchiveRecord], None],
        voided: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._format = archive_format
        self._ledger = ledger
        self._clock = clock
        self._plan = plan
        self._batch = batch
        self._tree = tree
        self._limits = limits
        self._voided = voided
        self._open: _OpenArchive | None = None
        self._say_made = made
        self._made: list[ArchiveRecord] = []
        self._left_out: Counter[str] = Counter()
        self._examples: list[LeftOut] = []

    def add(self, opened: Sequence[tuple[ReapRow, OpenMember | LeftOut]]) -> None:
        """Take members, in order; all are released, also where it fails."""
        left = iter(opened)
        try:
            for row, member in left:
                if isinstance(member, LeftOut):
                    self._leave_out(member)
                    continue
                try:
                    left_out = self._room_for(member).draft.add(member, gfid=row.gfid)
                finally:
                    member.close()
                if left_out is not None:
                    self._leave_out(left_out)
        finally:
            for _, member in left:
                if not isinstance(member, LeftOut):
                    member.close()

    def finish(self) -> None:
        """End the archive that is being written: it gets its name, is read back, and counts."""
        if self._open is None:
            return
        archive, self._open = self._open, None
        with archive.files:
            members = archive.draft.members
            written = archive.draft.close()
        names = (archive_name(archive.number), index_name(archive.number))
        if members == 0:
            self._folder.remove([name for name in self._folder.names() if is_partial(name)])
            return
        record = self._ledger.add(
            plan=self._plan,
            batch=self._batch,
            tree=self._tree,
            number=archive.number,
            written=written,
            at_s=self._clock.now_s(),
        )
        self._folder.publish(names)
        if why := read_back(self._folder, self._format, record):
            self._ledger.void(record.id, why, at_s=self._clock.now_s())
            self._folder.remove(names)
            said = f"archive {record.number} of {show(self._tree)} could not be read back as it was written: {why}"
            self._voided(said)
            raise MigratorError(
                said,
                cause="the target, the network or the memory of this machine changes what is written",
                hint="find out why before anything else is moved; the same command then makes the archive again",
            )
        self._ledger.prove(record.id, at_s=self._clock.now_s())
        self._made.append(record)
        self._say_made(record)

    def abandon(self) -> None:
        """Take away what is being written; nothing where nothing is."""
        if self._open is not None:
            archive, self._open = self._open, None
            archive.files.close()
            self._folder.remove([name for name in self._folder.names() if is_partial(name)])

    def result(self, of: TreeArchived) -> TreeArchived:
        """What was done, for the tree of this result."""
        return replace(
            of,
            archives=len(self._made),
            members=sum(record.written.members for record in self._made),
            content_bytes=sum(record.written.content_bytes for record in self._made),
            archive_bytes=sum(record.written.archive_bytes + record.written.index_bytes for record in self._made),
            left_out=dict(sorted(self._left_out.items())),
            examples=tuple(self._examples),
        )

    def _room_for(self, member: OpenMember) -> "_OpenArchive":
        if self._open is not None and self._open.draft.members > 0:
            full = self._open.draft.members >= self._limits.max_members
            if full or self._open.draft.content_bytes + member.entry.size_bytes > self._limits.max_bytes:
                self.finish()
        if self._open is None:
            self._open = self._begin()
        return self._open

    def _begin(self) -> "_OpenArchive":
        # Numbers are never used again, also of files that the ledger does not know (one that was brought back may not).
        taken = [record.number for record in self._ledger.of_tree(self._tree)]
        taken += [number for name in self._folder.names() if (number := number_of(name)) is not None]
        number = max(taken, default=0) + 1
        with ExitStack() as files:
            archive = files.enter_context(self._folder.create(archive_name(number)))
            index = files.enter_context(self._folder.create(index_name(number)))
            draft = self._format.begin(self._tree, archive, index)
            return _OpenArchive(number=number, files=files.pop_all(), draft=draft)

    def _leave_out(self, left_out: LeftOut) -> None:
        self._left_out[left_out.reason.value] += 1
        if len(self._examples) < EXAMPLES:
            self._examples.append(left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenArchive:
    number: int
    files: ExitStack
    draft: TarDraft


def _problem(folder: HeldFolder, archive_format: TarArchives, record: ArchiveRecord) -> str:
    """What is wrong with the size or the index of an archive that is there."""
    try:
        read_archive(folder, archive_format, record)
    except Refused as refused:
        return refused.message
    return ""
