"""What the move has changed for users, measured in their own trees."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.document import (
    BarChart,
    BarLine,
    Block,
    Table,
    clean,
    figure,
    paragraph,
    paths,
    table,
    text,
    wide,
)
from migrator.adapters.output.wording import shortened
from migrator.decide.speed_up import SECONDS, factor_words, sum_words
from migrator.domain.speed_up import SpeedUp, SpeedUpSum, UserSpeedUps, Verdict
from migrator.domain.tree import UserTree
from migrator.domain.units import format_count, format_factor, format_rate

_USERS = 10
_NAME = 24
_NOTE = (
    "Each test ran some times on the source just before the freeze, and on the target just after it; the first round of several does "
    "not count. Faster and slower are said where the ranges on both sides lie apart, of three runs or more on each. The two were measured at different times, while "
    "others worked; of this machine only the pages of the files that were read were dropped before, of servers nothing was."
)


def speed_up_blocks(
    users: Sequence[UserSpeedUps], sums: Sequence[SpeedUpSum], *, limit: int | None = None
) -> Iterator[Block]:
    """Of users who work on the target: all together, a chart of the newest, and a table."""
    for one in sums:
        yield paragraph(sum_words(one))
    yield _chart(users[:_USERS], sums, len(users))
    yield speed_up_table("By user, the newest first", [(one.tree, one.speed_ups) for one in users], limit=limit)


def speed_up_table(
    title: str, users: Sequence[tuple[UserTree, Sequence[SpeedUp]]], *, limit: int | None = None
) -> Table:
    """A row for every test of every user."""
    return table(
        title,
        [
            paths("user"),
            text("test"),
            figure("on the source"),
            figure("on the target"),
            figure("runs"),
            text("verdict"),
            wide("the target is"),
        ],
        (
            (
                tree.user,
                one.test.words,
                _value(one.before, one.unit),
                _value(one.after, one.unit),
                format_count(one.runs),
                _VERDICTS[one.verdict],
                factor_words(one),
            )
            for tree, every in users
            for one in every
        ),
        limit=limit,
        note=_NOTE,
    )


_VERDICTS = {
    Verdict.FASTER: "faster",
    Verdict.SLOWER: "slower",
    Verdict.NO_DIFFERENCE: "no difference",
    Verdict.SINGLE: "not known",
}


def _chart(users: Sequence[UserSpeedUps], sums: Sequence[SpeedUpSum], every: int) -> BarChart:
    groups = tuple(
        (
            shortened(clean(user.tree.user), _NAME),
            tuple(BarLine(label=one.test.words, value=one.factor, text=_bar_words(one)) for one in user.speed_ups),
        )
        for user in users
    )
    medians = ", ".join(f"{one.test.words} {format_factor(one.median)}" for one in sums)
    who = "the users" if len(users) == every else f"the {len(users)} users who were moved last, of {every}"
    return BarChart(
        title="How many times as fast the target is, by user",
        summary=f"For {who}; all bars have one scale. Medians over all users: {medians}.",
        groups=groups,
        common=True,
        marked=("as fast as the source", 1.0),
    )


def _bar_words(one: SpeedUp) -> str:
    said = f"{format_factor(one.factor)} times"
    match one.verdict:
        case Verdict.SINGLE:
            return f"{said}, noise not known"
        case Verdict.NO_DIFFERENCE:
            return f"{said}, within the noise"
        case Verdict.FASTER | Verdict.SLOWER:
            return said


def _value(value: float, unit: str) -> str:
    if unit == SECONDS:
        return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.3g} ms"
    return format_rate(value) if unit == "bytes/s" else f"{format_count(round(value))} {unit}"
