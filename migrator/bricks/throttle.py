"""The throttle of the rebalance process: set by time of day, and one step lower while users are slowed down.

The value before is recorded first, and restored afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from migrator.bricks.model import BrickOperation
from migrator.core.errors import ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.probe import ProbeSide, ThrottleState, pace_after
from migrator.core.units import HOUR_S
from migrator.core.windows import Window, holds
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.model import ChangedOption, VolumeState
from migrator.gluster.rules import slowed, steps_below, still_changed, value_before
from migrator.operations.call import Call

if TYPE_CHECKING:
    from migrator.bricks.records import BrickLedger
    from migrator.operations.records import OperationStore

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

    call: Call[Any, Any]
    rules: ThrottleRules
    volume: GlusterVolumeCommands
    ledger: "BrickLedger"
    records: "OperationStore[Any, Any, Any, Any]"
    _record_id: int | None = None
    _set: str | None = None
    _pace: ThrottleState | None = None
    _last_probe: int = 0

    def before(self, state: VolumeState) -> tuple[ChangedOption, ...]:
        """Return the facts to record before anything begins: every value that the option may get by the time of day."""
        given = self.rules.possible()
        if not given:
            return ()
        return (ChangedOption(name=THROTTLE_OPTION, before=self._value_before(state), given=given),)

    async def follow(self, record: BrickOperation[Any, Any]) -> None:
        """Set the current value, unless this process has done so already. Raises ToolFailed."""
        self._record_id = record.id
        allowed = self.rules.allowed(self.call.now_s())
        if allowed is None:
            return
        wanted = slowed(allowed, self._steps_down())
        if wanted == self._set:
            return
        known = {option.name: option for option in self._changed_options(record)}.get(THROTTLE_OPTION)
        if known is None or wanted not in known.given:
            # After a crash only a recorded change can be restored.
            before = known.before if known is not None else self._value_before(await self._state())
            changed = ChangedOption(name=THROTTLE_OPTION, before=before, given=(wanted,))
            self.records.note(record.id, type(record.notes)(options=(changed,)))
        await self.volume.set_option(THROTTLE_OPTION, wanted)
        self._set = wanted
        message = f"{THROTTLE_OPTION} is {wanted} now{self._reason(allowed, wanted)}"
        self.call.emit(EventKind.THROTTLE_SET, Severity.INFO, record.subject(), message)

    async def restore(self, record: BrickOperation[Any, Any]) -> str:
        """Restore the options that this operation changed and no one else has changed since. Return a summary as text.
        May be called again. Raises ToolFailed.
        """
        changed = self._changed_options(record)
        if not changed:
            return ""
        self._set, state = None, await self._state()
        if state.volume_id != record.volume_id:
            return ""
        names = still_changed(changed, state)
        for option in changed:
            if option.name in names:
                await self.volume.set_option(option.name, option.before)
        self.records.note(record.id, type(record.notes)(options=()))
        return f"restored options: {', '.join(names)}" if names else ""

    def _changed_options(self, record: BrickOperation[Any, Any]) -> Sequence[ChangedOption]:
        """Return the recorded options, which may be newer than those in `record`."""
        options: Sequence[ChangedOption] | None = self.records.read(record.id).notes.options
        return options or ()

    def _steps_down(self) -> int:
        """Return the number of steps to lower the throttle, after reading the new probes."""
        limit_s, throttle, probes = self.rules.max_latency_s, self.rules.throttle, self.ledger.probes
        if limit_s is None or throttle is None:
            return 0
        if self._pace is None:
            self._last_probe = probes.last()
            recent = probes.since(ProbeSide.SOURCE, self.call.now_s() - _HISTORY_S)
        else:
            # Probes are read by number, because a clock that was set back must not hide them.
            new = probes.after(self._last_probe)
            self._last_probe = new[-1][0] if new else self._last_probe
            recent = [probe for _, probe in new if probe.side is ProbeSide.SOURCE]
        self._pace = pace_after(recent, limit_s=limit_s, lowest=steps_below(throttle), pace=self._pace)
        return self._pace.down

    def _reason(self, allowed: str, wanted: str) -> str:
        if wanted != allowed:
            return f": small operations on the source take longer than {1000.0 * (self.rules.max_latency_s or 0.0):,.0f} ms"
        return "" if allowed == self.rules.throttle else ": outside the windows of [drain]"

    async def _state(self) -> VolumeState:
        state, _ = await self.volume.state_and_tasks()
        if not state.volume_id:
            raise ToolFailed("the options of the volume are unknown")
        return state

    def _value_before(self, state: VolumeState) -> str | None:
        """Return the value that no operation of this program has set. Others may have been killed before they restored
        it.
        """
        records: list[BrickOperation[Any, Any]] = [*self.ledger.drains.all(), *self.ledger.additions.all()]
        others = [one for one in records if one.volume_id == state.volume_id and one.id != self._record_id]
        left = [option for one in others for option in one.notes.options or ()]
        return value_before(THROTTLE_OPTION, state, left)


async def restore_left(
    call: Call[Any, Any], volume: GlusterVolumeCommands, ledger: "BrickLedger", kind: EventKind
) -> None:
    """Restore the options that drains and additions have left changed, because they were killed before they restored
    them. A value that an admin has set since stays. Raises ToolFailed.
    """
    if ledger.drains.under_way():
        return
    stores: tuple[OperationStore[Any, Any, Any, Any], ...] = (ledger.drains, ledger.additions)
    for records in stores:
        throttle = Throttle(call=call, rules=NO_THROTTLE, volume=volume, ledger=ledger, records=records)
        for record in records.all():
            if record.needs_no_options() and (message := await throttle.restore(record)):
                call.emit(kind, Severity.INFO, record.subject(), message)
