"""Walking the source with several threads, depth first, so that what waits stays small."""

import errno
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from migrator.decide.trees import TreeIndex
from migrator.domain.entry import Entry, EntryType
from migrator.domain.scan import ScanProblem
from migrator.ports.catalog import CatalogTotals, CatalogWriter
from migrator.ports.filesystem import Block, FileSystem

_BLOCK_ENTRIES = 4096
_DEAD_MOUNT = (errno.ENOTCONN, errno.ESHUTDOWN, errno.EIO, errno.ESTALE, errno.ENODEV)
"""What every read gives when the mount itself is gone; one directory can give it too, so the root is asked."""


class SourceLost(Exception):
    """The source's root can no longer be read: what follows would be errors only, so the walk stops."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Tally:
    """What has been seen, counted as it is handed to the catalog."""

    def __init__(self, totals: CatalogTotals) -> None:
        self.rows = totals.rows
        self.directories = totals.directories
        self.size_bytes = totals.size_bytes
        self.problems = totals.problems
        self._by_tree = dict(totals.by_tree)

    def count(self, tree: bytes | None, entries: Sequence[Entry]) -> None:
        """Add entries of one tree."""
        directories = size_bytes = 0
        for entry in entries:
            if entry.type is EntryType.FILE:
                size_bytes += entry.size_bytes
            elif entry.type is EntryType.DIRECTORY:
                directories += 1
        self.rows += len(entries)
        self.directories += directories
        self.size_bytes += size_bytes
        tree_rows, tree_bytes = self._by_tree.get(tree, (0, 0))
        self._by_tree[tree] = (tree_rows + len(entries), tree_bytes + size_bytes)

    @property
    def by_tree(self) -> Mapping[bytes | None, tuple[int, int]]:
        """Rows and bytes of each tree, as a copy."""
        return self._by_tree.copy()


class Walk:
    """Reads every directory of the frontier and beneath it, each by one thread, into one writer.

    Children are queued when their directory is done in the catalog, never earlier: a restart relies on it. With `ways`
    directories outside the trees are not listed: of each, the entries that it names are looked at.
    """

    def __init__(
        self,
        source: FileSystem,
        writer: CatalogWriter,
        trees: TreeIndex,
        *,
        frontier: Iterable[bytes],
        totals: CatalogTotals,
        on_end: Callable[[], None],
        ways: Mapping[bytes, Sequence[bytes]] | None = None,
    ) -> None:
        self._source = source
        self._writer = writer
        self._trees = trees
        self._waiting = list(frontier)
        self._busy = 0
        self._stopping = False
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._on_end = on_end
        self._ways = ways
        self.tally = Tally(totals)
        self.failure: BaseException | None = None
        """What ended the walk early: SourceLost, or an error of the catalog's disk."""

    @property
    def directories_waiting(self) -> int:
        """Directories that are known and not done."""
        return len(self._waiting) + self._busy

    def start(self, workers: int) -> None:
        """Start the threads; `on_end` is called once, by the last of them."""
        self._running = workers
        # Daemons: a thread that hangs in a dead mount must not keep the program from ending.
        self._threads = [
            threading.Thread(target=self._work, name=f"scan-{number}", daemon=True) for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, wait_s: float) -> None:
        """Let the threads end after the entry at hand, and wait so long for each at most. May be called again."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(wait_s)

    def join(self) -> None:
        """Wait until every directory is done, or the walk has failed."""
        for thread in self._threads:
            thread.join()

    def abandon(self) -> None:
        """Leave the catalog open for a later scan; threads that still hang can no longer write to it."""
        with self._writing:
            self._stopping = True
            self._writer.abandon()

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Keep problems that belong to no directory, such as a brick that is down."""
        with self._writing:
            self._writer.note(problems)
            self.tally.problems += len(problems)

    def _work(self) -> None:
        try:
            while (path := self._take()) is not None:
                children: list[bytes] = []
                try:
                    children = self._read(path)
                finally:
                    self._give_back(children)
        except BaseException as error:  # noqa: BLE001 -- handed over whole: the stage raises it
            self._fail(error)
        finally:
            with self._changed:
                self._running -= 1
                last = self._running == 0
            if last:
                self._on_end()

    def _take(self) -> bytes | None:
        with self._changed:
            while not self._waiting and self._busy and not self._stopping:
                self._changed.wait()
            if self._stopping or not self._waiting:
                return None
            self._busy += 1
            return self._waiting.pop()

    def _give_back(self, children: Sequence[bytes]) -> None:
        with self._changed:
            self._waiting.extend(children)
            self._busy -= 1
            if len(children) > 1 or not self._busy:
                self._changed.notify_all()
            elif children:
                self._changed.notify()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.failure = self.failure or error
            self._stopping = True
            self._changed.notify_all()

    def _read(self, path: bytes) -> list[bytes]:
        """One directory into the catalog; returns its children, none where it was not read to its end."""
        children: dict[bytes, None] = {}
        problems: list[ScanProblem] = []
        tree = self._trees.of(path)
        for block in self._blocks(path, tree):
            problems += block.problems
            directories = [entry.path for entry in block.entries if entry.type is EntryType.DIRECTORY]
            listed = block.entries
            if not children.keys().isdisjoint(directories):
                # A Gluster mount can list an entry twice while others are renamed; all beneath it would be doubled.
                listed = tuple(entry for entry in listed if entry.path not in children)
            children.update(dict.fromkeys(directories))
            shares = [(tree, listed)] if tree is not None else self._shares(listed, directories)
            with self._writing:
                if self._stopping:
                    return []
                for owner, entries in shares:
                    self._writer.add(owner, entries)
                    self.tally.count(owner, entries)
        self._require_living_source(problems)
        with self._writing:
            if self._stopping:
                return []
            self._writer.directory_done(path, problems)
            self.tally.problems += len(problems)
        return list(children)

    def _blocks(self, path: bytes, tree: bytes | None) -> Iterable[Block]:
        if self._ways is None or tree is not None:
            return self._source.read_directory(path, block_entries=_BLOCK_ENTRIES)
        entries: list[Entry] = []
        problems: list[ScanProblem] = []
        for wanted in self._ways.get(path, ()):
            try:
                entry = self._source.look(wanted)
            except OSError as error:
                reason = error.strerror or str(error)
                problems.append(ScanProblem(path=wanted, operation="lstat", errno=error.errno, reason=reason))
                continue
            if entry is not None:
                entries.append(entry)
        return [Block(entries=tuple(entries), problems=tuple(problems))]

    def _shares(
        self, entries: Sequence[Entry], directories: Sequence[bytes]
    ) -> list[tuple[bytes | None, Sequence[Entry]]]:
        """Outside every tree: the trees' own directories belong to their trees, the rest to nobody."""
        roots = {path for path in directories if self._trees.is_root(path)}
        if not roots:
            return [(None, entries)]
        shares: list[tuple[bytes | None, Sequence[Entry]]] = [
            (entry.path, (entry,)) for entry in entries if entry.path in roots
        ]
        outside = [entry for entry in entries if entry.path not in roots]
        return [(None, outside), *shares] if outside else shares

    def _require_living_source(self, problems: Sequence[ScanProblem]) -> None:
        if any(problem.errno in _DEAD_MOUNT for problem in problems):
            try:
                self._source.look(b"")
            except OSError as error:
                raise SourceLost(error.strerror or str(error)) from error
