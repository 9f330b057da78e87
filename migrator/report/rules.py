"""From sums of the ledger to the progress of user trees and batches. Pure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import VerificationRecord
from migrator.core.states import CONTENT_KINDS, BatchState, ChunkState, PassState
from migrator.core.units import (
    DAY_S,
)
from migrator.cutover.model import ROLLBACK_STATES, CutoverRecord, CutoverState
from migrator.cutover.model import UNDER_WAY_STATES as CUTOVER_UNDER_WAY
from migrator.plan.model import Plan, PlannedTree, ThroughputPoint
from migrator.plan.schedule.model import BatchStep
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.report import model

_Value = TypeVar("_Value", bound=Struct)


def of_record(kind: type[_Value], record: object, **more: object) -> _Value:
    """A value with the fields of a record that have the same names, and `more`."""
    return kind(**{name: getattr(record, name) for name in kind.__struct_fields__ if name not in more}, **more)


def newest_runs(runs: Sequence[model.RunStatus]) -> Sequence[model.RunStatus]:
    """The runs at work, and the newest one of every verb; `runs` are newest first."""
    verbs = set[str]()
    found = []
    for run in runs:
        if run.life in model.ALIVE or run.verb not in verbs:
            found.append(run)
        verbs.add(run.verb)
    return found


# --- Progress


_SPANS_S = (5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 10800.0, 21600.0, DAY_S, 7 * DAY_S)


def span_width(duration_s: float, points: int) -> float:
    """The shortest round span that divides a duration into at most `points` spans."""
    return next((width_s for width_s in _SPANS_S if duration_s <= width_s * points), duration_s / points)


def with_rests(points: Sequence[model.DonePoint], span_s: float) -> tuple[model.DonePoint, ...]:
    """`points` with another point at the end of each idle time: a line through them stays level while idle.
    Points are at most a span apart if something was finished in both spans.
    """
    found: list[model.DonePoint] = []
    for point in points:
        begin_s = point.at_s - span_s
        if found and begin_s > found[-1].at_s:
            found.append(replace(found[-1], at_s=begin_s))
        found.append(point)
    return tuple(found)


def tree_status(
    planned: Sequence[PlannedTree],
    sums: Sequence[model.ChunkSum],
    state: BatchState,
    seed: model.PassStatus | None,
    plan: str,
) -> list[model.TreeStatus]:
    """Progress of the trees of one batch of a plan, in the order given. `sums` are those of its seed pass.

    Totals come from the plan (without reaped files) before the seed pass, and from its chunks afterwards.
    """
    by_tree: dict[bytes, list[model.ChunkSum]] = defaultdict(list)
    for entry in sums:
        if entry.state is not ChunkState.SPLIT:
            by_tree[entry.tree].append(entry)
    return [
        model.TreeStatus(tree=tree.tree, plan=plan, batch=tree.batch, rank=tree.rank, state=its_state, tally=tally)
        for tree in planned
        for its_state, tally in [_progress(tree, by_tree[tree.tree.path], state, seed)]
    ]


def _progress(
    planned: PlannedTree, sums: Sequence[model.ChunkSum], batch: BatchState, seed: model.PassStatus | None
) -> tuple[model.TreeState, model.ProgressCounts]:
    if seed is None:
        total_bytes = max(planned.size_bytes - planned.reaped_bytes, 0)
        total_files = max(planned.files - planned.reaped_files, 0)
        return model.TreeState.PLANNED, model.ProgressCounts(
            total_bytes=total_bytes, total_files=total_files, total_users=1
        )
    state = model.TreeState.COPYING
    if (sums or seed.state is PassState.DONE) and all(entry.state is ChunkState.DONE for entry in sums):
        state = model.TreeState.VERIFIED if batch is BatchState.VERIFIED else model.TreeState.COPIED
    elif {entry.state for entry in sums} - {ChunkState.DONE} == {ChunkState.FAILED}:
        state = model.TreeState.ATTENTION
    content = [entry for entry in sums if entry.kind in CONTENT_KINDS]
    done = [entry for entry in content if entry.state is ChunkState.DONE]
    return state, model.ProgressCounts(
        total_bytes=sum(entry.size_bytes for entry in content),
        done_bytes=sum(entry.size_bytes for entry in done),
        total_files=sum(entry.files for entry in content),
        done_files=sum(entry.files for entry in done),
        total_users=1,
        done_users=int(state in (model.TreeState.COPIED, model.TreeState.VERIFIED)),
    )


MOVED = frozenset({model.TreeState.MOVED, model.TreeState.PURGED})
_AFTER_THE_SWITCH = {
    CutoverState.THAWED: model.TreeState.MOVED,
    CutoverState.RETAINED: model.TreeState.MOVED,
    CutoverState.PURGING: model.TreeState.MOVED,
    CutoverState.PURGED: model.TreeState.PURGED,
}
_BEFORE_COPIED = {model.TreeState.PLANNED: 0, model.TreeState.COPYING: 1}
PROVEN = MOVED | {model.TreeState.VERIFIED}


def over_all_plans(
    by_plan: Sequence[Sequence[model.TreeStatus]],
    cutovers: Mapping[bytes, CutoverState],
    not_taken: Collection[bytes] = (),
) -> tuple[model.TreeStatus, ...]:
    """Every user tree of the migration once. `by_plan` has the trees of the counting plan, then those of earlier plans,
    newest first; `cutovers` is the state of the newest cutover of each tree; `not_taken` are trees that the counting
    plan could not take, and that are still to be moved.

    An earlier plan counts until the newer one has made as much progress with the tree: a new plan alone does not
    change the target.
    """
    present = {facts.tree.path for facts in by_plan[0]}.union(not_taken) if by_plan else set()
    found: dict[bytes, model.TreeStatus] = {}
    for facts in (facts for trees in by_plan for facts in trees):
        known = found.get(facts.tree.path)
        if known is None or _BEFORE_COPIED.get(facts.state, 2) > _BEFORE_COPIED.get(known.state, 2):
            rank = facts.rank if known is None else known.rank
            found[facts.tree.path] = replace(facts, rank=rank)
    for path, facts in found.items():
        tally, after = facts.tally, _AFTER_THE_SWITCH.get(cutovers.get(path))  # type: ignore[arg-type]
        if after is not None:
            done = {"done_bytes": tally.total_bytes, "done_files": tally.total_files, "done_users": tally.total_users}
            found[path] = replace(facts, state=after, tally=replace(tally, **done))
        elif path not in present and cutovers.get(path) not in CUTOVER_UNDER_WAY:
            found[path] = replace(facts, state=model.TreeState.EXCLUDED, tally=model.ProgressCounts())
    return tuple(sorted(found.values(), key=lambda facts: (facts.rank, facts.tree.path)))


def settled(
    seed: Sequence[model.ChunkSum], later: Sequence[model.ChunkSum], trees: Collection[bytes] | None = None
) -> Sequence[model.ChunkSum]:
    """The sums of a seed pass after a later pass over `trees` (None: all) finished. The later pass resent the failed
    files, so these trees need attention only if its own chunks (`later`) failed.
    """

    def failed_there(entry: model.ChunkSum) -> bool:
        return entry.state is ChunkState.FAILED and (trees is None or entry.tree in trees)

    arrived = [replace(entry, state=ChunkState.DONE) if failed_there(entry) else entry for entry in seed]
    failed = [replace(entry, files=0, size_bytes=0) for entry in later if failed_there(entry)]
    return (*arrived, *failed)


def add_up(
    trees: Sequence[model.TreeStatus], *, counts: frozenset[model.TreeState] | None = None
) -> model.ProgressCounts:
    """The tally over several trees. A user with several trees counts once, and as done when all of them are done.

    With `counts`, only trees in these states count as done. Excluded trees do not count.
    """
    trees = [tree for tree in trees if tree.state is not model.TreeState.EXCLUDED]
    done = [tree for tree in trees if counts is None or tree.state in counts]
    users_done = {tree.tree.path for tree in done if tree.tally.done_users}
    users = {tree.tree.user for tree in trees}
    return model.ProgressCounts(
        total_bytes=sum(tree.tally.total_bytes for tree in trees),
        done_bytes=sum(tree.tally.done_bytes for tree in done),
        total_files=sum(tree.tally.total_files for tree in trees),
        done_files=sum(tree.tally.done_files for tree in done),
        total_users=len(users),
        done_users=len(users - {tree.tree.user for tree in trees if tree.tree.path not in users_done}),
    )


def left_to_people(trees: Sequence[model.TreeStatus]) -> bool:
    """True if only files that failed at every attempt are left. There is no estimate for these: an operator must
    act.
    """
    left = [tree for tree in trees if tree.tally.left_files > 0 or tree.tally.left_bytes > 0]
    return bool(left) and all(tree.state is model.TreeState.ATTENTION for tree in left)


def chunk_counts(
    planned: model.PlannedBatch, sums: Sequence[model.ChunkSum], *, begun: bool
) -> Mapping[ChunkState, int]:
    """The chunks of a batch by state; `sums` are those of its newest pass, if one has `begun`."""
    chunks = Counter[ChunkState]()
    for entry in sums:
        chunks[entry.state] += entry.chunks
    if planned.chunks and not begun:
        chunks[ChunkState.PENDING] = planned.chunks
    return dict(chunks)


def verified_content_bytes(trees: Sequence[model.TreeStatus], proofs: Mapping[bytes, VerificationRecord]) -> int:
    """Bytes of the proven trees whose content was compared; the rest was compared by attributes only. `proofs` has the
    newest verification without a difference of each tree, alone in a cutover or with its batch.

    It is the share of the content that each verification compared: it counts a file with several names once, the trees
    count each name.
    """
    proven: dict[int, int] = defaultdict(int)
    for tree in trees:
        if tree.state in PROVEN and tree.tree.path in proofs:
            proven[proofs[tree.tree.path].id] += tree.tally.done_bytes
    by_id = {record.id: record for record in proofs.values()}

    def compared(record: VerificationRecord, size_bytes: int) -> int:
        whole = record.proven_bytes >= record.size_bytes
        return size_bytes if whole else size_bytes * record.proven_bytes // record.size_bytes

    return sum(compared(by_id[number], size_bytes) for number, size_bytes in proven.items())


def verified_otherwise(
    batches: Sequence[model.BatchStatus],
    own: Sequence[model.TreeStatus],
    trees: Sequence[model.TreeStatus],
    proofs: Mapping[bytes, VerificationRecord],
) -> frozenset[int]:
    """The batches whose trees have all been moved or proven since the verification of the batch. `own` are the trees of
    the plan of the batches, `trees` those of all plans.
    """
    moved = {one.tree.path for one in trees if one.state in MOVED}

    def since(batch: model.BatchStatus, tree: bytes) -> bool:
        verification, proof = batch.verification, proofs.get(tree)
        return proof is not None and (verification is None or proof.id > verification.id)

    return frozenset(
        batch.number
        for batch in batches
        if all(one.tree.path in moved or since(batch, one.tree.path) for one in own if one.batch == batch.number)
    )


def together(points: Sequence[ThroughputPoint]) -> ThroughputPoint | None:
    """Several spans as one; None if no stream was at work in any."""
    busy_s = sum(point.busy_s for point in points)
    if busy_s <= 0:
        return None
    return ThroughputPoint(
        at_s=max(point.at_s for point in points),
        span_s=sum(point.span_s for point in points),
        busy_s=busy_s,
        streams=sum(point.streams * point.busy_s for point in points) / busy_s,
        files=sum(point.files for point in points),
        size_bytes=sum(point.size_bytes for point in points),
    )


# --- The cutovers of batches, and when their copying and their purges are expected


_UNDONE = {
    CutoverState.PLANNED,
    CutoverState.REVERTING,
    CutoverState.REVERTED,
    CutoverState.ROLLED_BACK,
    *ROLLBACK_STATES,
}


def scheduled_batches(plan: Plan | None) -> Mapping[int, BatchStep]:
    """The steps of the schedule by batch."""
    outcome = scheduled_outcome(plan)
    return {} if outcome is None else {step.batch: step for step in outcome.batches}


def moves(status: model.MigrationStatus) -> Sequence[CutoverRecord]:
    """The cutovers that were not undone, under any plan."""
    return [one for one in status.cutovers if one.state not in _UNDONE]


def moves_of(status: model.MigrationStatus, batch: model.BatchStatus) -> Sequence[CutoverRecord]:
    """The same of a batch of the counting plan."""
    plan = "" if status.plan is None else status.plan.name
    return [one for one in moves(status) if one.plan == plan and one.batch == batch.number]


def moved_at_s(status: model.MigrationStatus, batch: model.BatchStatus) -> float | None:
    """When the last user of a batch was moved; None if one is left."""
    thawed = [one.thawed_at_s for one in moves_of(status, batch)]
    known = [at_s for at_s in thawed if at_s is not None]
    return max(known) if known and len(known) == len(thawed) >= len(batch.users) else None


def expected_copying(status: model.MigrationStatus, plan: Plan | None) -> Mapping[int, tuple[float, float]]:
    """When each batch with bytes left is copied: one after the other until the forecast's end, in proportion to these bytes.
    Without a forecast the schedule has the dates, except of batches that should have begun and did not.
    """
    now_s, found = status.at_s, dict[int, tuple[float, float]]()
    left = [batch for batch in status.batches if batch.tally.left_bytes > 0]
    if status.forecast is not None:
        whole, so_far = sum(batch.tally.left_bytes for batch in left), 0
        for batch in left:
            begin = so_far / whole
            so_far += batch.tally.left_bytes
            found[batch.number] = (
                now_s + begin * status.forecast.left_s,
                now_s + so_far / whole * status.forecast.left_s,
            )
        return found
    steps = scheduled_batches(plan)
    for batch in left:
        if plan is not None and (step := steps.get(batch.number)) is not None:
            begin_s, end_s = (plan.created_at_s + day * DAY_S for day in (step.begins_day, step.moved_day))
            if end_s > now_s and (batch.passes or begin_s >= now_s):
                found[batch.number] = (max(begin_s, now_s), end_s)
    return found


def expected_purges(status: model.MigrationStatus, plan: Plan | None) -> Mapping[int, float]:
    """When the source of each batch is purged: as long after its move, or its expected copying, as in the schedule. Batches
    without a schedule, copied ones that are not moved, and purges that are due have no date.
    """
    copying, steps, found = expected_copying(status, plan), scheduled_batches(plan), dict[int, float]()
    for batch in status.batches:
        if (step := steps.get(batch.number)) is None or is_purged(status, batch):
            continue
        moved_s = moved_at_s(status, batch)
        if moved_s is None and batch.number in copying:
            moved_s = copying[batch.number][1]
        at_s = None if moved_s is None else moved_s + (step.freed_day - step.moved_day) * DAY_S
        if at_s is not None and at_s > status.at_s:
            found[batch.number] = at_s
    return found


def is_purged(status: model.MigrationStatus, batch: model.BatchStatus) -> bool:
    """True if the source of every user of a batch is purged."""
    own = moves_of(status, batch)
    return len(own) >= len(batch.users) > 0 and all(one.state is CutoverState.PURGED for one in own)
