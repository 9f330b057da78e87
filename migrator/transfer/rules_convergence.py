"""Whether another delta pass is useful, and the expected duration of the freeze. Pure."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from statistics import median

from migrator.catalog.model import VerificationRecord
from migrator.core.states import PassKind
from migrator.core.units import HOUR_S, format_count, format_duration, format_size, several
from migrator.plan.model import ASSUMED_RATE_BYTES_PER_S, TransferCost
from migrator.plan.rules_forecast import copy_s
from migrator.transfer.delta.model import SENT, ChangeKind, TreeChanges
from migrator.transfer.model_convergence import (
    ConvergenceOutcome,
    Decision,
    FinishedPass,
    FreezeCheck,
    PassLimits,
    Prediction,
    TreeChurn,
)

# The duration of the next delta pass and of the freeze.
#
# Pass k was made from a scan that began at S(k), so its changes happened between S(k-1) and S(k). With
#
# - churn: the changes of a pass divided by S(k) - S(k-1), averaged over the last `LAST_PASSES` passes. Each has the
#   weight `WEIGHT_OF_EARLIER` relative to the next one, whatever its interval. The interval before the first delta pass
#   is by far the longest, and a path that changes often counts once in it: weighting by time would hide the present rate;
# - scan: the duration of the scans, averaged in the same way;
# - fixed + factor * copy: the duration of the rest of a pass. `copy` is the cost of attempts for the files and bytes sent
#   (the ledger's fit from attempts, or an assumed cost). `fixed` is comparison, checks of vanished paths, start of
#   streams, and sync (see `_rest_of_a_pass`);
#
# the prediction for a scan that begins now, at time t after S(last), is
#
#     next pass = scan + fixed + factor * copy(churn * t + unsettled)
#     freeze    = MARGIN * next pass + required verification + verification of the files that the final pass copies
#
# This is the freeze if it begins at once. A cutover makes a pass first (`predict_after_pass`: t is the length of that pass).
# Unsettled paths are sent again with every pass: they do not grow with time. A rename or a vanished path costs as much
# as an empty file. One delta pass after a long time cannot distinguish files that change all the time (logs, databases)
# from others: until there are two or three, the predicted freeze is too short for them.
#
# The form (last round = dirty rate * length of the round before) is that of pre-copy live migration (Clark et al.,
# "Live Migration of Virtual Machines", NSDI 2005).


LAST_PASSES = 4
"""Number of passes for the average churn. Earlier ones would weigh less than a tenth, and reflect another
time of day.
"""

WEIGHT_OF_EARLIER = 0.5
"""The weight of a pass relative to the next one."""

MARGIN = 1.25
"""Safety factor on the final pass. An overestimated freeze costs one more pass; an underestimated one costs users'
trust.
"""

_SHORTEST_S = 1.0
"""The minimum interval between scans: a clock that was set back must not make the churn infinite."""


def predict(
    passes: Sequence[FinishedPass],
    *,
    at_s: float,
    cost: TransferCost,
    check: FreezeCheck,
    tree: bytes | None = None,
) -> Prediction | None:
    """The next pass and the freeze, if either began at `at_s`; None before the first delta pass.

    With `tree`, the freeze of this tree alone: passes over it count, and only its changes are expected again. Scans,
    and the fixed part of a pass, count in full: the prediction prefers a freeze that is too long to one that is too
    short.
    """
    if tree is not None:
        passes = [one for one in passes if one.kind is PassKind.SEED or any(of.tree == tree for of in one.trees)]
    pairs = _last_pairs(passes)
    if not pairs:
        return None
    weights = _weights(len(pairs))
    deltas = [later for _, later in pairs]
    scan_s = _mean([max(one.scan_s, 0.0) for one in deltas], weights)
    fixed_s, factor = _rest_of_a_pass(deltas, weights, cost)
    churn: defaultdict[bytes, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    moves = unsettled_files = unsettled_bytes = 0.0
    for (earlier, later), weight in zip(pairs, weights, strict=True):
        per_s = weight / max(later.scanned_at_s - earlier.scanned_at_s, _SHORTEST_S)
        trees = [of for of in later.trees if tree in (None, of.tree)]
        moved = {ChangeKind.RENAMED: later.renames, ChangeKind.VANISHED: later.gone}
        if tree is not None:
            moved = {kind: min(count, *(of.tally(kind).paths for of in trees)) for kind, count in moved.items()}
        for of in trees:
            files, size_bytes = _changed(of, SENT - {ChangeKind.UNSETTLED})
            so_far = churn[of.tree]
            churn[of.tree] = so_far[0] + per_s * files, so_far[1] + per_s * size_bytes
            files, size_bytes = _changed(of, {ChangeKind.UNSETTLED})
            unsettled_files += weight * files
            unsettled_bytes += weight * size_bytes
        moves += per_s * sum(moved.values())
    files_per_s, bytes_per_s = (sum(one[place] for one in churn.values()) for place in (0, 1))
    window_s = max(at_s - passes[-1].scanned_at_s, 0.0)
    sent_files, sent_bytes = files_per_s * window_s + unsettled_files, bytes_per_s * window_s + unsettled_bytes
    next_pass_s = scan_s + fixed_s + factor * copy_s(sent_files + moves * window_s, sent_bytes, cost)
    by_tree = [
        TreeChurn(tree=path, files_per_h=files * HOUR_S, bytes_per_h=size_bytes * HOUR_S)
        for path, (files, size_bytes) in churn.items()
        if files > 0
    ]
    return Prediction(
        next_pass_s=next_pass_s,
        freeze_s=MARGIN * next_pass_s + _check_s(check, sent_files, sent_bytes),
        least_freeze_s=MARGIN * (scan_s + fixed_s) + _check_s(check, 0.0, 0.0),
        churn_files_per_h=files_per_s * HOUR_S,
        churn_bytes_per_h=bytes_per_s * HOUR_S,
        trees=tuple(sorted(by_tree, key=lambda one: (-one.bytes_per_h, -one.files_per_h, one.tree))),
    )


def predict_after_pass(
    passes: Sequence[FinishedPass],
    *,
    at_s: float,
    cost: TransferCost,
    check: FreezeCheck,
    tree: bytes | None = None,
) -> Prediction | None:
    """The prediction for a freeze that begins right after a pass which begins at `at_s`; as `predict` otherwise."""
    found = predict(passes, at_s=at_s, cost=cost, check=check, tree=tree)
    if found is None:
        return None
    return predict(passes, at_s=passes[-1].scanned_at_s + found.next_pass_s, cost=cost, check=check, tree=tree)


_SCAN_NOISE_S = 0.2
"""Scans of small trees differ by this much on an idle machine, which must not count as load."""


def load_factor(scans_s: Sequence[float], now_s: float) -> float:
    """How many times as long work takes now as during the last passes, at least 1: by the duration of a scan now, and those
    of the scans of these passes, which covered at least as much.
    """
    if not scans_s:
        return 1.0
    return max((now_s + _SCAN_NOISE_S) / (median(scans_s[-LAST_PASSES:]) + _SCAN_NOISE_S), 1.0)


def _last_pairs(passes: Sequence[FinishedPass]) -> list[tuple[FinishedPass, FinishedPass]]:
    """The last passes that were made from a comparison, each with its predecessor; the newest first."""
    pairs = [(earlier, later) for earlier, later in pairwise(passes) if later.kind is not PassKind.SEED]
    return pairs[: -LAST_PASSES - 1 : -1]


def _weights(count: int) -> list[float]:
    """Weights that add up to 1; the first, for the newest pass, is the largest."""
    raw = [WEIGHT_OF_EARLIER**age for age in range(count)]
    return [one / sum(raw) for one in raw]


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True))


def _changed(tree: TreeChanges, kinds: Collection[ChangeKind]) -> tuple[int, int]:
    """Files and bytes of these kinds."""
    tallies = [tree.tally(kind) for kind in kinds]
    return sum(one.paths - one.directories for one in tallies), sum(one.size_bytes for one in tallies)


def _rest_of_a_pass(
    deltas: Sequence[FinishedPass], weights: Sequence[float], cost: TransferCost
) -> tuple[float, float]:
    """The duration of passes without their scans: `fixed` seconds, and `factor` times the predicted cost of copying.

    The factor is below 1 if passes took less than predicted. If they took longer, the excess is `fixed`, as a weighted
    median: a single disturbed pass does not count.
    """
    predicted_s = [copy_s(one.sent_files + one.renames + one.gone, one.sent_bytes, cost) for one in deltas]
    took_s = [max(one.finished_at_s - one.scanned_at_s - one.scan_s, 0.0) for one in deltas]
    mean_predicted_s = _mean(predicted_s, weights)
    factor = min(_mean(took_s, weights) / mean_predicted_s, 1.0) if mean_predicted_s > 0 else 1.0
    left_s = [max(took - factor * predicted, 0.0) for predicted, took in zip(predicted_s, took_s, strict=True)]
    return _median(left_s, weights), factor


def _median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The least value that reaches at least half of the weight."""
    ordered = sorted(zip(values, weights, strict=True))
    reached = accumulate(weight for _, weight in ordered)
    return next(value for (value, _), weight in zip(ordered, reached, strict=True) if weight >= 0.5)


def _check_s(check: FreezeCheck, files: float, size_bytes: float) -> float:
    return check.fixed_s + (check.files + files) * check.s_per_file + (check.size_bytes + size_bytes) * check.s_per_byte


# Whether another delta pass is useful, and the sentence about it.
#
# Delta passes end when the predicted freeze is short enough, when nothing changed any more, when their limit is
# reached, or when the freeze no longer shrinks. In the last case only the changes of one scan and pass remain, and
# another pass finds as many. Pre-copy live migration ends for the same reasons (Clark et al., "Live Migration of
# Virtual Machines", NSDI 2005).


SHRINKS_BY = 0.1
"""The predicted freeze has to shrink by this share; otherwise another pass is not useful."""

ENOUGH_DELTAS = 2
"""Fewer delta passes do not show whether the freeze shrinks."""


def decide(
    passes: Sequence[FinishedPass],
    *,
    batch: int,
    at_s: float,
    cost: TransferCost,
    check: FreezeCheck,
    limits: PassLimits,
    made: int,
    earlier_freeze_s: float | None,
) -> Decision:
    """Decide whether to make another delta pass of a batch, with the sentence about it.

    `passes` are all that have ended, the seed pass first, in order of time. `at_s` is now. `made` counts the delta
    passes that the limit applies to (those of this run). `earlier_freeze_s` is the freeze that was predicted after the
    pass before the last one; None if there was no prediction. May be called any number of times.
    """
    prediction = predict(passes, at_s=at_s, cost=cost, check=check)
    outcome = _outcome(passes, prediction, made >= limits.max_delta_passes, limits.max_freeze_s, earlier_freeze_s)
    parts = [f"batch {batch}"]
    if passes:
        last = passes[-1]
        number = "" if last.kind is PassKind.SEED else f" {last.number}"
        parts[0] += f", {last.kind.value} pass{number}: {_moved(last)} in {format_duration(last.elapsed_s)}"
    if prediction is not None:
        parts += [
            f"{describe_churn(prediction.churn_files_per_h)}, {format_size(prediction.churn_bytes_per_h)}/h are changing",
            f"a freeze would take about {format_duration(prediction.freeze_s)} "
            f"(at most {format_duration(limits.max_freeze_s)} wanted)",
        ]
    sentence = f"{'; '.join(parts)}: {_describe_outcome(outcome, prediction, limits)}"
    return Decision(outcome=outcome, prediction=prediction, sentence=sentence)


def _outcome(
    passes: Sequence[FinishedPass],
    prediction: Prediction | None,
    at_limit: bool,
    max_freeze_s: float,
    earlier_freeze_s: float | None,
) -> ConvergenceOutcome:
    if prediction is not None:
        if passes[-1].kind is not PassKind.SEED and passes[-1].nothing_changed:
            return ConvergenceOutcome.NOTHING_CHANGED
        if prediction.freeze_s <= max_freeze_s:
            return ConvergenceOutcome.CONVERGED
    if at_limit:
        return ConvergenceOutcome.LIMIT_OF_PASSES
    deltas = sum(one.kind is PassKind.DELTA for one in passes)
    if prediction is None or earlier_freeze_s is None or deltas < ENOUGH_DELTAS:
        return ConvergenceOutcome.GO_ON
    shrinks = prediction.freeze_s < (1.0 - SHRINKS_BY) * earlier_freeze_s
    return ConvergenceOutcome.GO_ON if shrinks else ConvergenceOutcome.NO_LONGER_SHRINKS


def _moved(last: FinishedPass) -> str:
    parts = [several(last.sent_files, "file"), format_size(last.sent_bytes)]
    if last.renames:
        parts.append(f"{format_count(last.renames)} renamed")
    if last.gone:
        parts.append(f"{format_count(last.gone)} gone")
    return ", ".join(parts)


def describe_churn(files_per_h: float) -> str:
    """The number of files that change in an hour, rounded; a small number is not rounded to zero."""
    return "less than 1 file/h" if 0 < files_per_h < 1 else f"{several(round(files_per_h), 'file')}/h"


def _describe_outcome(outcome: ConvergenceOutcome, prediction: Prediction | None, limits: PassLimits) -> str:
    least = ""
    if prediction is not None and prediction.least_freeze_s > limits.max_freeze_s:
        took = format_duration(prediction.least_freeze_s)
        least = f", for a scan and a verification without any change take about {took}"
    match outcome:
        case ConvergenceOutcome.GO_ON:
            return "another delta pass follows" if prediction is not None else "the first delta pass follows"
        case ConvergenceOutcome.CONVERGED:
            return "converged"
        case ConvergenceOutcome.NO_LONGER_SHRINKS:
            return f"it no longer shrinks{least}"
        case ConvergenceOutcome.NOTHING_CHANGED:
            return f"nothing changed any more{least}"
        case ConvergenceOutcome.LIMIT_OF_PASSES:
            if limits.max_delta_passes == 0:
                return "no delta pass is wanted"
            return f"the limit of {several(limits.max_delta_passes, 'delta pass', 'delta passes')} is reached"


# The cost of verifying in the freeze, from earlier verifications.
#
# A verification looks up every path, and reads the content that no manifest covers: all of a tree that was never
# verified, and the changes of others. The paths that the final pass copies are extra (`predict`).


ASSUMED_S_PER_PATH = 0.0005
"""Assumed until there is a measurement. rsync checks 50,000 unchanged files through a Gluster mount in 15.6 s, both
sides; with ACLs, attributes and a manifest it is somewhat more.
"""

ASSUMED_FIXED_S = 5.0
"""Guards before and after, two syncs, earlier catalogs, and the manifest: needed for any amount of data. A verification
that took less as a whole shows that this part takes less.
"""

_LAST = 10
_PART = 0.05
_CHECK_FACTORS = (0.01, 100.0)


def check_cost(verifications: Sequence[VerificationRecord]) -> tuple[float, float, float]:
    """Seconds in any case, per path and per byte read: the assumed costs, times the factor by which the last verifications
    took longer. The cost of a kind (paths or bytes) that they hardly had stays as assumed. The fixed part is as assumed,
    or as long as the shortest of them.
    """
    assumed_s_per_byte = 1.0 / ASSUMED_RATE_BYTES_PER_S
    paths_s = bytes_s = took_s = 0.0
    fixed_s = ASSUMED_FIXED_S
    ended = [one for one in verifications if one.paths > 0 and (one.finished_at_s or 0.0) > one.started_at_s]
    for record in ended[-_LAST:]:
        elapsed_s = (record.finished_at_s or 0.0) - record.started_at_s
        fixed_s = min(fixed_s, elapsed_s)
        paths_s += record.paths * ASSUMED_S_PER_PATH
        bytes_s += record.digested_bytes * assumed_s_per_byte
        # If hardly anything was compared, the fixed part may be less than assumed.
        took_s += max(elapsed_s - ASSUMED_FIXED_S, elapsed_s / 2)
    if not ended:
        return fixed_s, ASSUMED_S_PER_PATH, assumed_s_per_byte
    factor = min(max(took_s / (paths_s + bytes_s), _CHECK_FACTORS[0]), _CHECK_FACTORS[1])
    by_paths, by_bytes = (factor if part >= _PART * (paths_s + bytes_s) else 1.0 for part in (paths_s, bytes_s))
    return fixed_s, ASSUMED_S_PER_PATH * by_paths, assumed_s_per_byte * by_bytes
