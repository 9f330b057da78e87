"""Renders cutovers, their measurements and announcements."""

from collections.abc import Callable, Iterator, Sequence

from migrator.core.entry import UserTree
from migrator.core.paths import show
from migrator.core.units import first_of, format_count, format_duration, format_factor, format_rate, several
from migrator.cutover import model, rules_speed
from migrator.cutover.model_announce import Announced, Announcement, AnnounceSummary
from migrator.cutover.model_calls import CutoverEnding, CutoverOutcome, CutoverSummary
from migrator.cutover.rules_freezes import FreezePart, FreezeSpent, FrozenUser, describe_freezes, describe_part
from migrator.cutover.rules_speed import SpeedUp, SpeedUpSum, UserSpeedUps
from migrator.cutover.rules_states import describe_purged, describe_sides, describe_state
from migrator.render import document

# Cutovers.


def frozen_blocks(users: Sequence[FrozenUser], *, now_s: float) -> Iterator[document.Block]:
    """The users who cannot work now, and how each freeze ends."""
    cells: document.Cells[FrozenUser] = (
        (document.paths("user"), lambda one: one.tree.user),
        (document.paths("tree"), lambda one: show(one.tree.path)),
        (document.text("state"), lambda one: describe_state(one.state)),
        (document.figure("frozen for"), lambda one: format_duration(max(now_s - one.since_s, 0.0))),
        (document.wide("ended by"), lambda one: "the running command" if one.at_work else one.hint),
    )
    if left := sum(not one.at_work for one in users):
        message = f"{several(left, 'user is', 'users are')} frozen, and no running command thaws them"
        yield document.paragraph(f"{message}.", alert=True)
    yield document.records("", cells, users)


def cutover_blocks(
    cutovers: Sequence[model.CutoverRecord], *, now_s: float, limit: int | None = None
) -> Iterator[document.Block]:
    """The newest attempt of every user tree that has one: those in flight first, then the others, the newest first."""
    several_plans = len({one.plan for one in cutovers}) > 1
    cells: document.Cells[model.CutoverRecord] = (
        *([(document.text("plan"), lambda one: one.plan)] if several_plans else []),
        (document.figure("batch"), lambda one: str(one.batch)),
        (document.paths("user"), lambda one: one.tree.user),
        (document.paths("tree"), lambda one: show(one.tree.path)),
        (document.text("state"), lambda one: describe_state(one.state)),
        (document.text("since"), lambda one: document.when(one.since_s)),
        (document.figure("freeze predicted"), lambda one: document.known(one.predicted_freeze_s, format_duration)),
        (document.figure("freeze"), lambda one: _freeze(one, now_s)),
        (document.figure("attempt"), lambda one: str(one.attempt)),
        (document.paths("last failure"), lambda one: one.failure or document.NONE),
    )
    ordered = sorted(cutovers, key=lambda one: (one.state not in model.UNDER_WAY_STATES, -one.since_s))
    yield document.records("", cells, ordered, limit=limit)
    sentences = (describe_sides(cutovers), describe_freezes(cutovers), describe_purged(cutovers))
    if cutovers and (summary := " ".join(sentence for sentence in sentences if sentence)):
        yield document.paragraph(summary)


def _freeze(one: model.CutoverRecord, now_s: float) -> str:
    so_far = "" if one.frozen_since_s is None else f"{format_duration(max(now_s - one.frozen_since_s, 0.0))} so far"
    if one.freeze_s is None:
        return so_far or document.NONE
    # A rollback is in flight.
    return f"{format_duration(one.freeze_s)}, now {so_far}" if so_far else format_duration(one.freeze_s)


# Where the seconds of freezes went.


def freeze_table(freezes: Sequence[FreezeSpent], *, limit: int | None = None) -> document.Table:
    """A row for each freeze, a column for each part that any of them has."""
    parts = [part for part in FreezePart if any(part in one.parts_s for one in freezes)]
    cells: document.Cells[FreezeSpent] = (
        (document.paths("user"), lambda one: one.tree.user),
        (document.figure("predicted"), lambda one: document.known(one.predicted_freeze_s, format_duration)),
        (document.figure("frozen"), lambda one: format_duration(one.freeze_s)),
        *((document.figure(describe_part(part)), _seconds_of(part)) for part in parts),
    )
    return document.records("Parts of freezes, the newest first", cells, freezes, limit=limit)


def _seconds_of(part: FreezePart) -> Callable[[FreezeSpent], str]:
    return lambda one: document.known(one.parts_s.get(part), format_duration)


# Speed before and after.


_USERS = 10
_NAME = 24
_NOTE = (
    "Each test ran some times on the source just before the freeze, and on the target just after it; the first round of several does "
    "not count. A result is faster or slower if the ranges of both sides, of three runs or more each, do not overlap. The sides were measured at different times, while "
    "others worked. Before, only the pages of the files that were read were dropped from the cache of this machine; caches of servers were kept."
)


def speed_up_blocks(
    users: Sequence[UserSpeedUps], sums: Sequence[SpeedUpSum], *, limit: int | None = None
) -> Iterator[document.Block]:
    """Of users who work on the target: the sums, a chart of the newest, and a table."""
    for one in sums:
        yield document.paragraph(rules_speed.describe_sum(one))
    yield from _bars(users[:_USERS], sums, len(users))
    yield speed_up_table("By user, the newest first", [(one.tree, one.speed_ups) for one in users], limit=limit)


def speed_up_table(
    title: str, users: Sequence[tuple[UserTree, Sequence[SpeedUp]]], *, limit: int | None = None
) -> document.Table:
    """A row for each test of each user."""
    cells: document.Cells[tuple[UserTree, SpeedUp]] = (
        (document.paths("user"), lambda found: found[0].user),
        (document.text("test"), lambda found: found[1].test.words),
        (document.figure("on the source"), lambda found: _value(found[1].before, found[1].unit)),
        (document.figure("on the target"), lambda found: _value(found[1].after, found[1].unit)),
        (document.figure("runs"), lambda found: format_count(found[1].runs)),
        (document.wide("the target is"), lambda found: rules_speed.describe_factor(found[1])),
    )
    found = [(tree, one) for tree, every in users for one in every]
    return document.records(title, cells, found, limit=limit, note=_NOTE)


def _bars(users: Sequence[UserSpeedUps], sums: Sequence[SpeedUpSum], every: int) -> Iterator[document.Block]:
    groups = [
        (
            document.shortened(document.clean(user.tree.user), _NAME),
            [(one.test.words, one.factor, rules_speed.describe_factor(one)) for one in user.speed_ups],
        )
        for user in users
    ]
    medians = ", ".join(f"{one.test.words} {format_factor(one.median)}" for one in sums)
    who = "the users" if len(users) == every else f"the {len(users)} users who were moved last, of {every}"
    yield from document.bars(
        "Speed-up on the target, by user",
        f"For {who}; all bars have one scale. Medians over all users: {medians}.",
        groups,
        scale=max((one.factor for user in users for one in user.speed_ups), default=1.0),
    )


def _value(value: float, unit: str) -> str:
    if unit == rules_speed.SECONDS:
        return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.3g} ms"
    return format_rate(value) if unit == "bytes/s" else f"{format_count(round(value))} {unit}"


# Results of `cutover` and `rollback`.


_USERS_NAMED = 10
_ENDINGS = {
    CutoverEnding.PLANNED: "would be moved",
    CutoverEnding.MOVED: "on the target",
    CutoverEnding.GIVEN_UP: "given up: on the source",
    CutoverEnding.REFUSED: "not begun",
    CutoverEnding.HALTED: "unchanged",
    CutoverEnding.STUCK: "to be resumed",
}
_ENDINGS_BACK = _ENDINGS | {
    CutoverEnding.PLANNED: "would be moved back",
    CutoverEnding.MOVED: "on the source",
    CutoverEnding.GIVEN_UP: "given up: on the target",
}


def moving_document(summary: CutoverSummary) -> document.Document:
    """One row per user, and the problems of users who were not moved."""
    title = "Rollback" if summary.back else "Cutover"
    message = f"{title}, a dry run: nothing was changed" if summary.dry_run else title
    return document.page(message, ("Users", _blocks(summary)), subtitle=f"plan {summary.plan}")


def _blocks(summary: CutoverSummary) -> Iterator[document.Block]:
    if not summary.outcomes:
        yield document.paragraph("No user tree was chosen.")
        return
    endings = _ENDINGS_BACK if summary.back else _ENDINGS
    cells: document.Cells[CutoverOutcome] = (
        (document.text("user"), lambda one: one.tree.user),
        (document.paths("tree"), lambda one: show(one.tree.path)),
        (document.figure("batch"), lambda one: str(one.batch)),
        (document.text("result"), lambda one: endings[one.ending]),
        (document.figure("frozen"), lambda one: _frozen(one, summary)),
        (document.figure("predicted"), lambda one: document.known(one.predicted_freeze_s, format_duration)),
    )
    yield document.records("", cells, summary.outcomes)
    spent = [_spent(one) for one in summary.outcomes if not summary.dry_run and one.freeze_parts_s]
    yield freeze_table([one for one in spent if one is not None])
    if measured := [(one.tree, one.speed_ups) for one in summary.outcomes if one.speed_ups]:
        yield speed_up_table("Before and after, in the users' own trees", measured)
    yield from _outcomes(summary.outcomes)


def _spent(one: CutoverOutcome) -> FreezeSpent | None:
    record = one.cutover
    if record is None or record.freeze_s is None:
        return None
    return FreezeSpent(
        tree=one.tree,
        plan=record.plan,
        batch=one.batch,
        freeze_s=record.freeze_s,
        predicted_freeze_s=record.predicted_freeze_s,
        parts_s=one.freeze_parts_s,
    )


def _outcomes(outcomes: Sequence[CutoverOutcome]) -> Iterator[document.Block]:
    """Each sentence once, with its users if there are several."""
    users_by_sentence: dict[tuple[str, bool], list[str]] = {}
    hints: dict[str, list[str]] = {}
    for one in outcomes:
        for message in one.problems or (one.words,):
            users_by_sentence.setdefault(
                (message, one.ending not in (CutoverEnding.MOVED, CutoverEnding.PLANNED)), []
            ).append(one.tree.user)
        if one.hint:
            hints.setdefault(one.hint, []).append(one.tree.user)
    for (message, alert), users in users_by_sentence.items():
        # A sentence that begins with the user's name needs no prefix.
        named = len(outcomes) > 1 and not (len(users) == 1 and message.startswith(users[0]))
        yield document.paragraph(f"{first_of(users, _USERS_NAMED)}: {message}" if named else message, alert=alert)
    for hint, users in hints.items():
        yield document.paragraph(
            f"Next: {hint}." if len(hints) == 1 else f"{first_of(users, _USERS_NAMED)}, next: {hint}."
        )


def _frozen(one: CutoverOutcome, summary: CutoverSummary) -> str:
    freeze_s = None if one.cutover is None or summary.back or summary.dry_run else one.cutover.freeze_s
    return document.known(freeze_s, format_duration)


# Announcements.


_ANNOUNCED = {
    Announced.NOTIFIED: "notified",
    Announced.WOULD_NOTIFY: "would be notified",
    Announced.BEFORE: "notified before",
    Announced.SKIPPED: "skipped",
    Announced.NOT_DUE: "not due",
    Announced.FAILED: "failed",
}


def announce_document(summary: AnnounceSummary) -> document.Document:
    """The result of `announce`, or its dry run."""
    cells: document.Cells[Announcement] = (
        (document.figure("batch"), lambda one: str(one.batch)),
        (document.paths("user"), lambda one: one.tree.user),
        (document.paths("tree"), lambda one: show(one.tree.path)),
        (document.text("announcement"), lambda one: _ANNOUNCED[one.outcome]),
        (document.figure("freeze"), lambda one: document.known(one.freeze_s, format_duration)),
        (document.paths("why"), lambda one: one.reason or document.NONE),
    )
    notified = sum(one.outcome in (Announced.NOTIFIED, Announced.WOULD_NOTIFY) for one in summary.announcements)
    message = f"{several(notified, 'user tree')} of {len(summary.announcements)}: "
    message += "their users would be notified." if summary.dry_run else "their users were notified."
    blocks = (document.records("", cells, summary.announcements), document.paragraph(message))
    subtitle = f"plan {summary.plan}: the move begins at {document.when(summary.begins_at_s)}"
    return document.page("Announcement", ("Announcements", blocks), subtitle=subtitle)
