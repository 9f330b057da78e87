"""The plan: a ranking, batches, surprises and a forecast. Data first, rendered in several ways."""

from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.quota import TreeOwner
from migrator.domain.reap import PlanReap
from migrator.domain.schedule import Schedule
from migrator.domain.site import Capacity
from migrator.domain.states import ChunkKind
from migrator.domain.tree import UserTree


class Order(StrEnum):
    """Which user trees go first."""

    HEAVIEST = "heaviest"
    SMALLEST = "smallest"
    COLDEST = "coldest"
    MOST_FILES = "most-files"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeBucket:
    """Files up to a certain age (`None`: older than all others), with bytes counted once per link group."""

    label: str
    max_age_s: int | None
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeUsage:
    """What one user tree holds. `files` counts every path that is no directory; bytes count a link group once."""

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


class SurpriseKind(StrEnum):
    """What will surprise somebody if nobody says it beforehand. The `loss-` kinds are what the target cannot keep; what the
    plan's reap list names is skipped, or belongs into archives, and only a verification counts it.
    """

    HARD_LINKS_IN_BATCH = "hard-links-across-trees"
    HARD_LINKS_BROKEN = "hard-links-broken"
    SYMLINK_CROSSES_TREE = "symlink-crosses-tree"
    SYMLINK_INTO_SOURCE = "symlink-into-source-mount"
    QUOTA = "quota-to-recreate"
    OUTSIDE_TREES = "outside-every-tree"
    FOREIGN_OWNER = "foreign-owner"
    LONG_PATH = "long-path"
    LOSS_TIME = "loss-time-fraction"
    LOSS_DEVICE = "loss-device-number"
    LOSS_DEVICE_NODE = "loss-device-node"
    LOSS_FIFO = "loss-fifo"
    LOSS_SOCKET = "loss-socket"
    LOSS_SYMLINK_TARGET = "loss-symlink-target"
    LOSS_XATTR_SIZE = "loss-xattr-too-big"
    LOSS_XATTR_NAMESPACE = "loss-xattr-namespace"
    LOSS_ACL = "loss-acl"
    LOSS_HARD_LINK = "loss-hard-link"
    LOSS_NAME = "loss-name"
    LOSS_SYMLINK_MODE = "loss-symlink-mode"
    LOSS_SYMLINK_OWNER = "loss-symlink-owner"
    LOSS_SYMLINK_TIME = "loss-symlink-time"
    LOSS_SPARSENESS = "loss-sparseness"
    SKIPPED = "skipped"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surprise:
    """One finding: how many paths of which tree (None: outside every tree, or the whole source), with examples."""

    kind: SurpriseKind
    tree: bytes | None
    count: int
    size_bytes: int
    detail: str
    examples: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCost:
    """What a stream spends: `basis` says where the figures come from, in words for people."""

    s_per_file: float
    s_per_byte: float
    streams: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyingPoint:
    """After `elapsed_s` of copying in one order, so many bytes have left the source and so many users are done."""

    elapsed_s: float
    freed_bytes: int
    users_done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyingCurve:
    """How one order would empty the source over time; `half_s` is when half the bytes are off it."""

    order: Order
    half_s: float
    total_s: float
    points: tuple[EmptyingPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole plan of a migration, as written to `plans/NAME.json`. `reap` is None where no rule reaps or lists,
    `schedule` where the source has no bricks; `owners` say whose the files of each tree are.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPath:
    """One row of a chunk list. `link_to` is set in chunks of links: the name that exists already.

    `mtime_ns` is the catalog's. In chunks of ranges `range_offset_bytes` and `range_length_bytes` say which part of the
    file. There and in the chunk of ranged files that such a file ends in, `size_bytes` is what the chunk brings of it
    (in the end nothing), and `file_size_bytes` the file's own.
    """

    path: bytes
    size_bytes: int
    link_group: int | None = None
    link_to: bytes | None = None
    mtime_ns: int | None = None
    range_offset_bytes: int | None = None
    range_length_bytes: int | None = None
    file_size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A list of paths of one tree for one stream. `number` is unique in its pass; the paths lie in the chunk list.

    `brick` (`host:/path`, as glusterd writes it) is where the paths lay when they were scanned; None: read them through
    the mount.
    """

    number: int
    kind: ChunkKind
    tree: bytes
    files: int
    size_bytes: int
    brick: str | None = None
