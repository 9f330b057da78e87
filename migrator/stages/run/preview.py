"""What is left of a batch, counted without changing anything."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from migrator.decide.forecast import still_needed
from migrator.domain.plan import Batch, Chunk, Plan
from migrator.domain.run import GuardFinding, TreeWork
from migrator.domain.site import Need
from migrator.domain.states import CHUNK_ORDER, ChunkKind, ChunkState, PassKind, PassState
from migrator.domain.transfer import ChunkRecord
from migrator.ports.passes import PassRecord
from migrator.stages.run.context import World
from migrator.stages.run.guards import list_problems, refuse

_ALL = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """Chunks that are still to be copied, tree by tree, what they need on the target, and the bricks that they lie on."""

    record: PassRecord | None
    trees: tuple[TreeWork, ...] = ()
    chunks_by_kind: Mapping[ChunkKind, int] = field(default_factory=dict)
    need: Need = field(default_factory=Need)
    bricks: frozenset[str] = frozenset()

    @property
    def chunks(self) -> int:
        """Of all kinds."""
        return sum(self.chunks_by_kind.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    kind: ChunkKind
    tree: bytes
    files: int
    size_bytes: int
    brick: str | None


def remaining(world: World, plan: Plan, batch: Batch, *, left_alone: Collection[bytes] = ()) -> Remaining:
    """What a seed pass over the batch would copy. Chunks that were under way when a run was killed count, and those that
    failed: both are tried again.
    """
    record = world.ledger.passes.find(plan.name, batch.number, PassKind.SEED)
    return remaining_of(world, plan, batch, record, left_alone=left_alone)


def remaining_of(
    world: World, plan: Plan, batch: Batch, record: PassRecord | None, *, left_alone: Collection[bytes] = ()
) -> Remaining:
    """What is left of a pass over the batch, but for some trees; None: of a seed pass that has not begun."""
    trees: dict[bytes, list[int]] = {tree.path: [0, 0, 0] for tree in batch.trees}
    by_kind: dict[ChunkKind, int] = {}
    needs: dict[bytes, Need] = {}
    bricks: set[str] = set()
    for piece in _of_pass(world, record, left_alone) if record else _of_list(world, batch, left_alone):
        sums = trees.setdefault(piece.tree, [0, 0, 0])
        sums[0] += 1
        by_kind[piece.kind] = by_kind.get(piece.kind, 0) + 1
        if piece.brick is not None:
            bricks.add(piece.brick)
        match piece.kind:
            case ChunkKind.FILES | ChunkKind.RANGES | ChunkKind.RANGED_FILES:
                needs[piece.tree] = _plus(needs.get(piece.tree), piece)
                sums[1] += piece.files
                sums[2] += piece.size_bytes
            case ChunkKind.LINKS:
                sums[1] += piece.files
            case ChunkKind.DIRECTORIES:
                needs[piece.tree] = _plus(needs.get(piece.tree), piece)
            case ChunkKind.DIRECTORY_TIMES | ChunkKind.TREE:
                pass
    return Remaining(
        record=record,
        trees=tuple(
            TreeWork(tree=tree, chunks=chunks, files=files, size_bytes=size_bytes)
            for tree, (chunks, files, size_bytes) in trees.items()
            if chunks
        ),
        chunks_by_kind=by_kind,
        bricks=frozenset(bricks),
        # What an earlier plan brought over is replaced, not added to.
        need=still_needed(needs, world.ledger.passes.arrived(before_plan=plan.name)),
    )


def _piece(chunk: Chunk | ChunkRecord) -> _Piece:
    return _Piece(kind=chunk.kind, tree=chunk.tree, files=chunk.files, size_bytes=chunk.size_bytes, brick=chunk.brick)


def _plus(need: Need | None, piece: _Piece) -> Need:
    so_far = need or Need()
    return Need(size_bytes=so_far.size_bytes + piece.size_bytes, inodes=so_far.inodes + piece.files)


def _of_list(world: World, batch: Batch, left_alone: Collection[bytes]) -> Iterable[_Piece]:
    # Before anything is read from it: a list that was replaced need not be one.
    refuse(batch, (GuardFinding(guard="chunk lists", problems=list_problems(world, batch)),))
    for chunk in world.chunk_lists.chunks(batch.chunk_list):
        if chunk.tree not in left_alone:
            yield _piece(chunk)


def _of_pass(world: World, record: PassRecord, left_alone: Collection[bytes]) -> Iterable[_Piece]:
    passes = world.ledger.passes
    failed = passes.totals(record.id).chunks.get(ChunkState.FAILED, 0)
    if record.state is PassState.DONE and not failed:
        return
    records = [chunk for kind in CHUNK_ORDER for chunk in passes.pending(record.id, kind.value, _ALL)]
    under_way = {attempt.chunk_id for attempt in passes.unfinished_attempts(record.id)}
    records.extend(chunk for chunk in map(passes.chunk, sorted(under_way)) if chunk.state is ChunkState.RUNNING)
    records.extend(passes.to_retry(record.id))
    for chunk in records:
        if chunk.tree not in left_alone:
            yield _piece(chunk)
