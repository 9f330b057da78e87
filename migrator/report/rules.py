"""From sums of the ledger to progress, blockers and incidents. Pure."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.bricks.drain.model import OUT_STATES, UNDER_WAY_STATES, DrainStanding, DrainState
from migrator.bricks.retire.model import Retirement, RetirementState
from migrator.catalog.model import CatalogRecord, StrangeFiles, VerificationRecord
from migrator.core.blocker import Blocker
from migrator.core.errors import EXIT_CODE_MEANINGS, ExitCode
from migrator.core.events import Event, EventKind, Severity
from migrator.core.paths import show
from migrator.core.states import CONTENT_KINDS, BatchState, ChunkState, PassState
from migrator.core.units import (
    DAY_S,
    first_of,
    format_count,
    format_duration,
    format_rate,
    format_size,
    several,
)
from migrator.cutover.model import UNDER_WAY_STATES as CUTOVER_UNDER_WAY
from migrator.cutover.model import CutoverState
from migrator.fs.model import CapacityOutlook, CapacitySample, DifferenceKind, Side
from migrator.plan.model import Plan, PlannedTree, ThroughputPoint
from migrator.plan.schedule.model import SubvolumeStep
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.reap.model import ArchiveRecord, ArchiveState, PlanReap
from migrator.report import model
from migrator.scan.rules import REMEDY, describe_strange_files
from migrator.site.model import ReapAction

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
    """Whether only files that failed at every attempt are left. There is no estimate for these: an operator must
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


# --- Bricks, capacity and reaped files


OUT_OF_THE_VOLUME = {RetirementState.RETIRED.value, *(state.value for state in OUT_STATES)}
"""States of a brick that has left the source."""
_SCHEDULED = (
    "by the order of the schedule and the expected date of the last brick; bytes: the maximum that the drain moves"
)


def brick_outlooks(
    drains: Sequence[DrainStanding],
    plan: Plan | None,
    *,
    now_s: float,
    retirement: Retirement | None = None,
    cleared: model.Milestone | None = None,
) -> tuple[model.BrickOutlook, ...]:
    """Every brick that was drained or is in the schedule, in that order. Drains take precedence over the schedule, whose
    dates end with the expected one of the last brick (`cleared`); a retired volume has no bricks any more.
    """
    found = {outlook.brick: outlook for drain in drains for outlook in _of_drain(drain, now_s)}
    out = frozenset(brick for brick, one in found.items() if one.state in OUT_OF_THE_VOLUME)
    for outlook in _of_schedule(plan, out, cleared, now_s):
        known = found.get(outlook.brick)
        if known is None or known.state == DrainState.STOPPED:
            found[outlook.brick] = outlook
    if retirement is not None and retirement.state is RetirementState.RETIRED:
        gone = model.BrickOutlook(
            brick="",
            state=retirement.state.value,
            left_files=0,
            left_bytes=0,
            free_at_s=retirement.since_s,
            basis="the volume is retired; its content is proven to be on the target",
        )
        found = {
            brick: one if one.state in OUT_OF_THE_VOLUME else replace(gone, brick=brick) for brick, one in found.items()
        }
    return tuple(found.values())


def _of_drain(drain: DrainStanding, now_s: float) -> Iterator[model.BrickOutlook]:
    out = drain.state in OUT_STATES
    free_at_s, basis = None, ""
    if out:
        free_at_s, basis = drain.since_s, "it is out of the volume"
    elif drain.state in UNDER_WAY_STATES and drain.left_s is not None:
        free_at_s, basis = now_s + drain.left_s, "by the pace of the drain, before its audit"
    for brick in drain.bricks:
        yield model.BrickOutlook(
            brick=brick,
            state=drain.state.value,
            left_files=0 if out else drain.left_files,
            left_bytes=0 if out else drain.left_bytes,
            free_at_s=free_at_s,
            basis=basis,
        )


def _of_schedule(
    plan: Plan | None, out: frozenset[str], cleared: model.Milestone | None, now_s: float
) -> Iterator[model.BrickOutlook]:
    outcome = scheduled_outcome(plan)
    if plan is None or outcome is None:
        return
    steps = outcome.subvolumes
    ends = (None, None, None) if cleared is None else (cleared.at_s, cleared.earliest_at_s, cleared.latest_at_s)
    free_at = _stretched(steps, out, (now_s - plan.created_at_s) / DAY_S)
    for step in steps:
        share = free_at.get(step.subvolume)
        at_s, earliest_at_s, latest_at_s = (
            None if share is None or end_s is None else now_s + share * (end_s - now_s) for end_s in ends
        )
        for brick in step.bricks:
            yield model.BrickOutlook(
                brick=brick,
                state="in the volume",
                left_files=None,
                left_bytes=step.moved_bytes,
                free_at_s=at_s,
                earliest_at_s=earliest_at_s,
                latest_at_s=latest_at_s,
                basis=_SCHEDULED if ends[0] is not None else "" if cleared is None else cleared.unknown,
            )


def _stretched(steps: Sequence[SubvolumeStep], out: frozenset[str], today: float) -> Mapping[int, float]:
    """For each subvolume left, the share of the time until the last one is cleared that has passed then: as in the
    schedule, from today on, or from the last brick that is out if the schedule is ahead of the migration.
    """
    left = {one.subvolume: one.cleared_day for one in steps if not out.issuperset(one.bricks)}
    days = [day for day in left.values() if day is not None]
    if not days:
        return {}
    done = [one.cleared_day for one in steps if one.cleared_day is not None and out.issuperset(one.bricks)]
    from_day = today if today < min(days) else min(max((0.0, *done)), *days)
    whole = max(days) - from_day
    return {number: (day - from_day) / whole if whole > 0 else 1.0 for number, day in left.items() if day is not None}


def server_outlooks(bricks: Sequence[model.BrickOutlook], plan: Plan | None) -> tuple[model.ServerOutlook, ...]:
    """Every server of these bricks, by name. Empty without a schedule: only the schedule has all bricks of a server."""
    if scheduled_outcome(plan) is None:
        return ()
    found: dict[str, list[model.BrickOutlook]] = defaultdict(list)
    for one in bricks:
        found[one.brick.partition(":/")[0]].append(one)
    last = {
        server: max(own, key=lambda one: math.inf if one.free_at_s is None else one.free_at_s)
        for server, own in found.items()
    }
    return tuple(
        model.ServerOutlook(
            server=server,
            bricks=len(own),
            free_bricks=sum(one.state in OUT_OF_THE_VOLUME for one in own),
            free_at_s=last[server].free_at_s,
            basis=last[server].basis,
        )
        for server, own in sorted(found.items())
    )


def target_outlook(
    samples: Sequence[CapacitySample], left: model.ProgressCounts, forecast: model.CopyForecast | None, *, now_s: float
) -> CapacityOutlook | None:
    """The usage of the target after the copying: the newest sample plus the files left to copy. None without a sample,
    or if nothing is left.
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


def summarize_reaped(
    reap: PlanReap | None, archives: Iterable[ArchiveRecord], released: int
) -> model.ReapedFacts | None:
    """The files that a plan archives or skips; None if it moves everything and nothing was archived."""
    proven = [one for one in archives if one.state is ArchiveState.PROVEN]
    trees = () if reap is None else reap.trees
    to_archive = [tree for tree in trees if tree.action is ReapAction.ARCHIVE]
    skipped = [tree for tree in trees if tree.action is ReapAction.SKIP]
    if not (to_archive or skipped or proven):
        return None
    return model.ReapedFacts(
        to_archive_bytes=sum(tree.size_bytes for tree in to_archive),
        to_archive_inodes=sum(tree.files for tree in to_archive),
        skipped_bytes=sum(tree.size_bytes for tree in skipped),
        skipped_inodes=sum(tree.files for tree in skipped),
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
    earlier: model.EarlierReport,
    *,
    now_s: float,
    plan: str | None,
    overall: model.ProgressCounts,
    forecast: model.CopyForecast | None,
    before: ThroughputPoint | None,
    after: ThroughputPoint | None,
) -> model.SinceReport:
    """Progress since an earlier report. `before` and `after` are the throughput before it and since then."""
    same_plan = plan == earlier.plan
    end_s = forecast.likely_at_s if forecast is not None else None
    if end_s is None and overall.total_files > 0 and overall.left_files <= 0:
        end_s = now_s
    moved_s = None if end_s is None or earlier.likely_at_s is None else end_s - earlier.likely_at_s
    since = model.SinceReport(
        earlier=earlier,
        standing=_punctuality(earlier, moved_s),
        done_bytes=max(overall.done_bytes - earlier.done_bytes, 0) if same_plan else overall.done_bytes,
        done_files=max(overall.done_files - earlier.done_files, 0) if same_plan else overall.done_files,
        expected_bytes=expected_bytes(earlier, now_s) if same_plan else None,
        planned_more_bytes=overall.total_bytes - earlier.total_bytes,
        end_moved_s=moved_s,
        reasons=(),
    )
    changed = f"the plan changed from {earlier.plan or 'none'} to {plan or 'none'}, so amounts are not comparable"
    amounts = _amounts(since, now_s) if same_plan else [changed]
    return replace(since, reasons=(*amounts, *_pace_reasons(before, after)))


def expected_bytes(earlier: model.EarlierReport, at_s: float) -> float | None:
    """Bytes that the forecast of an earlier report expected to be copied until `at_s`; None if it had no forecast."""
    if earlier.likely_at_s is None:
        return None
    share = (at_s - earlier.at_s) / max(earlier.likely_at_s - earlier.at_s, 1.0)
    return (earlier.total_bytes - earlier.done_bytes) * min(max(share, 0.0), 1.0)


def _punctuality(earlier: model.EarlierReport, moved_s: float | None) -> model.Punctuality:
    if moved_s is None or earlier.likely_at_s is None:
        return model.Punctuality.UNKNOWN
    if abs(moved_s) <= _AS_EXPECTED * max(earlier.likely_at_s - earlier.at_s, 60.0):
        return model.Punctuality.AS_EXPECTED
    return model.Punctuality.BEHIND if moved_s > 0 else model.Punctuality.AHEAD


def _amounts(since: model.SinceReport, now_s: float) -> Iterator[str]:
    words = (
        f"in the {format_duration(now_s - since.earlier.at_s)} since then {format_size(since.done_bytes)} were copied"
    )
    if since.expected_bytes is not None and since.expected_bytes > 0:
        share = since.done_bytes / since.expected_bytes * 100
        words += f", {share:.0f} % of the expected {format_size(round(since.expected_bytes))}"
    yield words
    more = since.planned_more_bytes
    if abs(more) > _NOTABLE / 10 * max(since.earlier.total_bytes, 1):
        yield f"the plan {'grew' if more > 0 else 'shrank'} by {format_size(abs(more))}"


def _pace_reasons(before: ThroughputPoint | None, after: ThroughputPoint | None) -> Iterator[str]:
    """The changes of the streams' rate, and of the share of the time in which they ran."""
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


# --- Blockers


_FINISHED = (ExitCode.DONE, ExitCode.ATTENTION)
_UNDONE_BY = {"brick-drain": "brick-stop", "cutover": "rollback", "rollback": "cutover"}
"""A failed command does not have to be repeated if its opposite finished later."""
_MAY_PASS = (DifferenceKind.CHANGED, DifferenceKind.UNREADABLE, DifferenceKind.UNPROVEN)
_Found = Iterator[tuple[str, str, str]]


def blockers(
    *,
    scan: CatalogRecord | None,
    plan: model.PlanFacts | None,
    batches: Sequence[model.BatchStatus],
    runs: Sequence[model.RunStatus],
    scanning: bool = False,
    strange: Sequence[StrangeFiles] = (),
    set_apart: Sequence[bytes] = (),
    returned: Sequence[bytes] = (),
    over: Collection[int] = (),
) -> tuple[Blocker, ...]:
    """Everything that failed or was interrupted and waits for an operator, in the order of the work. `scanning`: a scan
    is at work. `strange` has the files on bricks that bypassed Gluster, by the newest scan of the bricks; `set_apart`
    the trees that are in no batch because the scan of the plan could not read them; `returned` those that are in none
    because their users were rolled back after the plan was made; `over` the batches whose verification no longer counts
    (`verified_otherwise`).
    """
    found = [*_scan(scan, plan, set_apart, returned, scanning=scanning), *_strange(strange)]
    found += [one for batch in batches if plan is not None for one in _batch(batch, over=batch.number in over)]
    found += _runs(runs)
    return tuple(Blocker(subject=subject, on=on, hint=hint) for subject, on, hint in found)


def _scan(
    scan: CatalogRecord | None,
    plan: model.PlanFacts | None,
    set_apart: Sequence[bytes],
    returned: Sequence[bytes],
    *,
    scanning: bool,
) -> _Found:
    if plan is not None and set_apart:
        on = f"in no batch of {plan.name}: the scan could not read all of it"
        yield f"set apart: {_named(set_apart)}", on, "migrator scan, then migrator plan --activate"
    if plan is not None and returned:
        on = f"in no batch of {plan.name}: their users were rolled back after the plan was made"
        yield f"rolled back: {_named(returned)}", on, "migrator scan, then migrator plan --activate"
    if scan is None:
        return
    if scan.finished_at_s is None:
        if not scanning:
            yield "plan", f"the scan {scan.name} has not ended", "migrator scan (it resumes)"
    elif not scan.whole:
        subject = f"a new plan for {_named(scan.set_apart)}" if scan.set_apart else "delete, purge and switch"
        on = f"the scan {scan.name} is not whole: {_shown(scan.reasons)}"
        yield subject, on, "fix this, then migrator scan"


def _named(trees: Sequence[bytes]) -> str:
    return first_of(list(map(show, trees)), 3)


def _shown(reasons: Sequence[str]) -> str:
    return first_of(reasons, 3, mark=";") or "no reason was recorded"


def _strange(found: Sequence[StrangeFiles]) -> _Found:
    for one in found:
        on = f"{describe_strange_files(one)}, and clients that look up such a name can hang"
        yield f"drains and additions: {one.brick}", on, f"{REMEDY}; then migrator scan --via bricks"


def _batch(batch: model.BatchStatus, *, over: bool) -> _Found:
    subject = f"batch {batch.number} ({first_of(batch.users, 3)})" if batch.users else f"batch {batch.number}"
    again = f"migrator run --user-batch {batch.number}"
    failed, bad = batch.chunks.get(ChunkState.FAILED, 0), batch.attention.bad
    if (failed or bad) and not over:
        what = f"{several(bad, 'file')} failed" if bad else f"{several(failed, 'chunk')} failed at every attempt"
        yield subject, what, f"see the files that need attention, then {again}"
    if batch.verification is not None and batch.state in (BatchState.SEEDED, BatchState.CONVERGING) and not over:
        for on, hint in _verification(batch.number, batch.verification):
            yield f"{subject}: cutover", on, hint


def _verification(batch: int, verification: VerificationRecord) -> Iterator[tuple[str, str]]:
    if differences := sum(verification.differences.values()):
        kinds = ", ".join(f"{format_count(count)} {kind}" for kind, count in verification.differences.items() if count)
        on = f"the verification found {several(differences, 'difference')} ({kinds})"
        yield on, after_differences(verification)
    if not verification.whole:
        again = f"migrator verify --user-batch {batch}"
        yield f"the verification is not whole: {_shown(verification.reasons)}", again


def after_differences(verification: VerificationRecord) -> str:
    """The next steps after a verification with differences; empty without any. A delta pass resends files that
    differed, copies files that users changed since, and removes files that they deleted, if this program had copied
    them.
    """
    counts = {kind: count for kind, count in verification.differences.items() if count}
    again = sum(counts.pop(kind.value, 0) for kind in _MAY_PASS)
    steps = []
    if counts:
        steps.append(
            f"`migrator run --user-batch {verification.batch}` copies the differences and later changes; then verify again"
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


def _runs(runs: Sequence[model.RunStatus]) -> _Found:
    newest = newest_runs(runs)
    by_verb = {run.verb: run for run in reversed(newest)}
    for run in newest:
        undone = by_verb.get(_UNDONE_BY.get(run.verb, ""))
        if undone is not None and undone.started_at_s > run.started_at_s and undone.exit_code in _FINISHED:
            continue
        hint = f"run the same command again: it resumes; the log is in {run.directory}"
        if run.life is model.RunLife.KILLED:
            on = f"process {run.pid} was killed: it is gone and recorded no end"
        elif run.life is model.RunLife.SILENT:
            on = f"process {run.pid} has had no heartbeat for {format_duration(run.silent_s)}: it hangs"
            hint = f"end it, then {hint}"
        elif run.life is model.RunLife.ENDED and run.exit_code is not None and run.exit_code not in _FINISHED:
            known = run.exit_code in set(ExitCode)
            meaning = EXIT_CODE_MEANINGS[ExitCode(run.exit_code)] if known else "unknown"
            on = f"it ended with exit code {run.exit_code} ({meaning})"
            hint = f"see the events and the log in {run.directory}, then run the same command again"
        else:
            continue
        yield run.verb.partition(" ")[0], on, hint


# --- Incidents, and the events that end them


_K = EventKind


class _End(NamedTuple):
    """An event ends incidents of the kinds `of` about the same subject, or about any subject. `clean`: only if it is no
    warning itself. A pass has its batch as the subject, a cutover its user tree.
    """

    by: EventKind
    words: str
    of: tuple[EventKind, ...]
    any_subject: bool = False
    clean: bool = False


_OF_A_CUTOVER = (_K.CUTOVER_FAILED, _K.CUTOVER_REVERTING, _K.CUTOVER_GIVEN_UP, _K.CUTOVER_HALTED, _K.GUARD_REFUSED)

_ENDS = (
    _End(_K.HOST_FOUND, "the host is back", (_K.HOST_LOST,)),
    _End(_K.BRICKS_FIT, "the bricks are read again", (_K.BRICKS_UNFIT,)),
    _End(_K.STORAGE_BACK, "the storage is back", (_K.STORAGE_LOST,)),
    _End(_K.LIMITS_SET, "resumed", (_K.LIMITS_SET,), clean=True),
    _End(_K.CUTOVER_FINISHED, "a later attempt finished", _OF_A_CUTOVER),
    _End(_K.DRAIN_STEP, "the drain continued", (_K.DRAIN_HALTED,), clean=True),
    _End(_K.DRAIN_FINISHED, "the drain finished", (_K.DRAIN_FAILED, _K.DRAIN_HALTED, _K.DRAIN_DOUBTED)),
    _End(_K.ADDITION_FINISHED, "the addition finished", (_K.ADDITION_FAILED, _K.ADDITION_HALTED)),
    _End(
        _K.RETIREMENT_FINISHED,
        "the retirement continued",
        (_K.RETIREMENT_GIVEN_UP, _K.RETIREMENT_HALTED),
        any_subject=True,
    ),
    _End(_K.PASS_FINISHED, "the pass finished", (_K.CHUNK_RETRIED, _K.CHUNK_FAILED)),
    _End(_K.PASS_STARTED, "a later pass began", (_K.POOL_STOPPED, _K.BATCH_REFUSED)),
    _End(_K.PASS_FINISHED, "a later pass finished", (_K.PASS_FINISHED, _K.GUARD_REFUSED), clean=True),
    _End(_K.RUN_FINISHED, "a later run finished", (_K.RUN_INTERRUPTED, _K.BRICKS_UNFIT), any_subject=True),
    _End(
        _K.RUN_FINISHED,
        "a later run finished",
        (_K.RUN_FINISHED, _K.TREES_SET_APART, _K.BATCH_REFUSED),
        any_subject=True,
        clean=True,
    ),
    _End(_K.VERIFY_FINISHED, "a later verification found no difference", (_K.VERIFY_FINISHED,), clean=True),
    _End(
        _K.SCAN_FINISHED,
        "a later scan is whole",
        (_K.SCAN_FINISHED, _K.SCAN_INTERRUPTED, _K.SOURCE_UNHEALTHY),
        any_subject=True,
        clean=True,
    ),
)

ENDING_KINDS = tuple(dict.fromkeys(end.by for end in _ENDS))
"""All events that can end an incident."""


def incidents(groups: Sequence[model.Incident], endings: Sequence[model.Incident]) -> tuple[model.Incident, ...]:
    """Every group of warnings or errors with the event that ended it. Unresolved ones first, then by time."""
    found = [replace(group, **_ended(group.kind, group.subject, group.last_at_s, endings)) for group in groups]
    return tuple(sorted(found, key=lambda one: (one.resolved_at_s is not None, -one.last_at_s)))


def seen_events(events: Sequence[Event], endings: Sequence[model.Incident]) -> tuple[model.RecordedEvent, ...]:
    """Warnings and errors, each with the event that ended it."""
    return tuple(
        of_record(model.RecordedEvent, event, **_ended(event.kind, event.subject, event.at_s, endings))
        for event in events
    )


def _ended(kind: EventKind, subject: str, at_s: float, endings: Sequence[model.Incident]) -> dict[str, Any]:
    """The time and the way in which the incident ended: by the first event that ends it."""
    later = [
        (ending.last_at_s, end.words)
        for ending in endings
        for end in _ENDS
        if end.by is ending.kind
        and kind in end.of
        and ending.last_at_s > at_s
        # The same subject, or one within it: `batch 1` contains `batch 1: chunk 7`.
        and (
            end.any_subject
            or subject == ending.subject
            or subject.startswith(tuple(ending.subject + mark for mark in ":, "))
        )
        and (not end.clean or ending.severity is Severity.INFO)
    ]
    resolved_at_s, resolution = min(later, default=(None, ""))
    return {"resolved_at_s": resolved_at_s, "resolution": resolution}
