"""What a stream spends per file and per byte, fitted from attempts that were measured."""

from collections.abc import Sequence

from migrator.domain.cost import CostSums
from migrator.domain.plan import TransferCost
from migrator.domain.units import format_size, several

ENOUGH_ATTEMPTS = 5
"""Fewer attempts say more about the moment than about the file systems."""

_SINGULAR = 1e-9


def fit_cost(sums: CostSums, streams: int) -> TransferCost | None:
    """The cost per file and per byte that leaves the least squared error over all attempts, neither below 0.

    Where all attempts have the same bytes per file the two cannot be told apart: then the one that explains more
    carries all of it. None where there are fewer than `ENOUGH_ATTEMPTS` attempts, or nothing was copied.
    """
    if sums.attempts < ENOUGH_ATTEMPTS or sums.seconds <= 0 or (sums.files <= 0 and sums.size_bytes <= 0):
        return None
    s_per_file, s_per_byte = least_squares(sums)
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


def least_squares(sums: CostSums) -> tuple[float, float]:
    """Seconds per file and per byte that leave the least squared error, neither below 0."""
    determinant = sums.files_files * sums.bytes_bytes - sums.files_bytes**2
    if determinant > _SINGULAR * sums.files_files * sums.bytes_bytes:
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
