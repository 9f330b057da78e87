"""The comparison of single paths, by worker threads: what the join of both sides has left."""

import asyncio
import errno
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from migrator.beegfs.tool import StorageTargets, look_at_storage
from migrator.catalog.model import ArchivedMember, ContentReading, ReadContent
from migrator.catalog.ports import LinkedPath, LinkFinding, LinkFindingKind, VerifiedPath
from migrator.core.clock import Clock
from migrator.core.entry import Entry, EntryType
from migrator.core.events import EventKind, Severity
from migrator.core.paths import name, parent, show
from migrator.fs.model import Difference, DifferenceKind, DigestPolicy, ScanProblem, SurpriseKind, TargetCapabilities
from migrator.fs.ports import Digest, ReadablePaths
from migrator.fs.reading import problem_of
from migrator.fs.rules import TEMPORARY_PREFIX, Comparison, Loss, absence, compare, compare_tree_root, is_sampled
from migrator.fs.rules_equality import FileState
from migrator.reap.archive import ProvenArchives
from migrator.reap.model import is_archive_path, same_file
from migrator.site.model import ReapAction
from migrator.verify import model
from migrator.verify.joined import EqualTotals, Left

if TYPE_CHECKING:
    from migrator.catalog.manifest import ParquetDraft
    from migrator.reap.store import ReapIndex

# --- Waiting for lost storage of the target: its files are unreadable meanwhile, not different


_LOOK_EVERY_S = 10.0
_STOP_WITHIN_S = 1.0


@dataclass(slots=True)
class StorageWait:
    """Polls the storage targets. If a poll fails, nothing is known, and the comparison does not wait.

    Create it in the event loop of the verification. `say` reports lost storage, and its return.
    """

    storage: StorageTargets
    clock: Clock
    say: Callable[[EventKind, Severity, str], None]
    _loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.get_running_loop)
    _told: bool = field(init=False, default=False)

    async def until_back(self, *, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait while a storage or metadata target is lost; return whether one was. Returns soon if the work is `stopped`."""
        was_lost = False
        while not stopped() and (lost := (await look_at_storage(self.storage, patient=True)).lost):
            was_lost = True
            if not self._told:
                self._told = True
                message = f"storage of the target is lost, the verification waits for it: {'; '.join(lost)}"
                self.say(EventKind.STORAGE_LOST, Severity.ERROR, message)
            waited_s = 0.0
            while waited_s < _LOOK_EVERY_S and not stopped():
                await self.clock.sleep(_STOP_WITHIN_S)
                waited_s += _STOP_WITHIN_S
        if was_lost and self._told and not stopped():
            self._told = False
            self.say(EventKind.STORAGE_BACK, Severity.INFO, "all storage targets of the target answer again")
        return was_lost

    def was_lost(self, *, stopped: Callable[[], bool]) -> bool:
        """As `until_back`, from another thread; if it returns True, retry the read."""
        waiting = self.until_back(stopped=stopped)
        return asyncio.run_coroutine_threadsafe(waiting, self._loop).result() and not stopped()


# --- Proof that a path is gone: doubt is no proof


def look_up_or_prove_gone(file_system: ReadablePaths, path: bytes) -> Entry | None:
    """The entry that exists now; None if its absence is proven.

    An ancestor that is a file or a symlink proves it too. Raises OSError in doubt.
    """
    try:
        return file_system.look(path)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        if not _leads_nowhere(file_system, path):
            raise
        return None


def _leads_nowhere(file_system: ReadablePaths, path: bytes) -> bool:
    components = path.split(b"/")
    for depth in range(1, len(components)):
        ancestor = file_system.look(b"/".join(components[:depth]))
        if ancestor is None or ancestor.type is not EntryType.DIRECTORY:
            return True
    return False


# --- VerifyTally: thread-safe counters that feed the manifest


class EqualContent(Struct, frozen=True):
    """The digest of content that is equal on both sides, the verification that read it, and whether that was an earlier
    one, or hosts before the comparison.
    """

    digest: bytes
    reading: ContentReading
    carried: bool = False
    by_hosts: bool = False


class VerifyTally:
    """The counters of one verification, which feed its manifest. Thread-safe.

    Every name of a file adds its part of the size, so a file with several names counts once; the sums are rounded down.
    """

    def __init__(self, draft: "ParquetDraft") -> None:
        self._draft = draft
        self._lock = threading.Lock()
        self.paths = self.files = self.digested_files = self.carried_files = self.unread = self.proven_gone = 0
        self.host_files = 0
        self.size_bytes = self.digested_bytes = self.carried_bytes = 0
        self.differences: Counter[str] = Counter()
        self.expected: Counter[str] = Counter()

    @property
    def difference_count(self) -> int:
        """The number of differences so far."""
        with self._lock:
            return self.differences.total()

    def record(
        self,
        source: Entry,
        target: Entry | None,
        *,
        differences: Sequence[Difference] = (),
        losses: Sequence[Loss] = (),
        content: EqualContent | None = None,
        archived: ArchivedMember | None = None,
    ) -> None:
        """Count a path of the source, and add it to the manifest if it arrived without a difference."""
        with self._lock:
            self.paths += 1
            size_bytes = source.content_bytes // max(source.nlink, 1)
            if source.type is EntryType.FILE:
                self.files += 1
                self.size_bytes += size_bytes
            if archived is not None or (content is not None and content.carried):
                # The content of an archive counts as proven only after it was read back.
                self.carried_files += 1
                self.carried_bytes += size_bytes
            elif content is not None:
                self.digested_files += 1
                self.digested_bytes += size_bytes
                self.host_files += content.by_hosts
        verified = VerifiedPath(
            source=source,
            target=target,
            digest=None if content is None else content.digest,
            reading=None if content is None else content.reading,
            archived=archived,
        )
        arrived = not differences and (target is not None or archived is not None)
        self.note(differences, losses, verified=(verified,) if arrived else (), links=_linked(source, target))

    def add_equal(self, totals: EqualTotals) -> None:
        """Count paths that are in the draft already."""
        with self._lock:
            self.paths += totals.paths
            self.files += totals.files
            self.size_bytes += totals.size_bytes
            self.digested_files += totals.digested_files
            self.host_files += totals.digested_files
            self.digested_bytes += totals.digested_bytes
            self.carried_files += totals.carried_files
            self.carried_bytes += totals.carried_bytes
            self.expected += Counter({SurpriseKind.LOSS_TIME.value: totals.floored_times})

    def note(
        self,
        differences: Sequence[Difference] = (),
        losses: Sequence[Loss] = (),
        *,
        verified: Sequence[VerifiedPath] = (),
        links: Sequence[LinkedPath] = (),
    ) -> None:
        """Count differences, and losses that are expected."""
        with self._lock:
            for difference in differences:
                self.differences[difference.kind.value] += 1
                self.unread += difference.kind is DifferenceKind.UNREADABLE
            for loss in losses:
                self.expected[loss.kind.value] += 1
        self._draft.add(verified=verified, differences=differences, losses=losses, links=links)

    def unreadable(self, problem: ScanProblem, *, on_source: bool) -> None:
        """Count a path that could not be read on one side; the verification is then not whole."""
        words = f"{problem.operation}: {problem.reason}"
        sides = (words, NOT_COMPARED) if on_source else (NOT_COMPARED, words)
        self.note([_difference(problem.path, DifferenceKind.UNREADABLE, *sides)])

    def gone(self) -> None:
        """Count a path of an earlier catalog that is proven to be gone."""
        with self._lock:
            self.proven_gone += 1


NOT_COMPARED = "not compared"
"""The text for the readable side if a file cannot be read on the other."""


def _difference(path: bytes, kind: DifferenceKind, source: str, target: str) -> Difference:
    return Difference(path=path, kind=kind, source=source, target=target)


def _linked(source: Entry, target: Entry | None) -> tuple[LinkedPath, ...]:
    target_nlink = 0 if target is None else target.nlink
    of_one_type = target is None or target.type is source.type
    if source.type is EntryType.DIRECTORY or not of_one_type or max(source.nlink, target_nlink) <= 1:
        return ()
    linked = LinkedPath(
        path=source.path,
        source_ino=source.ino,
        source_nlink=source.nlink,
        target_ino=None if target is None else target.ino,
        target_nlink=target_nlink,
    )
    return (linked,)


# --- The comparison of content by digest; a file with several names is read once


_REMEMBERED_FILES = 4096


class _Digests:
    """Digests of one side, with a cache for files with several names. Thread-safe."""

    def __init__(self, file_system: ReadablePaths, algorithm: str) -> None:
        self._file_system = file_system
        self._algorithm = algorithm
        self._lock = threading.Lock()
        self._remembered: OrderedDict[FileState, Digest] = OrderedDict()

    def of(self, entry: Entry) -> Digest:
        """Read the file and return its digest. Raises OSError."""
        if entry.nlink <= 1:
            return self._file_system.digest(entry.path, self._algorithm)
        key = FileState.of(entry)
        with self._lock:
            known = self._remembered.get(key)
        if known is not None:
            return known
        digest = self._file_system.digest(entry.path, self._algorithm)
        if not digest.changed:
            with self._lock:
                self._remembered[key] = digest
                if len(self._remembered) > _REMEMBERED_FILES:
                    self._remembered.popitem(last=False)
        return digest


_PAUSES_S = (1.5, 3.0)
"""Longer than a Gluster client caches the result of a listing (1 s by default)."""


class ContentComparison:
    """Compares content. Thread-safe."""

    def __init__(self, source: ReadablePaths, target: ReadablePaths, algorithm: str) -> None:
        self._sides = ((source, _Digests(source, algorithm)), (target, _Digests(target, algorithm)))

    def compare(self, source: Entry, target: Entry) -> tuple[bytes | None, Difference | None]:
        """The common digest, or the difference: content, changed while read, or unreadable."""
        found: list[bytes] = []
        for on_source, entry, (file_system, digests) in zip((True, False), (source, target), self._sides, strict=True):
            try:
                digest = digests.of(entry)
                for pause_s in _PAUSES_S:
                    if digest.size_bytes >= entry.size_bytes or self._changed_since(file_system, entry):
                        break
                    # Nothing has changed: immediately after a listing, a Gluster mount may return a file of mode 1000
                    # truncated.
                    time.sleep(pause_s)
                    digest = digests.of(entry)
            except OSError as error:
                if self._changed_since(file_system, entry):
                    return None, _changed(entry, "replaced or removed while it was read", on_source=on_source)
                words = f"read: {problem_of(entry.path, 'read', error).reason}"
                sides = (words, NOT_COMPARED) if on_source else (NOT_COMPARED, words)
                return None, _difference(entry.path, DifferenceKind.UNREADABLE, *sides)
            if digest.changed or digest.size_bytes != entry.size_bytes:
                return None, _changed(entry, "changed while it was read", on_source=on_source)
            found.append(digest.value)
        if found[0] == found[1]:
            return found[0], None
        if self._changed_since(self._sides[0][0], source):
            return None, _changed(source, "changed since it was listed", on_source=True)
        return None, _difference(source.path, DifferenceKind.CONTENT, found[0].hex(), found[1].hex())

    @staticmethod
    def _changed_since(file_system: ReadablePaths, entry: Entry) -> bool:
        """Whether a file has changed since it was listed. If that is unknown, it counts as unread."""
        try:
            now = look_up_or_prove_gone(file_system, entry.path)
        except OSError:
            return False
        return now is None or now.type is not EntryType.FILE or FileState.of(now) != FileState.of(entry)


def _changed(entry: Entry, words: str, *, on_source: bool) -> Difference:
    sides = (words, "unchanged") if on_source else ("unchanged", words)
    return _difference(entry.path, DifferenceKind.CHANGED, *sides)


# --- Hard links


def compare_links(
    draft: "ParquetDraft", tally: VerifyTally, capabilities: TargetCapabilities, *, trash: Sequence[str] = ()
) -> None:
    """Compare the link groups of both sides, from the names in the draft, and count differences and losses. `trash` are
    files with the rows of the target's trash.
    """
    # Rows added before are on disk by now, so more may be added while these are read.
    for finding in draft.link_findings(trash):
        found = _link_difference(finding, capabilities)
        if isinstance(found, Loss):
            tally.note(losses=[found])
        elif finding.kind is not LinkFindingKind.OUTSIDE or not tally.unread:
            # Names outside the batch may be unreadable ones; the record is then not whole anyway.
            tally.note([found])


def _link_difference(finding: LinkFinding, capabilities: TargetCapabilities) -> Difference | Loss:
    same, alone = f"the same file as {show(finding.other)}", "a file of its own"
    kind, path = DifferenceKind.HARD_LINKS, finding.path
    match finding.kind:
        case LinkFindingKind.SPLIT if not capabilities.keeps_hard_links:
            return _loss(path, SurpriseKind.LOSS_HARD_LINK, f"a copy beside {show(finding.other)}")
        case LinkFindingKind.SPLIT:
            return _difference(path, kind, same, alone)
        case LinkFindingKind.MERGED:
            return _difference(path, kind, alone, same)
        case LinkFindingKind.OUTSIDE:
            names = f"{finding.names} names in this batch"
            return _difference(path, kind, names, f"{finding.nlink} names, {finding.names} of them in this batch")
        case LinkFindingKind.IN_TRASH:
            detail = (
                f"{finding.nlink} names, {finding.names} of them in this batch: others are in the trash of the target"
            )
            return _loss(path, SurpriseKind.NAMES_IN_TRASH, detail)
        case LinkFindingKind.BROKEN:
            detail = f"{finding.nlink} names, {finding.names} of them in this batch: a copy of its own here"
            return _loss(path, SurpriseKind.HARD_LINKS_BROKEN, detail)
        case _:
            assert_never(finding.kind)


# --- Expected absences: paths that the target cannot keep, and reaped ones


class Absence(Struct, frozen=True, kw_only=True):
    """Why a path may be absent; `member` is its place in an archive, None if it is on the source only."""

    loss: Loss
    member: ArchivedMember | None = None


class Absences(Struct, frozen=True, kw_only=True):
    """Decides which absences are expected. Thread-safe.

    `reaped` is the plan's reap list of the `trees`, None if it reaps nothing. An archived path may be absent only if a
    proven archive in `archived` holds its present content on the source. If `archived` is None, the list suffices, as
    for a user who moves back to the source, which has everything. `name_seed`: that of the site.
    """

    capabilities: TargetCapabilities
    trees: frozenset[bytes]
    name_seed: int
    reaped: "ReapIndex | None"
    archived: ProvenArchives | None

    def __post_init__(self) -> None:
        """Load the indexes of the archives. Raises Refused if one is missing or differs from the proven one."""
        if self.archived is not None and self.reaped is not None:
            for tree in sorted(self.trees):
                self.archived.of_block(tree, ())

    def of(self, source: Entry) -> Absence | None:
        """Why a path may be absent; None: it is missing. Raises Refused if an index of an archive is missing or
        differs.
        """
        if (lost := absence(source, self.capabilities)) is not None:
            return Absence(loss=lost)
        if self.reaped is None or source.type is not EntryType.FILE:
            return None
        times = {"mtime_ns": source.mtime_ns, "ctime_ns": source.ctime_ns}
        action = self.reaped.action(source.path, size_bytes=source.size_bytes, **times)
        if action is None or action is ReapAction.LIST:
            return None
        kind, detail, member = SurpriseKind.ARCHIVED, "the plan archives it", self._member(source)
        if member is not None:
            detail = f"it is in archive {member.archive}"
        elif action is ReapAction.SKIP:
            kind, detail = SurpriseKind.SKIPPED, "the plan skips it"
        elif self.archived is not None:
            return None
        return Absence(loss=_loss(source.path, kind, detail), member=member)

    def _member(self, source: Entry) -> ArchivedMember | None:
        if self.archived is None:
            return None
        tree = parent(source.path)
        while tree and tree not in self.trees:
            tree = parent(tree)
        member = self.archived.of_block(tree, (source.path,)).get(source.path) if tree else None
        return member if member is not None and same_file(member, source) else None


def _loss(path: bytes, kind: SurpriseKind, detail: str) -> Loss:
    return Loss(path=path, kind=kind, detail=detail)


# --- The comparison


_RSYNC_TEMPORARY = re.compile(rb"\..+\.[0-9A-Za-z]{6}", re.DOTALL)


@dataclass(slots=True, kw_only=True)
class PathComparison:
    """Compares single paths as they are now, and reports to the tally. Thread-safe, except `late`.

    `late` has the directories that were met and whose entries are in no listing, with the sides on which they exist. Once
    `stopped` is set, what is not compared yet is left out.
    """

    source: ReadablePaths
    target: ReadablePaths
    tally: VerifyTally
    capabilities: TargetCapabilities
    policy: DigestPolicy
    root_owner: tuple[int, int]
    reading: ContentReading
    absences: "Absences"
    storage: StorageWait | None = None
    late: dict[bytes, tuple[bool, bool]] = field(init=False, default_factory=dict)
    stopped: threading.Event = field(init=False, default_factory=threading.Event)
    _content: ContentComparison = field(init=False)

    def __post_init__(self) -> None:
        self._content = ContentComparison(self.source, self.target, self.policy.algorithm)

    def compare_root(self, root: Entry) -> bool:
        """Compare the root of a tree, whose source entry is fresh; whether it is a directory on the target. Blocking."""
        try:
            target = self.target.look(root.path)
        except OSError as error:
            self.tally.unreadable(problem_of(root.path, "look", error), on_source=False)
            return False
        if target is None:
            missing = _difference(root.path, DifferenceKind.MISSING, root.type.value, "none")
            self.tally.record(root, None, differences=[missing])
        else:
            self._record(root, target, compare_tree_root(root, target, owner=self.root_owner))
        return target is not None and target.type is EntryType.DIRECTORY

    def compare(self, left: Left) -> None:
        """Look at a path on both sides and compare it, or prove that it is gone. Blocking."""
        source: Entry | None = None
        on_source = True
        try:
            source = look_up_or_prove_gone(self.source, left.path)
            on_source = False
            target = look_up_or_prove_gone(self.target, left.path)
        except OSError as error:
            self._unknown(left, source, error, on_source=on_source)
            return
        if (
            source is None
            and target is not None
            and any(is_archive_path(tree, left.path, self.absences.name_seed) for tree in self.absences.trees)
        ):
            return  # an archive: it is not from the source
        new = (
            source is not None and source.type is EntryType.DIRECTORY and not left.on_source,
            target is not None and target.type is EntryType.DIRECTORY and not left.on_target,
        )
        if any(new):
            self.late[left.path] = new
        if source is not None and target is not None:
            self._compare_pair(source, target, left.readings)
        elif source is not None:
            self._missing(source)
        elif target is not None:
            self.tally.note([_difference(target.path, DifferenceKind.EXTRA, "none", _describe_extra(target))])
        else:
            self.tally.gone()

    def list_late(self, path: bytes, sides: tuple[bool, bool]) -> Iterator[bytes]:
        """The entries of a directory that is not in the listings of these sides. Blocking."""
        for file_system, wanted in zip((self.source, self.target), sides, strict=True):
            for block in file_system.read_directory(path) if wanted and not self.stopped.is_set() else ():
                for problem in block.problems:
                    if problem.path == path:
                        self.tally.unreadable(problem, on_source=file_system is self.source)
                    else:
                        yield problem.path
                yield from (entry.path for entry in block.entries)

    def _unknown(self, left: Left, source: Entry | None, error: OSError, *, on_source: bool) -> None:
        """Count a path that cannot be looked up; expected for a symlink that is too long to be read on the target."""
        problem = problem_of(left.path, "look", error)
        loss = None if source is None else absence(source, self.capabilities)
        if source is not None and loss is not None:
            self.tally.record(source, None, losses=[loss])
        elif left.now:
            self.tally.unreadable(problem, on_source=on_source)
        else:
            words, seen = f"cannot be looked up: {problem.reason}", "an earlier scan listed it"
            self.tally.note([_difference(left.path, DifferenceKind.UNPROVEN, words, seen)])

    def _missing(self, source: Entry) -> None:
        found = self.absences.of(source)
        if found is None:
            missing = _difference(source.path, DifferenceKind.MISSING, source.type.value, "none")
            self.tally.record(source, None, differences=[missing])
        else:
            self.tally.record(source, None, losses=[found.loss], archived=found.member)

    def _compare_pair(self, source: Entry, target: Entry, readings: Sequence[ReadContent]) -> None:
        comparison = compare(source, target, self.capabilities)
        same_size = all(one.kind not in _OTHER_CONTENT for one in comparison.differences)
        content: EqualContent | None = None
        if source.type is EntryType.FILE and same_size and is_sampled(source.path, self.policy):
            found = next((one for one in readings if model.is_carried_over(one, source, target)), None)
            if found is None:
                content = self._read(source, target, comparison)
            else:
                by_hosts = found.reading.verification == self.reading.verification
                content = EqualContent(found.digest, found.reading, carried=not by_hosts, by_hosts=by_hosts)
        self._record(source, target, comparison, content)

    def _read(self, source: Entry, target: Entry, comparison: Comparison) -> EqualContent | None:
        digest, difference = self._content.compare(source, target)
        while difference is not None and self._may_be_back(difference):
            digest, difference = self._content.compare(source, target)
        if difference is not None:
            comparison.differences.append(difference)
        return None if digest is None else EqualContent(digest, self.reading)

    def _may_be_back(self, difference: Difference) -> bool:
        """Whether the target's file was unreadable because of lost storage that is back now."""
        if (
            self.storage is None
            or difference.kind is not DifferenceKind.UNREADABLE
            or difference.target == NOT_COMPARED
        ):
            return False
        return self.storage.was_lost(stopped=self.stopped.is_set)

    def _record(
        self, source: Entry, target: Entry, comparison: Comparison, content: EqualContent | None = None
    ) -> None:
        self.tally.record(source, target, differences=comparison.differences, losses=comparison.losses, content=content)


_OTHER_CONTENT = (DifferenceKind.SIZE, DifferenceKind.TYPE)


def _describe_extra(target: Entry) -> str:
    last = name(target.path)
    if target.type is EntryType.FILE and (last.startswith(TEMPORARY_PREFIX) or _RSYNC_TEMPORARY.fullmatch(last)):
        return f"{target.type.value}, looks like what an interrupted stream left behind"
    return target.type.value
