"""The promised dates, and the verdict on the expected ones. Pure."""

import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from migrator.core.units import DAY_S, format_duration, format_rate, format_size
from migrator.plan.model import Plan, PlannedTree, ThroughputPoint
from migrator.report import model
from migrator.report.rules_milestones import finished_schedule

# --- The reports to compare with


_SAME_DAY_S = 0.8 * DAY_S
"""A report this young is no other day's, even if yesterday's came some hours later in the day."""


def earlier_reports(kept: Sequence[model.KeptReport], *, now_s: float) -> list[model.KeptReport]:
    """The reports to compare with, best first: the newest that was sent. If none was, the newest of another day, then the
    oldest of this day: who looks twice a day still sees what a day has brought. `kept` is oldest first.
    """
    before = [one for one in kept if one.at_s < now_s]
    sent = [one for one in before if one.sent]
    if sent:
        return sent[::-1]
    older = [one for one in before if now_s - one.at_s >= _SAME_DAY_S]
    return [*older[::-1], *(one for one in before if one not in older)]


def baselines(kept: Sequence[model.KeptReport]) -> list[model.KeptReport]:
    """The reports that were marked as the baseline, the newest first."""
    return [one for one in reversed(kept) if one.baseline]


def is_due(kept: Sequence[model.KeptReport], *, now_s: float) -> bool:
    """True if none was kept on this day."""
    return all(abs(now_s - one.at_s) >= _SAME_DAY_S for one in kept)


# --- The promise


def promise_of_plan(plan: model.PlanFacts, trees: Sequence[PlannedTree], document: Plan | None) -> model.Promise:
    """The dates of a plan: of its schedule if it has one that ends, otherwise the end of its copying without a pause.
    `document` is None if it cannot be read.
    """
    size_bytes = sum(max(one.size_bytes - one.reaped_bytes, 0) for one in trees)
    moved_at_s, cleared_at_s = _scheduled(document)
    return model.Promise(
        at_s=plan.created_at_s,
        plan=plan.name,
        baseline=False,
        total_bytes=size_bytes,
        left_bytes=size_bytes,
        left_files=sum(max(one.files - one.reaped_files, 0) for one in trees),
        busy_s=plan.forecast_s,
        # The schedule moves the users of a batch as soon as it is copied.
        copied_at_s=plan.created_at_s + plan.forecast_s if moved_at_s is None else moved_at_s,
        moved_at_s=moved_at_s,
        cleared_at_s=cleared_at_s,
    )


def promise_of_report(report: model.EarlierReport, before: ThroughputPoint | None) -> model.Promise | None:
    """The dates of a report, at the pace `before` it; None if it had no forecast."""
    if report.likely_at_s is None:
        return None
    share = 1.0 if before is None or before.span_s <= 0 else min(before.busy_s / before.span_s, 1.0)
    return model.Promise(
        at_s=report.at_s,
        plan=report.plan or "",
        baseline=True,
        total_bytes=report.total_bytes,
        left_bytes=report.total_bytes - report.done_bytes,
        left_files=report.total_files - report.done_files,
        busy_s=share * (report.likely_at_s - report.at_s),
        copied_at_s=report.likely_at_s,
        moved_at_s=report.moved_at_s,
        cleared_at_s=report.cleared_at_s,
    )


def _scheduled(plan: Plan | None) -> tuple[float | None, float | None]:
    """When the last user is moved and when the source is empty, by the schedule; None without one that ends."""
    outcome = finished_schedule(plan)
    if plan is None or outcome is None or outcome.done_day is None:
        return None, None
    moved_day = max((step.moved_day for step in outcome.batches), default=None)
    moved_at_s = None if moved_day is None else plan.created_at_s + moved_day * DAY_S
    return moved_at_s, plan.created_at_s + outcome.done_day * DAY_S


# --- The expected dates


def promised(dates: Sequence[model.Milestone], promise: model.Promise | None) -> tuple[model.Milestone, ...]:
    """The expected dates with those that were promised."""
    if promise is None:
        return tuple(dates)
    known = {
        model.Goal.COPIED: promise.copied_at_s,
        model.Goal.MOVED: promise.moved_at_s,
        model.Goal.CLEARED: promise.cleared_at_s,
    }
    # A schedule ends with the empty source: it has no date for additions of bricks to the target.
    if all(one.goal is not model.Goal.ADDED for one in dates):
        known[model.Goal.COMPLETE] = promise.cleared_at_s
    return tuple(replace(one, promised_at_s=known.get(one.goal)) for one in dates)


# --- The verdict


_ON_TRACK = 0.05
"""An end that moved by at most this share of the promised time is on track: every forecast moves a little."""

_NOTABLE = 0.1
_REASONS = 2
_DAYS = 2.0

_DOING = {
    model.Goal.COPIED: "copying",
    model.Goal.MOVED: "moving the last user",
    model.Goal.CLEARED: "clearing the bricks",
}
_REACHED = {
    model.Goal.COPIED: "everything is copied",
    model.Goal.MOVED: "every user is moved",
    model.Goal.CLEARED: "every brick is cleared",
}
_COMPLETE = "the migration is complete"


def verdict(
    promise: model.Promise | None,
    dates: Sequence[model.Milestone],
    *,
    now_s: float,
    overall: model.ProgressCounts,
    began_s: float | None,
    work: ThroughputPoint | None,
    since: model.SinceReport | None,
) -> model.PromiseVerdict:
    """The first promised date that is not reached against its promise; of a finished migration, the last one. `work` is
    the throughput since copying began (`began_s`) or since the promise if that was later.
    """
    is_complete = any(date.done for date in dates if date.goal is model.Goal.COMPLETE)
    dates = [date for date in dates if date.goal in _DOING]
    if promise is None or not dates:
        return _verdict(model.Punctuality.UNKNOWN, None, "There is no promise yet: there is no plan.")
    one = next((date for date in dates if not date.done), None)
    if one is None:
        # Bricks may be cleared before the last file is copied.
        before = dates[-1]
        one = replace(
            before,
            at_s=max((date.at_s for date in dates if date.at_s is not None), default=None),
            promised_at_s=max((date.promised_at_s for date in dates if date.promised_at_s is not None), default=None),
        )
    else:
        before = dates[max(dates.index(one) - 1, 0)]
    reached = _COMPLETE if is_complete else _REACHED[before.goal] if before.done else ""
    lead = f"{reached[:1].upper()}{reached[1:]}" if reached else ""
    late_s, at_least = _late_s(one, now_s)
    if late_s is None:
        known = f"; the date of {_DOING[one.goal]} is unknown" if reached and not one.done else ""
        words = f"{lead}{known}." if reached else f"It is unknown whether copying is on track: {one.unknown}."
        return _verdict(model.Punctuality.UNKNOWN, None, words)
    promised_s = max((one.promised_at_s or now_s) - promise.at_s, 1.0)
    standing = _punctuality(late_s, promised_s, at_least=at_least, is_open=not one.done)
    is_late = standing is model.Punctuality.BEHIND
    reasons = (
        tuple(_reasons(promise, overall, began_s=began_s, work=work, now_s=now_s, late_s=late_s))
        if is_late and one is dates[0]
        else ()
    )
    because = f", because {' and '.join(reasons)}" if reasons else ""
    if one.done:
        words = f"{lead}, {_describe_kept(standing, late_s)}"
    else:
        least = "at least " if at_least and is_late else ""
        words = f"{_DOING[one.goal]} is {least}{_describe_open(standing, late_s)}"
        words = f"{lead}; {words}" if lead else f"{words[:1].upper()}{words[1:]}"
    moved = _describe_shift(since) if one.goal is model.Goal.COPIED and not one.done else ""
    return model.PromiseVerdict(
        standing=standing, late_s=late_s, at_least=at_least, reasons=reasons, sentence=f"{words}{because}{moved}."
    )


def _verdict(standing: model.Punctuality, late_s: float | None, sentence: str) -> model.PromiseVerdict:
    return model.PromiseVerdict(standing=standing, late_s=late_s, at_least=False, reasons=(), sentence=sentence)


def _late_s(one: model.Milestone, now_s: float) -> tuple[float | None, bool]:
    """How late a date is; what has no date is late at least since its promise."""
    if one.promised_at_s is None:
        return None, False
    if one.at_s is not None:
        return one.at_s - one.promised_at_s, False
    return (now_s - one.promised_at_s, True) if now_s > one.promised_at_s and not one.done else (None, False)


def _punctuality(late_s: float, promised_s: float, *, at_least: bool, is_open: bool) -> model.Punctuality:
    if at_least and is_open:
        return model.Punctuality.BEHIND
    if abs(late_s) <= max(_ON_TRACK * promised_s, 60.0):
        return model.Punctuality.AS_EXPECTED
    return model.Punctuality.BEHIND if late_s > 0 else model.Punctuality.AHEAD


def _describe_open(standing: model.Punctuality, late_s: float) -> str:
    if standing is model.Punctuality.AS_EXPECTED:
        return "on track"
    return f"{_about(late_s)} {'late' if late_s > 0 else 'ahead of the promise'}"


def _describe_kept(standing: model.Punctuality, late_s: float) -> str:
    if standing is model.Punctuality.AS_EXPECTED:
        return "as promised"
    return f"{_about(late_s)} {'later' if late_s > 0 else 'earlier'} than promised"


def _describe_shift(since: model.SinceReport | None) -> str:
    if since is None or since.end_moved_s is None or since.standing is model.Punctuality.UNKNOWN:
        return ""
    if since.standing is model.Punctuality.AS_EXPECTED:
        return "; the expected end is that of the last report"
    way = "later" if since.end_moved_s > 0 else "earlier"
    return f"; the expected end is {_about(since.end_moved_s)} {way} than in the last report"


def _about(duration_s: float) -> str:
    """A duration for management: whole days from two days on."""
    days = abs(duration_s) / DAY_S
    return f"{round(days):,} days" if days >= _DAYS else format_duration(abs(duration_s))


def _reasons(
    promise: model.Promise,
    overall: model.ProgressCounts,
    *,
    began_s: float | None,
    work: ThroughputPoint | None,
    now_s: float,
    late_s: float,
) -> Iterator[str]:
    """The main reasons for a delay, by the time that each has cost, the largest first."""
    found = sorted(_costs(promise, overall, began_s=began_s, work=work, now_s=now_s), reverse=True)
    for cost_s, words in found[:_REASONS]:
        if cost_s >= _NOTABLE * late_s:
            yield words


def _costs(
    promise: model.Promise,
    overall: model.ProgressCounts,
    *,
    began_s: float | None,
    work: ThroughputPoint | None,
    now_s: float,
) -> Iterator[tuple[float, str]]:
    """What a late begin, idle streams, slow streams and growth have cost, in seconds."""
    promised_s = max(promise.copied_at_s - promise.at_s, 1.0)
    from_s = max(now_s if began_s is None else began_s, promise.at_s)
    late_begin_s = from_s - promise.at_s
    if began_s is None:
        yield late_begin_s, "no files were copied yet"
        return
    yield late_begin_s, f"copying began {_about(late_begin_s)} after the plan"
    more_bytes = overall.total_bytes - promise.total_bytes
    if promise.left_bytes > 0:
        yield promised_s * more_bytes / promise.left_bytes, f"the plan grew by {format_size(max(more_bytes, 0))}"
    span_s, busy_s = now_s - from_s, 0.0 if work is None else work.busy_s
    if span_s <= 0:
        return
    share, was = min(busy_s / span_s, 1.0), min(promise.busy_s / promised_s, 1.0)
    yield span_s * (was - share), f"streams ran {math.floor(share * 100)} % of the time"
    if work is None or busy_s <= 0 or promise.busy_s <= 0:
        return
    ratios = [
        done / busy_s / (left / promise.busy_s)
        for done, left in ((work.size_bytes, promise.left_bytes), (work.files, promise.left_files))
        if left > 0
    ]
    # Many small files are few bytes: streams are slow if neither files nor bytes come as fast as promised.
    if ratios and max(ratios) < 1.0:
        was_rate = format_rate(promise.left_bytes / promise.busy_s)
        yield (
            (1.0 - max(ratios)) * busy_s,
            f"the rate was {format_rate(work.rate_bytes_per_s)} instead of {was_rate}",
        )
