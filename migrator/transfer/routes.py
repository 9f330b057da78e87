"""The lanes over hosts: which of them reads which brick, and while the volume is quiet."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrator.core.clock import Clock
from migrator.core.errors import MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import SharedCall
from migrator.core.units import several
from migrator.gluster.model import VolumeState
from migrator.gluster.rules import volume_fingerprint
from migrator.gluster.volume import GlusterSource
from migrator.hosts.ports import Host, HostLost
from migrator.scan.rules import held_bricks, reasons_against_bricks, task_changes
from migrator.transfer.ports import BrickReadiness, ConnectedHost, Report
from migrator.transfer.rules import two_hosts

if TYPE_CHECKING:
    from migrator.hosts.slurm import SlurmHosts

# Lanes over hosts that are connected to on demand. The caller provides the parts of a connection.


_GRACE_S = 5.0

Prepare = Callable[[Host, str | None], Awaitable[ConnectedHost]]
"""The executor and the engines of a host for one brick (None: for the mount there). Raises ToolFailed, HostLost."""


@dataclass(eq=False)
class HostLane:
    """One host and its streams. It connects on first use, and again after a loss. Each root is prepared once per
    connection; concurrent callers share that.
    """

    host: str
    jobs: int
    reads_mount: bool
    reach: Callable[[str], Awaitable[Host]]
    prepare: Prepare
    writer: str = ""
    """The host of the target that writes for this one, which does not have it. Empty: it writes itself."""
    movers: "SlurmHosts | None" = None
    """The batch system of the host, which reports the remaining processes there after a loss."""
    _connection: Sequence[tuple[int, int]] = ()
    _connected: dict[str | None, ConnectedHost] = field(default_factory=dict)
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def attempts_on(self) -> str:
        """The host of its attempts in the ledger."""
        return two_hosts(self.host, self.writer) if self.writer else self.host

    def reads(self, brick: str) -> bool:
        """Whether the lane reads this brick (`host:/path`, as glusterd writes it) on its own host."""
        return not self.reads_mount and brick.startswith(self.host + ":/")

    async def connect(self, brick: str | None) -> ConnectedHost:
        """The host, ready to read this brick. None: the mount; without one, the target alone can be read. Raises
        HostLost, BrickRefused, Refused, ToolFailed.
        """
        async with self._making:
            host = await self.reach(self.host)
            # A new connection: the files placed on the host for the old one are gone.
            hosts = [host, *([await self.reach(self.writer)] if self.writer else ())]
            connection = [(id(one), (await one.identity()).process_id) for one in hosts]
            if connection != self._connection:
                self._connection = connection
                self._connected.clear()
            if brick not in self._connected:
                self._connected[brick] = await self.prepare(host, brick)
            return self._connected[brick]

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """Reconnect if needed, and end orphaned processes of attempts there. Returns the tokens of those that could not
        be ended. Raises HostLost, also while the batch system reports no state.
        """
        if self.movers is not None:
            return await self.movers.end_orphans(self.host, tokens)
        stuck: dict[str, None] = {}
        for name in (self.host, *((self.writer,) if self.writer else ())):
            host = await self.reach(name)
            stuck |= {token: None for token in tokens if not await host.processes.end(token, grace_s=_GRACE_S)}
        return list(stuck)


# Assigning chunks to lanes: bricks on their own hosts while the volume is quiet, everything else through the mount.


_FRESH_S = 10.0
"""A chunk may start on a snapshot of the volume of this age: the check after the chunk catches later changes."""
_HELD_S = 30.0
"""After this time a brick whose heals were pending is tried again."""
_REST = 2.0
"""The minimum pause between two snapshots, as a multiple of the duration of the previous one: `volume status` acquires
the lock of the whole cluster.
"""


def _shared_checks(guard: "VolumeGuard | None", clock: Clock) -> SharedCall[BrickReadiness]:
    """Snapshots of the volume, each for all chunks that ended before it began, at a bounded rate."""
    rests_until_s = 0.0

    async def look() -> BrickReadiness:
        nonlocal rests_until_s
        if guard is None:
            return BrickReadiness(reasons=("the source has no bricks that are known",), fingerprint="")
        await clock.sleep(max(rests_until_s - clock.monotonic_s(), 0.0))
        began_s = clock.monotonic_s()
        found = await guard.look()
        ended_s = clock.monotonic_s()
        rests_until_s = ended_s + _REST * (ended_s - began_s)
        return found

    return SharedCall(look)


@dataclass(slots=True, kw_only=True)
class Routes:
    """The lanes of one kind of work, the lost ones, and whether bricks may be read.

    Bricks that became unfit are read again when the volume is well, unless `lasting` is set; `held` ones, whose set waits to
    be healed, while the others are read on. `closings` counts how often each became so (None: all). A `refused` brick stays
    refused, because its path on its host is something else. `copies` has the bricks with the same files as a brick of a
    replica set.
    """

    clock: Clock
    report: Report
    lanes: Sequence[HostLane]
    guard: "VolumeGuard | None"
    catalog_fingerprint: str = ""
    """The bricks are read only while the volume still has it; empty: whatever it has."""
    copies: Mapping[str, Sequence[str]] = field(default_factory=dict)
    target_alone: bool = False
    """Work of no brick needs the target alone, so every lane may take it. Otherwise it needs the mount of the source."""
    patience_s: float | None = None
    """A lost host is given up when it has done no work for this long. None: never."""
    lost: dict[str, HostLost] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    finds: dict[str, int] = field(default_factory=dict)
    unfit: tuple[str, ...] = ()
    lasting: bool = False
    held: Mapping[str, str] = field(default_factory=dict)
    closings: Counter[str | None] = field(default_factory=Counter)
    watched: bool = False
    version: int = 0
    _shared: SharedCall[BrickReadiness] = field(init=False)
    _lost_since_s: dict[str, float] = field(default_factory=dict)
    _quiet_at_s: float | None = None

    def __post_init__(self) -> None:
        """A missing guard counts as one that cannot be evaluated."""
        self._shared = _shared_checks(self.guard, self.clock)

    def eligible(self, lane: HostLane, bricks: Collection[str | None]) -> frozenset[str | None]:
        """The bricks whose chunks a lane may take now (None: chunks of no brick)."""
        if lane.reads_mount:
            return frozenset(brick for brick in (*bricks, None) if not self._is_served(brick))
        if lane.host in self.lost:
            return frozenset()
        of_no_brick = frozenset({None}) if self.target_alone else frozenset()
        if self.unfit:
            return of_no_brick
        return of_no_brick.union(brick for brick in bricks if self.copy_on(lane, brick) is not None)

    def copy_on(self, lane: HostLane, brick: str | None) -> str | None:
        """The brick that a lane reads for the work of a brick: this one, or a copy of it; None if it reads none of them.
        A held brick is tried again after a while, which takes a new snapshot first.
        """
        refused: Container[str] = {*self.refused, *(self.held if self._is_fresh(_HELD_S) else ())}
        members = () if brick is None else self.copies.get(brick, (brick,))
        return next((one for one in members if one not in refused and lane.reads(one)), None)

    def reads_without_brick(self, lane: HostLane) -> bool:
        """Whether a lane may take work of no brick."""
        return lane.reads_mount or self.target_alone

    def closings_of(self, brick: str | None) -> int:
        """How often a brick became one that is not to be read."""
        return self.closings[None] + (self.closings[brick] if brick else 0)

    @property
    def open(self) -> Sequence[HostLane]:
        """The lanes on which streams may run now."""
        return [
            lane
            for lane in self.lanes
            if lane.host not in self.lost and (self.reads_without_brick(lane) or not self.unfit)
        ]

    def _is_served(self, brick: str | None) -> bool:
        """Whether a lane of its own host reads the brick, instead of those of the mount."""
        if self.unfit:
            return False
        return any(self.copy_on(lane, brick) is not None for lane in self.lanes if lane.host not in self.lost)

    def _is_fresh(self, age_s: float) -> bool:
        return self._quiet_at_s is not None and self.clock.monotonic_s() - self._quiet_at_s < age_s

    async def quiet_before(self, brick: str) -> bool:
        """Whether a chunk may be read from this brick now."""
        if self.unfit:
            return False
        return brick not in self.held if self._is_fresh(_FRESH_S) else await self.quiet_now(brick)

    async def quiet_now(self, brick: str | None = None) -> bool:
        """Check the volume, starting after this call, and whether this brick may be read. Reports once that bricks became
        unfit, or fit again.
        """
        began_s = self.clock.monotonic_s()
        look = await self._shared.begun_after_now()
        reasons, lasting = look.reasons, look.lasting
        if not reasons and self.catalog_fingerprint and look.fingerprint != self.catalog_fingerprint:
            reasons, lasting = ("the volume's bricks or options were changed since the scan",), True
        if self.lasting:
            return False
        if (bool(reasons), lasting) != (bool(self.unfit), self.lasting):
            self.version += 1
            self._report(reasons, lasting=lasting)
        self.closings[None] += bool(reasons) and not self.unfit
        self.unfit, self.lasting = reasons, lasting
        self._quiet_at_s = None if reasons else began_s
        if not reasons:
            self._hold(look.held)
        return not reasons and brick not in self.held

    def _hold(self, held: Mapping[str, str]) -> None:
        if held.keys() == self.held.keys():
            return
        self.version += 1
        if newly := [brick for brick in held if brick not in self.held]:
            self.closings.update(newly)
            reasons = "; ".join(dict.fromkeys(held[brick] for brick in newly))
            message = (
                f"{several(len(newly), 'brick')} of sets with pending heals are not read now, the mount is: {reasons}"
            )
            self.report(EventKind.BRICKS_UNFIT, Severity.WARNING, "bricks", message)
        else:
            self._report((), lasting=False)
        self.held = held

    def _report(self, reasons: tuple[str, ...], *, lasting: bool) -> None:
        if not reasons:
            self.report(EventKind.BRICKS_FIT, Severity.INFO, "bricks", "the bricks are read again")
            return
        until = "any more in this run" if lasting else "until the volume is well"
        message = f"the bricks are not read {until}, the mount is: {'; '.join(reasons)}"
        self.report(EventKind.BRICKS_UNFIT, Severity.WARNING, "bricks", message)

    def unwatched(self, lane: HostLane) -> bool:
        """Whether a lane reads no brick until the volume is well, and no worker polls the volume."""
        return bool(self.unfit) and not (self.lasting or self.watched or self.reads_without_brick(lane))

    def lose(self, lane: HostLane, error: HostLost, *, unfit: bool = False, finds: int | None = None) -> None:
        """Record that a host no longer answers, or (`unfit`) answers but cannot run streams. `finds` is the number of
        its reconnections when the failed operation started: a loss before the latest one is ignored.
        """
        if lane.host in self.lost or finds not in (None, self.finds.get(lane.host, 0)):
            return
        self.lost[lane.host] = error
        self._lost_since_s.setdefault(lane.host, self.clock.monotonic_s())
        self.version += 1
        what = "cannot be used" if unfit else "is lost"
        message = f"host {lane.host} {what}, its chunks are read elsewhere: {error.message}"
        self.report(EventKind.HOST_LOST, Severity.WARNING, f"host {lane.host}", message)

    def refuse(self, brick: str, error: MigratorError) -> None:
        """Record that the path of the brick on its host is not that brick."""
        if brick in self.refused:
            return
        self.refused[brick] = error.message
        self.version += 1
        message = f"brick {brick} is not read any more in this run: {error.message}"
        self.report(EventKind.BRICKS_UNFIT, Severity.WARNING, brick, message)

    def find_again(self, lane: HostLane) -> None:
        """Record that a lost host answers again."""
        if self.lost.pop(lane.host, None) is not None:
            self.version += 1
            self.finds[lane.host] = self.finds.get(lane.host, 0) + 1
            message = f"host {lane.host} is reached again"
            self.report(EventKind.HOST_FOUND, Severity.INFO, f"host {lane.host}", message)

    def worked(self, lane: HostLane) -> None:
        """Record that the lane has done a piece of work."""
        self._lost_since_s.pop(lane.host, None)

    def given_up(self, lane: HostLane) -> bool:
        """Whether the lane takes no more work."""
        if self.patience_s is None or lane.host not in self.lost:
            return False
        return self.clock.monotonic_s() - self._lost_since_s[lane.host] >= self.patience_s

    @property
    def in_use(self) -> Sequence[HostLane]:
        """The lanes that are not given up."""
        return [lane for lane in self.lanes if not self.given_up(lane)]

    def abandon(self) -> None:
        """Abandon the shared check."""
        self._shared.abandon()


# The guard for reading bricks, with the same reasons as for a scan of the bricks.


class VolumeGuard:
    """Decides whether the bricks of the volume may be read. Also reports tasks that started after its first snapshot
    and have ended since.
    """

    def __init__(self, volume: GlusterSource) -> None:
        self._volume = volume
        self._first: VolumeState | None = None

    async def look(self) -> BrickReadiness:
        """Take a snapshot of the volume now. Unknown state is a reason not to read bricks."""
        try:
            state = await self._volume.state_for_bricks()
        except MigratorError as error:
            return BrickReadiness(reasons=(f"the volume's state is unknown: {error.message}",), fingerprint="")
        self._first = self._first or state
        moved = task_changes(self._first, state)
        reasons = reasons_against_bricks(state) or moved
        return BrickReadiness(
            reasons=reasons,
            fingerprint=volume_fingerprint(state),
            lasting=bool(state.tasks) or bool(moved),
            held=held_bricks(state),
        )
