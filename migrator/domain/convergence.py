"""What delta passes were, what they let expect of the next one and of the freeze, and whether another one is worth while.

Times in seconds since the epoch, durations in seconds, rates per hour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from migrator.domain.changes import ChangeKind, ChangeTally, TreeChanges
from migrator.domain.states import PassKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PassFacts:
    """One pass that has ended, as far as the next ones can be predicted from it.

    `scanned_at_s` is the start of the scan that its list was made from, `scan_s` how long that took; of a seed pass it is
    the scan of the plan. From `started_at_s` to `finished_at_s` the pass itself was at work. `paused_s` is how long between
    the start of the scan and the end of the pass nobody worked on it: a stopped run, a wait for the operator.

    `number` is 0 for the seed; deltas and finals of a batch count from 1. `sent_files` and `sent_bytes` are what its streams brought over;
    `changes` are those of all trees together, `trees` the same tree by tree where that is known. `renames` were made on
    the target, `gone` paths moved to the trash there, a directory counted once.
    """

    kind: PassKind
    number: int
    scanned_at_s: float
    scan_s: float
    started_at_s: float
    finished_at_s: float
    sent_files: int
    sent_bytes: int
    changes: Mapping[ChangeKind, ChangeTally] = field(default_factory=dict)
    renames: int = 0
    gone: int = 0
    trees: tuple[TreeChanges, ...] = ()
    paused_s: float = 0.0

    @property
    def elapsed_s(self) -> float:
        """How long the pass itself took, without its scan."""
        return max(self.finished_at_s - self.started_at_s, 0.0)

    @property
    def nothing_changed(self) -> bool:
        """Whether it found nothing to send, to rename or to take away."""
        return not (self.renames or self.gone or any(tally.paths for tally in self.changes.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeCheck:
    """What verifying in the freeze costs, with all workers at work: `fixed_s`, and so much a file and a byte.

    `files` and `size_bytes` have to be verified whatever changes; what the final pass brings comes on top of them.
    """

    s_per_file: float = 0.0
    s_per_byte: float = 0.0
    files: int = 0
    size_bytes: int = 0
    fixed_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When delta passes end: a freeze that may last `max_freeze_s`, and so many passes that one run may make."""

    max_freeze_s: float
    max_delta_passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeChurn:
    """How fast one tree changes."""

    tree: bytes
    files_per_h: float
    bytes_per_h: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the passes so far let expect.

    `next_pass_s`: from the start of the next scan to the end of its pass. `freeze_s`: from the freeze to the end of the
    verification, were the users frozen at once. `least_freeze_s`: the same if nothing had changed at all, which no further
    pass makes shorter. Churn is what users change; `trees` has it by tree, the one with most bytes first, where known.
    """

    next_pass_s: float
    freeze_s: float
    least_freeze_s: float
    churn_files_per_h: float
    churn_bytes_per_h: float
    trees: tuple[TreeChurn, ...] = ()


class Outcome(StrEnum):
    """Whether another delta pass is made, and why not."""

    GO_ON = "go-on"
    CONVERGED = "converged"
    NO_LONGER_SHRINKS = "no-longer-shrinks"
    LIMIT_OF_PASSES = "limit-of-passes"
    NOTHING_CHANGED = "nothing-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether another delta pass is made. `prediction` is None before the first delta pass. `sentence` is for people."""

    outcome: Outcome
    prediction: Prediction | None
    sentence: str

    @property
    def go_on(self) -> bool:
        """Whether another delta pass is to be made."""
        return self.outcome is Outcome.GO_ON


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceRecord:
    """What was predicted and decided after one pass; `max_freeze_s` is what was wanted then."""

    pass_id: int
    at_s: float
    batch: int
    outcome: Outcome
    max_freeze_s: float
    prediction: Prediction
