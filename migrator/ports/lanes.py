"""Where streams can run, and what they read there: this machine over the mounts, brick servers over their own bricks,
nodes of a batch system over theirs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.errors import MigratorError
from migrator.ports.streams import BrickRules, Engine, Executor, Settler


class BrickRefused(MigratorError):
    """What lies in a brick's place on its host is not that brick. The host itself is fit, and so may its others be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A host that was reached: its executor over one root of the source, and the engines that it has, by name.

    `brick` is None where the source is read through a mount. `settler` mends what engines other than `direct` copy from
    a brick; a way to a brick without one has `direct` only.
    """

    executor: Executor
    engines: Mapping[str, Engine]
    brick: BrickRules | None = None
    settler: Settler | None = None


class Lane(Protocol):
    """One host with so many streams at once. It is connected when it is first needed, and again after it was lost."""

    @property
    def host(self) -> str:
        """As in the ledger."""

    @property
    def jobs(self) -> int:
        """How many streams may run there at once."""

    @property
    def reads_mount(self) -> bool:
        """Whether it reads the mount, for any chunk; if not it reads the bricks of its host."""

    @property
    def ends_by_lease(self) -> bool:
        """Whether a host that cannot be reached is known to have ended its streams when its lease is over. If not,
        somebody else has to say so (a batch system, of its job): `end_orphans` does.
        """

    def reads(self, brick: str) -> bool:
        """Whether a brick (`host:/path`, as glusterd writes it) is one that it reads itself."""

    def expect(self, bricks: Collection[str]) -> None:
        """Those of these bricks that it reads will be asked for: begin to reach the host meanwhile. Tells of nothing that
        goes wrong: `way` does. May be called again.
        """

    async def way(self, brick: str | None) -> Way:
        """How a chunk of this brick is read there; None: through the mount. Raises HostLost, BrickRefused, Refused,
        ToolFailed.
        """

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """Reach the host anew where that is needed, and end what attempts have left there; returns the tokens of those
        that could not be ended. Raises HostLost.
        """


class Lanes(Protocol):
    """All lanes of a run. The first reads the mount on this machine."""

    @property
    def all(self) -> Sequence[Lane]:
        """In the order in which they are filled."""

    def of_host(self, host: str) -> Lane | None:
        """The lane of a host as the ledger names it; None where site.toml has it no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickLook:
    """Whether the bricks may be read instead of the mount, now: `reasons` against it, as sentences, and the volume's
    fingerprint (see `SourceHealth`).
    """

    reasons: tuple[str, ...]
    fingerprint: str


class BrickGuard(Protocol):
    """Judges the volume for those who read its bricks."""

    async def look(self) -> BrickLook:
        """Look at the volume now. What cannot be looked at is a reason against."""
