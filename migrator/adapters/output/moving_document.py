"""What a call of `cutover` or `rollback` came to, as tables."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.document import Block, Document, Section, clean, figure, paragraph, paths, table, text
from migrator.adapters.output.speed_up_document import speed_up_table
from migrator.adapters.output.wording import NONE
from migrator.domain.cutover_run import CutoverSummary, Ending, TreeOutcome
from migrator.domain.paths import show
from migrator.domain.units import format_duration

_USERS_NAMED = 10
_ENDINGS = {
    Ending.PLANNED: "would be moved",
    Ending.MOVED: "on the target",
    Ending.GIVEN_UP: "given up: on the source",
    Ending.REFUSED: "not begun",
    Ending.HALTED: "left as it is",
    Ending.STUCK: "to be gone on with",
}
_ENDINGS_BACK = _ENDINGS | {
    Ending.PLANNED: "would be moved back",
    Ending.MOVED: "on the source",
    Ending.GIVEN_UP: "given up: on the target",
}


def moving_document(summary: CutoverSummary) -> Document:
    """One row a user, and what is to be said of those who are not where they were wanted."""
    title = "Rollback" if summary.back else "Cutover"
    return Document(
        title=clean(f"{title}, a dry run: nothing was changed" if summary.dry_run else title),
        subtitle=clean(f"plan {summary.plan}"),
        sections=(Section(title="Users", blocks=tuple(_blocks(summary))),),
    )


def _blocks(summary: CutoverSummary) -> Iterator[Block]:
    if not summary.outcomes:
        yield paragraph("No user trees were meant.")
        return
    endings = _ENDINGS_BACK if summary.back else _ENDINGS
    yield table(
        "",
        [text("user"), paths("tree"), figure("batch"), text("result"), figure("frozen"), figure("predicted")],
        (
            (one.tree.user, show(one.tree.path), str(one.batch), endings[one.ending], *_freezes(one, summary))
            for one in summary.outcomes
        ),
    )
    if measured := [(one.tree, one.speed_ups) for one in summary.outcomes if one.speed_ups]:
        yield speed_up_table("Before and after, in the users' own trees", measured)
    yield from _told(summary.outcomes)


def _told(outcomes: Sequence[TreeOutcome]) -> Iterator[Block]:
    """What is to be said of users, each sentence once, with those whom it is about where there are several."""
    said: dict[tuple[str, bool], list[str]] = {}
    hints: dict[str, list[str]] = {}
    for one in outcomes:
        for words in one.problems or (one.words,):
            said.setdefault((words, one.ending not in (Ending.MOVED, Ending.PLANNED)), []).append(one.tree.user)
        if one.hint:
            hints.setdefault(one.hint, []).append(one.tree.user)
    for (words, alert), users in said.items():
        # What begins with his name needs it no second time.
        named = len(outcomes) > 1 and not (len(users) == 1 and words.startswith(users[0]))
        yield paragraph(f"{_names(users)}: {words}" if named else words, alert=alert)
    for hint, users in hints.items():
        yield paragraph(f"Next: {hint}." if len(hints) == 1 else f"{_names(users)}, next: {hint}.")


def _names(users: Sequence[str]) -> str:
    shown = ", ".join(users[:_USERS_NAMED])
    return f"{shown} and {len(users) - _USERS_NAMED} more" if len(users) > _USERS_NAMED else shown


def _freezes(one: TreeOutcome, summary: CutoverSummary) -> tuple[str, str]:
    """How long the user was frozen by the way there, and what was said before."""
    frozen_s = None if one.cutover is None or summary.back or summary.dry_run else one.cutover.freeze_s
    return _duration(frozen_s), _duration(one.predicted_freeze_s)


def _duration(value_s: float | None) -> str:
    return NONE if value_s is None else format_duration(value_s)
