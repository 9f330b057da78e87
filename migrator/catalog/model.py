"""What a scan was asked, saw and left behind. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from migrator.core.entry import UserTree


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProblem:
    """A path that could not be read: recorded, not fatal, and the scan is not whole."""

    path: bytes
    operation: str
    errno: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangeFiles:
    """What lies on a brick without `trusted.gfid`: it was put there past Gluster, and is not on the volume. `files` counts
    them (directories too), `paths` are the first.
    """

    brick: str
    files: int
    paths: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickWalk:
    """The walk of one brick: `rows` are its entries that are no directories, `directories` its own copies of them."""

    brick: str
    host: str
    rows: int
    directories: int
    elapsed_s: float
    whole: bool

    @property
    def rows_per_s(self) -> float:
        """Entries of both kinds per second."""
        return (self.rows + self.directories) / self.elapsed_s if self.elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTimes:
    """Where the time of a scan went: looking at the volume and starting (before and after), reading, and making one
    catalog of what was read. Of a scan that went on in several sessions, the last one's.
    """

    checks_s: float = 0.0
    walk_s: float = 0.0
    finish_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRecord:
    """The closing record of a catalog (`catalog.json`); `finished_at_s` is None while the scan is under way.

    `whole` needs: every directory read, source healthy and unchanged before and after. `reasons` says why not.
    `scope` are the paths of the user trees that it covers; empty: the whole source. A limited one has the rows of these
    trees and of the directories that lead to them; of a file with names elsewhere it knows fewer than `nlink`. A tree of
    the scope that is not among `trees` was not there when the scan began.
    `size_bytes` counts a hard-linked file once per name. `health_fingerprint` is the source's at the start of the scan,
    for one that goes on later; empty where it is not known. `way_reasons` says why the bricks were not read where that
    was asked for; `findings` what an admin should know of the bricks, although the scan may be whole; `bricks` those
    that were read. These three and `times` are in the catalog alone, not in the ledger. `strange` says by brick what was put there
    past Gluster: it has no row, and nobody may ask the mount for it.
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
    way_reasons: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    bricks: tuple[BrickWalk, ...] = ()
    times: ScanTimes = ScanTimes()
    scope: tuple[bytes, ...] = ()
    strange: tuple[StrangeFiles, ...] = ()

    def covers(self, trees: Iterable[bytes]) -> bool:
        """Whether what it does not list of these user trees was not there."""
        return not self.scope or set(self.scope).issuperset(trees)


SETTLED_BEFORE_SCAN_S = 2

"""What changed later than so long before a scan began may change again without another time, size or ctime. An mtime that
lies so long after its end, in the future, was set by somebody: it says nothing, and would be sent with every pass.
"""
