"""The remaining work of a batch, counted without changing anything."""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from migrator.core import states
from migrator.fs.model import Need
from migrator.plan.model import Batch, Chunk, Plan
from migrator.plan.rules_forecast import still_needed
from migrator.transfer import guards
from migrator.transfer import model as transfer
from migrator.transfer.context import TransferPorts
from migrator.transfer.model import PassRecord
from migrator.transfer.model_runs import GuardFinding, TreeWork

EVERY = 2**31 - 1
"""A limit that no number of chunks reaches."""
BROUGHT_KINDS = (states.ChunkKind.RANGES, states.ChunkKind.FILES, states.ChunkKind.RANGED_FILES)
"""Kinds of chunks with content of files, which a driver copies too."""


class Remaining(Struct, frozen=True, kw_only=True):
    """Chunks still to copy, by tree, and the room that they need on the target."""

    record: PassRecord | None
    trees: tuple[TreeWork, ...] = ()
    chunks_by_kind: Mapping[states.ChunkKind, int] = {}
    need: Need = Need()

    @property
    def chunks(self) -> int:
        """Of all kinds."""
        return sum(self.chunks_by_kind.values())


def remaining(
    world: TransferPorts, plan: Plan, batch: Batch, record: PassRecord | None, *, left_alone: Collection[bytes] = ()
) -> Remaining:
    """The remaining work of a pass over the batch, except some trees; None: of a seed pass that has not started. Failed
    chunks, and those in flight when a run was killed, count: both are tried again.
    """
    trees: dict[bytes, list[int]] = {tree.path: [0, 0, 0] for tree in batch.trees}
    by_kind: dict[states.ChunkKind, int] = {}
    needs: dict[bytes, Need] = {}
    for chunk in _of_pass(world, record) if record else _of_list(world, batch):
        if chunk.tree in left_alone:
            continue
        sums = trees.setdefault(chunk.tree, [0, 0, 0])
        sums[0] += 1
        by_kind[chunk.kind] = by_kind.get(chunk.kind, 0) + 1
        if chunk.kind in (*BROUGHT_KINDS, states.ChunkKind.DIRECTORIES):
            so_far = needs.get(chunk.tree, Need())
            needs[chunk.tree] = Need(
                size_bytes=so_far.size_bytes + chunk.size_bytes, inodes=so_far.inodes + chunk.files
            )
        if chunk.kind in states.CONTENT_KINDS:
            sums[1] += chunk.files
            sums[2] += chunk.size_bytes if chunk.kind is not states.ChunkKind.LINKS else 0
    return Remaining(
        record=record,
        trees=tuple(
            TreeWork(tree=tree, chunks=chunks, files=files, size_bytes=size_bytes)
            for tree, (chunks, files, size_bytes) in trees.items()
            if chunks
        ),
        chunks_by_kind=by_kind,
        # New copies replace files that an earlier plan copied, and need no additional room.
        need=still_needed(needs, world.ledger.passes.arrived(before_plan=plan.name)),
    )


def _of_list(world: TransferPorts, batch: Batch) -> Iterable[Chunk]:
    # This check comes before any use of the list: a replaced file may be no list at all.
    guards.refuse(batch, (GuardFinding(guard="chunk lists", problems=guards.list_problems(world, batch)),))
    return world.chunk_lists.chunks(batch.chunk_list)


def _of_pass(world: TransferPorts, record: PassRecord) -> Iterable[transfer.ChunkRecord]:
    passes = world.ledger.passes
    failed = passes.totals(record.id).chunks.get(states.ChunkState.FAILED, 0)
    if record.state is states.PassState.DONE and not failed:
        return
    for kind in states.CHUNK_ORDER:
        yield from passes.pending(record.id, kind.value, EVERY)
    under_way = {attempt.chunk_id for attempt in passes.unfinished_attempts(pass_id=record.id)}
    yield from (chunk for chunk in map(passes.chunk, sorted(under_way)) if chunk.state is states.ChunkState.RUNNING)
    yield from passes.to_retry(record.id)
