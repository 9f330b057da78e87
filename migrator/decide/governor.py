"""How many streams may be at work now, on each host and in all, and why. Pure.

What people set comes first (pause, windows, limits), then what users and hosts feel (brakes), then what measured throughput
says (the climb): the smallest number counts, and where chunks may be begun at all it is never below 1 on a host that has
streams.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from migrator.decide.braking import Brake, braked
from migrator.decide.climbing import Climb, Flow, climbed, first_climb, limited
from migrator.decide.windows import Opening
from migrator.domain.governing import Bound, Controls, Gate, Limits, StreamsBy
from migrator.domain.probe import ProbeSide
from migrator.domain.units import several

OVER_LOADS = 2
UNDER_LOADS = 4
"""A load average is one of a minute already: fewer readings in a row count than of probes."""

NOTHING: Mapping[str, int] = MappingProxyType({})
"""No host has streams at work, or none that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What holds now. `hosts` has how many streams each host may have, 0 for one that only watches."""

    gate: Gate
    hosts: Mapping[str, int]
    limits: Limits

    @property
    def ceiling(self) -> int:
        """The most streams that any host may have."""
        return max(self.hosts.values(), default=0)

    @property
    def most(self) -> int:
        """How many streams the limits would let be at work in all."""
        return sum(self.hosts.values())


def settings_now(hosts: Mapping[str, int], given: Limits, controls: Controls, opening: Opening) -> Settings:
    """What holds: what was given at the start (site.toml, the command line), in whose place comes what was tuned since, and
    the limits of the windows that hold now, which are never passed.
    """
    tuned = controls.tuned.limits if controls.tuned is not None else Limits()
    jobs = {host: _smaller(tuned.jobs or own, opening.jobs) or 0 if own else 0 for host, own in hosts.items()}
    limits = Limits(
        bwlimit_bytes_per_s=_smaller(
            tuned.bwlimit_bytes_per_s or given.bwlimit_bytes_per_s, opening.bwlimit_bytes_per_s
        ),
        max_latency_s=tuned.max_latency_s or given.max_latency_s,
        # A load of 0 is a limit too: as few streams as there can be.
        max_load=given.max_load if tuned.max_load is None else tuned.max_load,
    )
    gate = Gate.PAUSED if controls.hold is not None else Gate.OPEN if opening.open else Gate.OUTSIDE_WINDOWS
    return Settings(gate=gate, hosts=jobs, limits=limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernorState:
    """What was learned so far. `readings` are the newest figures that brakes went by, for the reason."""

    climb: Climb
    by: StreamsBy = StreamsBy.MEASURED
    latencies: Mapping[ProbeSide, Brake] = field(default_factory=dict)
    loads: Mapping[str, Brake] = field(default_factory=dict)
    latency_s: Mapping[ProbeSide, float] = field(default_factory=dict)
    load: Mapping[str, float] = field(default_factory=dict)


def first_state(settings: Settings, by: StreamsBy = StreamsBy.MEASURED) -> GovernorState:
    """Before anything is measured."""
    return GovernorState(climb=first_climb(settings.ceiling), by=by)


def changed(state: GovernorState, before: Settings, now: Settings) -> GovernorState:
    """After limits have changed: a limit that is gone brakes no more, and another number of streams is looked for anew."""
    if now.limits.max_latency_s is None:
        state = replace(state, latencies={}, latency_s={})
    if now.limits.max_load is None:
        state = replace(state, loads={}, load={})
    if now.ceiling > before.ceiling:
        return replace(state, climb=first_climb(now.ceiling))
    return replace(state, climb=limited(state.climb, now.ceiling))


def after_flow(state: GovernorState, flow: Flow, settings: Settings, *, settle_s: float) -> GovernorState:
    """After a sample of throughput, taken with as many streams as are allowed. One under a brake says nothing."""
    if state.by is StreamsBy.FIXED or settings.gate is not Gate.OPEN or _braked_now(state, settings):
        return state
    return replace(state, climb=climbed(state.climb, flow, ceiling=settings.ceiling, settle_s=settle_s))


def after_probe(
    state: GovernorState, side: ProbeSide, latency_s: float, settings: Settings, *, at_work: Mapping[str, int] = NOTHING
) -> GovernorState:
    """After a probe that says something. `at_work` is how many streams each host really has: where those that may not be any
    more have still to end, a latency beyond the limit tells of them, and nothing of those that may.
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
    """After the load of a host was read; `at_work` as in `after_probe`."""
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
    """Whether what was taken away last has shown nowhere yet: no host that was bound has come down to what it may have. One
    that has is enough: another may have lost its connection with all of its streams.
    """
    over = {host: count > allowed.get(host, 0) for host, count in at_work.items()}
    bound = [host for host in at_work if over[host] or allowed.get(host, 0) < settings.hosts.get(host, 0)]
    return bool(bound) and all(over[host] for host in bound)


def streams_on_hosts(state: GovernorState, settings: Settings) -> Mapping[str, int]:
    """How many streams each host may have while chunks may be begun; 0 only for hosts that have none at all."""
    caps = [brake.cap for brake in state.latencies.values() if brake.cap is not None]
    found: dict[str, int] = {}
    for host, own in settings.hosts.items():
        brake = state.loads.get(host, Brake())
        numbers = [own, *caps, *([brake.cap] if brake.cap is not None else [])]
        if state.by is StreamsBy.MEASURED:
            numbers.append(state.climb.level)
        found[host] = max(min(numbers), 1) if own else 0
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What may be at work now, and why, as a sentence without its full stop."""

    gate: Gate
    bound: Bound
    hosts: Mapping[str, int]
    most: int
    bwlimit_bytes_per_s: int | None
    reason: str

    @property
    def streams(self) -> int:
        """In all."""
        return sum(self.hosts.values())


def decide(state: GovernorState, settings: Settings, controls: Controls) -> Decision:
    """What may be at work now."""
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
    return Decision(
        gate=settings.gate,
        bound=bound,
        hosts=hosts,
        most=settings.most,
        bwlimit_bytes_per_s=settings.limits.bwlimit_bytes_per_s,
        reason=reason,
    )


def _why(state: GovernorState, settings: Settings, hosts: Mapping[str, int]) -> tuple[Bound, str]:
    """What binds most."""
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


def _braked_now(state: GovernorState, settings: Settings) -> bool:
    free = replace(state, latencies={}, loads={})
    return streams_on_hosts(state, settings) != streams_on_hosts(free, settings)


def _smaller(one: int | None, other: int | None) -> int | None:
    given = [number for number in (one, other) if number is not None]
    return min(given, default=None)
