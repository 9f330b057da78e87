"""From sums of the ledger to what people ask: how far, how fast, until when, and what is in the way. Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from migrator.decide import eta
from migrator.domain.convergence import ConvergenceRecord
from migrator.domain.ledger_sums import AttentionCount, ChunkSum, DonePoint, PlannedBatch, PlannedTree, ThroughputPoint
from migrator.domain.plan import TransferCost
from migrator.domain.report import BatchFacts, Estimate, PassFacts, RunLife, Tally, TreeFacts, TreeState
from migrator.domain.states import CONTENT_KINDS, BatchState, ChunkState, PassState
from migrator.domain.units import DAY_S, HOUR_S, MINUTE_S, format_duration, format_rate, several
from migrator.domain.verification import VerificationRecord

SILENT_AFTER_S = 30.0
"""A run renews its sign of life every few seconds; one that has been silent for longer was killed, or hangs."""

PACE_WINDOW_S = 7 * DAY_S
"""How far back the pace is looked at: a week holds the nights, weekends and pauses of a real migration."""

_SPANS_S = (
    5.0,
    10.0,
    30.0,
    60.0,
    5.0 * MINUTE_S,
    15.0 * MINUTE_S,
    HOUR_S,
    3.0 * HOUR_S,
    6.0 * HOUR_S,
    DAY_S,
    7.0 * DAY_S,
)


def run_life(*, silent_s: float, finished: bool, process_gone: bool = False) -> RunLife:
    """Whether a run lives. `process_gone`: its process is known not to be there any more."""
    if finished:
        return RunLife.ENDED
    if process_gone:
        return RunLife.KILLED
    return RunLife.SILENT if silent_s > SILENT_AFTER_S else RunLife.AT_WORK


def span_width(duration_s: float, points: int) -> float:
    """The shortest round span that covers a duration in at most so many points."""
    for width_s in _SPANS_S:
        if duration_s <= width_s * points:
            return width_s
    return duration_s / points


def with_rests(points: Sequence[DonePoint], span_s: float) -> tuple[DonePoint, ...]:
    """The same with a further point at the end of every time in which nothing was finished: a line through them does not fall
    where nothing ran. Points are at most a span apart where something was finished in both spans.
    """
    told: list[DonePoint] = []
    for point in points:
        begin_s = point.at_s - span_s
        if told and begin_s > told[-1].at_s:
            told.append(replace(told[-1], at_s=begin_s))
        told.append(point)
    return tuple(told)


def tree_facts(
    planned: Sequence[PlannedTree],
    sums: Mapping[int, Sequence[ChunkSum]],
    states: Mapping[int, BatchState],
    passes: Mapping[int, PassFacts],
) -> tuple[TreeFacts, ...]:
    """How far every tree is, in the order given. `sums` and `passes` are those of the first pass, by batch.

    Before that pass the plan's figures are the totals, without what is reaped; then those of its chunks: what is really on the lists.
    """
    by_tree: dict[tuple[int, bytes], list[ChunkSum]] = defaultdict(list)
    for batch, of_batch in sums.items():
        for entry in of_batch:
            if entry.state is not ChunkState.SPLIT:
                by_tree[batch, entry.tree].append(entry)
    return tuple(
        _tree(tree, by_tree[tree.batch, tree.tree.path], states[tree.batch], passes.get(tree.batch)) for tree in planned
    )


def settled(
    seed: Sequence[ChunkSum], later: Sequence[ChunkSum], trees: Collection[bytes] | None = None
) -> Sequence[ChunkSum]:
    """The sums of a seed pass after another pass over these trees (None: all) has gone through: what had failed of them was
    sent by that one, and they need attention as far as chunks of that one (`later`) failed.
    """

    def failed_there(entry: ChunkSum) -> bool:
        return entry.state is ChunkState.FAILED and (trees is None or entry.tree in trees)

    arrived = [replace(entry, state=ChunkState.DONE) if failed_there(entry) else entry for entry in seed]
    failed = [replace(entry, files=0, size_bytes=0) for entry in later if failed_there(entry)]
    return (*arrived, *failed)


def _tree(planned: PlannedTree, sums: Sequence[ChunkSum], state: BatchState, first: PassFacts | None) -> TreeFacts:
    if first is None:
        total_bytes = max(planned.size_bytes - planned.reaped_bytes, 0)
        total_files = max(planned.files - planned.reaped_files, 0)
        done_bytes = done_files = 0
        tree_state = TreeState.PLANNED
    else:
        content = [entry for entry in sums if entry.kind in CONTENT_KINDS]
        done = [entry for entry in content if entry.state is ChunkState.DONE]
        total_bytes, total_files = _bytes(content), _files(content)
        done_bytes, done_files = _bytes(done), _files(done)
        finished = bool(sums) or first.state is PassState.DONE
        copied = finished and all(entry.state is ChunkState.DONE for entry in sums)
        tree_state = TreeState.COPIED if copied else TreeState.COPYING
        if {entry.state for entry in sums} - {ChunkState.DONE} == {ChunkState.FAILED}:
            tree_state = TreeState.ATTENTION
        if copied and state is BatchState.VERIFIED:
            tree_state = TreeState.VERIFIED
    return TreeFacts(
        tree=planned.tree,
        batch=planned.batch,
        rank=planned.rank,
        state=tree_state,
        tally=Tally(
            total_bytes=total_bytes,
            done_bytes=done_bytes,
            total_files=total_files,
            done_files=done_files,
            total_users=1,
            done_users=int(tree_state in (TreeState.COPIED, TreeState.VERIFIED)),
        ),
    )


def add_up(trees: Sequence[TreeFacts], *, counts: frozenset[TreeState] | None = None) -> Tally:
    """The tally over several trees. A user with several trees counts once, and as done when all of them are.

    With `counts` only trees in these states count as done, with all that they hold.
    """
    users_left = {tree.tree.user for tree in trees if not _is_done(tree, counts)}
    users = {tree.tree.user for tree in trees}
    done = [tree for tree in trees if counts is None or tree.state in counts]
    return Tally(
        total_bytes=sum(tree.tally.total_bytes for tree in trees),
        done_bytes=sum(tree.tally.done_bytes for tree in done),
        total_files=sum(tree.tally.total_files for tree in trees),
        done_files=sum(tree.tally.done_files for tree in done),
        total_users=len(users),
        done_users=len(users - users_left),
    )


def _is_done(tree: TreeFacts, counts: frozenset[TreeState] | None) -> bool:
    return bool(tree.tally.done_users) if counts is None else tree.state in counts


def left_to_people(trees: Sequence[TreeFacts]) -> bool:
    """Whether something is left, and only what failed each time: no pace says when people will have put that right."""
    left = [tree for tree in trees if tree.tally.left_files > 0 or tree.tally.left_bytes > 0]
    return bool(left) and all(tree.state is TreeState.ATTENTION for tree in left)


def batch_facts(
    planned: PlannedBatch,
    *,
    trees: Sequence[TreeFacts],
    sums: Sequence[ChunkSum],
    passes: Sequence[PassFacts],
    attention: AttentionCount | None,
    verification: VerificationRecord | None,
    convergence: ConvergenceRecord | None = None,
) -> BatchFacts:
    """How far one batch is; `trees` are those of this batch, `sums` those of its newest pass."""
    chunks: dict[ChunkState, int] = {}
    for entry in sums:
        chunks[entry.state] = chunks.get(entry.state, 0) + entry.chunks
    return BatchFacts(
        number=planned.number,
        state=planned.state,
        tally=add_up(trees),
        users=tuple(dict.fromkeys(tree.tree.user for tree in trees)),
        chunks=chunks or ({ChunkState.PENDING: planned.chunks} if planned.chunks and not passes else {}),
        passes=tuple(passes),
        forecast_s=planned.forecast_s,
        attention=attention or AttentionCount(bad=0, vanished=0),
        verification=verification,
        convergence=convergence,
    )


def verified_content_bytes(batches: Sequence[BatchFacts], trees: Sequence[TreeFacts]) -> int:
    """How much of the verified trees had its content compared: the rest was compared by attributes only. A tree that needs
    attention is not verified, whatever its batch is.
    """
    verified: dict[int, int] = defaultdict(int)
    for tree in trees:
        if tree.state is TreeState.VERIFIED:
            verified[tree.batch] += tree.tally.done_bytes
    return sum(
        min(batch.verification.proven_bytes, verified[batch.number])
        for batch in batches
        if batch.verification is not None
    )


def estimates(
    *,
    now_s: float,
    tally: Tally,
    planned: TransferCost | None,
    measured: TransferCost | None,
    done: Sequence[DonePoint],
    started_at_s: float | None,
    rate: ThroughputPoint | None = None,
    last_rate: ThroughputPoint | None = None,
) -> tuple[Estimate, ...]:
    """When the copying will be done: at the rate of now (None: nothing is being copied; then at that of the last copying,
    as long as no cost was measured), by the cost of files and bytes
    without a pause, and at the pace so far.

    Several, because the first ones are what the machines can do, and the last what they did, pauses included. What a
    plan assumed is said only as long as nothing was measured.
    """
    if tally.total_files <= 0 or (tally.left_files <= 0 and tally.left_bytes <= 0):
        return ()
    found = []
    now = _at_rate(tally, rate, "now")
    if now is None and measured is None:
        now = _at_rate(tally, last_rate, "when something was copied last")
    if now is not None:
        left_s, basis = now
        found.append(Estimate(left_s=left_s, finish_at_s=now_s + left_s, basis=basis))
    cost = measured or (planned if now is None else None)
    if cost is not None:
        left_s = (tally.left_files * cost.s_per_file + tally.left_bytes * cost.s_per_byte) / max(cost.streams, 1)
        if left_s > 0:
            streams = several(cost.streams, "stream")
            basis = f"{streams} without a pause ({cost.basis})"
            found.append(Estimate(left_s=left_s, finish_at_s=now_s + left_s, basis=basis))
    pace = _pace(now_s, done, started_at_s, tally)
    if pace is not None:
        left_s, window_s = pace
        basis = f"at the pace of the last {format_duration(window_s)}, pauses included"
        found.append(Estimate(left_s=left_s, finish_at_s=now_s + left_s, basis=basis))
    return tuple(found)


def _at_rate(tally: Tally, rate: ThroughputPoint | None, when: str) -> tuple[float, str] | None:
    """Seconds left and the basis, from what the streams have written of late, whole chunks or not."""
    if rate is None or rate.busy_s <= 0:
        return None
    measured = eta.Rate(
        files_per_s=rate.rate_files_per_s, bytes_per_s=rate.rate_bytes_per_s, over_s=min(rate.busy_s, rate.span_s)
    )
    left = eta.estimate(left_files=tally.left_files, left_bytes=tally.left_bytes, recent=measured, whole=None)
    if left.left_s is not None:
        return left.left_s, f"measured {when}: {left.basis}"
    if tally.left_bytes > 0 and measured.bytes_per_s > 0:
        # A large file that is under way ends no file for long.
        speed = f"{format_rate(measured.bytes_per_s)}; no file has ended in that time"
        return (
            tally.left_bytes / measured.bytes_per_s,
            f"measured {when}: the last {format_duration(measured.over_s)}: {speed}",
        )
    return None


def _pace(
    now_s: float, done: Sequence[DonePoint], started_at_s: float | None, tally: Tally
) -> tuple[float, float] | None:
    """Seconds left, and over what time the pace was taken: that of bytes, and that of files where only empty ones are left."""
    if not done or started_at_s is None:
        return None
    from_s = max(started_at_s, now_s - PACE_WINDOW_S)
    window_s = now_s - from_s
    earlier = [point for point in done if point.at_s <= from_s]
    if tally.left_bytes > 0:
        left, copied = tally.left_bytes, done[-1].done_bytes - max((one.done_bytes for one in earlier), default=0)
    else:
        left, copied = tally.left_files, done[-1].done_files - max((one.done_files for one in earlier), default=0)
    return (left * window_s / copied, window_s) if window_s >= MINUTE_S and copied > 0 else None


def together(points: Sequence[ThroughputPoint]) -> ThroughputPoint | None:
    """Several spans as one; None where nothing was at work in any."""
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


def _bytes(sums: Sequence[ChunkSum]) -> int:
    return sum(entry.size_bytes for entry in sums)


def _files(sums: Sequence[ChunkSum]) -> int:
    return sum(entry.files for entry in sums)
