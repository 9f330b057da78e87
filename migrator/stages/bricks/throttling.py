"""The throttle of what Gluster moves: by time of day, and down by a step where users feel it. What it was before is written
down first, and put back afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.decide.probing import Pace, pace_after, readings
from migrator.decide.throttle import slowed, steps_below, still_changed, value_before
from migrator.decide.windows import holds
from migrator.domain.brick import VolumeState
from migrator.domain.drain import ChangedOption
from migrator.domain.errors import ToolFailed
from migrator.domain.probe import ProbeSide
from migrator.domain.units import HOUR_S
from migrator.domain.volume_tasks import VolumeTask
from migrator.domain.windows import Window
from migrator.ports.probing import ProbeRecords

THROTTLE_OPTION = "cluster.rebal-throttle"
LAZY = "lazy"

_HISTORY_S = 1.0 * HOUR_S
"""How far a process that has just begun looks back at probes: far enough to go on where a killed one was."""


class VolumeOptions(Protocol):
    """What is asked of the volume. Both raise ToolFailed."""

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """The volume with its options."""

    async def set_option(self, name: str, value: str | None) -> None:
        """Set an option, or put it back to what it is when nobody sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleRules:
    """`throttle` None: the option is left alone; with `windows` it holds in these alone, and `lazy` otherwise. It goes down
    while probes of the source pass `max_latency_s` (None: never). `local_time` gives weekday (0 is Monday) and minute of the
    day on this machine.
    """

    throttle: str | None
    windows: tuple[Window, ...]
    local_time: Callable[[float], tuple[int, int]]
    max_latency_s: float | None = None

    def allowed(self, at_s: float) -> str | None:
        """What the option may be by the time of day; None where it is left alone."""
        if self.throttle is None or not self.windows:
            return self.throttle
        day, minute = self.local_time(at_s)
        return self.throttle if any(holds(window, day, minute) for window in self.windows) else LAZY

    def possible(self) -> tuple[str, ...]:
        """Everything that the option may be set to by the time of day."""
        if self.throttle is None:
            return ()
        return tuple(dict.fromkeys((self.throttle, LAZY))) if self.windows else (self.throttle,)


@dataclass(slots=True, kw_only=True)
class Throttling:
    """Sets the option while one thing moves files. `note` writes down that an option is about to be changed, `say` tells people
    (as a warning or not), `left` are the options that others, which were killed, have left changed.
    """

    volume: VolumeOptions
    rules: ThrottleRules
    probes: ProbeRecords
    now_s: Callable[[], float]
    note: Callable[[ChangedOption], None]
    say: Callable[[str], None]
    left: Callable[[VolumeState], Sequence[ChangedOption]]
    _set: str | None = None
    _pace: Pace | None = None
    _seen: int = 0

    def before(self, state: VolumeState) -> tuple[ChangedOption, ...]:
        """What is to be known before anything begins: whatever the option may become by the time of day."""
        given = self.rules.possible()
        if not given:
            return ()
        before = value_before(THROTTLE_OPTION, state, self.left(state))
        return (ChangedOption(name=THROTTLE_OPTION, before=before, given=given),)

    async def follow(self, noted: Sequence[ChangedOption]) -> None:
        """Set what holds now, where this process has not done so yet; `noted` is what was written down. Raises ToolFailed."""
        allowed = self.rules.allowed(self.now_s())
        if allowed is None:
            return
        wanted = slowed(allowed, self._down())
        if wanted == self._set:
            return
        known = {option.name: option for option in noted}.get(THROTTLE_OPTION)
        if known is None or wanted not in known.given:
            # Only what is written down can be put back after a crash.
            before = known.before if known is not None else await self._value()
            self.note(ChangedOption(name=THROTTLE_OPTION, before=before, given=(wanted,)))
        await self.volume.set_option(THROTTLE_OPTION, wanted)
        self._set = wanted
        self.say(f"{THROTTLE_OPTION} is {wanted} now{self._why(allowed, wanted)}")

    async def restore(self, noted: Sequence[ChangedOption]) -> tuple[str, ...]:
        """Put back what was changed by this and by nobody else since; returns the names. Raises ToolFailed."""
        self._set = None
        if not noted:
            return ()
        state = await self._state()
        names = still_changed(noted, state)
        for option in noted:
            if option.name in names:
                await self.volume.set_option(option.name, option.before)
        return names

    def _down(self) -> int:
        """How many steps down it is, after the probes that are new."""
        limit_s, throttle = self.rules.max_latency_s, self.rules.throttle
        if limit_s is None or throttle is None:
            return 0
        if self._pace is None:
            self._seen = self.probes.last()
            probes = self.probes.since(ProbeSide.SOURCE, self.now_s() - _HISTORY_S)
        else:
            # By their numbers: a clock that was set back must not hide them.
            new = self.probes.after(self._seen)
            self._seen = new[-1][0] if new else self._seen
            probes = [probe for _, probe in new if probe.side is ProbeSide.SOURCE]
        self._pace = pace_after(probes, limit_s=limit_s, lowest=steps_below(throttle), pace=self._pace)
        return self._pace.down

    def _why(self, allowed: str, wanted: str) -> str:
        limit_s, now_s = self.rules.max_latency_s, self.now_s()
        if wanted == allowed:
            return "" if allowed == self.rules.throttle else ": outside the windows of [drain]"
        found = readings(self.probes.since(ProbeSide.SOURCE, now_s - _HISTORY_S), now_s=now_s).get(ProbeSide.SOURCE)
        took = "" if found is None else f" (of late {1000.0 * found.latency_s:,.0f} ms)"
        return f": small operations on the source take longer than {1000.0 * (limit_s or 0.0):,.0f} ms{took}"

    async def _value(self) -> str | None:
        state = await self._state()
        return value_before(THROTTLE_OPTION, state, self.left(state))

    async def _state(self) -> VolumeState:
        state, _ = await self.volume.state_and_tasks()
        if not state.volume_id:
            raise ToolFailed("the options of the volume are not known")
        return state
