"""What a scan was asked, saw and left behind."""

from dataclasses import dataclass

from migrator.domain.tree import UserTree


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProblem:
    """A path that could not be read: recorded, not fatal, and the scan is not whole."""

    path: bytes
    operation: str
    errno: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRecord:
    """The closing record of a catalog (`catalog.json`); `finished_at_s` is None while the scan is under way.

    `whole` needs: every directory read, source healthy and unchanged before and after. `reasons` says why not.
    `size_bytes` counts a hard-linked file once per name. `health_fingerprint` is the source's at the start of the scan,
    for one that goes on later; empty where it is not known.
    """

    name: str
    scan_id: int
    site_id: str
    via: str
    trees: tuple[UserTree, ...]
    parts: tuple[str, ...]
    started_at_s: float
    finished_at_s: float | None
    whole: bool
    reasons: tuple[str, ...]
    rows: int
    files: int
    directories: int
    size_bytes: int
    problems: int
    health_fingerprint: str = ""
