"""Hook calls, throttles, progress and failures, for drains, additions and retirements."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from migrator.bricks.add import rules as addition_standing
from migrator.bricks.add.model import AdditionRecord, AdditionState, BrickStandings
from migrator.bricks.drain import rules_progress as drain_standing
from migrator.bricks.drain.model import OUT_STATES, DrainRecord, DrainState
from migrator.bricks.progress import RATE_WINDOW_S, TaskSample, newest_of_bricks
from migrator.catalog.model import StrangeFiles
from migrator.core.errors import ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.probe import Pace, ProbeSide, pace_after
from migrator.core.units import HOUR_S
from migrator.core.windows import Window, holds
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.model import Brick, ChangedOption, VolumeState
from migrator.gluster.rules import LOOKUP_OPTION, is_on, slowed, steps_below, still_changed, value_before
from migrator.scan.rules import still_strange

if TYPE_CHECKING:
    from migrator.bricks.call import BrickCall
    from migrator.bricks.records import BrickLedger
    from migrator.catalog.records import ScanRecords
    from migrator.operations.records import OperationStore

T = TypeVar("T")

# Lookups by name after a change of the layout.
#
# With `cluster.lookup-optimize` (the default) a client looks up a name only on the brick in the layout of its
# directory. A drain and a fix-layout change layouts but leave the files of the remaining bricks in place. Those files
# are still listed, but an open by name fails with ENOENT, and a program that then creates the name makes a second file
# (GlusterFS 10.3, observed; #118 and #1918 there). So the option is turned off before the layout changes, and stays
# off.


async def look_everywhere(volume: GlusterVolumeCommands) -> str:
    """Make clients look up a name on all bricks if the brick of its layout does not have it. Return a sentence about
    the change; empty if there is none. The option is not restored: only a rebalance of the whole volume moves every
    file to the brick of its layout. May be called again. Raises ToolFailed.
    """
    before = await volume.option(LOOKUP_OPTION)
    # Gluster may report an option that was never set as `on (DEFAULT)`.
    if before.split() and is_on({LOOKUP_OPTION: before.split()[0]}, LOOKUP_OPTION, default=True) is False:
        return ""
    await volume.set_option(LOOKUP_OPTION, "off")
    return (
        f"{LOOKUP_OPTION} is off now (it was {before}), and is to stay off: otherwise files that stay on their bricks could not "
        "be found by name any more"
    )


# The throttle of the rebalance process, set by time of day, and one step lower while users are slowed down.
#
# The value before is recorded first, and restored afterwards.


THROTTLE_OPTION = "cluster.rebal-throttle"
LAZY = "lazy"

_HISTORY_S = 1.0 * HOUR_S
"""Maximum age of probes that a new process reads: enough to continue at the throttle step of a killed process."""


class ThrottleRules(Struct, frozen=True, kw_only=True):
    """`throttle` None: the option is not changed. With `windows`, it applies only in these, and `lazy` otherwise. It is
    lowered while probes of the source exceed `max_latency_s` (None: never). `local_time` returns weekday (0 is Monday)
    and minute of the day on this machine.
    """

    throttle: str | None = None
    windows: tuple[Window, ...] = ()
    local_time: Callable[[float], tuple[int, int]] = lambda _: (0, 0)
    max_latency_s: float | None = None

    def allowed(self, at_s: float) -> str | None:
        """Return the highest value by the time of day; None if the option is not changed."""
        if self.throttle is None or not self.windows:
            return self.throttle
        day, minute = self.local_time(at_s)
        return self.throttle if any(holds(window, day, minute) for window in self.windows) else LAZY

    def possible(self) -> tuple[str, ...]:
        """Return all values that the option may get by the time of day."""
        if self.throttle is None:
            return ()
        return tuple(dict.fromkeys((self.throttle, LAZY))) if self.windows else (self.throttle,)


NO_THROTTLE = ThrottleRules()


@dataclass(slots=True, kw_only=True)
class Throttle:
    """Sets the option while one drain or addition moves files. `records` has its record."""

    call: "BrickCall"
    records: "OperationStore[Any, Any, Any, Any]"
    _record_id: int | None = None
    _set: str | None = None
    _pace: Pace | None = None
    _seen: int = 0

    @property
    def rules(self) -> ThrottleRules:
        return self.call.world.throttle

    def before(self, state: VolumeState) -> tuple[ChangedOption, ...]:
        """Return the facts to record before anything begins: every value that the option may get by the time of day."""
        given = self.rules.possible()
        if not given:
            return ()
        return (ChangedOption(name=THROTTLE_OPTION, before=self._value_before(state), given=given),)

    async def follow(self, record: DrainRecord | AdditionRecord) -> None:
        """Set the current value, unless this process has done so already. Raises ToolFailed."""
        self._record_id = record.id
        allowed = self.rules.allowed(self.call.now_s())
        if allowed is None:
            return
        wanted = slowed(allowed, self._down())
        if wanted == self._set:
            return
        known = {option.name: option for option in self._noted(record)}.get(THROTTLE_OPTION)
        if known is None or wanted not in known.given:
            # After a crash only a recorded change can be restored.
            before = known.before if known is not None else self._value_before(await self._state())
            changed = ChangedOption(name=THROTTLE_OPTION, before=before, given=(wanted,))
            self.records.note(record.id, type(record.notes)(options=(changed,)))
        await self.call.world.volume.set_option(THROTTLE_OPTION, wanted)
        self._set = wanted
        words = f"{THROTTLE_OPTION} is {wanted} now{self._why(allowed, wanted)}"
        self.call.say(EventKind.THROTTLE_SET, Severity.INFO, record.subject, words)

    async def restore(self, record: DrainRecord | AdditionRecord) -> str:
        """Restore the options that this operation changed and no one else has changed since. Return a summary as text.
        May be called again. Raises ToolFailed.
        """
        noted = self._noted(record)
        if not noted:
            return ""
        self._set, state = None, await self._state()
        if state.volume_id != record.volume_id:
            return ""
        names = still_changed(noted, state)
        for option in noted:
            if option.name in names:
                await self.call.world.volume.set_option(option.name, option.before)
        self.records.note(record.id, type(record.notes)(options=()))
        return f"put back: {', '.join(names)}" if names else ""

    def _noted(self, record: DrainRecord | AdditionRecord) -> Sequence[ChangedOption]:
        """Return the recorded options, which may be newer than those in `record`."""
        options: Sequence[ChangedOption] | None = self.records.read(record.id).notes.options
        return options or ()

    def _down(self) -> int:
        """Return the number of steps to lower the throttle, after reading the new probes."""
        limit_s, throttle, probes = self.rules.max_latency_s, self.rules.throttle, self.call.world.ledger.probes
        if limit_s is None or throttle is None:
            return 0
        if self._pace is None:
            self._seen = probes.last()
            recent = probes.since(ProbeSide.SOURCE, self.call.now_s() - _HISTORY_S)
        else:
            # Probes are read by number, because a clock that was set back must not hide them.
            new = probes.after(self._seen)
            self._seen = new[-1][0] if new else self._seen
            recent = [probe for _, probe in new if probe.side is ProbeSide.SOURCE]
        self._pace = pace_after(recent, limit_s=limit_s, lowest=steps_below(throttle), pace=self._pace)
        return self._pace.down

    def _why(self, allowed: str, wanted: str) -> str:
        if wanted != allowed:
            return f": small operations on the source take longer than {1000.0 * (self.rules.max_latency_s or 0.0):,.0f} ms"
        return "" if allowed == self.rules.throttle else ": outside the windows of [drain]"

    async def _state(self) -> VolumeState:
        state, _ = await self.call.world.volume.state_and_tasks()
        if not state.volume_id:
            raise ToolFailed("the options of the volume are not known")
        return state

    def _value_before(self, state: VolumeState) -> str | None:
        """Return the value that no operation of this program has set. Others may have been killed before they restored
        it.
        """
        ledger = self.call.world.ledger
        records: list[DrainRecord | AdditionRecord] = [*ledger.drains.all(), *ledger.additions.all()]
        others = [one for one in records if one.volume_id == state.volume_id and one.id != self._record_id]
        left = [option for one in others for option in one.notes.options or ()]
        return value_before(THROTTLE_OPTION, state, left)


async def restore_left(call: "BrickCall", kind: EventKind) -> None:
    """Restore the options that drains and additions have left changed, because they were killed before they restored
    them. A value that an admin has set since stays. Raises ToolFailed.
    """
    ledger = call.world.ledger
    if ledger.drains.under_way():
        return
    stores: tuple[tuple[OperationStore[Any, Any, Any, Any], Collection[str]], ...] = (
        (ledger.drains, OUT_STATES | {DrainState.STOPPED}),
        (ledger.additions, {AdditionState.SETTLED, AdditionState.FAILED}),
    )
    for records, ended in stores:
        for record in records.all():
            if record.state in ended and (words := await Throttle(call=call, records=records).restore(record)):
                call.say(kind, Severity.INFO, record.subject, words)


# Files that were created on bricks without Gluster: those of the newest scan that are still there.


StrangeLook = Callable[[Brick, str, Sequence[bytes]], Awaitable[frozenset[bytes]]]
"""Returns which of these paths of a brick of a volume (by id) exist without a gfid, or all of them if that
is not known.
"""


async def strange_now(
    scans: "ScanRecords", look: StrangeLook | None, bricks: Sequence[Brick], volume_id: str
) -> tuple[StrangeFiles, ...] | None:
    """Return the files that still lie on these bricks without a gfid; None if no scan has read the bricks. Files
    created since the scan are not known. A path that cannot be read counts as still there, and does not raise.
    """
    record = scans.of_bricks()
    if record is None:
        return None
    known = {one.brick: one for one in record.strange}
    of_these = [(brick, known[brick.name]) for brick in bricks if brick.name in known]
    if look is None:
        return tuple(one for _, one in of_these)
    still = await asyncio.gather(*(look(brick, volume_id, one.paths) for brick, one in of_these))
    left = [still_strange(one, paths) for (_, one), paths in zip(of_these, still, strict=True)]
    return tuple(one for one in left if one is not None)


# Progress of all drains and additions, for `status`, `report` and `brick status`.


def read_bricks(ledger: "BrickLedger") -> BrickStandings:
    """Read the newest attempts at each set of bricks from the ledger alone, oldest first."""

    def standings(records: Any, standing: Callable[[Any, Sequence[TaskSample]], T]) -> tuple[T, ...]:  # noqa: ANN401
        newest = newest_of_bricks(records.all())
        few_s = RATE_WINDOW_S
        return tuple(standing(one, records.telling_samples(one.id, recent_s=few_s)) for one in newest)

    return BrickStandings(
        drains=standings(ledger.drains, drain_standing.standing),
        additions=standings(ledger.additions, addition_standing.standing),
    )
