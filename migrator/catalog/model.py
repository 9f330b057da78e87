"""Catalogs as values: the record of a scan, its problems, and the walks of bricks. Pure."""

from collections.abc import Iterable

from msgspec import Struct

from migrator.core.entry import UserTree
from migrator.core.errors import MigratorError


class ScanProblem(Struct, frozen=True, kw_only=True):
    """A path that could not be read: recorded, not fatal, and the scan is not whole."""

    path: bytes
    operation: str
    errno: int | None
    reason: str


class StrangeFiles(Struct, frozen=True, kw_only=True):
    """Files on a brick without `trusted.gfid`: they were put there past Gluster, and are not on the volume. `files` is
    their number (directories included), `paths` the first of them.
    """

    brick: str
    files: int
    paths: tuple[bytes, ...] = ()


class BrickWalk(Struct, frozen=True, kw_only=True):
    """The walk of one brick: `rows` counts its entries except directories, `directories` its own copies of those."""

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


class ScanTimes(Struct, frozen=True, kw_only=True):
    """Times of a scan: checks of the volume and start (before and after), reading, and closing the catalog. If the scan
    was resumed, those of its last session.
    """

    checks_s: float = 0.0
    walk_s: float = 0.0
    finish_s: float = 0.0


class PathFinding(Struct, frozen=True, kw_only=True):
    """Paths with one finding: their number, and the first of them in order."""

    count: int = 0
    paths: tuple[bytes, ...] = ()


class BrickFindings(Struct, frozen=True, kw_only=True):
    """Findings from the rows of all bricks together. The lists of paths are cut at a limit.

    `doubled_paths` have more than one row; `doubled_inodes` are names of files that are on two bricks at once.
    `conflicting` directories have different gfids on different bricks, `differing` ones different owner, mode, ACLs or
    attributes; `incomplete` ones are missing on a brick. `twins` are directories with one gfid under several paths, and
    `renamed` those of them that changed during the scan; `unlike` have other entries on another copy of a replica set.
    """

    doubled_paths: PathFinding = PathFinding()
    doubled_inodes: PathFinding = PathFinding()
    conflicting: PathFinding = PathFinding()
    differing: PathFinding = PathFinding()
    incomplete: PathFinding = PathFinding()
    twins: PathFinding = PathFinding()
    renamed: PathFinding = PathFinding()
    unlike: PathFinding = PathFinding()


class CatalogRecord(Struct, frozen=True, kw_only=True):
    """The closing record of a catalog (`catalog.json`); `finished_at_s` is None while the scan is in progress.

    A scan is `whole` if it read every directory, and the source was healthy and unchanged before and after; otherwise
    `reasons` lists why not. `set_apart` has the user trees that could not be read completely, if that is the only
    problem: the catalog is complete for all other trees (`whole_of`). `scope` has the paths of the covered user trees;
    empty: the whole source. A limited catalog has the rows of these trees and of the directories above them; it may
    have fewer names of a file than `nlink`. A tree of the scope that is not among `trees` did not exist when the scan
    began. `size_bytes` counts a hard-linked file once per name. `selected_by` are the settings of [users] by which the trees
    were chosen and named.

    `health_fingerprint` is the source's at the start of the scan, for a later resume; empty if unknown. `way_reasons`
    are the reasons why bricks were requested but not read; `findings` are notes about bricks, which do not make the
    scan less whole; `bricks` are those that were read. These three and `times` are only in the catalog, not in the
    ledger. `strange` lists, by brick, files that were created there outside Gluster: they have no rows, and the mount
    must not be queried for them. `digest` is that of the closing record, which has those of the parts; empty while the
    scan is in progress.
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
    digest: str = ""
    set_apart: tuple[bytes, ...] = ()
    selected_by: tuple[str, ...] = ()

    def whole_of(self, trees: Iterable[bytes]) -> bool:
        """Whether every path of these user trees has a row: other paths did not exist."""
        return self.whole or (bool(self.set_apart) and set(self.set_apart).isdisjoint(trees))

    def covers(self, trees: Iterable[bytes]) -> bool:
        """Whether the scope of the catalog includes these user trees."""
        return not self.scope or set(self.scope).issuperset(trees)


SETTLED_BEFORE_SCAN_S = 2
"""A file that changed less than this before a scan began may change again without a new mtime, size or ctime. An mtime
more than this after the end of a scan was set by a user: it is ignored, because it would be sent with every pass.
"""


def malformed(what: str) -> MigratorError:
    """The error for what a walk wrote and nobody can read."""
    return MigratorError(
        f"what the walk of a brick wrote cannot be understood: {what}",
        cause="the connection was cut, or something else on that host writes to the same output (a login script)",
        hint="log in to the host by hand without a terminal and see whether anything but your command's output comes",
    )
