"""The duration of copying, and the growth of the source. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import CatalogRecord
from migrator.core.units import DAY_S, MIB, format_count, format_size, several
from migrator.fs.model import Capacity, CapacitySample, Need, Side
from migrator.operations.ports import TreeMove
from migrator.plan.model import ASSUMED_RATE_BYTES_PER_S, ASSUMED_S_PER_FILE, TransferCost

# --- Copying time, and room on the target


def choose_cost(measured: TransferCost | None, streams: int) -> TransferCost:
    """The cost measured by earlier runs of this site, or else the assumed one; `basis` names which."""
    streams = max(streams, 1)
    if measured is None:
        return TransferCost(
            s_per_file=ASSUMED_S_PER_FILE,
            s_per_byte=1.0 / ASSUMED_RATE_BYTES_PER_S,
            streams=streams,
            basis=(
                f"assumed, nothing was measured here yet: {ASSUMED_S_PER_FILE * 1000:.0f} ms a file and "
                f"{ASSUMED_RATE_BYTES_PER_S // MIB} MiB/s a stream with {several(streams, 'stream')}, "
                "as rsync does through a quiet Gluster mount; the first batch replaces this figure"
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
    """Seconds to copy these numbers of paths and bytes (expected values may be fractions) with all streams busy."""
    return (files * cost.s_per_file + size_bytes * cost.s_per_byte) / max(cost.streams, 1)


def still_needed(by_tree: Mapping[bytes, Need], arrived: Mapping[bytes, Need]) -> Need:
    """Room that trees need on the target beyond what earlier plans copied. A surplus of one tree offsets no other."""
    nothing = Need()
    return Need(
        size_bytes=sum(
            max(need.size_bytes - arrived.get(tree, nothing).size_bytes, 0) for tree, need in by_tree.items()
        ),
        inodes=sum(max(need.inodes - arrived.get(tree, nothing).inodes, 0) for tree, need in by_tree.items()),
    )


def inodes_known(capacity: Capacity, inodes_free: int | None) -> bool:
    """True if the file system reports free inodes, or `[target] inodes_free` is set."""
    return capacity.free_inodes is not None or inodes_free is not None


def which_fit(
    needs: Iterable[Need], capacity: Capacity, *, inodes_free: int | None, reserve_bytes: int
) -> tuple[bool, ...]:
    """For each batch, whether it and all batches before it fit on the target now.

    `inodes_free` counts only if the file system reports none. Unknown inodes do not limit here: the planner requires a
    number or an explicit option first (`inodes_known`).
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
    """Sentences about batches that do not fit. `lacks` are those about all batches together."""
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
# Measured from samples of its usage. Intervals with a purge or with a change of the volume's size do not count. Users
# who work on the target add nothing to the source: the growth of all users is extrapolated from those who still work on
# it.


ENOUGH_DAYS = 7.0
"""Usage follows the week."""


class Growth(Struct, frozen=True, kw_only=True):
    """Bytes that all users together add per day. `basis` is a sentence about their source; empty: unknown."""

    bytes_per_day: float = 0.0
    basis: str = ""


class SizeSample(Struct, frozen=True, kw_only=True):
    """Bytes on the source at one time; `whole_bytes` is the size of the source (0: irrelevant)."""

    at_s: float
    size_bytes: int
    whole_bytes: int = 0


class MeasuredGrowth(Struct, frozen=True, kw_only=True):
    """Growth per day as a share of the content, measured over `days`."""

    share_per_day: float
    days: float


def choose_growth(
    samples: Sequence[CapacitySample],
    catalogs: Sequence[CatalogRecord],
    cutovers: Iterable[TreeMove],
    sizes: Mapping[bytes, int],
    *,
    configured_bytes_per_day: int,
) -> Growth:
    """Growth as measured by usage samples or by catalogs (whichever cover more days), if they cover `ENOUGH_DAYS`; or
    else as configured (0: not configured).

    `sizes` are the bytes of every user tree that is on the source now; `cutovers` every attempt of all plans.
    """
    records = list(cutovers)
    purges = purge_times(records)
    moved = moved_since(records, sizes)
    looks = [
        SizeSample(at_s=one.at_s, size_bytes=one.used_bytes, whole_bytes=one.total_bytes)
        for one in samples
        if one.side is Side.SOURCE
    ]
    scans = _scans(catalogs)
    by_looks, by_scans = measure(looks, purges, moved), measure(scans, purges, moved)
    how = f"by looks at the source over {by_looks.days:.0f} days"
    if by_scans.days > by_looks.days:
        how = f"by {several(len(scans), 'whole catalog')} over {by_scans.days:.0f} days between them"
    measured = max(by_looks, by_scans, key=lambda found: found.days)
    if measured.days >= ENOUGH_DAYS:
        return _growth(measured, sum(sizes.values()), how)
    if configured_bytes_per_day:
        return Growth(
            bytes_per_day=configured_bytes_per_day, basis="[capacity] growth; too little was measured here yet"
        )
    return Growth()


def _growth(measured: MeasuredGrowth, every: int, how: str) -> Growth:
    added = measured.share_per_day * every
    if added <= 0:
        fewer = f", and even took {format_size(-added)} a day away" if added < 0 else ""
        return Growth(basis=f"measured here {how}: users added no more than they took away{fewer}")
    return Growth(bytes_per_day=added, basis=f"measured here {how}")


def _scans(catalogs: Sequence[CatalogRecord]) -> list[SizeSample]:
    """Whole catalogs of the whole source, read in the same way (bricks or mount) as the newest: the two count differently."""
    whole = [one for one in catalogs if one.whole and not one.scope and one.finished_at_s is not None]
    via = whole[-1].via if whole else ""
    return [SizeSample(at_s=one.started_at_s, size_bytes=one.size_bytes) for one in whole if one.via == via]


def purge_times(cutovers: Iterable[TreeMove]) -> list[tuple[float, float]]:
    """Intervals of purges (seconds since the epoch), in order and without overlap."""
    found: list[tuple[float, float]] = []
    for first_s, last_s in sorted(
        (began_at_s, inf if (ended_at_s := one.purged_at_s()) is None else ended_at_s)
        for one in cutovers
        if (began_at_s := one.purging_at_s()) is not None
    ):
        if found and first_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last_s))
        else:
            found.append((first_s, last_s))
    return found


def moved_since(cutovers: Iterable[TreeMove], sizes: Mapping[bytes, int]) -> list[tuple[float, int]]:
    """For each user who works on the target and whose source is not purged: the time of the move (seconds since the
    epoch), and the bytes of that source.
    """
    return [
        (settled_at_s, sizes[one.tree.path])
        for one in cutovers
        if one.is_settled() and (settled_at_s := one.settled_at_s()) is not None and one.tree.path in sizes
    ]


def measure(
    looks: Sequence[SizeSample], purges: Sequence[tuple[float, float]], moved: Sequence[tuple[float, int]]
) -> MeasuredGrowth:
    """Growth between successive samples, without intervals in which something else changed the usage of the source.
    `purges` is from `purge_times`, `moved` from `moved_since`.
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
    return MeasuredGrowth(share_per_day=added / worked if worked else 0.0, days=seconds / DAY_S)
