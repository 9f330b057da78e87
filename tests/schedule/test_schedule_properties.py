"""What holds for every schedule: limits, sums, and that an impossible one is."""

from dataclasses import dataclass, replace

from hypothesis import event, given
from hypothesis import strategies as st

from migrator.schedule.model import KeptFacts, Outcome, Placed, ScheduleFacts
from migrator.schedule.rules import best_outcome, drain_orders, is_possible, with_room
from migrator.schedule.rules_play import play
from tests.schedule.schedules import Replay, batch, facts, subvolume


@st.composite
def sites(draw: st.DrawFn, *, growth: bool = True, most: int = 3) -> ScheduleFacts:
    """Small sites, mostly tight ones. Nothing takes no time, so what happens when is never in doubt."""
    count = draw(st.integers(1, most))
    held = st.lists(st.integers(0, 30), min_size=count, max_size=count)
    slower = draw(st.sampled_from([1, 3, 20]))
    batches = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        days = draw(st.integers(0, 5)) + 0.13
        batches.append(batch(number, draw(held), files=draw(held), days=days, in_drain=days * slower))
    outside = [draw(st.integers(0, 5)) for _ in range(count)]
    kept = tuple(
        KeptFacts(
            placed=Placed(size_bytes=tuple(draw(held)), files=tuple(draw(held))),
            freed_day=draw(st.integers(0, 9)) + 0.011,
        )
        for _ in range(draw(st.integers(0, 2)))
    )
    volumes = []
    for place in range(count):
        used = sum(one.placed.size_bytes[place] for one in batches) + outside[place]
        used += sum(one.placed.size_bytes[place] for one in kept) + draw(st.integers(0, 3))
        total = used + draw(st.integers(0, 60))
        volumes.append(subvolume(place + 1, total=max(total, 1), free=max(total, 1) - used))
    return facts(
        volumes,
        batches,
        target=draw(st.integers(0, 300)),
        target_used=draw(st.integers(0, 60)),
        target_inodes=draw(st.none() | st.integers(0, 300)),
        reserve=draw(st.sampled_from([0, 0, 10])),
        kept=kept,
        outside=outside,
        max_fill=draw(st.sampled_from([0.5, 0.8, 0.9, 1.0])),
        growth=draw(st.sampled_from([0.0, 0.1, 1.0, 5.0])) if growth else 0.0,
        retain=draw(st.integers(0, 10)) + 0.029,
        trash_keep=draw(st.integers(0, 3)),
        drain=draw(st.sampled_from([0.001, 0.01, 0.3])),
        handover=draw(st.integers(0, 2)) + 0.0071,
        bricks_join=draw(st.booleans()),
    )


def every_batch(site: ScheduleFacts) -> tuple[int, ...]:
    return tuple(range(len(site.batches)))


@given(sites())
def test_no_instant_passes_a_limit(site: ScheduleFacts) -> None:
    for order in drain_orders(site):
        outcome = play(site, every_batch(site), order)
        event("possible" if outcome.obstacle is None else outcome.obstacle.kind.value)
        assert Replay(site, outcome).run().worst == []
        if outcome.obstacle is None:
            assert [step.batch for step in outcome.batches] == [one.number for one in site.batches]
            assert [step.retired for step in outcome.subvolumes] == [False] * (len(site.subvolumes) - 1) + [True]
            assert outcome.done_day is not None
            assert all(host.free_day is not None and host.free_day <= outcome.done_day for host in outcome.hosts)


@given(sites(growth=False))
def test_what_is_called_impossible_is_so_and_nothing_else(site: ScheduleFacts) -> None:
    possible = is_possible(site, every_batch(site))
    event(f"possible: {possible}")
    assert possible is any_way(site)


@dataclass(frozen=True)
class Way:
    """How far a way through is: batches moved, places drained, places that joined."""

    moved: int
    drained: frozenset[int]
    joined: frozenset[int]


def any_way(site: ScheduleFacts) -> bool:
    """Whether any sequence of moves, drains and joins leads to the end, with all the time in the world: every one is tried."""
    goal = len(site.subvolumes) - 1
    seen = set()
    waiting = [Way(0, frozenset(), frozenset())]
    while waiting:
        way = waiting.pop()
        if way in seen:
            continue
        seen.add(way)
        if way.moved == len(site.batches) and len(way.drained) == goal:
            return True
        if way.moved < len(site.batches) and target_takes(site, way):
            waiting.append(replace(way, moved=way.moved + 1))
        for place in set(range(len(site.subvolumes))) - way.drained:
            if len(way.drained) < goal and others_take(site, way.moved, way.drained | {place}):
                waiting.append(replace(way, drained=way.drained | {place}))
        for place in way.drained - way.joined if site.bricks_join else ():
            waiting.append(replace(way, joined=way.joined | {place}))
    return False


def target_takes(site: ScheduleFacts, way: Way) -> bool:
    """Whether the next batch fits, by plain sums."""
    added = sum(site.subvolumes[place].added_bytes for place in way.joined)
    whole, free = site.target_total_bytes + added, site.target_free_bytes + added
    used = sum(one.target_bytes for one in site.batches[: way.moved + 1])
    room = max(min(whole * site.max_fill - (whole - free), free - site.reserve_bytes), 0)
    inodes = site.target_inodes_free
    need_inodes = sum(one.target_inodes for one in site.batches[: way.moved + 1])
    return used <= room + 1e-5 and (inodes is None or need_inodes <= inodes)


def others_take(site: ScheduleFacts, moved: int, drained: frozenset[int]) -> bool:
    """Whether what stays keeps every limit of the others."""
    every = [*(one.placed for one in site.batches), *(one.placed for one in site.kept), site.outside]
    stays = [*(one.placed for one in site.batches[moved:]), site.outside]
    stay = set(range(len(site.subvolumes))) - drained
    whole = sum(site.subvolumes[place].total_bytes for place in stay)
    moving_bytes = sum(placed.size_bytes[place] for placed in stays for place in drained)
    for place in stay:
        one = site.subvolumes[place]
        share = one.total_bytes / whole
        overhead = one.total_bytes - one.free_bytes - sum(placed.size_bytes[place] for placed in every)
        held = sum(placed.size_bytes[place] for placed in stays) + moving_bytes * share
        if held + max(overhead, 0) > one.total_bytes * site.max_fill + 1e-6:
            return False
    return True


@given(sites(), st.integers(1, 200))
def test_more_space_is_never_later(site: ScheduleFacts, more: int) -> None:
    order = every_batch(site)
    before, after = best_outcome(site, order), best_outcome(with_room(site, more, more), order)
    if before.obstacle is None:
        assert after.obstacle is None
        assert sum_of_days(after) <= sum_of_days(before) + 1e-6


def sum_of_days(outcome: Outcome) -> float:
    return sum(step.cleared_day for step in outcome.subvolumes if step.cleared_day is not None)
