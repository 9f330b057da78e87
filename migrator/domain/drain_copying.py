"""What streams have brought while drains moved files, and otherwise."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTally:
    """All streams together: what they have brought in `busy_s` in which any was at work."""

    files: int = 0
    size_bytes: int = 0
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCopying:
    """The copying of a site, as far as it was sampled: while a drain moved files, and while none did."""

    in_drains: CopyTally
    outside: CopyTally
