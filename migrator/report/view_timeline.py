"""The timeline of a migration: goals, batches and bricks, with the plan behind them."""

import math
from collections.abc import Iterable, Iterator, Sequence

from migrator.bricks.add.model import AdditionState
from migrator.bricks.drain.model import OUT_STATES, DrainStanding, DrainState
from migrator.core.units import DAY_S, several
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.render import document as doc
from migrator.render.document import SpanStyle
from migrator.report import model
from migrator.report.rules import expected_copying, expected_purges, moves, moves_of, scheduled_batches
from migrator.report.rules_outlook import OUT_OF_THE_VOLUME

MOST_BATCH_LANES, MOST_BRICK_LANES = 28, 16
"""With the goals and headings, as many lanes as fit on a page of paper."""

_LABELS = {
    SpanStyle.PLAN: "planned or promised",
    SpanStyle.DONE: "so far",
    SpanStyle.FIRST: "copying, draining",
    SpanStyle.SECOND: "cutovers, adding",
    SpanStyle.PALE: "retained",
    SpanStyle.THIRD: "purging",
    SpanStyle.EXPECTED: "expected",
    SpanStyle.RANGE: "range",
}

_FARTHEST = 3
"""The drawing ends after so many times the planned duration: the range of a young forecast may be years."""

_Times = tuple[float | None, float | None]


def timeline_blocks(report: model.ReportFacts) -> Iterator[doc.Block]:
    """The timeline; nothing before the first plan."""
    now_s = report.status.at_s
    groups = tuple(
        doc.LaneGroup(title=title, lanes=lanes)
        for title, lanes in (
            ("Whole migration", tuple(_goals(report))),
            ("Batches", _merged(list(_batches(report)), MOST_BATCH_LANES)),
            ("Bricks of the source", _merged(list(_bricks(report)), MOST_BRICK_LANES)),
        )
        if lanes
    )
    spans = [span for group in groups for lane in group.lanes for span in lane.spans]
    if not spans:
        return
    from_s, last_s = min(span.from_s for span in spans), max(span.to_s for span in spans)
    settled_s = max([now_s, *(span.to_s for span in spans if span.style not in (SpanStyle.EXPECTED, SpanStyle.RANGE))])
    until_s = min(last_s, from_s + _FARTHEST * max(settled_s - from_s, DAY_S))
    cut = "" if until_s >= last_s else f" The drawing ends at {_day(until_s)}; later dates are in the table below."
    words = "; ".join(_describe_goal(one) for one in report.milestones)
    summary = f"From {_day(from_s)} on. {words[:1].upper()}{words[1:]}{'.' if words else ''}{cut}"
    title = "Timeline of the migration"
    yield doc.Timeline(title=title, summary=doc.clean(summary), now_s=now_s, until_s=until_s, groups=groups)


def _day(at_s: float) -> str:
    return doc.when(at_s).partition(" ")[0]


def _describe_goal(one: model.Milestone) -> str:
    promised = "" if one.promised_at_s is None else f" (promised {_day(one.promised_at_s)})"
    if one.at_s is None:
        return f"{_name(one)}: {'done' if one.done else 'unknown'}{promised}"
    return f"{_name(one)}: {'done' if one.done else 'expected'} {_day(one.at_s)}{promised}"


def _name(one: model.Milestone) -> str:
    return one.goal.value.replace("-", " ")


def _lane(label: str, spans: Iterable[tuple[SpanStyle, _Times]]) -> Iterator[doc.Lane]:
    """A lane of the spans whose begin and end are known; none without any. A clock may have been set back: no span ends
    before its begin.
    """
    found = tuple(
        doc.Span(style=style, label=_LABELS[style], from_s=from_s, to_s=max(from_s, to_s))
        for style, (from_s, to_s) in spans
        if from_s is not None and to_s is not None
    )
    if found:
        yield doc.Lane(label=doc.clean(label), spans=found)


def _merged(lanes: Sequence[doc.Lane], most: int) -> tuple[doc.Lane, ...]:
    """At most so many lanes: each has several neighbours, from the first begin to the last end of each style."""
    each = math.ceil(len(lanes) / most)
    if each <= 1:
        return tuple(lanes)
    return tuple(_together(lanes[begin : begin + each]) for begin in range(0, len(lanes), each))


def _together(lanes: Sequence[doc.Lane]) -> doc.Lane:
    styles: dict[SpanStyle, list[doc.Span]] = {}
    for lane in lanes:
        for span in lane.spans:
            styles.setdefault(span.style, []).append(span)
    label = lanes[0].label if len(lanes) == 1 else f"{lanes[0].label} to {lanes[-1].label}"
    spans = tuple(
        doc.Span(
            style=style,
            label=_LABELS[style],
            from_s=min(span.from_s for span in found),
            to_s=max(span.to_s for span in found),
        )
        for style, found in styles.items()
    )
    return doc.Lane(label=label, spans=spans)


# --- Goals


def _goals(report: model.ReportFacts) -> Iterator[doc.Lane]:
    now_s, promise = report.status.at_s, report.promise
    began_s = report.done[0].at_s if report.done else None
    for one in report.milestones:
        promised = (None, None) if promise is None else (promise.at_s, one.promised_at_s)
        spans: list[tuple[SpanStyle, _Times]] = [(SpanStyle.PLAN, promised)]
        if one.done:
            spans.append((SpanStyle.DONE, (began_s, one.at_s)))
        else:
            spans.append((SpanStyle.DONE, (began_s, now_s)))
            if one.at_s is not None and one.at_s > now_s:
                spans += [
                    (SpanStyle.EXPECTED, (now_s, one.at_s)),
                    (SpanStyle.RANGE, (one.earliest_at_s, one.latest_at_s)),
                ]
        yield from _lane(_name(one), spans)


# --- Batches


def _batches(report: model.ReportFacts) -> Iterator[doc.Lane]:
    status, plan, now_s = report.status, report.plan, report.status.at_s
    name = "" if status.plan is None else status.plan.name
    yield from _lane("earlier plans", _moved([one for one in moves(status) if one.plan != name], now_s))
    steps, begins_s = scheduled_batches(plan), 0.0 if plan is None else plan.created_at_s
    copying, purges = expected_copying(status, plan), expected_purges(status, plan)
    for batch in status.batches:
        spans: list[tuple[SpanStyle, _Times]] = []
        if (step := steps.get(batch.number)) is not None:
            spans.append((SpanStyle.PLAN, (begins_s + step.begins_day * DAY_S, begins_s + step.freed_day * DAY_S)))
        from_s, to_s = copying.get(batch.number, (now_s, None))
        spans.append((SpanStyle.EXPECTED, (from_s, purges.get(batch.number, to_s))))
        if batch.passes:
            ends = [one.finished_at_s for one in batch.passes]
            end_s = max((one for one in ends if one is not None), default=now_s) if None not in ends else now_s
            spans.append((SpanStyle.FIRST, (min(one.started_at_s for one in batch.passes), end_s)))
        yield from _lane(f"batch {batch.number}", [*spans, *_moved(moves_of(status, batch), now_s)])


def _moved(cutovers: Sequence[CutoverRecord], now_s: float) -> Iterator[tuple[SpanStyle, _Times]]:
    """The cutovers of some trees, the time in which their sources are retained, and the purges."""
    if not cutovers:
        return
    frozen = [one.frozen_at_s for one in cutovers if one.frozen_at_s is not None]
    thawed = [one.thawed_at_s for one in cutovers if one.thawed_at_s is not None]
    yield (
        SpanStyle.SECOND,
        (min(frozen, default=None), max(thawed, default=now_s) if len(thawed) == len(cutovers) else now_s),
    )
    purging = [one.times.get(CutoverState.PURGING) for one in cutovers if one.thawed_at_s is not None]
    begun = [one for one in purging if one is not None]
    yield SpanStyle.PALE, (min(thawed, default=None), max(begun) if begun and len(begun) == len(purging) else now_s)
    purged = [one.times.get(CutoverState.PURGED) for one in cutovers if one.times.get(CutoverState.PURGING) is not None]
    ended = [one for one in purged if one is not None]
    yield SpanStyle.THIRD, (min(begun, default=None), max(ended) if ended and len(ended) == len(purged) else now_s)


# --- Bricks


def _bricks(report: model.ReportFacts) -> Iterator[doc.Lane]:
    """A lane for each subvolume of the schedule, then for each drain of other bricks."""
    outcome, begins_s = scheduled_outcome(report.plan), 0.0 if report.plan is None else report.plan.created_at_s
    drains = [one for one in report.status.drains if one.state is not DrainState.STOPPED]
    left = list(drains)
    for step in () if outcome is None else outcome.subvolumes:
        own = next((one for one in drains if set(one.bricks) & set(step.bricks)), None)
        if own in left:
            left.remove(own)
        begin_day = step.cleared_day if step.drain_begins_day is None else step.drain_begins_day
        planned = tuple(None if day is None else begins_s + day * DAY_S for day in (begin_day, step.cleared_day))
        yield from _brick_lane(report, step.bricks, own, planned)
    for drain in left:
        yield from _brick_lane(report, drain.bricks, drain, (None, None))


def _brick_lane(
    report: model.ReportFacts, bricks: Sequence[str], drain: DrainStanding | None, planned: tuple[float | None, ...]
) -> Iterator[doc.Lane]:
    label = bricks[0] if len(bricks) == 1 else f"{bricks[0]} and {several(len(bricks) - 1, 'brick')}"
    begin_s, end_s = planned
    takes_s = None if begin_s is None or end_s is None else end_s - begin_s
    spans: list[tuple[SpanStyle, _Times]] = [(SpanStyle.PLAN, (begin_s, end_s))]
    spans.append((SpanStyle.EXPECTED, _expected_drain(report, bricks, drain, takes_s)))
    yield from _lane(label, [*spans, *_drained(drain, report)])


def _expected_drain(
    report: model.ReportFacts, bricks: Sequence[str], drain: DrainStanding | None, takes_s: float | None
) -> _Times:
    """The drain of bricks until they are free; of one that has not begun, as long as planned."""
    now_s = report.status.at_s
    left = [one for one in report.bricks if one.brick in bricks and one.state not in OUT_OF_THE_VOLUME]
    ends = [one.free_at_s for one in left if one.free_at_s is not None and one.free_at_s > now_s]
    if not ends or len(ends) < len(left):
        return None, None
    return now_s if drain is not None or takes_s is None else max(now_s, max(ends) - takes_s), max(ends)


def _drained(drain: DrainStanding | None, report: model.ReportFacts) -> Iterator[tuple[SpanStyle, _Times]]:
    if drain is None:
        return
    now_s, is_out = report.status.at_s, drain.state in OUT_STATES
    yield SpanStyle.FIRST, (drain.started_at_s, drain.since_s if is_out else now_s)
    for one in report.status.additions:
        if set(one.bricks) & set(drain.bricks) and one.state is not AdditionState.FORGOTTEN:
            begin_s = drain.since_s if is_out else one.since_s
            yield SpanStyle.SECOND, (begin_s, one.since_s if one.state is AdditionState.SETTLED else now_s)
