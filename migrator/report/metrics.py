"""`metrics`: read every metric in one snapshot of the ledger. Works at any time, also during a run."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from migrator import __version__
from migrator.core.windows import WindowStanding
from migrator.fs.model import CapacitySample, Side
from migrator.report.model import MetricFacts, MetricFamily
from migrator.report.rules_metrics import families
from migrator.report.status import IsGone, has_gone, read_status, run_facts
from migrator.transfer.governor import read_governing

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger


def read_metrics(
    ledger: "Ledger",
    *,
    now_s: float,
    plan: str | None = None,
    is_gone: IsGone | None = None,
    windows: Sequence[WindowStanding] = (),
    elapsed_s: Callable[[], float] = monotonic,
) -> tuple[MetricFamily, ...]:
    """Every current metric. Batches are those of `plan` (default: the active one); everything else covers all plans.
    `windows` are the current windows of [transfer]. Raises UsageError if the plan is not in the ledger.
    """
    began_s = elapsed_s()
    status = read_status(ledger, now_s=now_s, plan=plan, is_gone=is_gone, attention_limit=0, events_limit=0)
    newest: dict[Side, CapacitySample] = {sample.side: sample for sample in ledger.capacity.all()}
    frozen = [one.frozen_since_s for one in ledger.cutovers.under_way()]
    facts = MetricFacts(
        status=status,
        sums=ledger.metric_sums.sums(),
        runs=tuple(
            run_facts(record, now_s, gone=has_gone(record, is_gone)) for record in ledger.metric_sums.newest_runs()
        ),
        capacity=tuple(newest[side] for side in Side if side in newest),
        governing=read_governing(ledger, now_s=now_s, is_gone=is_gone, windows=windows),
        frozen_since_s=tuple(since_s for since_s in frozen if since_s is not None),
        version=__version__,
        read_s=elapsed_s() - began_s,
    )
    return families(facts)
