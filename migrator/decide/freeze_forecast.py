"""How long the next delta pass and the freeze take.

Every pass k was made from a scan that began at S(k), so its changes happened between S(k-1) and S(k). With

- churn: the changes of a pass divided by S(k) - S(k-1), averaged over the last `LAST_PASSES` passes; each counts
  `WEIGHT_OF_EARLIER` of the one after it, however long its time was. The time before the first delta pass is by far the
  longest, and what changes many times in it counts once: weighted by time it would hide what happens now;
- scan: how long the scans took, averaged in the same way;
- fixed + factor * copy: what the rest of a pass took, a line over what the cost of attempts says for the files and bytes
  sent (`decide.forecast.copy_s`; the cost is what the ledger fitted from attempts, or the assumed one). `fixed` is
  comparison, looks at what is gone, start of streams, sync; `factor` is what streams together cost of what they cost one
  by one (see `_rest_of_a_pass`);

the prediction is, for a scan that begins now, at time t after S(last):

    next pass = scan + fixed + factor * copy(churn * t + unsettled)
    freeze    = MARGIN * next pass + verification of what must be, and of what the final pass brings

The freeze is the one that begins at once. Where the users are frozen later, a delta pass has to go before it, and what
counts is that one's prediction. Unsettled paths are sent with every pass anew: they do not grow with time. A rename or
a path that is gone costs what a file without bytes costs. Files that change all the time (logs, databases) cannot be told
from others by one delta pass after a long time: until there are two or three, the freeze that they cost is predicted too
short.

The form of the formula (last round = dirty rate * length of the round before) is that of pre-copy live migration (Clark
et al., "Live Migration of Virtual Machines", NSDI 2005).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from migrator.decide.forecast import copy_s
from migrator.domain.changes import SENT, ChangeKind, TreeChanges
from migrator.domain.convergence import FreezeCheck, PassFacts, Prediction, TreeChurn
from migrator.domain.plan import TransferCost
from migrator.domain.states import PassKind
from migrator.domain.units import HOUR_S

LAST_PASSES = 4
"""Passes that the churn is averaged over: earlier ones weigh less than a tenth, and tell of another time of day."""

WEIGHT_OF_EARLIER = 0.5
"""What a pass counts of the one after it."""

MARGIN = 1.25
"""On the final pass: too long a freeze announced costs a pass more, too short a one costs users' trust."""

_SHORTEST_S = 1.0
"""A clock that was set back must not make the churn endless."""

_SPREAD = 2.0
_FACTORS = (0.1, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Churn:
    """Per second; moves are renames and paths that are gone. `unsettled` ones are counted a pass."""

    files: float = 0.0
    size_bytes: float = 0.0
    moves: float = 0.0
    unsettled_files: float = 0.0
    unsettled_bytes: float = 0.0


def predict(
    passes: Sequence[PassFacts],
    *,
    at_s: float,
    cost: TransferCost,
    check: FreezeCheck,
    changed_in: Sequence[PassFacts] | None = None,
) -> Prediction | None:
    """The next pass and the freeze, if either began at `at_s`; None before there is a delta pass to go by.

    `changed_in` are the same passes with a part of their changes, those of one tree, say: then only those are expected
    again, and what a pass takes is learnt from all of them.
    """
    pairs = _last_pairs(passes)
    if not pairs:
        return None
    changed_pairs = pairs if changed_in is None else _last_pairs(changed_in)
    weights = _weights(len(pairs))
    deltas = [later for _, later in pairs]
    scan_s = _mean([max(one.scan_s, 0.0) for one in deltas], weights)
    fixed_s, factor = _rest_of_a_pass(deltas, weights, cost)
    churn = _churn(changed_pairs, weights)
    window_s = max(at_s - passes[-1].scanned_at_s, 0.0)
    files = churn.files * window_s + churn.unsettled_files
    size_bytes = churn.size_bytes * window_s + churn.unsettled_bytes
    next_pass_s = scan_s + fixed_s + factor * copy_s(files + churn.moves * window_s, size_bytes, cost)
    return Prediction(
        next_pass_s=next_pass_s,
        freeze_s=MARGIN * next_pass_s + _check_s(check, files, size_bytes),
        least_freeze_s=MARGIN * (scan_s + fixed_s) + _check_s(check, 0.0, 0.0),
        churn_files_per_h=churn.files * HOUR_S,
        churn_bytes_per_h=churn.size_bytes * HOUR_S,
        trees=_by_tree(changed_pairs, weights),
    )


def _last_pairs(passes: Sequence[PassFacts]) -> list[tuple[PassFacts, PassFacts]]:
    """The last passes that were made from a comparison, each behind the one before it; the newest first."""
    pairs = [(earlier, later) for earlier, later in pairwise(passes) if later.kind is not PassKind.SEED]
    return pairs[: -LAST_PASSES - 1 : -1]


def _weights(count: int) -> list[float]:
    """They add up to 1; the first, the newest pass's, is the largest."""
    raw = [WEIGHT_OF_EARLIER**age for age in range(count)]
    return [one / sum(raw) for one in raw]


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights, strict=True))


def _between_scans_s(earlier: PassFacts, later: PassFacts) -> float:
    return max(later.scanned_at_s - earlier.scanned_at_s, _SHORTEST_S)


def _churn(pairs: Sequence[tuple[PassFacts, PassFacts]], weights: Sequence[float]) -> _Churn:
    files = size_bytes = moves = unsettled_files = unsettled_bytes = 0.0
    for (earlier, later), weight in zip(pairs, weights, strict=True):
        per_s = weight / _between_scans_s(earlier, later)
        for kind, tally in later.changes.items():
            changed = tally.paths - tally.directories
            if kind is ChangeKind.UNSETTLED:
                unsettled_files += weight * changed
                unsettled_bytes += weight * tally.size_bytes
            elif kind in SENT:
                files += per_s * changed
                size_bytes += per_s * tally.size_bytes
        moves += per_s * (later.renames + later.gone)
    return _Churn(
        files=files,
        size_bytes=size_bytes,
        moves=moves,
        unsettled_files=unsettled_files,
        unsettled_bytes=unsettled_bytes,
    )


def _by_tree(pairs: Sequence[tuple[PassFacts, PassFacts]], weights: Sequence[float]) -> tuple[TreeChurn, ...]:
    """Only over the passes that know it; trees without a change are left out."""
    known = [
        (pair, weight) for pair, weight in zip(pairs, weights, strict=True) if pair[1].trees or pair[1].nothing_changed
    ]
    total = sum(weight for _, weight in known)
    files: dict[bytes, float] = {}
    size_bytes: dict[bytes, float] = {}
    for (earlier, later), weight in known:
        per_h = weight / total * HOUR_S / _between_scans_s(earlier, later)
        for tree in later.trees:
            changed_files, changed_bytes = _changed(tree)
            files[tree.tree] = files.get(tree.tree, 0.0) + per_h * changed_files
            size_bytes[tree.tree] = size_bytes.get(tree.tree, 0.0) + per_h * changed_bytes
    found = [
        TreeChurn(tree=tree, files_per_h=files[tree], bytes_per_h=size_bytes[tree]) for tree in files if files[tree] > 0
    ]
    return tuple(sorted(found, key=lambda one: (-one.bytes_per_h, -one.files_per_h, one.tree)))


def _changed(tree: TreeChanges) -> tuple[int, int]:
    tallies = [tree.tally(kind) for kind in SENT if kind is not ChangeKind.UNSETTLED]
    return (
        sum(tally.paths - tally.directories for tally in tallies),
        sum(tally.size_bytes for tally in tallies),
    )


def _rest_of_a_pass(deltas: Sequence[PassFacts], weights: Sequence[float], cost: TransferCost) -> tuple[float, float]:
    """What passes take beside their scans, as a line over what copying is said to cost: `fixed` seconds, and `factor`.

    The slope is that of least squares, within sane bounds, where one pass sent at least twice what another one did.
    Where they are all alike they cannot tell the two apart: then attempts are believed (factor 1), but for the part by
    which they would have taken longer than the passes did. `fixed` is then the weighted median of what is left: one pass
    that somebody disturbed does not count.
    """
    said_s = [copy_s(one.sent_files + one.renames + one.gone, one.sent_bytes, cost) for one in deltas]
    took_s = [max(one.finished_at_s - one.scanned_at_s - one.scan_s - one.paused_s, 0.0) for one in deltas]
    mean_said_s, mean_took_s = _mean(said_s, weights), _mean(took_s, weights)
    if max(said_s) >= _SPREAD * min(said_s) and max(said_s) - min(said_s) >= 1.0:
        spread = _mean([(said - mean_said_s) ** 2 for said in said_s], weights)
        together = _mean(
            [(said - mean_said_s) * (took - mean_took_s) for said, took in zip(said_s, took_s, strict=True)], weights
        )
        factor = together / spread
    else:
        factor = min(mean_took_s / mean_said_s, 1.0) if mean_said_s > 0 else 1.0
    factor = min(max(factor, _FACTORS[0]), _FACTORS[1])
    left_s = [max(took - factor * said, 0.0) for said, took in zip(said_s, took_s, strict=True)]
    return _median(left_s, weights), factor


def _median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The least value that at least half of the weight does not exceed."""
    ordered = sorted(zip(values, weights, strict=True))
    reached = accumulate(weight for _, weight in ordered)
    return next(value for (value, _), weight in zip(ordered, reached, strict=True) if weight >= 0.5)


def _check_s(check: FreezeCheck, files: float, size_bytes: float) -> float:
    return check.fixed_s + (check.files + files) * check.s_per_file + (check.size_bytes + size_bytes) * check.s_per_byte
