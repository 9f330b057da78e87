"""Which users have been cut over, and how long they were frozen."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.document import Block, figure, paragraph, paths, table, text
from migrator.adapters.output.wording import NONE, when
from migrator.decide.cutover_words import freed_words, freezes_words, state_words, sum_words
from migrator.domain.cutover import UNDER_WAY_STATES
from migrator.domain.paths import show
from migrator.domain.report import CutoverFacts
from migrator.domain.units import format_duration


def cutover_blocks(cutovers: Sequence[CutoverFacts], *, now_s: float, limit: int | None = None) -> Iterator[Block]:
    """The newest attempt of every user tree that has one: those on the way first, then the others, the newest first."""
    several_plans = len({one.plan for one in cutovers}) > 1
    columns = [
        *([text("plan")] if several_plans else []),
        figure("batch"),
        paths("user"),
        paths("tree"),
        text("state"),
        text("since"),
        figure("freeze predicted"),
        figure("freeze"),
        figure("attempt"),
        paths("last failure"),
    ]
    ordered = sorted(cutovers, key=lambda one: (one.state not in UNDER_WAY_STATES, -one.since_s))
    rows = [(*([one.plan] if several_plans else []), *_row(one, now_s)) for one in ordered]
    yield table("", columns, rows, limit=limit)
    if said := " ".join(words for words in _sentences(cutovers) if words):
        yield paragraph(said)


def _sentences(cutovers: Sequence[CutoverFacts]) -> tuple[str, ...]:
    return sum_words(cutovers), freezes_words(cutovers), freed_words(cutovers)


def _row(one: CutoverFacts, now_s: float) -> tuple[str, ...]:
    return (
        str(one.batch),
        one.tree.user,
        show(one.tree.path),
        state_words(one.state),
        when(one.since_s),
        NONE if one.predicted_freeze_s is None else format_duration(one.predicted_freeze_s),
        _freeze(one, now_s),
        str(one.attempt),
        one.failure or NONE,
    )


def _freeze(one: CutoverFacts, now_s: float) -> str:
    so_far = "" if one.frozen_since_s is None else f"{format_duration(max(now_s - one.frozen_since_s, 0.0))} so far"
    if one.freeze_s is None:
        return so_far or NONE
    # He goes back.
    return f"{format_duration(one.freeze_s)}, now {so_far}" if so_far else format_duration(one.freeze_s)
