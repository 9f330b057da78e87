"""The first page of a report, for management: the verdict, how far, until when, this week, who has to act, room."""

from collections.abc import Iterator, Sequence

from migrator.core.units import format_count, format_duration, format_rate, format_size
from migrator.cutover.view import frozen_blocks
from migrator.fs.model import CapacitySample
from migrator.render import document as doc
from migrator.report import model, view_status
from migrator.report.rules_outlook import OUT_OF_THE_VOLUME

_ROWS = 5
_STEPS = 3
_BARS_NOTE = "Moved: the user works on the target. Copied: the data is on the target."
_BLOCKED_NOTE = "An operator must act."


def first_sections(report: model.ReportFacts) -> Iterator[doc.Section]:
    """The sections of the first page, and of the blockers that did not fit on it."""
    status = report.status
    yield from doc.first_sections(
        ("Verdict", _verdict(report)),
        ("Frozen users", frozen_blocks(status.frozen, now_s=status.at_s)),
        ("Progress", _bars(status)),
        ("Expected dates", [_dates(report)]),
        ("This week", _week(report)),
        ("Blocked", _blocked(status)),
        ("Next steps for operators", [view_status.step_table(status.next_steps[:_STEPS])]),
        ("Room", _room(report)),
    )
    yield from doc.sections(
        ("Also blocked", [view_status.blocker_table(status.blocked[_ROWS:])]),
        ("More next steps", [view_status.step_table(status.next_steps[_STEPS:])]),
    )


def _verdict(report: model.ReportFacts) -> Iterator[doc.Block]:
    if report.verdict is not None:
        yield doc.paragraph(report.verdict.sentence, alert=report.verdict.standing is model.Punctuality.BEHIND)
    pairs = []
    if report.promise is not None:
        whose = "the baseline report" if report.promise.baseline else f"plan {report.promise.plan}"
        pairs.append(("the promise", f"{whose} of {doc.when(report.promise.at_s)}"))
    if report.since is not None:
        pairs.append(("the last report", f"{doc.when(report.since.earlier.at_s)}"))
    if pairs:
        yield doc.facts(pairs)


def _bars(status: model.MigrationStatus) -> Iterator[doc.Block]:
    """A bar each for users, files and bytes: of moved users, then of what is copied."""
    if status.overall.total_users:
        yield doc.paragraph(_BARS_NOTE)
    for done, tally in (("moved", status.moved), ("copied", status.overall)):
        for what, shown in (("users", format_count), ("files", format_count), ("bytes", format_size)):
            total, part = getattr(tally, f"total_{what}"), getattr(tally, f"done_{what}")
            if total:
                share = doc.percent(getattr(tally, f"percent_{what}"))
                words = f"{share} of the {what} {done}, {shown(part)} of {shown(total)}"
                yield doc.Bar(label="", share=part / total, text=words)


# --- Until when


_SHOWN = (model.Goal.COPIED, model.Goal.MOVED, model.Goal.CLEARED, model.Goal.COMPLETE)
"""The dates on the first page; the others are in the details."""


def _dates(report: model.ReportFacts) -> doc.Table:
    now_s, rows = report.status.at_s, []
    for one in report.milestones:
        if one.goal not in _SHOWN:
            continue
        if one.goal is model.Goal.CLEARED:
            rows += list(_next_brick(report))
        rows.append(
            (
                view_status.GOALS[one.goal],
                _expected(one, now_s),
                _range(one, now_s),
                view_status.day(one.promised_at_s, now_s),
            )
        )
    between = f"between, in {model.RANGE_SHARE * 10:.0f} of 10 cases"
    columns = [doc.wide("date"), doc.wide("expected"), doc.wide(between), doc.text("promised")]
    return doc.table("", columns, rows)


def _expected(one: model.Milestone, now_s: float) -> str:
    if one.done:
        return "done" if one.at_s is None else f"done, {doc.when(one.at_s).partition(' ')[0]}"
    if one.at_s is None:
        return "unknown"
    return view_status.day(one.at_s, now_s)


def _range(one: model.Milestone, now_s: float) -> str:
    """The range of a date; of one without a range its source, or the reason why it is unknown."""
    if one.done:
        return doc.NONE
    if one.earliest_at_s is None or one.latest_at_s is None:
        return (one.unknown if one.at_s is None else one.basis) or doc.NONE
    return _between(one.earliest_at_s, one.latest_at_s, now_s)


def _between(earliest_at_s: float, latest_at_s: float, now_s: float) -> str:
    return f"{view_status.day(earliest_at_s, now_s)} and {view_status.day(latest_at_s, now_s)}"


def _next_brick(report: model.ReportFacts) -> Iterator[tuple[str, str, str, str]]:
    """The brick that is cleared next, if more than one is left."""
    left = [one for one in report.bricks if one.state not in OUT_OF_THE_VOLUME]
    dated = [one for one in left if one.free_at_s is not None]
    if len(left) > 1 and dated:
        first, now_s = min(dated, key=lambda one: one.free_at_s or 0.0), report.status.at_s
        between = doc.NONE
        if first.earliest_at_s is not None and first.latest_at_s is not None:
            between = _between(first.earliest_at_s, first.latest_at_s, now_s)
        yield (f"next brick cleared: {first.brick}", view_status.day(first.free_at_s, now_s), between, doc.NONE)


# --- This week


def _week(report: model.ReportFacts) -> Iterator[doc.Block]:
    if not report.weeks:
        return
    status, weeks = report.status, report.weeks
    names = ("last 7 days", "7 days before")[: len(weeks)]
    open_now = sum(one.resolved_at_s is None for one in report.incidents)
    rows = [
        ("users moved", *(format_count(one.users_moved) for one in weeks)),
        ("bytes copied", *(format_size(one.size_bytes) for one in weeks)),
        ("files copied", *(format_count(one.files) for one in weeks)),
        ("time spent copying", *(f"{one.busy_share * 100:.0f} %" for one in weeks)),
        (
            "throughput while copying",
            *(format_rate(one.rate_bytes_per_s) if one.busy_s else doc.NONE for one in weeks),
        ),
        ("freezes of users", *map(_freezes, weeks)),
    ]
    if report.bricks or status.additions:
        rows.append(("bricks cleared", *(format_count(one.bricks_cleared) for one in weeks)))
        rows.append(("bricks added", *(format_count(one.bricks_added) for one in weeks)))
    rows.append(("new incidents", *(format_count(one.incidents) for one in weeks)))
    rows.append(("incidents open now", format_count(open_now), *(doc.NONE for _ in weeks[1:])))
    yield doc.table("", [doc.wide("figure"), *map(doc.figure, names)], rows)
    if not any(one.done for one in report.milestones if one.goal is model.Goal.COPIED):
        yield doc.paragraph(_now(status))


def _now(status: model.MigrationStatus) -> str:
    if status.rate is not None:
        return f"Now: {view_status.describe_throughput(status.rate)}."
    if status.last_rate is None:
        return "No files have been copied yet."
    last = f"{view_status.describe_throughput(status.last_rate)}, until {doc.when(status.last_rate.at_s)}"
    return f"No stream is copying now. Last rate: {last}."


def _freezes(week: model.WeekFacts) -> str:
    if week.longest_freeze_s is None:
        return "0"
    return f"{format_count(week.freezes)}, longest {format_duration(week.longest_freeze_s)}"


# --- Who has to act, and room


def _blocked(status: model.MigrationStatus) -> Iterator[doc.Block]:
    if status.blocked:
        yield view_status.blocker_table(status.blocked[:_ROWS], note=_BLOCKED_NOTE)
    else:
        yield doc.paragraph("Nothing is blocked.")


def _room(report: model.ReportFacts) -> Iterator[doc.Block]:
    newest = {sample.side: sample for sample in report.capacity}
    pairs = [(side.value, describe_free_space(one)) for side, one in sorted(newest.items())]
    outlook = report.outlook
    if outlook is not None and newest:
        share = doc.share(outlook.used_bytes, outlook.total_bytes)
        pairs.append(("target when all is copied", f"{format_size(outlook.used_bytes)} used ({share}), without growth"))
    if pairs:
        yield doc.facts(pairs)
    if outlook is not None and outlook.full:
        yield doc.paragraph("The target is too small for everything in the plan: see Capacity.", alert=True)


def describe_free_space(sample: CapacitySample) -> str:
    """The used bytes and inodes of a side."""
    share = doc.share(sample.used_bytes, sample.total_bytes)
    words = f"{format_size(sample.used_bytes)} of {format_size(sample.total_bytes)} used ({share})"
    if sample.used_inodes is None or sample.total_inodes is None:
        return f"{words}, inodes unknown"
    return f"{words}, {format_count(sample.used_inodes)} of {format_count(sample.total_inodes)} inodes"


def since_blocks(since: model.SinceReport | None) -> Sequence[doc.Block]:
    """What has changed since the last report, for the details."""
    if since is None or not since.reasons:
        return ()
    return [doc.paragraph(f"Since the report of {doc.when(since.earlier.at_s)}: {'; '.join(since.reasons)}.")]
