"""What is measured of attempts to tell what files and bytes cost."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSums:
    """Sums over measured attempts, each with f files, b bytes and s seconds: all that a least squares fit needs."""

    attempts: int
    files: float
    size_bytes: float
    seconds: float
    files_files: float
    files_bytes: float
    bytes_bytes: float
    files_seconds: float
    bytes_seconds: float
