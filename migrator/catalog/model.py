"""Catalogs as values: the record of a scan, its problems, and the walks of bricks. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from msgspec import Struct

from migrator.core.entry import Entry, UserTree
from migrator.core.errors import ExitCode
from migrator.fs.model import Difference, DigestPolicy
from migrator.fs.rules_equality import FileState


class StrangeFiles(Struct, frozen=True, kw_only=True):
    """Entries of a brick without `trusted.gfid`: they were put there past Gluster, and are not on the volume."""

    brick: str
    files: int
    """Their number, directories included."""
    paths: tuple[bytes, ...] = ()
    """The first 1,000 of them."""


class BrickWalk(Struct, frozen=True, kw_only=True):
    """The walk of one brick."""

    brick: str
    host: str
    rows: int
    """Number of entries except directories."""
    directories: int
    """Number of the brick's own copies of directories."""
    elapsed_s: float
    """Duration of the walk."""
    whole: bool

    @property
    def rows_per_s(self) -> float:
        """Entries of both kinds per second."""
        return (self.rows + self.directories) / self.elapsed_s if self.elapsed_s > 0 else 0.0


class ScanTimes(Struct, frozen=True, kw_only=True):
    """Parts of the duration of a scan; if it was resumed, those of its last session."""

    checks_s: float = 0.0
    """Checks of the volume, before and after."""
    walk_s: float = 0.0
    """Reading."""
    finish_s: float = 0.0
    """Closing the catalog."""


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
    """One scan: the closing record of a catalog (`catalog.json`).

    A scan is `whole` if it read every directory, and the source was healthy and unchanged before and after. A catalog
    with trees `set_apart` is complete for all other trees (`whole_of`). A limited catalog (`scope`) has the rows of its
    trees and of the directories above them; it may have fewer names of a file than `nlink`. A tree of the scope that is
    not among `trees` did not exist when the scan began.

    `way_reasons`, `findings`, `bricks` and `times` are only in the catalog, not in the ledger. Files of `strange` have
    no rows, and the mount must not be queried for them. `digest` has those of the parts.
    """

    NO_KEYS: ClassVar = frozenset({"health_fingerprint"})

    name: str
    """Name of the catalog."""
    scan_id: int
    """Number of the scan in the ledger."""
    site_id: str
    """Id of the migration, from `init`."""
    via: str
    """`bricks` or `mount`: how the source was read."""
    trees: tuple[UserTree, ...]
    """The user trees."""
    parts: tuple[str, ...]
    """Its Parquet files."""
    started_at_s: float
    finished_at_s: float | None
    whole: bool
    reasons: tuple[str, ...]
    """Why it is not whole."""
    rows: int
    """Number of paths."""
    files: int
    """Number of regular files; a hard-linked file counts once per name."""
    directories: int
    size_bytes: int
    """Bytes of all files; a hard-linked file counts once per name."""
    problems: int
    """Number of paths that could not be read."""
    health_fingerprint: str = ""
    """State of the source at the start, for a resume; empty if unknown."""
    way_reasons: tuple[str, ...] = ()
    """Why bricks were requested but not read."""
    findings: tuple[str, ...] = ()
    """Remarks on the bricks, which do not make the scan less whole."""
    bricks: tuple[BrickWalk, ...] = ()
    """The bricks that were read."""
    times: ScanTimes = ScanTimes()
    """Parts of the duration."""
    scope: tuple[bytes, ...] = ()
    """Paths of the covered user trees; empty: the whole source."""
    strange: tuple[StrangeFiles, ...] = ()
    """Files that were created on bricks past Gluster."""
    digest: str = ""
    """Digest of the closing record; empty during the scan."""
    set_apart: tuple[bytes, ...] = ()
    """User trees that could not be read completely, if nothing else is wrong."""
    selected_by: tuple[str, ...] = ()
    """The settings of `[users]` by which the trees were chosen and named."""

    def whole_of(self, trees: Iterable[bytes]) -> bool:
        """True if every path of these user trees has a row: other paths did not exist."""
        return self.whole or (bool(self.set_apart) and set(self.set_apart).isdisjoint(trees))

    def covers(self, trees: Iterable[bytes]) -> bool:
        """True if the scope of the catalog includes these user trees."""
        return not self.scope or set(self.scope).issuperset(trees)


SETTLED_BEFORE_SCAN_S = 2
"""A file that changed less than this before a scan began may change again without a new mtime, size or ctime. An mtime
more than this after the end of a scan was set by a user: it is ignored, because it would be sent with every pass.
"""


def begun_catalog(name: str, *, via: str, at_s: float, scope: tuple[bytes, ...]) -> CatalogRecord:
    """The record of a scan that has found nothing yet."""
    return CatalogRecord(
        name=name,
        scan_id=0,
        site_id="",
        via=via,
        trees=(),
        parts=(),
        started_at_s=at_s,
        finished_at_s=None,
        whole=False,
        reasons=(),
        rows=0,
        files=0,
        directories=0,
        size_bytes=0,
        problems=0,
        scope=scope,
    )


class ContentReading(Struct, frozen=True, kw_only=True):
    """The verification that read the content, and the clock of each side before its sync, which came before any content
    was read. None: unknown.
    """

    verification: int
    source_clock_ns: int | None
    target_clock_ns: int | None


class ReadContent(Struct, frozen=True, kw_only=True):
    """A file whose content was read on both sides and was equal: the state of both sides then, and the digest."""

    source: FileState
    target: FileState
    digest: bytes
    reading: ContentReading


class ListedPath(NamedTuple):
    """One row of a chunk list (a tuple, because a run makes one for every file). In chunks of links, `link_to` is the existing name.

    `mtime_ns` is from the catalog. In chunks of ranges, `range_offset_bytes` and `range_length_bytes` are the part of
    the file to copy. There, and in the chunk of ranged files that completes the file, `size_bytes` is the part that the
    chunk copies (0 in the latter), and `file_size_bytes` the size of the whole file.
    """

    path: bytes
    size_bytes: int
    link_group: int | None = None
    link_to: bytes | None = None
    mtime_ns: int | None = None
    range_offset_bytes: int | None = None
    range_length_bytes: int | None = None
    file_size_bytes: int | None = None


class BrickUse(Struct, frozen=True, kw_only=True):
    """The use of a brick by one user."""

    user: str | None
    """Name of the user; None: outside every user tree."""
    files: int
    """Names of everything except directories."""
    size_bytes: int
    """Bytes of content; a hard-linked file counts once."""
    allocated_bytes: int
    """Bytes on the disk."""


class TreeOnBricks(Struct, frozen=True, kw_only=True):
    """The part of one user tree that is on bricks, from a catalog: names of files, and bytes of content. The bytes of a
    hard-linked file count once.
    """

    tree: bytes
    files: int
    size_bytes: int


class BrickContent(Struct, frozen=True, kw_only=True):
    """The catalog's facts about bricks to drain: names of files, bytes of content, the largest file on disk, the first
    symlinks with several names, and the share of each user tree. The bytes of a hard-linked file count once.
    """

    files: int
    size_bytes: int
    largest_bytes: int
    linked_symlinks: tuple[bytes, ...]
    trees: tuple[TreeOnBricks, ...] = ()


class ArchivedMember(Struct, frozen=True, kw_only=True):
    """One file in an archive. `entry` has the source's attributes when it was read, and the path relative to the
    source's root.

    `digest` is that of the content, which begins at `offset_bytes` in the uncompressed tar. `archive` (its number in
    the tree) and `algorithm` (of the digest) are set for members of an index.
    """

    entry: Entry
    digest: bytes
    offset_bytes: int
    archive: int = 0
    algorithm: str = ""


class VerificationRecord(Struct, frozen=True, kw_only=True):
    """The result of one verification.

    It is `whole` if both sides were read without error and the source was healthy. `examples` are not kept in the
    ledger.
    """

    id: int
    plan: str
    batch: int
    started_at_s: float
    finished_at_s: float | None
    policy: DigestPolicy
    """Whose content is compared."""
    paths: int
    """Number of all compared paths."""
    size_bytes: int
    """Bytes of the regular files; a file with several names counts once."""
    digested_files: int
    """Files whose content this verification read on both sides and found equal, or on the source while it was copied.
    """
    digested_bytes: int
    """Bytes of these files."""
    proven_gone: int
    """Paths of earlier catalogs or manifests that are gone from the source."""
    differences: Mapping[str, int]
    """Number of differences by kind."""
    expected: Mapping[str, int]
    """Number of losses by kind that the target is known to have; they are no differences."""
    whole: bool
    reasons: tuple[str, ...]
    """Why it is not whole."""
    manifest: str | None
    """The manifest's file."""
    manifest_digest: str | None
    """Digest of that file."""
    files: int = 0
    """Number of regular files among the paths."""
    equal_paths: int = 0
    """Paths without a difference; the manifest has these."""
    differences_file: str | None = None
    """A file with all differences."""
    differences_digest: str | None = None
    """Digest of that file."""
    trees: tuple[bytes, ...] = ()
    """The compared user trees (`--user`); empty: the whole batch."""
    carried_files: int = 0
    """Files whose content an earlier verification proved, without a change since on either side (`--carry`), or an
    archive.
    """
    carried_bytes: int = 0
    """Bytes of these files."""
    examples: tuple[Difference, ...] = ()
    """The first differences of each kind; only in `verify`."""

    @property
    def percent_content(self) -> float | None:
        """Percent of the bytes whose content is proven equal, not only their attributes; rounded down to one digit.
        None if there are no bytes.
        """
        if self.size_bytes <= 0:
            return None
        return min(self.proven_bytes * 1000 // self.size_bytes, 1000) / 10

    @property
    def proven_bytes(self) -> int:
        """Bytes whose content is proven equal, by this verification or an earlier one."""
        return self.digested_bytes + self.carried_bytes

    def covers(self, tree: bytes) -> bool:
        """True if the verification compared this tree of its batch."""
        return not self.trees or tree in self.trees

    @property
    def exit_code(self) -> ExitCode:
        """4 (refused) if it is not whole, because it then proves nothing. 3 (attention) if it is whole and found differences;
        expected losses do not count.
        """
        if not self.whole:
            return ExitCode.REFUSED
        return ExitCode.ATTENTION if self.differences else ExitCode.DONE


def earlier_verifications(records: Iterable[VerificationRecord], policy: DigestPolicy) -> Sequence[VerificationRecord]:
    """The verifications whose manifests may be used, the best first: the newest of those that read at least the present
    share. A verification that is not whole proves nothing.
    """
    usable = [
        record
        for record in records
        if record.whole
        and record.finished_at_s is not None
        and record.manifest is not None
        and record.manifest_digest is not None
        and record.policy.algorithm == policy.algorithm
        and record.policy.share > 0.0
    ]
    return sorted(usable, key=lambda record: (min(record.policy.share, policy.share), record.id), reverse=True)
