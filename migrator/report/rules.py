"""From sums of the ledger to progress, blockers and incidents. Pure."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import assert_never

from migrator.bricks.drain.model import OUT_STATES, UNDER_WAY_STATES, DrainStanding, DrainState
from migrator.bricks.retire.model import RetirementRecord, RetirementState
from migrator.catalog.model import StrangeFiles
from migrator.core.errors import EXIT_CODE_MEANINGS, ExitCode
from migrator.core.events import EventKind
from migrator.core.states import CONTENT_KINDS, BatchState, ChunkState, PassState
from migrator.core.units import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    format_count,
    format_duration,
    format_rate,
    format_size,
    several,
)
from migrator.fs.model import CapacityOutlook, CapacitySample, Side
from migrator.plan.model import Plan, TransferCost
from migrator.reap.model import ArchiveRecord, ArchiveState, PlanReap, ReapAction, ReapedTree
from migrator.report.model import (
    AttentionCount,
    BatchFacts,
    Blocker,
    BrickOutlook,
    ChunkSum,
    ConePoint,
    CopyForecast,
    DonePoint,
    EarlierReport,
    Estimate,
    EventGroup,
    Incident,
    PassFacts,
    PlanFacts,
    PlannedBatch,
    PlannedTree,
    ReapedFacts,
    RunFacts,
    RunLife,
    ScanFacts,
    ServerOutlook,
    SinceReport,
    Standing,
    Tally,
    ThroughputPoint,
    TreeFacts,
    TreeState,
)
from migrator.scan.rules import REMEDY, strange_words
from migrator.transfer import rules as eta
from migrator.transfer.model import ConvergenceRecord
from migrator.verify.model import DifferenceKind, VerificationRecord

# --- Progress and estimates


PACE_WINDOW_S = 7 * DAY_S
"""The history behind the pace: a week contains the nights, weekends and pauses of a real migration."""

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


def span_width(duration_s: float, points: int) -> float:
    """The shortest round span that divides a duration into at most `points` spans."""
    for width_s in _SPANS_S:
        if duration_s <= width_s * points:
            return width_s
    return duration_s / points


def with_rests(points: Sequence[DonePoint], span_s: float) -> tuple[DonePoint, ...]:
    """`points` with another point at the end of each idle time, so that a line through them stays level while nothing ran.
    Points are at most a span apart if something was finished in both spans.
    """
    found: list[DonePoint] = []
    for point in points:
        begin_s = point.at_s - span_s
        if found and begin_s > found[-1].at_s:
            found.append(replace(found[-1], at_s=begin_s))
        found.append(point)
    return tuple(found)


def tree_facts(
    planned: Sequence[PlannedTree],
    sums: Mapping[int, Sequence[ChunkSum]],
    states: Mapping[int, BatchState],
    passes: Mapping[int, PassFacts],
) -> tuple[TreeFacts, ...]:
    """Progress of every tree, in the order given. `sums` and `passes` are those of the seed pass, by batch.

    Totals come from the plan (without reaped files) before the seed pass, and from its chunks afterwards.
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
    """The sums of a seed pass after a later pass over `trees` (None: all) finished. The later pass sent what had failed before,
    so these trees need attention only if chunks of it (`later`) failed.
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
    """The tally over several trees. A user with several trees counts once, and as done when all of them are done.

    With `counts`, only trees in these states count as done.
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
    """Whether only files that failed at every attempt are left. There is no estimate for these: they wait for an operator."""
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
    """Progress of one batch; `trees` are those of this batch, `sums` those of its newest pass."""
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
    """Bytes of the verified trees whose content was compared; the rest was compared by attributes only. A tree that needs
    attention is not verified, even in a verified batch.
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
    """Up to three estimates of when the copying will be done:

    - at the current rate. While nothing is being copied and no cost was measured, at the last rate
    - by the cost of files and bytes, without pauses; the plan's assumption counts only until a cost was measured
    - at the pace so far, which includes pauses
    """
    if tally.total_files <= 0 or (tally.left_files <= 0 and tally.left_bytes <= 0):
        return ()
    found = []
    now = _at_rate(tally, rate, "now")
    if now is None and measured is None:
        now = _at_rate(tally, last_rate, "when the last files were copied")
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
    """Seconds left and the basis, by what the streams wrote recently, finished chunks or not."""
    if rate is None or rate.busy_s <= 0:
        return None
    measured = eta.Rate(
        files_per_s=rate.rate_files_per_s, bytes_per_s=rate.rate_bytes_per_s, over_s=min(rate.busy_s, rate.span_s)
    )
    left = eta.estimate(left_files=tally.left_files, left_bytes=tally.left_bytes, recent=measured, whole=None)
    if left.left_s is not None:
        return left.left_s, f"measured {when}: {left.basis}"
    if tally.left_bytes > 0 and measured.bytes_per_s > 0:
        # A large file in flight completes no file for a long time.
        speed = f"{format_rate(measured.bytes_per_s)}; no file was completed in that time"
        return (
            tally.left_bytes / measured.bytes_per_s,
            f"measured {when}: the last {format_duration(measured.over_s)}: {speed}",
        )
    return None


def _pace(
    now_s: float, done: Sequence[DonePoint], started_at_s: float | None, tally: Tally
) -> tuple[float, float] | None:
    """Seconds left, and the time that the pace covers. The pace counts bytes, or files if only empty ones are left."""
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


def _bytes(sums: Sequence[ChunkSum]) -> int:
    return sum(entry.size_bytes for entry in sums)


def _files(sums: Sequence[ChunkSum]) -> int:
    return sum(entry.files for entry in sums)


# --- Bricks, capacity and reaped files


_SCHEDULED = "by the schedule of the plan; bytes are the most that its drain has to move"
_LATE = "late: the schedule of the plan has it free by now; a new plan gives a new date"


def brick_outlooks(
    drains: Sequence[DrainStanding], plan: Plan | None, *, now_s: float, retirement: RetirementRecord | None = None
) -> tuple[BrickOutlook, ...]:
    """Every brick that was drained or is in the schedule, in that order. Drains take precedence over the schedule; a retired
    volume has no bricks any more.
    """
    found = {outlook.brick: outlook for drain in drains for outlook in _of_drain(drain, now_s)}
    for outlook in _of_schedule(plan, now_s):
        known = found.get(outlook.brick)
        if known is None or known.state == DrainState.STOPPED:
            found[outlook.brick] = outlook
    if retirement is None or retirement.state is not RetirementState.RETIRED:
        return tuple(found.values())
    out = {state.value for state in OUT_STATES}
    return tuple(one if one.state in out else _retired(one, retirement) for one in found.values())


def _retired(brick: BrickOutlook, retirement: RetirementRecord) -> BrickOutlook:
    at_s = retirement.intended_at_s if retirement.ended_at_s is None else retirement.ended_at_s
    return BrickOutlook(
        brick=brick.brick,
        state=retirement.state.value,
        left_files=0,
        left_bytes=0,
        free_at_s=at_s,
        basis="the volume is stopped for good; everything in it is proven to be on the target",
    )


def _of_drain(drain: DrainStanding, now_s: float) -> Iterator[BrickOutlook]:
    out = drain.state in OUT_STATES
    free_at_s, basis = None, ""
    if out:
        free_at_s, basis = drain.since_s, "it is out of the volume"
    elif drain.state in UNDER_WAY_STATES and drain.left_s is not None:
        free_at_s, basis = now_s + drain.left_s, "by the pace of the drain, before its audit"
    for brick in drain.bricks:
        yield BrickOutlook(
            brick=brick,
            state=drain.state.value,
            left_files=0 if out else drain.left_files,
            left_bytes=0 if out else drain.left_bytes,
            free_at_s=free_at_s,
            basis=basis,
        )


def _of_schedule(plan: Plan | None, now_s: float) -> Iterator[BrickOutlook]:
    if plan is None or plan.schedule is None or not plan.schedule.orders:
        return
    for step in plan.schedule.orders[0].outcome.subvolumes:
        for brick in step.bricks:
            free_at_s = None if step.cleared_day is None else plan.created_at_s + step.cleared_day * DAY_S
            late = free_at_s is not None and free_at_s < now_s
            yield BrickOutlook(
                brick=brick,
                state="in the volume",
                left_files=None,
                left_bytes=step.moved_bytes,
                free_at_s=None if late else free_at_s,
                basis=_LATE if late else _SCHEDULED,
            )


def server_outlooks(bricks: Sequence[BrickOutlook], plan: Plan | None) -> tuple[ServerOutlook, ...]:
    """Every server of these bricks, by name. Empty without a schedule: only the schedule has all bricks of a server."""
    if plan is None or plan.schedule is None or not plan.schedule.orders:
        return ()
    found: dict[str, list[BrickOutlook]] = {}
    for one in bricks:
        found.setdefault(one.brick.partition(":/")[0], []).append(one)
    return tuple(_server(server, own) for server, own in sorted(found.items()))


def _server(server: str, own: Sequence[BrickOutlook]) -> ServerOutlook:
    last = max(own, key=lambda one: math.inf if one.free_at_s is None else one.free_at_s)
    out = {RetirementState.RETIRED.value, *(state.value for state in OUT_STATES)}
    return ServerOutlook(
        server=server,
        bricks=len(own),
        free_bricks=sum(one.state in out for one in own),
        free_at_s=last.free_at_s,
        basis=last.basis,
    )


def target_outlook(
    samples: Sequence[CapacitySample], left: Tally, forecast: CopyForecast | None, *, now_s: float
) -> CapacityOutlook | None:
    """How full the target will be after the copying: the newest sample plus what is left. None without a sample, or if nothing
    is left.
    """
    newest = next((sample for sample in reversed(samples) if sample.side is Side.TARGET), None)
    if newest is None or (left.left_bytes <= 0 and left.left_files <= 0):
        return None
    used = newest.used_inodes
    return CapacityOutlook(
        side=Side.TARGET,
        at_s=forecast.likely_at_s if forecast is not None else now_s,
        used_bytes=newest.used_bytes + max(left.left_bytes, 0),
        total_bytes=newest.total_bytes,
        used_inodes=None if used is None else used + max(left.left_files, 0),
        total_inodes=newest.total_inodes,
    )


def reaped_facts(reap: PlanReap | None, archives: Iterable[ArchiveRecord], released: int) -> ReapedFacts | None:
    """What a plan archives or skips; None if it moves everything and nothing was archived."""
    proven = [one for one in archives if one.state is ArchiveState.PROVEN]
    trees: Sequence[ReapedTree] = () if reap is None else reap.trees
    to_archive = [tree for tree in trees if tree.action is ReapAction.ARCHIVE]
    skipped = [tree for tree in trees if tree.action is ReapAction.SKIP]
    if not (to_archive or skipped or proven):
        return None
    return ReapedFacts(
        to_archive_bytes=sum(tree.size_bytes for tree in to_archive),
        to_archive_inodes=sum(tree.inodes for tree in to_archive),
        skipped_bytes=sum(tree.size_bytes for tree in skipped),
        skipped_inodes=sum(tree.inodes for tree in skipped),
        archives=len(proven),
        archived_files=sum(one.written.members for one in proven),
        archived_bytes=sum(one.written.content_bytes for one in proven),
        archive_bytes=sum(one.written.archive_bytes for one in proven),
        released=released,
    )


# --- Comparison with an earlier report


_AS_EXPECTED = 0.05
"""An end that moved by at most this share of the time left is as expected: every forecast moves a little."""

_NOTABLE = 0.1


def since_report(
    earlier: EarlierReport,
    *,
    now_s: float,
    plan: str | None,
    overall: Tally,
    forecast: CopyForecast | None,
    before: ThroughputPoint | None,
    after: ThroughputPoint | None,
) -> SinceReport:
    """Progress since an earlier report. `before` and `after` are the throughput before it and since then."""
    same_plan = plan == earlier.plan
    end_s = forecast.likely_at_s if forecast is not None else None
    if end_s is None and overall.total_files > 0 and overall.left_files <= 0:
        end_s = now_s
    moved_s = None if end_s is None or earlier.likely_at_s is None else end_s - earlier.likely_at_s
    done_bytes = max(overall.done_bytes - earlier.done_bytes, 0) if same_plan else overall.done_bytes
    expected = expected_bytes(earlier, now_s) if same_plan else None
    more = overall.total_bytes - earlier.total_bytes
    return SinceReport(
        earlier=earlier,
        standing=_standing(earlier, moved_s) if now_s >= earlier.at_s else Standing.UNKNOWN,
        done_bytes=done_bytes,
        done_files=max(overall.done_files - earlier.done_files, 0) if same_plan else overall.done_files,
        expected_bytes=expected,
        planned_more_bytes=more,
        end_moved_s=moved_s,
        reasons=tuple(
            _reasons(
                earlier,
                now_s=now_s,
                plan=plan,
                done_bytes=done_bytes,
                expected=expected,
                more=more,
                before=before,
                after=after,
            )
        ),
    )


def expected_bytes(earlier: EarlierReport, at_s: float) -> float | None:
    """Bytes that the forecast of an earlier report expected to be copied until `at_s`; None if it had no forecast."""
    if not earlier.cone:
        return None
    return earlier.cone[0].left_bytes - _left(earlier.cone, at_s)


def _left(cone: Sequence[ConePoint], at_s: float) -> float:
    for one, other in pairwise(cone):
        if one.at_s <= at_s < other.at_s:
            share = (at_s - one.at_s) / (other.at_s - one.at_s)
            return one.left_bytes + (other.left_bytes - one.left_bytes) * share
    return cone[0].left_bytes if at_s < cone[0].at_s else cone[-1].left_bytes


def _standing(earlier: EarlierReport, moved_s: float | None) -> Standing:
    if moved_s is None or earlier.likely_at_s is None:
        return Standing.UNKNOWN
    if abs(moved_s) <= _AS_EXPECTED * max(earlier.likely_at_s - earlier.at_s, 60.0):
        return Standing.AS_EXPECTED
    return Standing.BEHIND if moved_s > 0 else Standing.AHEAD


def _reasons(
    earlier: EarlierReport,
    *,
    now_s: float,
    plan: str | None,
    done_bytes: int,
    expected: float | None,
    more: int,
    before: ThroughputPoint | None,
    after: ThroughputPoint | None,
) -> Iterator[str]:
    if now_s < earlier.at_s:
        yield "the report is later than the clock of this machine, so there is no comparison"
        return
    if plan == earlier.plan and more <= 0 and 0 < earlier.total_bytes <= earlier.done_bytes:
        yield "everything in the plan had been copied by then; later passes copied what users changed"
        return
    span = format_duration(now_s - earlier.at_s)
    if plan != earlier.plan:
        yield f"the plan changed from {earlier.plan or 'none'} to {plan or 'none'}, so amounts are not comparable"
    if expected is not None and expected > 0:
        share = done_bytes / expected
        yield (
            f"in the {span} since then {format_size(done_bytes)} were copied, {share * 100:.0f} % of the "
            f"expected {format_size(round(expected))}"
        )
    elif plan == earlier.plan:
        yield f"in the {span} since then {format_size(done_bytes)} were copied"
    if plan == earlier.plan and abs(more) > _NOTABLE / 10 * max(earlier.total_bytes, 1):
        yield f"the plan {'grew' if more > 0 else 'shrank'} by {format_size(abs(more))}"
    yield from _throughput_reasons(before, after)


def _throughput_reasons(before: ThroughputPoint | None, after: ThroughputPoint | None) -> Iterator[str]:
    if after is None:
        yield "no stream has run since then"
        return
    if before is None or before.busy_s <= 0 or before.span_s <= 0 or after.span_s <= 0:
        return
    busy, was = after.busy_s / after.span_s, before.busy_s / before.span_s
    if abs(busy - was) > _NOTABLE * max(was, 0.01):
        word = "more" if busy > was else "less"
        yield f"streams ran for {word} of the time: {min(busy, 1.0) * 100:.0f} % instead of {min(was, 1.0) * 100:.0f} %"
    rate, old = after.rate_bytes_per_s, before.rate_bytes_per_s
    if old > 0 and abs(rate - old) > _NOTABLE * old:
        word = "faster" if rate > old else "slower"
        yield f"while running they were {word}: {format_rate(rate)} instead of {format_rate(old)}"
        small, were = _mean_size(after), _mean_size(before)
        if small is not None and were is not None and small < were / 2 and rate < old:
            yield f"the files are smaller: {format_size(small)} on average instead of {format_size(were)}"


def _mean_size(point: ThroughputPoint) -> int | None:
    return round(point.size_bytes / point.files) if point.files else None


def best_and_worst(days: Sequence[ThroughputPoint]) -> tuple[ThroughputPoint, ThroughputPoint] | None:
    """The whole days with the most and the least bytes; None without two of them. The first and the last day are not whole.
    `days` has no day on which nothing was copied.
    """
    whole = days[1:-1]
    if len(whole) < 2 or days[0].span_s < DAY_S:
        return None
    return max(whole, key=lambda day: day.size_bytes), min(whole, key=lambda day: day.size_bytes)


# --- Blockers


_FINISHED = (ExitCode.DONE, ExitCode.ATTENTION)
_UNDONE_BY = {"brick-drain": "brick-stop", "cutover": "rollback", "rollback": "cutover"}
"""A failed command does not have to be repeated if its opposite finished later."""
_MAY_PASS = (DifferenceKind.CHANGED, DifferenceKind.UNREADABLE, DifferenceKind.UNPROVEN)


def blockers(
    *,
    site: str | None,
    scan: ScanFacts | None,
    plan: PlanFacts | None,
    batches: Sequence[BatchFacts],
    runs: Sequence[RunFacts],
    strange: Sequence[StrangeFiles] = (),
) -> tuple[Blocker, ...]:
    """Everything that waits for an operator, in the order of the work. `strange` has the files on bricks that bypassed Gluster,
    by the newest scan of the bricks.
    """
    if site is None:
        return (Blocker(subject="everything", on="the site is not set up", hint="migrator init"),)
    found = [*_scan(scan, plan), *_strange(strange)]
    if plan is not None:
        for batch in batches:
            found.extend(_batch(batch))
    found.extend(_runs(runs))
    return tuple(found)


def _scan(scan: ScanFacts | None, plan: PlanFacts | None) -> Iterator[Blocker]:
    if scan is None:
        yield Blocker(subject="plan", on="there is no catalog of the source", hint="migrator scan")
        return
    if scan.finished_at_s is None:
        yield Blocker(subject="plan", on=f"the scan {scan.name} has not ended", hint="migrator scan (it resumes)")
    elif not scan.whole:
        reasons = "; ".join(scan.reasons[:3]) or "no reason was recorded"
        more = f"; and {len(scan.reasons) - 3} more" if len(scan.reasons) > 3 else ""
        yield Blocker(
            subject="everything that deletes or switches",
            on=f"the scan {scan.name} is not whole: {reasons}{more}",
            hint="fix this, then migrator scan",
        )
    if plan is None and scan.finished_at_s is not None:
        yield Blocker(subject="run", on="there is no plan", hint="migrator plan")


def _strange(found: Sequence[StrangeFiles]) -> Iterator[Blocker]:
    for one in found:
        yield Blocker(
            subject=f"drains and additions: {one.brick}",
            on=f"{strange_words(one)}, and clients that ask for such a name can hang",
            hint=f"{REMEDY}; then migrator scan --via bricks",
        )


def _batch(batch: BatchFacts) -> Iterator[Blocker]:
    subject = f"batch {batch.number}"
    failed = batch.chunks.get(ChunkState.FAILED, 0)
    if failed:
        yield Blocker(
            subject=subject,
            on=f"{several(failed, 'chunk')} failed at every attempt",
            hint=f"see the files that need attention, then migrator run --user-batch {batch.number}",
        )
    if batch.attention.bad:
        yield Blocker(
            subject=subject,
            on=f"{several(batch.attention.bad, 'file')} could not be copied",
            hint=f"fix the reasons, then migrator run --user-batch {batch.number}",
        )
    match batch.state:
        case BatchState.PLANNED | BatchState.SEEDING | BatchState.VERIFIED:
            pass
        case BatchState.SEEDED | BatchState.CONVERGING:
            yield from _verification(batch, subject)
        case _:
            assert_never(batch.state)


def _verification(batch: BatchFacts, subject: str) -> Iterator[Blocker]:
    hint = f"migrator verify --user-batch {batch.number}"
    verification = batch.verification
    if verification is None:
        yield Blocker(subject=f"{subject}: cutover", on="it is copied and not verified", hint=hint)
        return
    differences = sum(verification.differences.values())
    if differences:
        kinds = ", ".join(f"{format_count(count)} {kind}" for kind, count in verification.differences.items() if count)
        yield Blocker(
            subject=f"{subject}: cutover",
            on=f"the verification found {several(differences, 'difference')} ({kinds})",
            hint=after_differences(verification),
        )
    if not verification.whole:
        reasons = "; ".join(verification.reasons[:3]) or "no reason was recorded"
        yield Blocker(subject=f"{subject}: cutover", on=f"the verification is not whole: {reasons}", hint=hint)


def after_differences(verification: VerificationRecord) -> str:
    """The next steps after a verification with differences; empty without any.

    A delta pass copies what users changed on the source and removes what they deleted there, as far as this program had copied
    it. Changes made on the target itself need a new plan.
    """
    counts = {kind: count for kind, count in verification.differences.items() if count}
    again = sum(counts.pop(kind.value, 0) for kind in _MAY_PASS)
    steps = []
    if counts:
        recopy = ""
        if content := counts.get(DifferenceKind.CONTENT.value, 0):
            recopy = f" with --recopy ({several(content, 'file differs', 'files differ')} in content, not in size)"
        steps.append(
            f"for what users changed since: `migrator run --user-batch {verification.batch}` makes a delta pass, then verify "
            "again"
        )
        if counts.keys() - {DifferenceKind.EXTRA.value}:
            steps.append(
                "what is still missing or differs then was changed on the target itself: `migrator scan`, `migrator plan`, "
                f"`migrator run`{recopy} and `migrator verify` by the new plan"
            )
        if extra := counts.get(DifferenceKind.EXTRA.value, 0):
            steps.append(
                f"{several(extra, 'path is', 'paths are')} on the target only: `run` removes those that migrator copied, unless a "
                "guard refuses it (see its output), and no others"
            )
    if again:
        steps.append(
            f"for what changed or could not be read meanwhile: migrator verify --user-batch {verification.batch}"
        )
    return "; ".join(steps)


def _runs(runs: Sequence[RunFacts]) -> Iterator[Blocker]:
    newest: dict[str, RunFacts] = {}
    for run in runs:
        newest.setdefault(run.verb, run)
    for run in newest.values():
        undone = newest.get(_UNDONE_BY.get(run.verb, ""))
        if undone is not None and undone.started_at_s > run.started_at_s and undone.exit_code in _FINISHED:
            continue
        verb = run.verb.split()[0] if run.verb.split() else run.verb
        if run.life is RunLife.KILLED:
            yield Blocker(
                subject=verb,
                on=f"process {run.pid} was killed: it is gone and recorded no end",
                hint=f"run the same command again: it resumes; the log is in {run.directory}",
            )
        elif run.life is RunLife.SILENT:
            yield Blocker(
                subject=verb,
                on=f"process {run.pid} has had no heartbeat for {format_duration(run.silent_s)}: it was killed, or it hangs",
                hint=f"make sure that it ended, then run the same command again; the log is in {run.directory}",
            )
        elif run.life is RunLife.ENDED and run.exit_code is not None and run.exit_code not in _FINISHED:
            known = run.exit_code in set(ExitCode)
            meaning = EXIT_CODE_MEANINGS[ExitCode(run.exit_code)] if known else "unknown"
            yield Blocker(
                subject=verb,
                on=f"it ended with exit code {run.exit_code} ({meaning})",
                hint=f"see the events and the log in {run.directory}, then run the same command again",
            )


# --- Incidents, and the events that end them


_K = EventKind

ENDED_BY: Mapping[EventKind, tuple[EventKind, ...]] = {
    _K.HOST_LOST: (_K.HOST_FOUND,),
    _K.STORAGE_LOST: (_K.STORAGE_BACK,),
    _K.CUTOVER_FAILED: (_K.CUTOVER_FINISHED,),
    _K.CUTOVER_REVERTING: (_K.CUTOVER_FINISHED,),
    _K.CUTOVER_GIVEN_UP: (_K.CUTOVER_FINISHED,),
    _K.CUTOVER_HALTED: (_K.CUTOVER_FINISHED,),
    _K.DRAIN_FAILED: (_K.DRAIN_FINISHED,),
    _K.DRAIN_HALTED: (_K.DRAIN_FINISHED,),
    _K.DRAIN_DOUBTED: (_K.DRAIN_FINISHED,),
    _K.ADDITION_FAILED: (_K.ADDITION_FINISHED,),
    _K.ADDITION_HALTED: (_K.ADDITION_FINISHED,),
    _K.CHUNK_RETRIED: (_K.PASS_FINISHED,),
    _K.CHUNK_FAILED: (_K.PASS_FINISHED,),
}
"""The events that end an incident if they have the same subject. A pass has its batch as the subject."""

ENDED_BY_ANY: Mapping[EventKind, tuple[EventKind, ...]] = {
    _K.RUN_INTERRUPTED: (_K.RUN_FINISHED,),
    _K.POOL_STOPPED: (_K.RUN_FINISHED,),
    _K.BATCH_REFUSED: (_K.RUN_FINISHED,),
    _K.BRICKS_UNFIT: (_K.RUN_FINISHED,),
    _K.SCAN_INTERRUPTED: (_K.SCAN_FINISHED,),
    _K.SOURCE_UNHEALTHY: (_K.SCAN_FINISHED,),
}
"""The events that end an incident about any subject."""

_WORDS: Mapping[EventKind, str] = {
    _K.HOST_FOUND: "the host is back",
    _K.STORAGE_BACK: "the storage is back",
    _K.CUTOVER_FINISHED: "a later attempt finished",
    _K.DRAIN_FINISHED: "the drain finished",
    _K.ADDITION_FINISHED: "the addition finished",
    _K.PASS_FINISHED: "the pass finished",
    _K.RUN_FINISHED: "a later run finished",
    _K.SCAN_FINISHED: "a later scan finished",
}

ENDING_KINDS = tuple(dict.fromkeys(kind for kinds in (*ENDED_BY.values(), *ENDED_BY_ANY.values()) for kind in kinds))
"""All events that can end an incident."""


def incidents(groups: Sequence[EventGroup], endings: Sequence[EventGroup]) -> tuple[Incident, ...]:
    """Every group of warnings or errors with the event that ended it. Unresolved ones first, then by time."""
    found = [_incident(group, endings) for group in groups]
    return tuple(sorted(found, key=lambda one: (one.resolved_at_s is not None, -one.last_at_s)))


def _incident(group: EventGroup, endings: Sequence[EventGroup]) -> Incident:
    same, any_subject = ENDED_BY.get(group.kind, ()), ENDED_BY_ANY.get(group.kind, ())
    ended = [
        ending
        for ending in endings
        if ending.last_at_s > group.last_at_s
        and (ending.kind in any_subject or (ending.kind in same and _is_about(group.subject, ending.subject)))
    ]
    first = min(ended, key=lambda ending: ending.last_at_s, default=None)
    return Incident(
        kind=group.kind,
        severity=group.severity,
        subject=group.subject,
        count=group.count,
        first_at_s=group.first_at_s,
        last_at_s=group.last_at_s,
        message=group.message,
        resolved_at_s=None if first is None else first.last_at_s,
        resolution="" if first is None else _WORDS[first.kind],
    )


def _is_about(subject: str, ending: str) -> bool:
    """Whether two subjects are the same, or the ending's contains the incident's (`batch 1` contains `batch 1: chunk 7`)."""
    return subject == ending or subject.startswith((f"{ending}:", f"{ending},", f"{ending} "))
