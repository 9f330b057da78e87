"""How many streams may run now, on each host and in all, and why."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.blocker import Blocker
from migrator.core.probe import OVER_PROBES, UNDER_PROBES, UNDER_SHARE, ProbeSide
from migrator.core.units import MIB, several
from migrator.core.windows import Opening
from migrator.transfer.model_governor import Bound, Controls, Gate, GoverningFacts, GovernorRecord, Limits, StreamsBy

# Brakes: fewer streams when users or a host are affected, more again when they are not.
#
# Readings arrive one by one: the latency of a probe, the load of a host. Several in a row above the limit reduce the
# streams; more in a row well below it add a few again. In between, and without readings, nothing changes.


KEPT_SHARE = 0.7
"""The share of streams that remains after each series of readings above the limit."""
_BACK = 4
"""A series of low readings raises the cap by a quarter."""


class Brake(Struct, frozen=True, kw_only=True):
    """At most `cap` streams on a host (None: no brake). `over` and `under` count the last readings in a row above the
    limit, and well below it.
    """

    cap: int | None = None
    over: int = 0
    under: int = 0


def braked(
    brake: Brake,
    reading: float,
    *,
    limit: float,
    streams: int,
    ceiling: int,
    over: int = OVER_PROBES,
    under: int = UNDER_PROBES,
) -> Brake:
    """The brake after one more reading, in the unit of `limit`; `streams` is the present allowance of a host. `over`
    readings in a row above the limit lower the cap, `under` ones well below it raise it. The cap is at least 1.
    """
    if reading > limit:
        count = brake.over + 1
        if count < over:
            return Brake(cap=brake.cap, over=count)
        return Brake(cap=max(min(int(streams * KEPT_SHARE), streams - 1), 1))
    if brake.cap is None or reading >= UNDER_SHARE * limit:
        return Brake(cap=brake.cap)
    count = brake.under + 1
    if count < under:
        return Brake(cap=brake.cap, under=count)
    cap = brake.cap + max(brake.cap // _BACK, 1)
    return Brake(cap=None if cap >= ceiling else cap)


# The limit of bandwidth, split by need.


_USES_SHARE = 0.75
"""A stream that uses at least this part of its share takes all that it gets."""
_PIECE_BYTES = MIB
"""The piece that a stream has not counted yet (`COPY_BUFFER_BYTES` in copy.h)."""
_HEADROOM = 1.25
_LEAST_SHARE = 0.125
"""A stream that uses little keeps this part of an equal share, so that it can show that it needs more."""


def need(moved_bytes: int, interval_s: float, *, share: int | None, equal: int) -> int | None:
    """The bytes per second that a stream needs, by what it moved with its share; None: all that it gets."""
    if share is None or moved_bytes + _PIECE_BYTES >= _USES_SHARE * share * interval_s:
        return None
    return int(max(_HEADROOM * moved_bytes / interval_s, _LEAST_SHARE * equal))


def shares(limit: int, needs: Sequence[int | None]) -> Sequence[int]:
    """Split a limit among streams in order, all in bytes per second. No stream gets more than it needs (None: all that it
    gets), and the rest goes to the others in equal parts.
    """
    found, left = [0] * len(needs), limit
    smallest_first = sorted((math.inf if needed is None else needed, at) for at, needed in enumerate(needs))
    for done, (needed, at) in enumerate(smallest_first):
        found[at] = int(min(needed, left // (len(needs) - done)))
        left -= found[at]
    return found


# The climb: searching for the number of streams that raises throughput.
#
# The governor measures throughput for a while with one number of streams, then with another. It compares the gain of
# the additional streams with their share if each had done as much as those before. It keeps more streams if that ratio
# is large enough, fewer if it is small. So the number settles near the knee of the curve, not at its end, where every
# further stream only makes users wait. Noise may keep a useless try, or undo a useful one; the next try corrects it.
#
# A unit of work is what a stream does in one second by the measured cost of files and bytes, so that a part of the
# migration with small files does not look like a loss of speed.


FIRST_LEVEL = 8
"""Streams of a host at the start, if its limit allows; the number doubles while that helps."""

KEEP_MORE = 0.3
"""More streams stay if they add at least this share of the earlier contribution of as many streams."""
KEEP_FEWER = 0.15
"""Fewer streams stay if they lose no more than this share. Between the two nothing changes, which prevents
oscillation.
"""

_STEP = 4
"""After the doubling, the number changes by a quarter."""
_FEWEST_SAMPLES = 3
REST_S = 600.0
"""Pause after tries in both directions that changed nothing; doubled each time."""
LONGEST_REST_S = 4 * REST_S


class Flow(Struct, frozen=True, kw_only=True):
    """Work over an interval in which all hosts with work had all their allowed streams."""

    interval_s: float
    work: float

    @property
    def rate(self) -> float:
        """Work per second."""
        return self.work / self.interval_s if self.interval_s > 0 else 0.0


class MeasuredFlow(Struct, frozen=True, kw_only=True):
    """The mean rate of a number of streams."""

    level: int
    rate: float


class Climb(Struct, frozen=True, kw_only=True):
    """The state of the search. `level` is its number of streams for a host; `base` is the measurement for
    comparison.
    """

    level: int
    flows: tuple[Flow, ...] = ()
    base: MeasuredFlow | None = None
    up: bool = True
    doubling: bool = True
    fruitless: int = 0
    rest_left_s: float = 0.0

    @property
    def trying(self) -> bool:
        """Whether the level differs from the one known to be good."""
        return self.base is not None and self.base.level != self.level


def first_climb(ceiling: int) -> Climb:
    """The search at the start of a run, or after a change of the limit."""
    return Climb(level=max(min(ceiling, FIRST_LEVEL), 1))


def limited(climb: Climb, ceiling: int) -> Climb:
    """The search under a lowered limit: measurements above it no longer count."""
    ceiling = max(ceiling, 1)
    return climb if climb.level <= ceiling else Climb(level=ceiling, doubling=False)


def climbed(climb: Climb, flow: Flow, *, ceiling: int, settle_s: float) -> Climb:
    """The search after one more sample, taken at its level. The level stays between 1 and the ceiling."""
    climb = limited(climb, ceiling)
    if climb.rest_left_s > 0:
        return replace(climb, rest_left_s=max(climb.rest_left_s - flow.interval_s, 0.0))
    climb = replace(climb, flows=(*climb.flows, flow))
    measured_s = sum(one.interval_s for one in climb.flows)
    if measured_s < settle_s or len(climb.flows) < _FEWEST_SAMPLES:
        return climb
    found = MeasuredFlow(level=climb.level, rate=fmean(flow.rate for flow in climb.flows))
    if climb.base is None or climb.base.level == climb.level:
        return _try_another(replace(climb, base=found, flows=()), ceiling)
    return _judge(climb, found, climb.base, ceiling)


def _judge(climb: Climb, found: MeasuredFlow, base: MeasuredFlow, ceiling: int) -> Climb:
    more = climb.level > base.level
    if base.rate <= 0:
        return _back(climb, base) if more else replace(climb, base=found, flows=())
    share = (found.rate / base.rate - 1) / (found.level / base.level - 1)
    if share >= KEEP_MORE if more else share <= KEEP_FEWER:
        return _try_another(replace(climb, base=found, flows=(), fruitless=0), ceiling)
    return _back(climb, base)


def _back(climb: Climb, base: MeasuredFlow) -> Climb:
    """Return to the base; the next try goes the other way, and after two fruitless ones only after a rest."""
    fruitless = climb.fruitless + 1
    rest_s = min(REST_S * 2.0 ** (fruitless // 2 - 1), LONGEST_REST_S) if fruitless % 2 == 0 else 0.0
    return Climb(level=base.level, up=not climb.up, doubling=False, fruitless=fruitless, rest_left_s=rest_s)


def _try_another(climb: Climb, ceiling: int) -> Climb:
    """Take one step in the present direction, else in the other. If neither is possible, measure the level again."""
    level = climb.level
    more = min(2 * level if climb.doubling else level + max(level // _STEP, 1), ceiling)
    fewer = max(level - max(level // _STEP, 1), 1)
    if climb.up and more > level:
        return replace(climb, level=more)
    if fewer < level:
        return replace(climb, level=fewer, up=False, doubling=False)
    if more > level:
        return replace(climb, level=more, up=True)
    return replace(climb, rest_left_s=REST_S, base=None)


# The decision: how many streams may run now, on each host and in all, and why.
#
# The smallest of three numbers counts: the operators' settings (pause, windows, limits), the brakes, and the climb. If
# chunks may start at all, a host that has streams keeps at least 1.


OVER_LOADS = 2
UNDER_LOADS = 4
"""A load average covers a minute already, so fewer readings in a row suffice than for probes."""

NOTHING: Mapping[str, int] = MappingProxyType({})
"""No host is known to have streams in flight."""


class Settings(Struct, frozen=True, kw_only=True):
    """The present settings. `hosts` has the most streams of each host, 0 for one that only watches."""

    gate: Gate
    hosts: Mapping[str, int]
    limits: Limits

    @property
    def ceiling(self) -> int:
        """The most streams that any host may have."""
        return max(self.hosts.values(), default=0)

    @property
    def most(self) -> int:
        """The number of streams that the limits would allow in all."""
        return sum(self.hosts.values())


def settings_now(hosts: Mapping[str, int], given: Limits, controls: Controls, opening: Opening) -> Settings:
    """The present settings: the initial ones (site.toml, the command line), overridden by `tune`, and capped by the
    limits of the open windows.
    """
    tuned = controls.tuned.limits if controls.tuned is not None else Limits()
    jobs = {host: _smaller(tuned.jobs or own, opening.jobs) or 0 if own else 0 for host, own in hosts.items()}
    limits = Limits(
        bwlimit_bytes_per_s=_smaller(
            tuned.bwlimit_bytes_per_s or given.bwlimit_bytes_per_s, opening.bwlimit_bytes_per_s
        ),
        max_latency_s=tuned.max_latency_s or given.max_latency_s,
        # A load of 0 is a limit too: it means the minimum number of streams.
        max_load=given.max_load if tuned.max_load is None else tuned.max_load,
    )
    gate = Gate.PAUSED if controls.hold is not None else Gate.OPEN if opening.open else Gate.OUTSIDE_WINDOWS
    return Settings(gate=gate, hosts=jobs, limits=limits)


def settings_while_frozen(hosts: Mapping[str, int], settings: Settings) -> Settings:
    """The settings of a final pass: users wait for it, so only the bandwidth is limited."""
    limits = Limits(bwlimit_bytes_per_s=settings.limits.bwlimit_bytes_per_s)
    return Settings(gate=Gate.OPEN, hosts=hosts, limits=limits)


class GovernorState(Struct, frozen=True, kw_only=True):
    """The measurements so far. `readings` are the newest readings of the brakes, for the reason."""

    climb: Climb
    by: StreamsBy = StreamsBy.MEASURED
    latencies: Mapping[ProbeSide, Brake] = {}
    loads: Mapping[str, Brake] = {}
    latency_s: Mapping[ProbeSide, float] = {}
    load: Mapping[str, float] = {}


def first_state(settings: Settings, by: StreamsBy = StreamsBy.MEASURED) -> GovernorState:
    """The state before any measurement."""
    return GovernorState(climb=first_climb(settings.ceiling), by=by)


def changed(state: GovernorState, before: Settings, now: Settings) -> GovernorState:
    """The state after a change of limits: a removed limit releases its brake, and a new ceiling restarts the search."""
    if now.limits.max_latency_s is None:
        state = replace(state, latencies={}, latency_s={})
    if now.limits.max_load is None:
        state = replace(state, loads={}, load={})
    if now.ceiling > before.ceiling:
        return replace(state, climb=first_climb(now.ceiling))
    return replace(state, climb=limited(state.climb, now.ceiling))


def after_flow(state: GovernorState, flow: Flow, settings: Settings, *, settle_s: float) -> GovernorState:
    """The state after a sample of throughput with all allowed streams. A sample under a brake does not count."""
    free = replace(state, latencies={}, loads={})
    braked_now = streams_on_hosts(state, settings) != streams_on_hosts(free, settings)
    if state.by is StreamsBy.FIXED or settings.gate is not Gate.OPEN or braked_now:
        return state
    return replace(state, climb=climbed(state.climb, flow, ceiling=settings.ceiling, settle_s=settle_s))


def after_probe(
    state: GovernorState, side: ProbeSide, latency_s: float, settings: Settings, *, at_work: Mapping[str, int] = NOTHING
) -> GovernorState:
    """The state after a successful probe. `at_work` is the number of streams that each host really has. While surplus
    streams have yet to end, they explain a latency above the limit, and it does not count against the allowed ones.
    """
    limit_s = settings.limits.max_latency_s
    if limit_s is None or settings.ceiling < 1:
        return state
    allowed = streams_on_hosts(state, settings)
    state = replace(state, latency_s={**state.latency_s, side: latency_s})
    if latency_s > limit_s and _still_to_end(at_work, allowed, settings):
        return state
    brake = braked(
        state.latencies.get(side, Brake()),
        latency_s,
        limit=limit_s,
        streams=max(allowed.values(), default=1),
        ceiling=settings.ceiling,
    )
    return replace(state, latencies={**state.latencies, side: brake})


def after_load(
    state: GovernorState, host: str, load: float, settings: Settings, *, at_work: Mapping[str, int] = NOTHING
) -> GovernorState:
    """The state after a reading of the load of a host; `at_work` as in `after_probe`."""
    limit, own = settings.limits.max_load, settings.hosts.get(host, 0)
    if limit is None or own < 1:
        return state
    streams = streams_on_hosts(state, settings)[host]
    state = replace(state, load={**state.load, host: load})
    if load > limit and at_work.get(host, 0) > streams:
        return state
    brake = braked(
        state.loads.get(host, Brake()),
        load,
        limit=limit,
        streams=streams,
        ceiling=own,
        over=OVER_LOADS,
        under=UNDER_LOADS,
    )
    return replace(state, loads={**state.loads, host: brake})


def _still_to_end(at_work: Mapping[str, int], allowed: Mapping[str, int], settings: Settings) -> bool:
    """Whether the last reduction has not taken effect yet: every bound host still has more streams than allowed. One
    host without a surplus is enough proof: another may have lost its connection with all of its streams.
    """
    over = {host: count > allowed.get(host, 0) for host, count in at_work.items()}
    bound = [host for host in at_work if over[host] or allowed.get(host, 0) < settings.hosts.get(host, 0)]
    return bool(bound) and all(over[host] for host in bound)


def streams_on_hosts(state: GovernorState, settings: Settings) -> Mapping[str, int]:
    """The number of streams that each host may have while chunks may start; 0 only for hosts that never have any."""
    caps = [brake.cap for brake in state.latencies.values() if brake.cap is not None]
    found: dict[str, int] = {}
    for host, own in settings.hosts.items():
        brake = state.loads.get(host, Brake())
        numbers = [own, *caps, *([brake.cap] if brake.cap is not None else [])]
        if state.by is StreamsBy.MEASURED:
            numbers.append(state.climb.level)
        found[host] = max(min(numbers), 1) if own else 0
    return found


def decide(state: GovernorState, settings: Settings, controls: Controls) -> GovernorRecord:
    """The present allowance, with the reason as a sentence without its full stop. The record has no run and no time
    yet.
    """
    hosts = streams_on_hosts(state, settings)
    bound, reason = _why(state, settings, hosts)
    if settings.gate is Gate.PAUSED:
        hold = controls.hold
        words = f": {hold.reason}" if hold is not None and hold.reason else ""
        bound, reason = Bound.PAUSE, f"paused by {hold.by if hold is not None else 'somebody'}{words}"
    elif settings.gate is Gate.OUTSIDE_WINDOWS:
        bound, reason = Bound.WINDOWS, "outside the windows of [transfer]"
    if settings.gate is not Gate.OPEN:
        hosts = dict.fromkeys(hosts, 0)
    return GovernorRecord(
        at_s=0.0,
        run_id=0,
        gate=settings.gate,
        bound=bound,
        streams=sum(hosts.values()),
        most=settings.most,
        hosts=tuple(sorted(hosts.items())),
        bwlimit_bytes_per_s=settings.limits.bwlimit_bytes_per_s,
        reason=reason,
        max_latency_s=settings.limits.max_latency_s,
        max_load=settings.limits.max_load,
    )


def _why(state: GovernorState, settings: Settings, hosts: Mapping[str, int]) -> tuple[Bound, str]:
    """The factor that limits the most."""
    slow = [(brake.cap, side) for side, brake in state.latencies.items() if brake.cap is not None]
    highest = max(hosts.values(), default=0)
    if slow and min(slow)[0] <= highest:
        _, side = min(slow)
        limit_s = settings.limits.max_latency_s or 0.0
        took = f"{1000.0 * state.latency_s.get(side, 0.0):,.0f} ms"
        return Bound.LATENCY, (
            f"small operations on the {side.value} take long: the newest probe took {took}, the limit is "
            f"{1000.0 * limit_s:,.0f} ms"
        )
    busy = sorted(host for host, brake in state.loads.items() if brake.cap is not None)
    if busy:
        loads = ", ".join(f"{host} {state.load.get(host, 0.0):.1f}" for host in busy)
        return Bound.LOAD, f"hosts have much to do: load of {loads}, the limit is {settings.limits.max_load:g}"
    if state.by is StreamsBy.FIXED or highest >= settings.ceiling:
        return Bound.JOBS, "as many as the limits permit"
    if state.climb.trying:
        return Bound.TRYING, f"measuring what {several(highest, 'stream')} on a host bring"
    return Bound.THROUGHPUT, f"more than {several(highest, 'stream')} on a host bring little"


def _smaller(one: int | None, other: int | None) -> int | None:
    given = [number for number in (one, other) if number is not None]
    return min(given, default=None)


# Blockers: chunks that wait for people or windows.


def governing_blockers(governing: GoverningFacts) -> Iterator[Blocker]:
    """A pause, and the time outside of windows while a run waits for the next one."""
    hold, record = governing.controls.hold, governing.governor
    if hold is not None:
        why = f": {hold.reason}" if hold.reason else ""
        yield Blocker(subject="runs and cutovers", on=f"paused by {hold.by}{why}", hint="migrator resume")
    elif governing.at_work and record is not None and record.gate is Gate.OUTSIDE_WINDOWS:
        yield Blocker(
            subject="run",
            on="it is outside the windows of [transfer]",
            hint="none needed: it resumes with the next window",
        )
