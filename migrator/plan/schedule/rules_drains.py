"""The cost of a drain, and its slowdown of copies. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from migrator.core.units import HOUR_S, MIB, format_duration, format_size, several
from migrator.plan.model import TransferCost
from migrator.plan.rules_forecast import choose_cost, copy_s
from migrator.plan.schedule.model import CopyTally, DrainCopying

# --- Cost of a drain per file and byte


ASSUMED_BYTES_PER_S = 50 * MIB
"""Ten days for a brick with 40 TB in use; admins report weeks."""

ASSUMED_S_PER_FILE = 0.014
"""6,773 small files left a brick of a quiet distributed volume in 97 s (GlusterFS 10.3, `rebal-throttle` normal)."""

ENOUGH_S = HOUR_S
"""Moving time of all drains together, and copying time during drains and outside of them; less measures momentary load."""


def assumed_drain_cost() -> TransferCost:
    """The cost before any drain has ended."""
    return TransferCost(
        streams=1,
        s_per_file=ASSUMED_S_PER_FILE,
        s_per_byte=1.0 / ASSUMED_BYTES_PER_S,
        basis=(
            f"assumed, {ASSUMED_BYTES_PER_S // MIB} MiB/s and {ASSUMED_S_PER_FILE * 1000:.0f} ms a file, as in a file system "
            "that is in use; no drain has ended here yet"
        ),
    )


def drain_cost(tallies: Sequence[CopyTally]) -> TransferCost:
    """The cost measured in finished drains; it reproduces their total time. Both assumed figures are scaled by the same factor."""
    found = [one for one in tallies if one.busy_s > 0 and (one.files or one.size_bytes)]
    assumed = assumed_drain_cost()
    taken_s = sum(one.busy_s for one in found)
    if taken_s < ENOUGH_S:
        return assumed
    files, size_bytes = sum(one.files for one in found), sum(one.size_bytes for one in found)
    factor = taken_s / (files * assumed.s_per_file + size_bytes * assumed.s_per_byte)
    s_per_file, s_per_byte = assumed.s_per_file * factor, assumed.s_per_byte * factor
    return TransferCost(
        streams=1,
        s_per_file=s_per_file,
        s_per_byte=s_per_byte,
        basis=(
            f"measured here: {several(len(found), 'drain')} of {several(files, 'file')} and {format_size(size_bytes)} took "
            f"{format_duration(taken_s)}, so {1 / s_per_byte / MIB:.0f} MiB/s and {s_per_file * 1000:.1f} ms a file"
        ),
    )


# --- Copying while a drain moves files
#
# Brick-direct streams pause during a drain. Copies then read through the mount, which the drain loads as well.


ASSUMED_SHARE = 1 / 3
"""Clients read and wrote about three times more slowly during a rebalance (gluster/glusterfs #1623)."""

_LEAST_SHARE = 0.01


class SlowerInDrains(Struct, frozen=True, kw_only=True):
    """The copy rate during drains as a share of the rate otherwise; `basis` is a sentence about its source.

    With `mount`, the rate otherwise is at most that of the mount at this cost: the measured one may be that of brick
    reads.
    """

    share: float
    basis: str
    mount: TransferCost | None = None

    def days_in_drain(self, copy_days: float, *, files: int, size_bytes: int, cost: TransferCost) -> float:
        """The days that a copy takes during a drain if it takes `copy_days` by `cost` without one."""
        slower = 1.0
        if self.mount is not None and (own_s := copy_s(files, size_bytes, cost)) > 0:
            slower = max(copy_s(files, size_bytes, self.mount) / own_s, 1.0)
        return copy_days * slower / self.share


def slower_in_drains(seen: DrainCopying, cost: TransferCost) -> SlowerInDrains:
    """The measured share, if there is enough copying during drains and outside, or else the assumed one. `cost` weighs
    files and bytes.
    """
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
    """Stream-seconds of work done per second; None if too little was measured."""
    if tally.busy_s < ENOUGH_S:
        return None
    return (tally.files * cost.s_per_file + tally.size_bytes * cost.s_per_byte) / tally.busy_s
