"""The governor on simulated curves of throughput, latency and load."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.core.probe import ProbeSide
from migrator.core.windows import Opening
from migrator.transfer import rules_governor as rules
from migrator.transfer.model_governor import NO_CONTROLS, Bound, Controls, Gate, Limits, StreamsBy, Tuned

SETTLE_S = 60.0
SAMPLE_S = 5.0
MINUTE_S = 60.0
Curve = Callable[[int], float]


SETTINGS = rules.settings_now({"gl1": 32}, Limits(), NO_CONTROLS, Opening(open=True))


def knee_at(knee: int) -> Curve:
    """Every stream brings as much as the one before, up to the knee; then they bring nothing."""
    return lambda streams: 100.0 * min(streams, knee)


@dataclass
class Machine:
    """A host under the governor, with streams as many as are allowed at once."""

    curve: Curve
    now: rules.Settings = SETTINGS
    noise: float = 0.0
    at_s: float = 0.0
    state: rules.GovernorState = field(init=False)
    seen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = rules.first_state(self.now, StreamsBy.MEASURED)
        self.random = random.Random(1)

    @property
    def streams(self) -> int:
        return rules.streams_on_hosts(self.state, self.now)["gl1"]

    def minutes(self, count: int) -> "Machine":
        for _ in range(int(count * MINUTE_S / SAMPLE_S)):
            self.at_s += SAMPLE_S
            rate = self.curve(self.streams) * max(1.0 + self.random.gauss(0.0, self.noise), 0.0)
            flow = rules.Flow(interval_s=SAMPLE_S, work=rate * SAMPLE_S)
            self.state = rules.after_flow(self.state, flow, self.now, settle_s=SETTLE_S)
            if self.at_s % 30 < SAMPLE_S:
                self.state = rules.after_load(self.state, "gl1", 0.0, self.now)
            if self.at_s % MINUTE_S < SAMPLE_S:
                self.state = rules.after_probe(self.state, ProbeSide.TARGET, 0.001, self.now)
            self.seen.append(self.streams)
        return self


@pytest.mark.parametrize("knee", [1, 2, 3, 5, 8, 12, 20, 32])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_it_comes_to_rest_near_the_knee(knee: int, noise: float) -> None:
    machine = Machine(curve=knee_at(knee), noise=noise).minutes(120)
    machine.seen.clear()
    machine.minutes(240)
    usual = sorted(machine.seen)[len(machine.seen) // 2]
    assert 0.7 * knee <= usual <= 1.45 * knee + 1
    speed = sum(machine.curve(streams) for streams in machine.seen) / len(machine.seen)
    assert speed >= 0.85 * machine.curve(knee)


def test_a_knee_that_moves_is_found_again() -> None:
    machine = Machine(curve=knee_at(4)).minutes(180)
    assert machine.streams <= 6
    machine.curve = knee_at(16)
    machine.minutes(300)
    assert machine.streams >= 11


def test_the_load_of_a_host_counts_there_alone() -> None:
    hosts = {"gl1": 4, "gl2": 4, "watcher": 0}
    now = rules.settings_now(hosts, Limits(max_load=8.0), NO_CONTROLS, Opening(open=True))
    state = rules.first_state(now)
    for _ in range(2):
        state = rules.after_load(state, "gl1", 20.0, now)
        state = rules.after_load(state, "gl2", 2.0, now)
        state = rules.after_load(state, "watcher", 99.0, now)
    found = rules.decide(state, now, NO_CONTROLS)
    assert dict(found.hosts) == {"gl1": 2, "gl2": 4, "watcher": 0}
    assert (found.bound, found.streams, found.most) == (Bound.LOAD, 6, 8)
    assert "load of gl1 20.0, the limit is 8" in found.reason
    for _ in range(4 * 4):
        state = rules.after_load(state, "gl1", 2.0, now)
    assert dict(rules.decide(state, now, NO_CONTROLS).hosts) == {"gl1": 4, "gl2": 4, "watcher": 0}


def test_tuned_limits_replace_given_ones_but_not_those_of_a_window() -> None:
    given_limits = Limits(bwlimit_bytes_per_s=1000, max_latency_s=0.05, max_load=3.0)
    tuned = Controls(tuned=Tuned(limits=Limits(jobs=9, bwlimit_bytes_per_s=500, max_load=4.0), since_s=0.0, by="anna"))
    hosts = {"localhost": 4, "watcher": 0}
    free = rules.settings_now(hosts, given_limits, tuned, Opening(open=True))
    assert (free.gate, free.hosts) == (Gate.OPEN, {"localhost": 9, "watcher": 0})
    assert free.limits == Limits(bwlimit_bytes_per_s=500, max_latency_s=0.05, max_load=4.0)
    none = Controls(tuned=Tuned(limits=Limits(max_load=0.0), since_s=0.0, by="anna"))
    assert rules.settings_now(hosts, given_limits, none, Opening(open=True)).limits.max_load == 0.0
    windowed = rules.settings_now(hosts, given_limits, tuned, Opening(open=True, jobs=2, bwlimit_bytes_per_s=100))
    assert (windowed.hosts, windowed.limits.bwlimit_bytes_per_s) == ({"localhost": 2, "watcher": 0}, 100)
    frozen = rules.settings_while_frozen(hosts, replace(windowed, gate=Gate.OUTSIDE_WINDOWS))
    assert frozen == rules.Settings(gate=Gate.OPEN, hosts=hosts, limits=Limits(bwlimit_bytes_per_s=100))
    wide = rules.settings_now(hosts, given_limits, NO_CONTROLS, Opening(open=True, jobs=99, bwlimit_bytes_per_s=9999))
    assert (wide.hosts, wide.limits.bwlimit_bytes_per_s) == ({"localhost": 4, "watcher": 0}, 1000)


@dataclass(frozen=True)
class Storm:
    """Anything that may come, in any order."""

    steps: tuple[tuple[str, float], ...]

    def states(self, now: rules.Settings) -> Iterator[tuple[rules.GovernorState, rules.Settings]]:
        state = rules.first_state(now)
        for kind, figure in self.steps:
            if kind == "flow":
                state = rules.after_flow(state, rules.Flow(interval_s=30.0, work=figure), now, settle_s=SETTLE_S)
            elif kind == "load":
                state = rules.after_load(state, "gl1", figure, now)
            elif kind == "jobs":
                before, now = now, replace(now, hosts={host: int(figure) % 40 + 1 for host in now.hosts})
                state = rules.changed(state, before, now)
            else:
                state = rules.after_probe(state, ProbeSide(kind), figure / 100.0, now)
            yield state, now


STEPS = st.lists(
    st.tuples(st.sampled_from(("flow", "load", "jobs", "source", "target")), st.floats(0.0, 1000.0)), max_size=200
)


@given(st.integers(1, 10**12), st.lists(st.none() | st.integers(0, 10**12), max_size=40))
def test_a_limit_is_split_by_need(limit: int, needs: list[int | None]) -> None:
    found = rules.shares(limit, needs)
    assert sum(found) <= limit
    assert all(share <= needed for share, needed in zip(found, needs, strict=True) if needed is not None)
    wanting = [share for share, needed in zip(found, needs, strict=True) if needed is None or share < needed]
    if wanting:
        # All is used, and who gets less than is needed gets no less than anybody else.
        assert limit - sum(found) < len(needs)
        assert max(found) - min(wanting) <= 1


TWO_HOSTS = rules.settings_now(
    {"gl1": 16, "gl2": 5}, Limits(max_latency_s=0.5, max_load=30.0), NO_CONTROLS, Opening(open=True)
)


@given(STEPS.map(lambda steps: Storm(tuple(steps))))
def test_never_more_than_the_limits_and_never_fewer_than_one(storm: Storm) -> None:
    for state, now in storm.states(TWO_HOSTS):
        found = rules.decide(state, now, NO_CONTROLS)
        assert all(1 <= dict(found.hosts)[host] <= most for host, most in now.hosts.items())
        assert found.streams <= found.most


@given(STEPS.map(lambda steps: Storm(tuple(steps))))
def test_when_the_storm_is_over_all_streams_come_back(storm: Storm) -> None:
    now = TWO_HOSTS
    state = rules.first_state(now, StreamsBy.FIXED)
    for kind, figure in storm.steps:
        if kind == "jobs":
            # The edge of a window.
            before, now = now, replace(now, hosts={"gl1": int(figure) % 16 + 1, "gl2": int(figure) % 5 + 1})
            state = rules.changed(state, before, now)
        elif kind in ("source", "target"):
            state = rules.after_probe(state, ProbeSide(kind), figure / 100.0, now, at_work={"gl1": int(figure) % 16})
        else:
            state = rules.after_load(state, "gl2", figure, now, at_work={"gl2": int(figure) % 5})
    for _ in range(100):
        for side in ProbeSide:
            state = rules.after_probe(state, side, 0.01, now, at_work={"gl1": 16, "gl2": 5})
        for host in now.hosts:
            state = rules.after_load(state, host, 1.0, now)
    assert rules.streams_on_hosts(state, now) == now.hosts
