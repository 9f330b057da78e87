"""What streams brought, by where they ran, what they read, with what, and how large the files were."""

from dataclasses import dataclass
from enum import StrEnum

KIB, MIB = 1024, 1024**2


class SizeClass(StrEnum):
    """The mean size of the files of a chunk; `ranges` are parts of big files."""

    TINY = "below 16 KiB"
    SMALL = "16 KiB to 1 MiB"
    MEDIUM = "1 MiB to 64 MiB"
    LARGE = "64 MiB and more"
    RANGES = "ranges of big files"


UPPER_BYTES = ((SizeClass.TINY, 16 * KIB), (SizeClass.SMALL, MIB), (SizeClass.MEDIUM, 64 * MIB))
"""Below which mean size a class ends; what is larger is `large`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSum:
    """Attempts that succeeded, together. `brick` is None where the mount was read; `stream_s` are seconds of streams, so that
    two streams for one second are two.
    """

    host: str
    brick: str | None
    engine: str
    size_class: SizeClass
    attempts: int
    files: int
    size_bytes: int
    stream_s: float

    @property
    def bytes_per_s(self) -> float:
        """Of one stream."""
        return self.size_bytes / self.stream_s if self.stream_s > 0 else 0.0

    @property
    def files_per_s(self) -> float:
        """Of one stream."""
        return self.files / self.stream_s if self.stream_s > 0 else 0.0
