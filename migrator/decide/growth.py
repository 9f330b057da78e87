"""What users add in a day, by how full the source was over time. Pure.

Looks at the source tell it, as long as nothing but users' work changes how full it is: no purge, and no brick that came or
went. Copying does not touch it. Users who work on the target add nothing there, and by the rest it is told what all add.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from migrator.domain.capacity import CapacitySample, Side
from migrator.domain.cutover import SETTLED_STATES, CutoverRecord, CutoverState
from migrator.domain.scan import CatalogRecord
from migrator.domain.units import DAY_S, format_size, several

ENOUGH_DAYS = 7.0
"""Users work by the week."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What all users together add in a day. `basis` says where it is from, in words for people; empty: nothing is known."""

    bytes_per_day: float = 0.0
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How much lay on the source at one time; `whole_bytes` is how large it was (0: does not matter)."""

    at_s: float
    size_bytes: int
    whole_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The share that is added in a day, over so many days."""

    share_per_day: float
    days: float


def choose_growth(
    samples: Sequence[CapacitySample],
    catalogs: Sequence[CatalogRecord],
    cutovers: Iterable[CutoverRecord],
    sizes: Mapping[bytes, int],
    *,
    configured_bytes_per_day: int,
) -> Growth:
    """As measured, by the looks or by the catalogs (whichever cover more days), where either do `ENOUGH_DAYS`; or else as
    configured (0: it is not).

    `sizes` are the bytes of every user tree that is on the source now; `cutovers` every attempt of all plans.
    """
    records = list(cutovers)
    purges = purge_times(records)
    moved = moved_since(records, sizes)
    looks = [
        Look(at_s=one.at_s, size_bytes=one.used_bytes, whole_bytes=one.total_bytes)
        for one in samples
        if one.side is Side.SOURCE
    ]
    scans = _scans(catalogs)
    by_looks, by_scans = measure(looks, purges, moved), measure(scans, purges, moved)
    every = sum(sizes.values())
    if by_looks.days >= max(ENOUGH_DAYS, by_scans.days):
        return _growth(by_looks, every, f"by looks at the source over {by_looks.days:.0f} days")
    if by_scans.days >= ENOUGH_DAYS:
        return _growth(
            by_scans, every, f"by {several(len(scans), 'whole catalog')} over {by_scans.days:.0f} days between them"
        )
    if configured_bytes_per_day:
        return Growth(
            bytes_per_day=configured_bytes_per_day, basis="[capacity] growth; too little was measured here yet"
        )
    return Growth()


def _growth(measured: Measured, every: int, how: str) -> Growth:
    added = measured.share_per_day * every
    if added <= 0:
        fewer = f", and even took {format_size(-added)} a day away" if added < 0 else ""
        return Growth(basis=f"measured here {how}: users added no more than they took away{fewer}")
    return Growth(bytes_per_day=added, basis=f"measured here {how}")


def _scans(catalogs: Sequence[CatalogRecord]) -> list[Look]:
    """Whole catalogs of the whole source, made in the same way as the newest: ways differ in what they see."""
    whole = [one for one in catalogs if one.whole and not one.scope and one.finished_at_s is not None]
    via = whole[-1].via if whole else ""
    return [Look(at_s=one.started_at_s, size_bytes=one.size_bytes) for one in whole if one.via == via]


def purge_times(cutovers: Iterable[CutoverRecord]) -> list[tuple[float, float]]:
    """Between which times (in seconds since the epoch) sources were taken away, in order and without overlap."""
    found: list[tuple[float, float]] = []
    for first_s, last_s in sorted(
        (one.times[CutoverState.PURGING], one.times.get(CutoverState.PURGED, inf))
        for one in cutovers
        if CutoverState.PURGING in one.times
    ):
        if found and first_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last_s))
        else:
            found.append((first_s, last_s))
    return found


def moved_since(cutovers: Iterable[CutoverRecord], sizes: Mapping[bytes, int]) -> list[tuple[float, int]]:
    """Since when (in seconds since the epoch) users work on the target whose sources are there still, with the bytes that these
    hold.
    """
    return [
        (one.times[CutoverState.THAWED], sizes[one.tree.path])
        for one in cutovers
        if one.state in SETTLED_STATES and CutoverState.THAWED in one.times and one.tree.path in sizes
    ]


def measure(
    looks: Sequence[Look], purges: Sequence[tuple[float, float]], moved: Sequence[tuple[float, int]]
) -> Measured:
    """From each look to the next one, where nothing else changed how full the source is. `purges` are spans in order (see
    `purge_times`), `moved` as `moved_since` has them.
    """
    ends = [last_s for _, last_s in purges]
    added = worked = seconds = 0.0
    for one, other in pairwise(sorted(looks, key=lambda look: look.at_s)):
        nearest = bisect_left(ends, one.at_s)
        if nearest < len(purges) and purges[nearest][0] <= other.at_s:
            continue
        span_s = other.at_s - one.at_s
        if one.whole_bytes != other.whole_bytes or span_s <= 0:
            continue
        resting = sum(size_bytes for since_s, size_bytes in moved if since_s <= one.at_s + span_s / 2)
        working = max(one.size_bytes - resting, 0)
        if not working:
            continue
        added += other.size_bytes - one.size_bytes
        worked += working * span_s / DAY_S
        seconds += span_s
    return Measured(share_per_day=added / worked if worked else 0.0, days=seconds / DAY_S)
