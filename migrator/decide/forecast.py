"""How long copying takes, and what that rests on; whether the target has the room."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from migrator.domain.plan import TransferCost
from migrator.domain.site import Capacity, Need
from migrator.domain.units import MIB, format_count, format_size, several

ASSUMED_S_PER_FILE = 0.001
"""rsync through a Gluster FUSE mount took 49.7 s for 50,000 files of 7 KB with cold caches: 1 ms a file."""

ASSUMED_RATE_BYTES_PER_S = 100 * MIB
"""One rsync over big files: 2.1 GB took 19.5 s from the mount of a quiet volume."""


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
