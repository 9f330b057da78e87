"""What a run came to, in one sentence."""

from migrator.domain.events import Severity
from migrator.domain.run import RunSummary
from migrator.domain.units import several


def run_words(run: RunSummary) -> tuple[str, Severity]:
    """For people, and how much it matters to them."""
    words = "had been finished before: nothing was copied" if run.nothing_to_do else "copied"
    if run.nothing_to_do and any(batch.left_alone for batch in run.batches):
        words = "nothing to do"
    if skipped := [str(batch.batch) for batch in run.batches if batch.skipped]:
        all_skipped = len(skipped) == len(run.batches)
        words = (
            "skipped by hooks: nothing was copied" if all_skipped else f"{words}, but for {', '.join(skipped)} (hooks)"
        )
    if refused := [str(batch.batch) for batch in run.batches if batch.refusal]:
        words = f"{words}, but for {', '.join(refused)} (refused)"
        if len(refused) == len(run.batches):
            words = "refused: nothing was copied"
    bad = sum(len(batch.bad) for batch in run.batches)
    if bad:
        words += f"; {several(bad, 'file needs', 'files need')} attention"
    return words, Severity.WARNING if bad or skipped or refused else Severity.INFO
