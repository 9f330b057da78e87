"""The values of a lab: a cluster on one machine with invented users, or plain directories without Gluster."""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from migrator.core.paths import show
from migrator.core.units import GIB, MIB

FIRST_UID = 20001
"""The first invented user's uid and gid; they have no passwd entry."""


class LabKind(StrEnum):
    """The kind of a lab's source."""

    GLUSTER = "gluster"
    POSIX = "posix"


class VolumeType(StrEnum):
    """How the lab's volume distributes files. `replica3`, `arbiter` and `disperse` use the first brick of every host,
    and the others are spares; the other three use all.
    """

    DISTRIBUTE = "distribute"
    REPLICA3 = "replica3"
    ARBITER = "arbiter"
    DISTRIBUTED_REPLICATE = "distributed-replicate"
    DISTRIBUTED_ARBITER = "distributed-arbiter"
    DISPERSE = "disperse"


class LabPhase(StrEnum):
    """The state of a lab. One that stays `starting` after a crash can only be taken down."""

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"


class OddKind(StrEnum):
    """Every kind of odd file. Each value is also the name of its directory or file."""

    NAME_NEWLINE = "name-newline"
    NAME_INVALID_UTF8 = "name-invalid-utf8"
    NAME_LEADING_DASH = "name-leading-dash"
    NAME_SPACE = "name-space"
    NAME_QUOTES = "name-quotes"
    NAME_BACKSLASH = "name-backslash"
    NAME_OCTAL_ESCAPE = "name-octal-escape"
    NAME_CONTROL = "name-control"
    NAME_PATTERN = "name-pattern"
    NAME_MARKUP = "name-markup"
    NAME_UNICODE = "name-unicode"
    NAME_255_BYTES = "name-255-bytes"
    NAME_RSYNC_TEMPORARY = "name-rsync-temporary"
    NAME_GLUSTERFS = "name-glusterfs"
    DEEP_PATH = "deep-path"
    HARD_LINK_SAME_DIRECTORY = "hard-link-same-directory"
    HARD_LINK_ACROSS_DIRECTORIES = "hard-link-across-directories"
    HARD_LINK_ACROSS_TREES = "hard-link-across-trees"
    HARD_LINK_SYMLINK = "hard-link-symlink"
    SYMLINK_RELATIVE = "symlink-relative"
    SYMLINK_ABSOLUTE = "symlink-absolute"
    SYMLINK_DANGLING = "symlink-dangling"
    SYMLINK_LOOP = "symlink-loop"
    SYMLINK_ACROSS_TREES = "symlink-across-trees"
    SYMLINK_INTO_SOURCE = "symlink-into-source"
    SYMLINK_LONG = "symlink-long"
    SPARSE = "sparse"
    HOLE_ONLY = "hole-only"
    EMPTY_FILE = "empty-file"
    SIZE_EDGES = "size-edges"
    ACL_ACCESS = "acl-access"
    ACL_DEFAULT = "acl-default"
    USER_XATTR = "user-xattr"
    FILE_CAPABILITY = "file-capability"
    FIFO = "fifo"
    SOCKET = "socket"
    CHARACTER_DEVICE = "character-device"
    BLOCK_DEVICE = "block-device"
    SETUID = "setuid"
    SETGID = "setgid"
    SETGID_DIRECTORY = "setgid-directory"
    STICKY_DIRECTORY = "sticky-directory"
    READ_ONLY_DIRECTORY = "read-only-directory"
    FOREIGN_OWNER = "foreign-owner"
    EMPTY_DIRECTORY = "empty-directory"
    MODE_000 = "mode-000"
    OLD_TIMES = "old-times"
    FUTURE_TIMES = "future-times"
    SUBSECOND_TIMES = "subsecond-times"


class OddFiles(Struct, frozen=True, kw_only=True):
    """The generated paths relative to the tree, by kind, and why other kinds are missing."""

    paths: Mapping[OddKind, tuple[bytes, ...]]
    skipped: Mapping[OddKind, str]


class LabSpec(Struct, frozen=True, kw_only=True):
    """The specification of a lab. Equal seeds and reference times give equal trees.

    The names of the network namespaces and the network 10.213.X.0/24 are derived from the directory, because both must
    differ between concurrent labs.
    """

    NO_KEYS: ClassVar = frozenset({"name_prefix", "network_octet"})

    directory: bytes
    """Its directory, absolute."""
    kind: LabKind = LabKind.GLUSTER
    """The kind of its source."""
    hosts: int = 3
    """Number of hosts."""
    bricks_per_host: int = 2
    """Bricks of each host."""
    brick_size_bytes: int = 2 * GIB
    """Size of each brick."""
    target_size_bytes: int = 4 * GIB
    """Size of the target."""
    volume: str = "vol1"
    volume_type: VolumeType = VolumeType.DISTRIBUTE
    """How the volume distributes files."""
    users: int = 8
    """Number of users."""
    files: int = 4000
    """Files of all users together, without the odd files."""
    data_bytes: int = 384 * MIB
    """Bytes of all users together, without the odd files."""
    seed: int = 1
    """Seed of the trees."""
    odd: bool = True
    """Whether it has odd files."""
    reference_time_s: int | None = None
    """The ages of files count from here; None: the start of the current day."""
    ssh: bool = True
    """False: the hosts run no sshd, as on a machine without one."""

    @property
    def name_prefix(self) -> str:
        """The prefix of namespaces."""
        return "ml" + _directory_digest(self.directory).hex()[:6]

    @property
    def network_octet(self) -> int:
        """The third octet of the network."""
        return 1 + _directory_digest(self.directory)[-1] % 254

    def mistakes(self) -> tuple[str, ...]:
        """Why the lab cannot be built, for people."""
        found: list[str] = []
        if not self.directory.startswith(b"/"):
            found.append("the directory of a lab must be an absolute path")
        if b"," in self.directory or b"\n" in self.directory or b" " in self.directory or b":" in self.directory:
            found.append("the directory of a lab must not hold commas, colons, blanks or newlines (mount options)")
        if not 1 <= self.hosts <= 20 or not 1 <= self.bricks_per_host <= 8:
            found.append("a lab has 1 to 20 hosts with 1 to 8 bricks each")
        if self.brick_size_bytes < 300 * MIB or self.target_size_bytes < 300 * MIB:
            found.append("XFS needs at least 300 MiB for a brick and for the target")
        if not 1 <= self.users <= 1000 or self.files < 0 or self.data_bytes < 0:
            found.append("a lab has 1 to 1,000 users, and no negative number of files or bytes")
        if self.volume_type is not VolumeType.DISTRIBUTE and self.hosts % 3:
            found.append(f"a volume of type {self.volume_type} needs a multiple of 3 hosts")
        return tuple(found)


def down_command(directory: bytes) -> str:
    """The command that takes a lab down, for people. It always names the directory, because several labs may be up.
    Its path contains no blanks (`LabSpec.mistakes`).
    """
    return f"migrator lab down --dir {show(directory)}"


def _directory_digest(directory: bytes) -> bytes:
    return hashlib.blake2b(directory, digest_size=8).digest()


class LabHost(Struct, frozen=True, kw_only=True):
    """One host."""

    number: int
    """Its number."""
    namespace: str
    """Its network namespace."""
    address: str
    """Its address."""
    holder_pid: int | None = None
    """The process that keeps its namespaces."""


class LabBrick(Struct, frozen=True, kw_only=True):
    """One brick."""

    host: int
    """Number of its host."""
    number: int
    """Its number on the host."""
    name: str
    """Gluster's name for it (`host_address:path`)."""
    image: bytes
    """Its image file on this machine."""


class LabState(Struct, frozen=True, kw_only=True):
    """A lab, as in its `lab.json`: `lab up`."""

    NO_KEYS: ClassVar = frozenset({"token", "hub_namespace"})

    spec: LabSpec
    """Its specification."""
    phase: LabPhase
    """Its state."""
    token: str
    """Mark of every process of the lab, in its environment (`MIGRATOR_TOKEN`)."""
    created_at_s: float
    """When it was made."""
    reference_time_s: int
    """The ages of files count from here."""
    hosts: tuple[LabHost, ...] = ()
    """Its hosts."""
    bricks: tuple[LabBrick, ...] = ()
    """Its bricks."""
    source: bytes = b""
    """Root of the source."""
    target: bytes = b""
    """Root of the target."""
    state_dir: bytes = b""
    """Its state directory."""
    site_file: bytes = b""
    """Its site.toml."""
    gluster: bytes = b""
    """The command `gluster` of the lab; empty without Gluster."""
    ssh_config: bytes = b""
    """The file for `ssh -F`; empty if the hosts run no sshd."""
    trees: tuple[bytes, ...] = ()
    """The user trees."""
    files: int = 0
    """Number of files that were made."""
    data_bytes: int = 0
    """Their bytes."""
    notes: tuple[str, ...] = ()
    """Limits of this machine, in sentences."""

    @property
    def client_namespace(self) -> str:
        """The network namespace of the FUSE client."""
        return f"{self.spec.name_prefix}-c"

    @property
    def hub_namespace(self) -> str:
        """The network namespace that holds the bridge."""
        return f"{self.spec.name_prefix}-hub"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Every network namespace of the lab, the hub last."""
        if self.spec.kind is LabKind.POSIX:
            return ()
        return (self.client_namespace, *(host.namespace for host in self.hosts), self.hub_namespace)
