"""Whether another delta pass is worth while, and the sentence that says so.

Delta passes end when the predicted freeze (`decide.freeze_forecast`) is short enough, when nothing changed any more, when
their limit is reached, or when the freeze no longer shrinks: what is left is then what users change while a scan and a
pass go on, and another pass finds as much. These are the ends of pre-copy live migration (Clark et al., "Live Migration of
Virtual Machines", NSDI 2005).
"""

from collections.abc import Sequence
from typing import assert_never

from migrator.decide.freeze_forecast import predict
from migrator.domain.convergence import Decision, FreezeCheck, Limits, Outcome, PassFacts, Prediction
from migrator.domain.plan import TransferCost
from migrator.domain.states import PassKind
from migrator.domain.units import format_count, format_duration, format_size, several

SHRINKS_BY = 0.1
"""A predicted freeze has to become shorter by this share, or another pass is not worth while."""

ENOUGH_DELTAS = 2
"""Fewer delta passes do not show whether the freeze shrinks."""


def decide(
    passes: Sequence[PassFacts],
    *,
    batch: int,
    at_s: float,
    cost: TransferCost,
    check: FreezeCheck,
    limits: Limits,
    made: int,
    earlier_freeze_s: float | None,
) -> Decision:
    """Whether to make another delta pass of a batch, with the sentence that says it.

    `passes` are all that have ended, the seed pass first, in order of time. `at_s` is now. `made` counts the delta
    passes that the limit is for (those of this run), `earlier_freeze_s` is the freeze that was predicted after the pass
    before the last one; None where none was. May be called any number of times.
    """
    prediction = predict(passes, at_s=at_s, cost=cost, check=check)
    outcome = _outcome(passes, prediction, limits=limits, made=made, earlier_freeze_s=earlier_freeze_s)
    return Decision(
        outcome=outcome,
        prediction=prediction,
        sentence=_sentence(passes, prediction, outcome, batch=batch, limits=limits),
    )


def _outcome(
    passes: Sequence[PassFacts],
    prediction: Prediction | None,
    *,
    limits: Limits,
    made: int,
    earlier_freeze_s: float | None,
) -> Outcome:
    if prediction is not None:
        if passes[-1].kind is not PassKind.SEED and passes[-1].nothing_changed:
            return Outcome.NOTHING_CHANGED
        if prediction.freeze_s <= limits.max_freeze_s:
            return Outcome.CONVERGED
    if made >= limits.max_delta_passes:
        return Outcome.LIMIT_OF_PASSES
    deltas = sum(one.kind is PassKind.DELTA for one in passes)
    if prediction is None or earlier_freeze_s is None or deltas < ENOUGH_DELTAS:
        return Outcome.GO_ON
    shrinks = prediction.freeze_s < (1.0 - SHRINKS_BY) * earlier_freeze_s
    return Outcome.GO_ON if shrinks else Outcome.NO_LONGER_SHRINKS


def _sentence(
    passes: Sequence[PassFacts],
    prediction: Prediction | None,
    outcome: Outcome,
    *,
    batch: int,
    limits: Limits,
) -> str:
    what = f"batch {batch}"
    if passes:
        last = passes[-1]
        number = "" if last.kind is PassKind.SEED else f" {last.number}"
        what = f"{what}, {last.kind.value} pass{number}: {_moved(last)} in {format_duration(last.elapsed_s)}"
    parts = [what]
    if prediction is not None:
        parts.append(
            f"{churn_words(prediction.churn_files_per_h)}, {format_size(prediction.churn_bytes_per_h)}/h are changing"
        )
        parts.append(
            f"a freeze would take about {format_duration(prediction.freeze_s)} "
            f"(at most {format_duration(limits.max_freeze_s)} wanted)"
        )
    return f"{'; '.join(parts)}: {_outcome_words(outcome, prediction, limits)}"


def _moved(last: PassFacts) -> str:
    parts = [several(last.sent_files, "file"), format_size(last.sent_bytes)]
    if last.renames:
        parts.append(f"{format_count(last.renames)} renamed")
    if last.gone:
        parts.append(f"{format_count(last.gone)} gone")
    return ", ".join(parts)


def churn_words(files_per_h: float) -> str:
    """How many files change in an hour, rounded; little is not nothing."""
    return "less than 1 file/h" if 0 < files_per_h < 1 else f"{several(round(files_per_h), 'file')}/h"


def _outcome_words(outcome: Outcome, prediction: Prediction | None, limits: Limits) -> str:
    match outcome:
        case Outcome.GO_ON:
            return "another delta pass follows" if prediction is not None else "the first delta pass follows"
        case Outcome.CONVERGED:
            return "converged"
        case Outcome.NO_LONGER_SHRINKS:
            return f"it no longer shrinks{_least(prediction, limits)}"
        case Outcome.LIMIT_OF_PASSES:
            if limits.max_delta_passes == 0:
                return "no delta pass is wanted"
            return f"the limit of {several(limits.max_delta_passes, 'delta pass', 'delta passes')} is reached"
        case Outcome.NOTHING_CHANGED:
            return f"nothing changed any more{_least(prediction, limits)}"
        case _:
            assert_never(outcome)


def _least(prediction: Prediction | None, limits: Limits) -> str:
    if prediction is None or prediction.least_freeze_s <= limits.max_freeze_s:
        return ""
    return f", for a scan and a verification without any change take about {format_duration(prediction.least_freeze_s)}"
