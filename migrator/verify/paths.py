"""The comparison of single paths of both sides, with all their names and their content, and of all that the join left."""

import asyncio
import re
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrator.catalog.model import ContentReading, ReadContent
from migrator.core.entry import Entry, EntryType
from migrator.core.paths import name
from migrator.fs.model import Difference, DifferenceKind, DigestPolicy, TargetCapabilities
from migrator.fs.ports import ReadablePaths
from migrator.fs.reading import problem_of
from migrator.fs.rules import TEMPORARY_PREFIX, EntryComparison, absence, compare, compare_tree_root, is_sampled
from migrator.reap.model import is_archive_path
from migrator.verify import model
from migrator.verify.absences import Absences, look_up_or_prove_gone
from migrator.verify.joined import Joined, Left
from migrator.verify.mounted_content import ContentComparison
from migrator.verify.storage_wait import StorageWait
from migrator.verify.tally import NOT_COMPARED, EqualContent, VerifyTally, difference_of

if TYPE_CHECKING:
    from migrator.catalog.manifest import ParquetDraft

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
            missing = difference_of(root.path, DifferenceKind.MISSING, root.type.value, "none")
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
            self.tally.note([difference_of(target.path, DifferenceKind.EXTRA, "none", _describe_extra(target))])
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
            self.tally.note([difference_of(left.path, DifferenceKind.UNPROVEN, words, seen)])

    def _missing(self, source: Entry) -> None:
        found = self.absences.of(source)
        if found is None:
            missing = difference_of(source.path, DifferenceKind.MISSING, source.type.value, "none")
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

    def _read(self, source: Entry, target: Entry, comparison: EntryComparison) -> EqualContent | None:
        digest, difference = self._content.compare(source, target)
        while difference is not None and self._may_be_back(difference):
            digest, difference = self._content.compare(source, target)
        if difference is not None:
            comparison.differences.append(difference)
        return None if digest is None else EqualContent(digest, self.reading)

    def _may_be_back(self, difference: Difference) -> bool:
        """True if the target's file was unreadable because of lost storage that is back now."""
        if (
            self.storage is None
            or difference.kind is not DifferenceKind.UNREADABLE
            or difference.target == NOT_COMPARED
        ):
            return False
        return self.storage.was_lost(stopped=self.stopped.is_set)

    def _record(
        self, source: Entry, target: Entry, comparison: EntryComparison, content: EqualContent | None = None
    ) -> None:
        self.tally.record(source, target, differences=comparison.differences, losses=comparison.losses, content=content)


_OTHER_CONTENT = (DifferenceKind.SIZE, DifferenceKind.TYPE)


def _describe_extra(target: Entry) -> str:
    last = name(target.path)
    if target.type is EntryType.FILE and (last.startswith(TEMPORARY_PREFIX) or _RSYNC_TEMPORARY.fullmatch(last)):
        return f"{target.type.value}, looks like what an interrupted stream left behind"
    return target.type.value


# Accounting: every path that is listed now, or that any scan saw, is in the manifest, is reported, or is proven gone. What
# scans saw before an earlier verification that found a tree equal is in that one's manifest, or was proven gone by it.


async def compare_the_rest(draft: "ParquetDraft", joined: Joined, comparison: PathComparison, *, workers: int) -> None:
    """Account for every path of the trees that the join has left.

    A directory whose entries are in no listing is listed, and its paths are compared too, until nothing new is found.
    """
    blocks = joined.left()
    while True:
        while block := await joined.next_of(blocks):
            await _compare_block(block, comparison, workers)
        if not comparison.late:
            return
        late, comparison.late = comparison.late, {}
        for path, sides in late.items():
            await asyncio.to_thread(joined.add, comparison.list_late(path, sides))
        blocks = joined.late(draft)


async def _compare_block(left: Sequence[Left], comparison: PathComparison, workers: int) -> None:
    waiting = deque(left)

    def work() -> None:
        with suppress(IndexError):
            while not comparison.stopped.is_set():
                comparison.compare(waiting.popleft())

    await asyncio.gather(*(asyncio.to_thread(work) for _ in range(min(workers, len(waiting)))))
