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
    """Files up to a certain age (`None`: older than all others), with bytes counted once per link group."""

    label: str
    max_age_s: int | None
    files: int
    size_bytes: int


class TreeUsage(Struct, frozen=True, kw_only=True):
    """The content of one user tree. `files` counts every path that is not a directory; bytes count a link group
    once. `size_bytes`, `largest_bytes` and the ages are in bytes to copy (`content_bytes`): holes do not count.
    """

    tree: UserTree
    files: int
    directories: int
    size_bytes: int
    allocated_bytes: int
    tiny_files: int
    largest_bytes: int
    largest_path: bytes
    link_groups: int
    symlinks: int
    specials: int
    by_mtime: tuple[AgeBucket, ...]
    by_atime: tuple[AgeBucket, ...]
    median_age_s: float


SMALL_RANGES = ("0", "1~31", "32~1K-", "1K~31K")
"""The size ranges of Robinhood below 32 KiB."""


class UserUsage(Struct, frozen=True, kw_only=True):
    """What another program counted of a user's files, by owner. `used_bytes` None: not counted; `by_size` are files by
    size range.
    """

    user: str
    files: int
    directories: int
    size_bytes: int
    used_bytes: int | None = None
    by_size: Mapping[str, int] = {}


class UsageRanking(Struct, frozen=True, kw_only=True):
    """Users in order, from a file or database of Robinhood. `partial`: only the top users."""

    source: str
    at_s: float
    order: Order
    partial: bool
    users: tuple[UserUsage, ...]


class UsageDifference(Struct, frozen=True, kw_only=True):
    """A user in such a ranking, and in the scan behind the plan. None: not there."""

    user: str
    counted_files: int | None
    counted_bytes: int | None
    scanned_files: int | None
    scanned_bytes: int | None


class Usages(Struct, frozen=True, kw_only=True):
    """The usage of every tree of a catalog (empty ones too), in order of path, and of all paths outside the trees.

    `outside` is None if there are no such paths; the directories above trees do not count.
    """

    trees: tuple[TreeUsage, ...]
    outside: TreeUsage | None
    outside_examples: tuple[bytes, ...]


class Surprise(Struct, frozen=True, kw_only=True):
    """A number of paths of one tree (None: outside every tree, or the whole source), with examples."""

    kind: SurpriseKind
    tree: bytes | None
    count: int
    size_bytes: int
    detail: str
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
    """Time that one stream spends; `basis` is a sentence about the source of the figures."""

    s_per_file: float
    s_per_byte: float
    streams: int
    basis: str


class Batch(Struct, frozen=True, kw_only=True):
    """User trees that move together. `chunk_list` is the Parquet file beside the plan, with its BLAKE2b digest."""

    number: int
    trees: tuple[UserTree, ...]
    size_bytes: int
    files: int
    directories: int
    chunks: int
    chunk_list: str
    chunk_list_digest: str
    forecast_s: float
    fits: bool


class CleanUpKind(StrEnum):
    """Files that a user could remove or pack before the move: those that the reap rule of the site lists, those that were not
    changed for a year, and tiny ones (packed, so that only their number shrinks).
    """

    LISTED = "listed"
    OLD = "old"
    TINY = "tiny"


class CleanUp(Struct, frozen=True, kw_only=True):
    """The gain of a user who cleans up one kind of files in a tree, taken by itself: a file may be of several kinds.
    `size_bytes` are freed on both sides; `earlier_s` is how much earlier the tree is copied.
    """

    tree: bytes
    kind: CleanUpKind
    files: int
    size_bytes: int
    earlier_s: float


class TinyDirectory(Struct, frozen=True, kw_only=True):
    """A directory in the top of a tree, or (by `path`) the top itself, and the tiny files in it. Those of the top are only
    the ones directly in it.
    """

    tree: bytes
    path: bytes
    files: int


EMPTYING_PERCENT = (25, 50, 75, 90, 100)


class EmptyingCurve(Struct, frozen=True, kw_only=True):
    """The source emptying over time in one order: when each of `EMPTYING_PERCENT` of its bytes has left."""

    order: Order
    reached_s: tuple[float, ...]


class Plan(Struct, frozen=True, kw_only=True):
    """The plan of a migration, as written to `plans/NAME.json`. `reap` is None if no rule reaps or lists, `schedule` if
    the source has no bricks; `owners` are the owners of each tree's files; `set_apart` are the trees in no batch,
    because the scan could not read them everywhere. `metadata` are BeeGFS's metadata targets. `clean_ups` are the gains
    of users who clean up, `tiny` the directories with the most tiny files.
    """

    name: str
    site: str
    site_id: str
    created_at_s: float
    order: Order
    catalog: str
    scan_id: int
    catalog_whole: bool
    size_bytes: int
    files: int
    directories: int
    ranking: tuple[TreeUsage, ...]
    outside: TreeUsage | None
    batches: tuple[Batch, ...]
    surprises: tuple[Surprise, ...]
    cost: TransferCost
    forecast_s: float
    target: Capacity
    problems: tuple[str, ...]
    emptying: tuple[EmptyingCurve, ...]
    reap: PlanReap | None = None
    schedule: Schedule | None = None
    owners: tuple[TreeOwner, ...] = ()
    set_apart: tuple[UserTree, ...] = ()
    metadata: tuple[MetadataForecast, ...] = ()
    clean_ups: tuple[CleanUp, ...] = ()
    tiny: tuple[TinyDirectory, ...] = ()


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
    """Throughput of all streams together over a span that ends at `at_s`. Streams were at work for `busy_s` of it;
    `streams` is their mean number in that time.
    """

    at_s: float
    span_s: float
    busy_s: float
    streams: float
    files: int
    size_bytes: int

    @property
    def rate_bytes_per_s(self) -> float:
        return self.size_bytes / self.busy_s if self.busy_s > 0 else 0.0

    @property
    def rate_files_per_s(self) -> float:
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
