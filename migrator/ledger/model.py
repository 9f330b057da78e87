"""Records of the ledger: the site, runs, and who is at work."""

from collections.abc import Collection
from typing import ClassVar

import xxhash
from msgspec import Struct

from migrator.core.units import format_time
from migrator.fs.model import MountIdentity, TargetCapabilities


class SiteRecord(Struct, frozen=True, kw_only=True):
    """The record of `init`. `site_id` is a random UUID; a plan of another site has a different one."""

    site_id: str
    name: str
    created_at_s: float
    source: MountIdentity
    target: MountIdentity
    capabilities: TargetCapabilities | None
    capabilities_probed_at_s: float | None

    @property
    def name_seed(self) -> int:
        """A random number of this site, below 2^63. Every name that the program uses inside user trees depends on it, so
        no user has a file of such a name.
        """
        return xxhash.xxh3_64_intdigest(self.site_id.encode("ascii")) >> 1


class RunRecord(Struct, frozen=True, kw_only=True):
    """One invocation of a verb that writes."""

    id: int
    verb: str
    """The verb."""
    pid: int
    """Its process."""
    started_at_s: float
    heartbeat_at_s: float
    """Last heartbeat, which it renews every few seconds while it is alive."""
    finished_at_s: float | None
    exit_code: int | None
    """Its exit code; None: it has recorded no end."""
    directory: str
    """Directory of its log."""


# Who is at work.


TREE, CALL = "tree ", "call "
"""What the names of locks begin with: those of user trees, and of recorded calls."""


class Holder(Struct, frozen=True):
    """A process at work."""

    NO_KEYS: ClassVar = frozenset({"trees"})

    pid: int
    """The process."""
    purpose: str
    """What it does."""
    since_s: float
    """Since when."""
    names: tuple[str, ...]
    """Locks that it holds alone."""
    shared: tuple[str, ...] = ()
    """Locks that it holds together with others."""

    @property
    def trees(self) -> int:
        """Number of user trees that it holds."""
        return sum(name.startswith(TREE) for name in self.names)

    def conflict(self, names: Collection[str], shared: Collection[str]) -> str | None:
        """The first lock that this holder does not let somebody else hold."""
        taken = {*names} & {*self.names, *self.shared} | {*shared} & {*self.names}
        return min(taken, default=None)

    def __str__(self) -> str:
        at = format_time(self.since_s, "%Y-%m-%d %H:%M:%S %Z")
        return f"process {self.pid} ({self.purpose}), since {at}"
