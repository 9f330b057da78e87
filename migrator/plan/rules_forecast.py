"""How long copying takes, and how the source grows. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from migrator.catalog.model import CatalogRecord
from migrator.core.units import DAY_S, MIB, format_count, format_size, several
from migrator.cutover.model import SETTLED_STATES, CutoverRecord, CutoverState
from migrator.fs.model import Capacity, CapacitySample, Need, Side
from migrator.plan.model import ASSUMED_RATE_BYTES_PER_S, ASSUMED_S_PER_FILE, TransferCost

# --- Copying time, and room on the target


def choose_cost(measured: TransferCost | None, streams: int) -> TransferCost:
    """What streams cost here: as measured by earlier runs of this site, or else assumed; `basis` says which."""
    streams = max(streams, 1)
    if measured is None:
        return TransferCost(
            s_per_file=ASSUMED_S_PER_FILE,
            s_per_byte=1.0 / ASSUMED_RATE_BYTES_PER_S,
            streams=streams,
            basis=(
                f"assumed, nothing was measured here yet: {ASSUMED_S_PER_FILE * 1000:.0f} ms a file and "
                f"{ASSUMED_RATE_BYTES_PER_S // MIB} MiB/s a stream with {several(streams, 'stream')}, "
                "as rsync does through a quiet Gluster mount; the first batch will tell better"
            ),
        )
    if measured.streams == streams:
        return measured
    return replace(
        measured,
        streams=streams,
        basis=f"{measured.basis}; taken from {measured.streams} to {streams} streams as if they did not slow each "
        "other down",
    )


def copy_s(files: float, size_bytes: float, cost: TransferCost) -> float:
    """Seconds to copy so many paths and bytes with all streams busy; parts of them where they are expected ones."""
    return (files * cost.s_per_file + size_bytes * cost.s_per_byte) / max(cost.streams, 1)


def still_needed(by_tree: Mapping[bytes, Need], arrived: Mapping[bytes, Need]) -> Need:
    """What trees take of the target beyond what earlier plans brought there; no tree makes up for another."""
    nothing = Need()
    return Need(
        size_bytes=sum(
            max(need.size_bytes - arrived.get(tree, nothing).size_bytes, 0) for tree, need in by_tree.items()
        ),
        inodes=sum(max(need.inodes - arrived.get(tree, nothing).inodes, 0) for tree, need in by_tree.items()),
    )


def inodes_known(capacity: Capacity, inodes_free: int | None) -> bool:
    """Whether there is a number to go by: the file system's, or else `[target] inodes_free`."""
    return capacity.free_inodes is not None or inodes_free is not None


def which_fit(
    needs: Iterable[Need], capacity: Capacity, *, inodes_free: int | None, reserve_bytes: int
) -> tuple[bool, ...]:
    """For every batch, whether it fits on the target as it is now, together with all batches before it.

    `inodes_free` is believed only where the file system itself cannot tell. Unknown inodes do not limit here: the
    planner asks for a number or an explicit word first (`inodes_known`).
    """
    free_bytes = capacity.free_bytes - reserve_bytes
    free_inodes = capacity.free_inodes if capacity.free_inodes is not None else inodes_free
    fits: list[bool] = []
    for need in needs:
        free_bytes -= need.size_bytes
        if free_inodes is not None:
            free_inodes -= need.inodes
        fits.append(free_bytes >= 0 and (free_inodes is None or free_inodes >= 0) and not capacity.read_only)
    return tuple(fits)


def room_problems(needs: Sequence[Need], fits: Sequence[bool], lacks: Sequence[str]) -> tuple[str, ...]:
    """What to say about batches that do not fit. `lacks` says what the target lacks for all of them together."""
    if all(fits):
        return ()
    fitting = fits.index(False)
    total = len(fits)
    if fitting == 0:
        first = needs[0]
        head = (
            f"not even the first batch fits on the target: it needs {format_size(first.size_bytes)} "
            f"and {format_count(first.inodes)} inodes"
        )
    else:
        head = f"the target as it is now takes the first {fitting} of {total} batches"
    return (head, *lacks)


# --- Growth of the source per day
#
# Measured from samples of its usage. Intervals with a purge or with a change of the volume's size do not count. Users who work on
# the target add nothing to the source: the growth of all users is extrapolated from those who still work on it.


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
