"""How much less is copied while a drain moves files. Pure.

Brick-direct streams stand still then, so everything is read through the mount, which has the drain's own work to do besides.
"""

from dataclasses import dataclass

from migrator.decide.forecast import choose_cost, copy_s
from migrator.domain.drain_copying import CopyTally, DrainCopying
from migrator.domain.plan import TransferCost
from migrator.domain.units import HOUR_S

ASSUMED_SHARE = 1 / 3
"""Reads and writes of clients were about three times slower while Gluster worked through a volume (gluster/glusterfs #1623)."""

ENOUGH_S = HOUR_S
"""Of copying, during drains and outside of them: less says more about the moment."""

_LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowerInDrains:
    """What is copied in drains as a share of what is copied otherwise; `basis` says where it is from, in words for people.

    With `mount` what is copied otherwise is not more than the mount gives at that cost: where that was not measured, what
    was measured may have been read from the bricks.
    """

    share: float
    basis: str
    mount: TransferCost | None = None

    def days_in_drain(self, copy_days: float, *, files: int, size_bytes: int, cost: TransferCost) -> float:
        """How long it takes while a drain moves files what takes `copy_days` without one, by `cost`."""
        slower = 1.0
        if self.mount is not None and (own_s := copy_s(files, size_bytes, cost)) > 0:
            slower = max(copy_s(files, size_bytes, self.mount) / own_s, 1.0)
        return copy_days * slower / self.share


def slower_in_drains(seen: DrainCopying, cost: TransferCost) -> SlowerInDrains:
    """As measured here, where there is enough of it on either side, or else assumed. Files and bytes are weighed by `cost`."""
    in_drains, outside = _rate(seen.in_drains, cost), _rate(seen.outside, cost)
    if in_drains is None or not outside:
        return SlowerInDrains(
            share=ASSUMED_SHARE,
            mount=choose_cost(None, cost.streams),
            basis="assumed, a third of what is copied otherwise, and that no faster than a quiet mount gives",
        )
    share = min(max(in_drains / outside, _LEAST_SHARE), 1.0)
    hours = seen.in_drains.busy_s / HOUR_S
    return SlowerInDrains(
        share=share,
        basis=f"measured here, {share:.0%} of what it is otherwise, over {hours:,.0f} h of copying in drains",
    )


def _rate(tally: CopyTally, cost: TransferCost) -> float | None:
    """Seconds of work of one stream that were done in a second; None where there is too little to tell."""
    if tally.busy_s < ENOUGH_S:
        return None
    return (tally.files * cost.s_per_file + tally.size_bytes * cost.s_per_byte) / tally.busy_s
