"""Looking at every path of a tree before anything of it is touched: is the target known to have it?"""

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from migrator.decide.purge_proof import Stand
from migrator.domain.cutover import PurgeSum
from migrator.domain.entry import Entry, EntryType
from migrator.domain.progress import PurgeProgress
from migrator.domain.purge import FINDINGS_KEPT, Judgement, PurgeFinding, Verdict
from migrator.ports.filesystem import FileSystem
from migrator.ports.purging import TreeProofs
from migrator.stages.purge.context import Call, Placed
from migrator.stages.purge.judging import Judge
from migrator.stages.purge.reaped import Skipped
from migrator.stages.verify.work import WorkPool

_BLOCK_ENTRIES = 512
SHOW_EVERY_S = 0.5


@dataclass(slots=True, kw_only=True)
class Found:
    """What was found of a tree. Thread-safe where it is changed through its methods."""

    names: int = 0
    inodes: int = 0
    size_bytes: int = 0
    read_again: int = 0
    changed: int = 0
    gone: int = 0
    removed: int = 0
    open_paths: int = 0
    skipped: int = 0
    released: int = 0
    findings: list[PurgeFinding] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def listed(self) -> tuple[PurgeFinding, ...]:
        """The findings, in order of path."""
        return tuple(sorted(self.findings, key=lambda finding: finding.path))

    def keep(self, path: bytes, words: str) -> None:
        """A path that has to stay."""
        with self._lock:
            self.open_paths += 1
            if len(self.findings) < FINDINGS_KEPT:
                self.findings.append(PurgeFinding(path=path, words=words))

    def left(self, verdict: Verdict, path: bytes) -> bool:
        """A path that the plan skipped: given up by name, or it has to stay. Whether it was given up."""
        if verdict.judgement is Judgement.OPEN:
            with self._lock:
                self.skipped += 1
            self.keep(path, verdict.words)
            return False
        with self._lock:
            self.released += 1
        return True

    def see(self, entry: Entry) -> None:
        """A path that is there. Names of files that have several are counted elsewhere."""
        with self._lock:
            if entry.type is EntryType.DIRECTORY or entry.nlink <= 1:
                self.names += 1
                self.inodes += 1
                self.size_bytes += entry.size_bytes if entry.type is EntryType.FILE else 0

    def stand(self, stand: Stand) -> None:
        """How a path stands on the target."""
        with self._lock:
            self.changed += stand is Stand.CHANGED
            self.gone += stand is Stand.GONE

    def read(self) -> None:
        """A file whose content was read."""
        with self._lock:
            self.read_again += 1

    def remove(self) -> None:
        """A name that was removed."""
        with self._lock:
            self.removed += 1

    def sum(self, proofs: TreeProofs) -> tuple[PurgeSum, int]:
        """What the tree holds, and how many files of it have names elsewhere."""
        links, outside = proofs.link_sum()
        whole = PurgeSum(
            names=self.names + links.names,
            inodes=self.inodes + links.inodes,
            size_bytes=self.size_bytes + links.size_bytes,
        )
        return whole, outside


class Survey:
    """Judges a whole tree, where it lies now. Changes nothing."""

    def __init__(
        self, call: Call, placed: Placed, source: FileSystem, proofs: TreeProofs, *, judge: Judge, skipped: Skipped
    ) -> None:
        self._skipped = skipped
        self._call = call
        self._placed = placed
        self._source = source
        self._proofs = proofs
        self._judge = judge
        self._looked_at = 0
        self.found = Found()
        self._pool: WorkPool[bytes, tuple[Entry, ...]] = WorkPool(
            call.request.workers, do_wide=self._read_directory, do_narrow=self._judge_block
        )

    async def run(self, top: Entry, *, user: str, total: int) -> Found:
        """Look at everything. May be called once."""
        self._judge_block((top,))
        self._pool.put_wide(self._placed.at)
        began_s = self._call.world.clock.monotonic_s()

        async def show() -> None:
            while True:
                self._call.world.progress.show(
                    PurgeProgress(
                        user=user,
                        step="looking at",
                        elapsed_s=self._call.world.clock.monotonic_s() - began_s,
                        names=self._looked_at,
                        total_names=max(total, self._looked_at),
                        kept=self.found.open_paths,
                    )
                )
                await self._call.world.clock.sleep(SHOW_EVERY_S)

        showing = asyncio.create_task(show())
        try:
            await self._pool.run()
        finally:
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
        return self.found

    def _read_directory(self, path: bytes) -> None:
        for block in self._source.read_directory(path, block_entries=_BLOCK_ENTRIES):
            for problem in block.problems:
                self.found.keep(self._placed.known_as(problem.path), f"cannot be read ({problem.reason})")
            for entry in block.entries:
                if entry.type is EntryType.DIRECTORY:
                    self._pool.put_wide(entry.path)
            if self._pool.stopped:
                return
            self._pool.put_narrow(block.entries)

    def _judge_block(self, entries: Sequence[Entry]) -> None:
        proofs = self._proofs.of_block([self._placed.known_as(entry.path) for entry in entries])
        linked: list[Entry] = []
        for entry in entries:
            if self._pool.stopped:
                return
            self._looked_at += 1
            self.found.see(entry)
            if entry.nlink > 1 and entry.type is not EntryType.DIRECTORY:
                linked.append(entry)
            path = self._placed.known_as(entry.path)
            proof = proofs.get(path)
            if proof is None and (left := self._skipped.verdict(entry, path)) is not None:
                self.found.left(left, path)
                continue
            verdict = self._judge.on_source(entry, proof)
            if verdict.judgement is Judgement.READ:
                self.found.read()
                self._proofs.note_read(path, entry.ino, entry.ctime_ns)
            if verdict.judgement is Judgement.OPEN or proof is None:
                self.found.keep(path, verdict.words)
                continue
            stand = self._judge.on_target(proof)
            self.found.stand(stand.stand)
            if stand.stand is Stand.LOST:
                self.found.keep(path, stand.words)
        self._proofs.note_links(linked)
