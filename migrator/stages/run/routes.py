"""Which lane may take which chunk: bricks by their own hosts while the volume is quiet, everything else by the mount."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from migrator.domain.errors import MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.transfer import StopReason
from migrator.ports.clock import Clock
from migrator.ports.hosts import HostLost
from migrator.ports.lanes import BrickGuard, BrickLook, Lane
from migrator.stages.run.context import Invocation
from migrator.stages.run.shared_call import SharedCall

_FRESH_S = 10.0
"""A chunk may start on a look at the volume that is so old: what changed since is seen by the look after it."""


@dataclass(slots=True, kw_only=True)
class Routes:
    """The lanes of a pass, those that are lost, and whether bricks may be read at all.

    Once the bricks were unfit they stay so for the rest of the run: files have moved, and a new scan knows where to. The
    same goes for a single brick that was `refused`, because something else lies in its place on its host.
    """

    invocation: Invocation
    lanes: Sequence[Lane]
    guard: BrickGuard | None
    catalog_fingerprint: str
    lost: dict[str, HostLost] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    finds: dict[str, int] = field(default_factory=dict)
    unfit: tuple[str, ...] = ()
    version: int = 0
    _shared: SharedCall[BrickLook] = field(init=False)
    _quiet_at_s: float | None = None

    def __post_init__(self) -> None:
        """A guard that is not there is one that cannot be evaluated."""

        async def look() -> BrickLook:
            if self.guard is None:
                return BrickLook(reasons=("the source has no bricks that are known",), fingerprint="")
            return await self.guard.look()

        self._shared = SharedCall(look)

    @property
    def _clock(self) -> Clock:
        return self.invocation.world.clock

    def eligible(self, lane: Lane, bricks: Collection[str | None]) -> frozenset[str | None]:
        """Whose chunks a lane may take now, of these bricks (None: chunks of no brick)."""
        if lane.reads_mount:
            return frozenset(brick for brick in (*bricks, None) if not self._is_served(brick))
        if self.unfit or lane.host in self.lost:
            return frozenset()
        return frozenset(
            brick for brick in bricks if brick is not None and brick not in self.refused and lane.reads(brick)
        )

    @property
    def streams(self) -> int:
        """How many streams may be at work at once now, on all hosts together."""
        lanes = (lane for lane in self.lanes if lane.reads_mount or not (self.unfit or lane.host in self.lost))
        return sum(lane.jobs for lane in lanes)

    @property
    def hosts(self) -> frozenset[str]:
        """Where streams may be at work now."""
        return frozenset(
            lane.host for lane in self.lanes if lane.reads_mount or not (self.unfit or lane.host in self.lost)
        )

    def _is_served(self, brick: str | None) -> bool:
        """Whether a lane of its own reads the brick: the mount's lanes leave its chunks alone."""
        only = self.invocation.request.only_bricks
        if brick is None or ((self.unfit or brick in self.refused) and not only):
            return False
        return any(lane.reads(brick) for lane in self.lanes if only or lane.host not in self.lost)

    async def quiet_before(self) -> bool:
        """Whether a chunk may be read from its brick now."""
        if self.unfit:
            return False
        if self._quiet_at_s is not None and self._clock.monotonic_s() - self._quiet_at_s < _FRESH_S:
            return True
        return await self.quiet_now()

    async def quiet_now(self) -> bool:
        """Look at the volume, with a look that begins after this call; says once what is against the bricks."""
        began_s = self._clock.monotonic_s()
        look = await self._shared.begun_after_now()
        reasons = list(look.reasons)
        if not reasons and self.catalog_fingerprint and look.fingerprint != self.catalog_fingerprint:
            reasons.append("the volume's bricks or options were changed since the scan")
        if reasons and not self.unfit:
            self.unfit = tuple(reasons)
            self.version += 1
            message = "the bricks are not read any more in this run, the mount is: " + "; ".join(reasons)
            self.invocation.say(EventKind.BRICKS_UNFIT, Severity.WARNING, "bricks", message)
        if not reasons:
            self._quiet_at_s = began_s
        return not self.unfit

    def lose(self, lane: Lane, error: HostLost, *, unfit: bool = False, finds: int | None = None) -> None:
        """A host does not answer any more, or (`unfit`) answers and cannot do it. `finds`: how often it had been found
        again when what now fails was begun; a loss that has been mended since is none.
        """
        if lane.host in self.lost or finds not in (None, self.finds.get(lane.host, 0)):
            return
        self.lost[lane.host] = error
        self.version += 1
        what = "cannot be used" if unfit else "is lost"
        message = f"host {lane.host} {what}, {self._instead('its chunks')}: {error.message}"
        self.invocation.say(EventKind.HOST_LOST, Severity.WARNING, f"host {lane.host}", message)

    def refuse(self, brick: str, error: MigratorError) -> None:
        """What lies in its place is not the brick."""
        if brick in self.refused:
            return
        self.refused[brick] = error.message
        self.version += 1
        message = f"brick {brick} is not read any more in this run, {self._instead('its chunks')}: {error.message}"
        self.invocation.say(EventKind.BRICKS_UNFIT, Severity.WARNING, brick, message)

    def _instead(self, what: str) -> str:
        only = self.invocation.request.only_bricks
        return f"{what} wait" if only else f"{what} are read through the mount"

    def find_again(self, lane: Lane) -> None:
        """A host that was lost answers again."""
        if self.lost.pop(lane.host, None) is not None:
            self.version += 1
            self.finds[lane.host] = self.finds.get(lane.host, 0) + 1
            message = f"host {lane.host} is reached again"
            self.invocation.say(EventKind.HOST_FOUND, Severity.INFO, f"host {lane.host}", message)

    def dead_end(self) -> tuple[StopReason, str] | None:
        """Why chunks that wait can be taken by nobody, where only bricks may be read."""
        if not self.invocation.request.only_bricks:
            return None
        if self.unfit:
            return StopReason.BRICKS_UNFIT, "; ".join(self.unfit)
        if self.refused:
            return StopReason.BRICKS_UNFIT, "; ".join(self.refused.values())
        return None

    def abandon(self) -> None:
        """Nobody waits for a look any more."""
        self._shared.abandon()
