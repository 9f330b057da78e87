"""How long a chunk will take, so that none outlasts a change of limits by much: what is at work cannot be changed. Pure."""

from migrator.domain.plan import TransferCost

LONGEST_S = 600.0
"""A change holds for every stream after so long."""


def expected_s(files: int, size_bytes: int, *, cost: TransferCost | None, bwlimit_bytes_per_s: int | None) -> float:
    """How long a stream is at work at so many files and bytes: by the measured cost (None: not known yet), and by its share
    of the limit, whichever takes longer.
    """
    by_cost = 0.0 if cost is None else files * cost.s_per_file + size_bytes * cost.s_per_byte
    return max(by_cost, 0.0 if not bwlimit_bytes_per_s else size_bytes / bwlimit_bytes_per_s)
