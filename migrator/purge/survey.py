"""The survey: judges every path of a tree before any of it is changed."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from migrator.core.entry import Entry, EntryType
from migrator.core.progress import PurgeProgress
from migrator.core.tasks import WorkPool, beside, work_through
from migrator.purge import model
from migrator.purge.call import PurgeCall
from migrator.purge.judge import PathJudge, TreeFindings
from migrator.purge.model import TreeLocation
from migrator.purge.proofs import IndexedProofs

_BLOCK_ENTRIES = 512
SHOW_EVERY_S = 0.5


@contextlib.asynccontextmanager
async def progress_shown(
    call: PurgeCall, found: TreeFindings, names: Callable[[], int], *, user: str, step: str, total: int
) -> AsyncIterator[None]:
    """Show the progress until the end of the block; `names` returns how many are done."""
    ports = call.ports
    began_s = ports.clock.monotonic_s()

    async def show() -> None:
        while True:
            done = names()
            ports.progress.show(
                PurgeProgress(
                    user=user,
                    step=step,
                    elapsed_s=ports.clock.monotonic_s() - began_s,
                    names=done,
                    total_names=max(total, done),
                    kept=found.open_paths,
                )
            )
            await ports.clock.sleep(SHOW_EVERY_S)

    async with beside(show(), "the progress"):
        yield


class Survey:
    """Judges a whole tree at its current location, and on the target also paths that an earlier call has removed from
    the source. Changes nothing.
    """

    def __init__(self, call: PurgeCall, placed: TreeLocation, proofs: IndexedProofs, judge: PathJudge) -> None:
        self._call = call
        self._placed = placed
        self._source = call.ports.source
        self._proofs = proofs
        self._judge = judge
        self._looked_at = 0
        self.found = TreeFindings()
        self._pool: WorkPool[bytes, tuple[Entry, ...]] = WorkPool(
            call.request.workers, do_wide=self._read_directory, do_narrow=self._judge_block
        )

    async def run(self, top: Entry, *, user: str, total: int) -> TreeFindings:
        """PathJudge every path. May be called once."""
        self._judge_block((top,))
        self._pool.put_wide(self._placed.at)
        async with progress_shown(
            self._call, self.found, lambda: self._looked_at, user=user, step="looking at", total=total
        ):
            await self._pool.run()
            if self._placed.begun:
                await self._count_removed()
        links, self.found.outside = self._proofs.link_sum()
        self.found.add(links.names, links.inodes, links.size_bytes)
        return self.found

    async def _count_removed(self) -> None:
        def count(removed: tuple[model.Proof, int]) -> None:
            proof, names = removed
            self._judge.count_removed(proof, self.found, names=names)

        await work_through(self._proofs.not_surveyed(), count, workers=self._call.request.workers)

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
        if self._placed.begun:
            self._proofs.note_surveyed(proofs)
        linked = [entry for entry in entries if entry.nlink > 1 and entry.type is not EntryType.DIRECTORY]
        self._proofs.note_links(linked)
        sizes_bytes = [entry.content_bytes for entry in entries if entry.nlink <= 1]
        self.found.add(len(entries) - len(linked), len(entries) - len(linked), sum(sizes_bytes))
        for entry in entries:
            if self._pool.stopped:
                return
            self._looked_at += 1
            path = self._placed.known_as(entry.path)
            self._judge.may_go(entry, path, proofs.get(path), self.found)
