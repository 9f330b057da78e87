"""What a stream spends per file and per byte, fitted from attempts that were measured."""

from collections.abc import Sequence

from migrator.decide.forecast import ASSUMED_RATE_BYTES_PER_S, ASSUMED_S_PER_FILE
from migrator.domain.cost import CostSums
from migrator.domain.plan import TransferCost
from migrator.domain.units import format_size, several

ENOUGH_ATTEMPTS = 5
"""Fewer attempts say more about the moment than about the file systems."""

_SINGULAR = 1e-3
"""How much of the squares may be left of one of the two, when the other is taken out: below that, chunks have all about the
same bytes per file, and what a fit tells them apart by is noise.
"""

_USUAL = (ASSUMED_S_PER_FILE, 1.0 / ASSUMED_RATE_BYTES_PER_S)


def fit_cost(sums: CostSums, streams: int) -> TransferCost | None:
    """The cost per file and per byte that leaves the least squared error over all attempts, neither below 0.

    Where all attempts have the same bytes per file, as those of one user often have, the two cannot be told apart: then they
    are to each other as what is assumed before anything was measured. None where there are fewer than `ENOUGH_ATTEMPTS` attempts, or nothing was copied.
    """
    if sums.attempts < ENOUGH_ATTEMPTS or sums.seconds <= 0 or (sums.files <= 0 and sums.size_bytes <= 0):
        return None
    s_per_file, s_per_byte = transfer_squares(sums)
    return TransferCost(
        s_per_file=s_per_file,
        s_per_byte=s_per_byte,
        streams=max(streams, 1),
        basis=(
            f"measured here: {several(sums.attempts, 'chunk')}, {several(round(sums.files), 'file')}, "
            f"{format_size(sums.size_bytes)}"
        ),
    )


def sum_of(groups: Sequence[CostSums]) -> CostSums:
    """The sums over several groups of attempts together."""
    return CostSums(
        attempts=sum(group.attempts for group in groups),
        files=sum(group.files for group in groups),
        size_bytes=sum(group.size_bytes for group in groups),
        seconds=sum(group.seconds for group in groups),
        files_files=sum(group.files_files for group in groups),
        files_bytes=sum(group.files_bytes for group in groups),
        bytes_bytes=sum(group.bytes_bytes for group in groups),
        files_seconds=sum(group.files_seconds for group in groups),
        bytes_seconds=sum(group.bytes_seconds for group in groups),
    )


def transfer_squares(sums: CostSums) -> tuple[float, float]:
    """`least_squares` of transfers, whose costs are about to each other as what is assumed of them."""
    return least_squares(sums, usual=_USUAL)


def least_squares(sums: CostSums, *, usual: tuple[float, float] | None = None) -> tuple[float, float]:
    """Seconds per file and per byte that leave the least squared error, neither below 0. Where they cannot be told apart they
    are to each other as the usual ones; without those the one that explains more carries all of it.
    """
    determinant = sums.files_files * sums.bytes_bytes - sums.files_bytes**2
    apart = determinant > _SINGULAR * sums.files_files * sums.bytes_bytes
    if not apart and usual is not None:
        return _in_proportion(sums, usual)
    if apart:
        s_per_file = (sums.files_seconds * sums.bytes_bytes - sums.bytes_seconds * sums.files_bytes) / determinant
        s_per_byte = (sums.bytes_seconds * sums.files_files - sums.files_seconds * sums.files_bytes) / determinant
        if s_per_file >= 0 and s_per_byte >= 0:
            return s_per_file, s_per_byte
    # The bounded optimum lies on an axis: the one that takes more of the squared error away.
    by_files = sums.files_seconds**2 / sums.files_files if sums.files_files > 0 else 0.0
    by_bytes = sums.bytes_seconds**2 / sums.bytes_bytes if sums.bytes_bytes > 0 else 0.0
    if by_files > by_bytes:
        return sums.files_seconds / sums.files_files, 0.0
    return 0.0, sums.bytes_seconds / sums.bytes_bytes


def _in_proportion(sums: CostSums, usual: tuple[float, float]) -> tuple[float, float]:
    per_file, per_byte = usual
    squares = (
        per_file**2 * sums.files_files + 2 * per_file * per_byte * sums.files_bytes + per_byte**2 * sums.bytes_bytes
    )
    scale = (per_file * sums.files_seconds + per_byte * sums.bytes_seconds) / squares if squares > 0 else 1.0
    return per_file * scale, per_byte * scale
