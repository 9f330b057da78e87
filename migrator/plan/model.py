"""The plan as values: ranking, batches, chunks, costs. Pure."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from migrator.beegfs.model import MetadataForecast, TreeOwner
from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from migrator.core.states import BatchState, ChunkKind
from migrator.core.units import MIB, format_size, several
from migrator.fs.model import Capacity, SurpriseKind
from migrator.plan.schedule.model import Schedule
from migrator.reap.model import PlanReap

ASSUMED_S_PER_FILE = 0.001

"""rsync through a Gluster FUSE mount took 49.7 s for 50,000 files of 7 KB with cold caches: 1 ms a file."""


ASSUMED_RATE_BYTES_PER_S = 100 * MIB

"""One rsync over big files: 2.1 GB took 19.5 s from the mount of a quiet volume."""


class Order(StrEnum):
    """Which user trees go first."""

    HEAVIEST = "heaviest"
    SMALLEST = "smallest"
    COLDEST = "coldest"
    MOST_FILES = "most-files"


class AgeBucket(Struct, frozen=True, kw_only=True):
    """Files up to a certain age."""

    label: str
    """The range for people."""
    max_age_s: int | None
    """Its upper end; None: older than all others."""
    files: int
    size_bytes: int
    """Their bytes to copy; those of a link group count once."""


class TreeUsage(Struct, frozen=True, kw_only=True):
    """The content of one user tree. Bytes of a link group count once.

    `size_bytes`, `largest_bytes` and the ages are in bytes to copy (`content_bytes`): holes do not count.
    """

    tree: UserTree
    files: int
    directories: int
    size_bytes: int
    allocated_bytes: int
    """Bytes on the source's disks."""
    tiny_files: int
    """Files below 4 KiB."""
    largest_bytes: int
    """Size of its largest file."""
    largest_path: bytes
    """Path of that file."""
    link_groups: int
    """Files with several names."""
    symlinks: int
    """Symlinks."""
    specials: int
    """Devices, FIFOs and sockets."""
    by_mtime: tuple[AgeBucket, ...]
    """Files by the time since their last change."""
    by_atime: tuple[AgeBucket, ...]
    """Files by the time since their last access."""
    median_age_s: float
    """Median time since the last change of its files, exact to the day."""


SMALL_RANGES = ("0", "1~31", "32~1K-", "1K~31K")
"""The size ranges of Robinhood below 32 KiB."""


class UserUsage(Struct, frozen=True, kw_only=True):
    """What another program counted of a user's files, by owner."""

    user: str
    files: int
    """Number of files."""
    directories: int
    size_bytes: int
    """Bytes of these files."""
    used_bytes: int | None = None
    """Bytes on the disks; None: not counted."""
    by_size: Mapping[str, int] = {}
    """Number of files by Robinhood's ranges of size."""


class UsageRanking(Struct, frozen=True, kw_only=True):
    """Users in order, from a file or database of Robinhood: `plan --usage`."""

    source: str
    """The file or database."""
    at_s: float
    """When it was counted."""
    order: Order
    """The order."""
    partial: bool
    """It has only the top users."""
    users: tuple[UserUsage, ...]
    """The users, in order."""


class UsageDifference(Struct, frozen=True, kw_only=True):
    """A user in the ranking of another program, and in the scan behind the plan."""

    user: str
    counted_files: int | None
    """Files by the ranking; None: the user is not in it."""
    counted_bytes: int | None
    """Bytes by the ranking."""
    scanned_files: int | None
    """Files by the scan; None: the user is not in it."""
    scanned_bytes: int | None
    """Bytes by the scan."""


class Usages(Struct, frozen=True, kw_only=True):
    """The usage of every tree of a catalog (empty ones too), in order of path, and of all paths outside the trees.

    `outside` is None if there are no such paths; the directories above trees do not count.
    """

    trees: tuple[TreeUsage, ...]
    outside: TreeUsage | None
    outside_examples: tuple[bytes, ...]


class Surprise(Struct, frozen=True, kw_only=True):
    """A number of paths of one kind in one tree."""

    kind: SurpriseKind
    """The kind."""
    tree: bytes | None
    """The user tree; None: outside every tree, or the whole source."""
    count: int
    """Number of paths."""
    size_bytes: int
    """Their bytes."""
    detail: str
    """More about them, in words."""
    examples: tuple[bytes, ...]


class Account(Struct, frozen=True, kw_only=True):
    """A user as this host knows it. `groups` counts the primary one too; `closed` is why nobody logs in, by /etc/shadow."""

    name: str
    groups: int
    shell: str
    closed: str = ""


class Accounts(Struct, frozen=True, kw_only=True):
    """What this host knows of owners: users by uid, ids that are nobody's, and (`unknown`) uids and gids that it could not
    look up.
    """

    users: Mapping[int, Account] = {}
    no_user: frozenset[int] = frozenset()
    no_group: frozenset[int] = frozenset()
    unknown: tuple[str, ...] = ()


class NotedOwners(Struct, frozen=True, kw_only=True):
    """Owners with the same surprise: what it is, and how each is named, by uid or gid."""

    words: str
    names: Mapping[int, str]


class TransferCost(Struct, frozen=True, kw_only=True):
    """Time that one stream spends."""

    s_per_file: float
    """Seconds for each file."""
    s_per_byte: float
    """Seconds for each byte."""
    streams: int
    """Number of streams."""
    basis: str
    """Source of the figures, a sentence."""


class Batch(Struct, frozen=True, kw_only=True):
    """User trees that move together."""

    number: int
    """Its number."""
    trees: tuple[UserTree, ...]
    """Its user trees."""
    size_bytes: int
    files: int
    directories: int
    chunks: int
    """Number of its chunks."""
    chunk_list: str
    """The Parquet file of its chunks, beside the plan."""
    chunk_list_digest: str
    """BLAKE2b digest of that file."""
    forecast_s: float
    """Predicted duration of its copying."""
    fits: bool
    """Its bytes and inodes fit on the target."""


class CleanUpKind(StrEnum):
    """Files that a user could remove or pack before the move: those that the reap rule of the site lists, those that were not
    changed for a year, and tiny ones (packed, so that only their number shrinks).
    """

    LISTED = "listed"
    OLD = "old"
    TINY = "tiny"


class CleanUp(Struct, frozen=True, kw_only=True):
    """The gain of a user who cleans up one kind of files in a tree, taken by itself. A file may be of several kinds: do
    not add them.
    """

    tree: bytes
    kind: CleanUpKind
    """The kind of files."""
    files: int
    size_bytes: int
    """Bytes that are freed on both sides."""
    earlier_s: float
    """How much earlier the tree is copied."""


class TinyDirectory(Struct, frozen=True, kw_only=True):
    """A directory in the top of a tree, or the top itself."""

    tree: bytes
    path: bytes
    """Its path; of the top, only the files directly in it count."""
    files: int
    """Tiny files (below 4 KiB) in it."""


EMPTYING_PERCENT = (25, 50, 75, 90, 100)


class EmptyingCurve(Struct, frozen=True, kw_only=True):
    """The source emptying over time in one order."""

    order: Order
    """The order of user trees."""
    reached_s: tuple[float, ...]
    """When 25, 50, 75, 90 and 100 % of its bytes have left, from the begin of the copying."""


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of a migration, as written to `plans/NAME.json`."""

    name: str
    """Its name."""
    site: str
    """Name of the site."""
    site_id: str
    """Id of the migration, from `init`."""
    created_at_s: float
    """When it was made."""
    order: Order
    """Which user trees go first."""
    catalog: str
    """The catalog that it was made from."""
    scan_id: int
    """Number of that scan."""
    catalog_whole: bool
    """That catalog is whole."""
    size_bytes: int
    files: int
    directories: int
    ranking: tuple[TreeUsage, ...]
    """The content of each user tree, in order."""
    outside: TreeUsage | None
    """What lies outside every user tree."""
    batches: tuple[Batch, ...]
    """The batches, in order."""
    surprises: tuple[Surprise, ...]
    """Findings that users need before the move."""
    cost: TransferCost
    """Time that a stream spends."""
    forecast_s: float
    """Predicted duration of all copying."""
    target: Capacity
    """Room on the target."""
    problems: tuple[str, ...]
    """Reasons not to rely on the plan."""
    emptying: tuple[EmptyingCurve, ...]
    """The source emptying, in each order."""
    reap: PlanReap | None = None
    """The reaping; None if no rule reaps or lists."""
    schedule: Schedule | None = None
    """When the bricks are free; None if the source has no bricks."""
    owners: tuple[TreeOwner, ...] = ()
    """What each user owns in each tree."""
    set_apart: tuple[UserTree, ...] = ()
    """User trees in no batch, because the scan could not read them everywhere."""
    metadata: tuple[MetadataForecast, ...] = ()
    """BeeGFS's metadata targets."""
    clean_ups: tuple[CleanUp, ...] = ()
    """Gains of users who clean up."""
    tiny: tuple[TinyDirectory, ...] = ()
    """Directories with the most tiny files."""


class Chunk(Struct, frozen=True, kw_only=True):
    """Paths of one tree for one stream, kept in the chunk list. `number` is unique in its pass.

    `brick` (`host:/path`, as glusterd writes it) held the paths when they were scanned; None: read them through the
    mount.
    """

    number: int
    kind: ChunkKind
    tree: bytes
    files: int
    size_bytes: int
    brick: str | None = None


class WrittenList(Struct, frozen=True, kw_only=True):
    """The chunk list of one batch, or of one pass over it, on disk."""

    chunk_list: str
    chunk_list_digest: str
    chunks: int
    files: int
    directories: int
    size_bytes: int


# --- Transfer cost: least squares over measured attempts


class CostSums(Struct, frozen=True, kw_only=True):
    """Sums over measured attempts with f files, b bytes and s seconds each: the input of a least squares fit."""

    attempts: int
    files: float
    size_bytes: float
    seconds: float
    files_files: float
    files_bytes: float
    bytes_bytes: float
    files_seconds: float
    bytes_seconds: float


ENOUGH_ATTEMPTS = 5
"""Fewer attempts measure momentary load rather than the file systems."""

_SINGULAR = 1e-3
"""The least share of the squares of one variable that the other does not explain. Below it, all chunks have about the
same bytes per file, and a fit would separate the two costs by noise.
"""

USUAL_COST = (ASSUMED_S_PER_FILE, 1.0 / ASSUMED_RATE_BYTES_PER_S)


def fit_cost(sums: CostSums, streams: int) -> TransferCost | None:
    """Fit the cost per file and per byte with the least squared error over all attempts, neither below 0.

    If all attempts have the same bytes per file, as those of one user often have, the two cannot be separated: their
    ratio is then the assumed one. None if there are fewer than `ENOUGH_ATTEMPTS` attempts, or nothing was copied.
    """
    if sums.attempts < ENOUGH_ATTEMPTS or sums.seconds <= 0 or (sums.files <= 0 and sums.size_bytes <= 0):
        return None
    s_per_file, s_per_byte = least_squares(sums, usual=USUAL_COST)
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
    """Add up the sums of several groups of attempts."""
    return CostSums(**{name: sum(getattr(group, name) for group in groups) for name in CostSums.__struct_fields__})


def least_squares(sums: CostSums, *, usual: tuple[float, float] | None = None) -> tuple[float, float]:
    """Seconds per file and per byte with the least squared error, neither below 0. If they cannot be separated, their
    ratio is that of `usual`; without it, the one that explains more takes the whole cost.
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
    # The bounded optimum lies on an axis: the one that reduces the squared error more.
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


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_plan_name(name: str) -> str:
    """Return the name if a plan can have it: a file name of plain characters. Raises UsageError."""
    if not _NAME.fullmatch(name) or name.endswith((".json", ".chunks", ".tmp")):
        raise UsageError(
            f"{name!r} cannot be the name of a plan",
            cause="a name has letters, digits, dots, dashes and underscores, begins with a letter or digit, and has no "
            "suffix .json, .chunks or .tmp",
            hint="for example: heavy-users-1",
        )
    return name


class ThroughputPoint(Struct, frozen=True, kw_only=True):
    """Throughput of all streams together over a span."""

    at_s: float
    """End of the span."""
    span_s: float
    """Length of the span."""
    busy_s: float
    """Time of the span in which streams were at work."""
    streams: float
    """Mean number of streams in that time."""
    files: int
    """Files that were copied."""
    size_bytes: int
    """Bytes that were copied."""

    @property
    def rate_bytes_per_s(self) -> float:
        """Rate while streams were at work."""
        return self.size_bytes / self.busy_s if self.busy_s > 0 else 0.0

    @property
    def rate_files_per_s(self) -> float:
        """Rate while streams were at work."""
        return self.files / self.busy_s if self.busy_s > 0 else 0.0


class PlannedTree(Struct, frozen=True, kw_only=True):
    """A user tree as planned; `rank` counts from 1 in the plan's order of size. `reaped_*` is the part that is archived
    or skipped instead of copied.
    """

    tree: UserTree
    batch: int
    rank: int
    size_bytes: int
    files: int
    reaped_bytes: int = 0
    reaped_files: int = 0


# Plans in the ledger.


class PlanRecord(Struct, frozen=True, kw_only=True):
    """A recorded plan: the `path` and checksum of its document, and the state of every batch."""

    name: str
    path: str
    checksum: str
    created_at_s: float
    scan_id: int
    batches: Mapping[int, BatchState]
