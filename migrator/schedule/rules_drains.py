"""What a drain costs, and how much it slows copies. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.bricks.drain.model import OUT_STATES, CopyTally, DrainCopying, DrainSample, DrainState, last_counts
from migrator.core.units import HOUR_S, MIB, format_duration, format_size, several
from migrator.plan.model import CostSums, TransferCost, least_squares
from migrator.plan.rules_forecast import choose_cost, copy_s

# --- Cost of a drain per file and byte


ASSUMED_BYTES_PER_S = 50 * MIB
"""Admins tell of weeks for a brick of 40 TB in use; this is ten days."""

ASSUMED_S_PER_FILE = 0.014
"""6,773 small files left a brick of a quiet distributed volume in 97 s (GlusterFS 10.3, `rebal-throttle` normal)."""

ENOUGH_S = HOUR_S
"""Of moving, all drains together: less says more about the moment."""

ENOUGH_DRAINS = 3
"""Two figures from fewer would say how two drains differed, and no more."""

MOVED_STATES = OUT_STATES | {DrainState.DRAINED, DrainState.AUDITING, DrainState.AUDITED, DrainState.COMMITTING}
"""Gluster has come to its end with the files, so that what it took tells what a drain takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTally:
    """What one drain has moved, and how long Gluster was at it."""

    files: int
    size_bytes: int
    moving_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCost:
    """Seconds of a drain per file and per byte; `basis` says where they are from, in words for people."""

    s_per_file: float
    s_per_byte: float
    basis: str


def assumed_drain_cost() -> DrainCost:
    """Before any drain has ended."""
    return DrainCost(
        s_per_file=ASSUMED_S_PER_FILE,
        s_per_byte=1.0 / ASSUMED_BYTES_PER_S,
        basis=(
            f"assumed, {ASSUMED_BYTES_PER_S // MIB} MiB/s and {ASSUMED_S_PER_FILE * 1000:.0f} ms a file, as in a file system "
            "that is in use; no drain has ended here yet"
        ),
    )


def drain_tally(samples: Sequence[DrainSample]) -> DrainTally:
    """Of one drain, by its samples in the order of time. A task took as long as the host that was at it longest; time between
    tasks, when nothing was moved, does not count.
    """
    last = last_counts(samples)
    by_task: dict[str, dict[str, float]] = {}
    for one in last:
        hosts = by_task.setdefault(one.task_id, {})
        hosts[one.host] = hosts.get(one.host, 0.0) + one.runtime_s
    return DrainTally(
        files=sum(one.files for one in last),
        size_bytes=sum(one.size_bytes for one in last),
        moving_s=sum(max(hosts.values()) for hosts in by_task.values()),
    )


def drain_cost(tallies: Sequence[DrainTally]) -> DrainCost:
    """By drains that have ended. In sum it gives what all of them took. From `ENOUGH_DRAINS` on files and bytes are told apart
    as for copying; of fewer, or where they cannot be, both are by as much slower or faster as what is assumed.
    """
    found = [one for one in tallies if one.moving_s > 0 and (one.files or one.size_bytes)]
    assumed = assumed_drain_cost()
    taken_s = sum(one.moving_s for one in found)
    if taken_s < ENOUGH_S:
        return assumed
    s_per_file, s_per_byte = least_squares(_sums(found)) if len(found) >= ENOUGH_DRAINS else (0.0, 0.0)
    apart = s_per_file > 0 and s_per_byte > 0
    if not apart:
        s_per_file, s_per_byte = assumed.s_per_file, assumed.s_per_byte
    files, size_bytes = sum(one.files for one in found), sum(one.size_bytes for one in found)
    factor = taken_s / (files * s_per_file + size_bytes * s_per_byte)
    s_per_file, s_per_byte = s_per_file * factor, s_per_byte * factor
    how = "" if apart else ", with files and bytes weighed as assumed before any drain"
    return DrainCost(
        s_per_file=s_per_file,
        s_per_byte=s_per_byte,
        basis=(
            f"measured here: {several(len(found), 'drain')} of {several(files, 'file')} and {format_size(size_bytes)} took "
            f"{format_duration(taken_s)}, so {1 / s_per_byte / MIB:.0f} MiB/s and {s_per_file * 1000:.1f} ms a file{how}"
        ),
    )


def _sums(tallies: Sequence[DrainTally]) -> CostSums:
    return CostSums(
        attempts=len(tallies),
        files=sum(one.files for one in tallies),
        size_bytes=sum(one.size_bytes for one in tallies),
        seconds=sum(one.moving_s for one in tallies),
        files_files=sum(one.files**2 for one in tallies),
        files_bytes=sum(one.files * one.size_bytes for one in tallies),
        bytes_bytes=sum(one.size_bytes**2 for one in tallies),
        files_seconds=sum(one.files * one.moving_s for one in tallies),
        bytes_seconds=sum(one.size_bytes * one.moving_s for one in tallies),
    )


# --- Copying while a drain moves files
#
# Brick-direct streams pause during a drain. Copies then read through the mount, which the drain loads as well.


ASSUMED_SHARE = 1 / 3
"""Reads and writes of clients were about three times slower while Gluster worked through a volume (gluster/glusterfs #1623)."""
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
