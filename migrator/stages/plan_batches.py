"""The batches of a plan: their files packed into chunks, the chunk lists, and whether the target has the room."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from migrator.config.site import Site
from migrator.decide.engine_choice import copies_ranges
from migrator.decide.forecast import copy_s, inodes_known, room_problems, still_needed, which_fit
from migrator.decide.packing import ChunkLimits, PackedChunk, pack
from migrator.decide.site_guards import capacity_problems
from migrator.domain.plan import Batch, TransferCost, TreeUsage
from migrator.domain.site import Capacity, Need
from migrator.domain.units import several
from migrator.ports.usage import CatalogQueries, ChunkListWriter, WrittenList


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter:
    """Writes batches for one plan. `capacity` is the target's room now, `arrived` by tree what earlier plans have brought."""

    site: Site
    capacity: Capacity
    arrived: Mapping[bytes, Need]

    def write(
        self,
        name: str,
        queries: CatalogQueries,
        lists: ChunkListWriter,
        parts: Sequence[Sequence[TreeUsage]],
        cost: TransferCost,
    ) -> tuple[tuple[Batch, ...], tuple[str, ...]]:
        """The batches of a plan, with their chunk lists written, and what speaks against relying on them."""
        transfer = self.site.transfer
        limits = ChunkLimits(
            max_bytes=transfer.chunk_size_bytes,
            max_files=transfer.chunk_files,
            range_size_bytes=transfer.range_size_bytes if copies_ranges(transfer.engine) else None,
        )
        packed = pack(
            queries.listings([[usage.tree.path for usage in part] for part in parts]),
            limits,
            bricks=sorted(walk.brick for walk in queries.record.bricks),
        )
        written = [lists.write(name, number, chunks) for number, chunks in _by_batch(packed, batches=len(parts))]
        needs = [
            # The roots of the trees are in no chunk; each is a directory all the same.
            _beyond(
                Need(size_bytes=found.size_bytes, inodes=found.files + found.directories + len(part)),
                part,
                self.arrived,
            )
            for found, part in zip(written, parts, strict=True)
        ]
        fits, problems = self._room(needs)
        batches = tuple(
            _batch(number, part, found, cost, fits=fit)
            for number, (part, found, fit) in enumerate(zip(parts, written, fits, strict=True), start=1)
        )
        return batches, problems

    def _room(self, needs: Sequence[Need]) -> tuple[tuple[bool, ...], tuple[str, ...]]:
        reserve_bytes = self.site.transfer.reserve_bytes
        inodes_free = self.site.target.inodes_free
        fits = which_fit(needs, self.capacity, inodes_free=inodes_free, reserve_bytes=reserve_bytes)
        need_inodes = sum(need.inodes for need in needs)
        unknown = not inodes_known(self.capacity, inodes_free)
        lacks = capacity_problems(
            self.capacity,
            sum(need.size_bytes for need in needs),
            need_inodes,
            # Unknown inodes were accepted: they are a problem of their own below, and nothing that is lacking.
            need_inodes if unknown else inodes_free,
            reserve_bytes,
        )
        accepted = (
            (f"whether the target can take {several(need_inodes, 'file')} was not checked, as asked for",)
            if unknown
            else ()
        )
        return fits, (*room_problems(needs, fits, lacks), *accepted)


def _beyond(need: Need, part: Sequence[TreeUsage], arrived: Mapping[bytes, Need]) -> Need:
    """What a batch takes beyond what earlier plans brought of its trees: that is replaced, not added to."""
    by_tree = {
        usage.tree.path: Need(size_bytes=usage.size_bytes, inodes=usage.files + usage.directories) for usage in part
    }
    every, left = still_needed(by_tree, {}), still_needed(by_tree, arrived)
    return Need(
        # What came with an earlier plan may be reaped now.
        size_bytes=max(need.size_bytes - (every.size_bytes - left.size_bytes), 0),
        inodes=max(need.inodes - (every.inodes - left.inodes), 0),
    )


def _by_batch(chunks: Iterable[PackedChunk], *, batches: int) -> Iterator[tuple[int, Iterable[PackedChunk]]]:
    """The chunks of every batch, also of one that has none. Each must be consumed before the next."""
    groups = groupby(chunks, key=lambda chunk: chunk.batch)
    waiting = next(groups, None)
    for number in range(1, batches + 1):
        if waiting is not None and waiting[0] == number:
            yield number, waiting[1]
            waiting = next(groups, None)
        else:
            yield number, ()


def _batch(number: int, part: Sequence[TreeUsage], found: WrittenList, cost: TransferCost, *, fits: bool) -> Batch:
    return Batch(
        number=number,
        trees=tuple(usage.tree for usage in part),
        size_bytes=found.size_bytes,
        files=found.files,
        directories=found.directories,
        chunks=found.chunks,
        chunk_list=found.chunk_list,
        chunk_list_digest=found.digest,
        forecast_s=copy_s(found.files + found.directories, found.size_bytes, cost),
        fits=fits,
    )
