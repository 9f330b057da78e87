"""Past delta passes, the prediction of the next one and of the freeze, and the decision about another one.

Times in seconds since the epoch, durations in seconds, rates per hour.
"""

from enum import StrEnum

from msgspec import Struct

from migrator.core.states import PassKind
from migrator.transfer.delta.model import TreeChanges


class FinishedPass(Struct, frozen=True, kw_only=True):
    """Facts of one finished pass, for predictions.

    `scanned_at_s` is the start of the scan that its list was made from, `scan_s` its duration; for a seed pass, the
    scan of the plan. The pass itself ran from `started_at_s` to `finished_at_s`.

    `number` is 0 for the seed; deltas and finals of a batch count from 1. Its streams copied `sent_files` and
    `sent_bytes`; `trees` are the changes. `renames` were made on the target, and `gone` paths moved to its trash, a
    directory counted once.
    """

    kind: PassKind
    number: int
    scanned_at_s: float
    scan_s: float
    started_at_s: float
    finished_at_s: float
    sent_files: int
    sent_bytes: int
    renames: int = 0
    gone: int = 0
    trees: tuple[TreeChanges, ...] = ()

    @property
    def elapsed_s(self) -> float:
        """Without the scan."""
        return max(self.finished_at_s - self.started_at_s, 0.0)

    @property
    def nothing_changed(self) -> bool:
        tallies = (tally for tree in self.trees for tally in tree.by_kind.values())
        return not (self.renames or self.gone or any(tally.paths for tally in tallies))


class FreezeCheck(Struct, frozen=True, kw_only=True):
    """The cost of verifying in the freeze, with all workers: `fixed_s`, and a cost per file and per byte.

    `files` and `size_bytes` have to be verified in any case; the paths that the final pass copies are extra.
    """

    s_per_file: float = 0.0
    s_per_byte: float = 0.0
    files: int = 0
    size_bytes: int = 0
    fixed_s: float = 0.0


class PassLimits(Struct, frozen=True, kw_only=True):
    """The limits of delta passes: they end if the freeze is short enough, or one run has made its maximum of passes."""

    max_freeze_s: float
    max_delta_passes: int


class TreeChurn(Struct, frozen=True, kw_only=True):
    """The rate at which one tree changes."""

    tree: bytes
    files_per_h: float
    """Files that change."""
    bytes_per_h: float
    """Bytes that change."""


class Prediction(Struct, frozen=True, kw_only=True):
    """A prediction from the passes so far."""

    next_pass_s: float
    """From the start of the next scan to the end of its pass."""
    freeze_s: float
    """From the freeze to the end of the verification, if users were frozen now."""
    least_freeze_s: float
    """The same without any changes: further passes cannot shorten it."""
    churn_files_per_h: float
    """Files that users change."""
    churn_bytes_per_h: float
    """Bytes that users change."""
    trees: tuple[TreeChurn, ...] = ()
    """What changes in each tree, most bytes first."""


class ConvergenceOutcome(StrEnum):
    """Whether another delta pass follows, and why not."""

    GO_ON = "go-on"
    CONVERGED = "converged"
    NO_LONGER_SHRINKS = "no-longer-shrinks"
    LIMIT_OF_PASSES = "limit-of-passes"
    NOTHING_CHANGED = "nothing-changed"


class Decision(Struct, frozen=True, kw_only=True):
    """Whether another delta pass follows. `prediction` is None before the first delta pass. `sentence` is for
    display.
    """

    outcome: ConvergenceOutcome
    prediction: Prediction | None
    sentence: str

    @property
    def go_on(self) -> bool:
        return self.outcome is ConvergenceOutcome.GO_ON


class ConvergenceRecord(Struct, frozen=True, kw_only=True):
    """Prediction and decision after one pass."""

    pass_id: int
    """Number of the pass in the ledger."""
    at_s: float
    """When it was made."""
    batch: int
    outcome: ConvergenceOutcome
    """The decision."""
    max_freeze_s: float
    """The limit of the freeze at that time."""
    prediction: Prediction
    """The prediction."""
