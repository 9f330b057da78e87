"""What a call of `cutover` or `rollback` came to, as tables."""

from collections.abc import Iterator

from migrator.adapters.output.document import Block, Document, Section, clean, figure, paragraph, paths, table, text
from migrator.adapters.output.speed_up_document import speed_up_table
from migrator.adapters.output.wording import NONE
from migrator.domain.cutover_run import CutoverSummary, Ending, TreeOutcome
from migrator.domain.paths import show
from migrator.domain.units import format_duration

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
    for one in summary.outcomes:
        alert = one.ending not in (Ending.MOVED, Ending.PLANNED)
        for words in one.problems or (one.words,):
            yield paragraph(words, alert=alert)
        if one.hint:
            yield paragraph(f"Next: {one.hint}.")


def _freezes(one: TreeOutcome, summary: CutoverSummary) -> tuple[str, str]:
    """How long the user was frozen by the way there, and what was said before."""
    frozen_s = None if one.cutover is None or summary.back or summary.dry_run else one.cutover.freeze_s
    return _duration(frozen_s), _duration(one.predicted_freeze_s)


def _duration(value_s: float | None) -> str:
    return NONE if value_s is None else format_duration(value_s)
