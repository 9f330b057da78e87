"""What holds for every schedule: limits, sums, and that an impossible one is."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from migrator.decide.schedule_orders import best_outcome, drain_orders, is_possible
from migrator.decide.schedule_play import play
from migrator.decide.schedule_remedies import with_room
from migrator.decide.schedule_sides import SourceSide
from migrator.domain.schedule import ObstacleKind, Outcome
from migrator.domain.schedule_facts import KeptFacts, Placed, ScheduleFacts, TargetPart
from tests.schedules import Replay, batch, facts, subvolume


@st.composite
def sites(draw: st.DrawFn, *, growth: bool = True, most: int = 3) -> ScheduleFacts:
    """Small sites, mostly tight ones."""
    count = draw(st.integers(1, most))
    held = st.lists(st.integers(0, 30), min_size=count, max_size=count)
    slower = draw(st.sampled_from([1, 3, 20]))
    batches = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        days = draw(st.integers(0, 5))
        batches.append(batch(number, draw(held), files=draw(held), days=days, in_drain=days * slower))
    outside = [draw(st.integers(0, 5)) for _ in range(count)]
    kept = tuple(
        KeptFacts(placed=Placed(size_bytes=tuple(draw(held)), files=(0,) * count), freed_day=draw(st.integers(0, 9)))
        for _ in range(draw(st.integers(0, 1)))
    )
    volumes = []
    for place in range(count):
        used = sum(one.placed.size_bytes[place] for one in batches) + outside[place]
        used += sum(one.placed.size_bytes[place] for one in kept) + draw(st.integers(0, 3))
        total = used + draw(st.integers(0, 60))
        volumes.append(subvolume(place + 1, total=max(total, 1), free=max(total, 1) - used))
    free = draw(st.integers(0, 150))
    return facts(
        volumes,
        batches,
        target=(TargetPart(total_bytes=free + draw(st.integers(0, 30)), free_bytes=free),),
        target_inodes=draw(st.none() | st.integers(0, 300)),
        kept=kept,
        outside=outside,
        max_fill=draw(st.sampled_from([0.5, 0.8, 0.9, 1.0])),
        growth=draw(st.sampled_from([0.0, 0.1, 1.0, 5.0])) if growth else 0.0,
        retain=draw(st.integers(0, 10)),
        trash_keep=draw(st.integers(0, 3)),
        drain=draw(st.sampled_from([0.0, 0.01, 0.3])),
        handover=draw(st.integers(0, 2)),
        bricks_join=draw(st.booleans()),
    )


def every_batch(site: ScheduleFacts) -> tuple[int, ...]:
    return tuple(range(len(site.batches)))


@settings(max_examples=300)
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


@settings(max_examples=300)
@given(sites())
def test_inodes_never_run_out(site: ScheduleFacts) -> None:
    assume(site.target_inodes_free is not None)
    outcome = best_outcome(site, every_batch(site))
    files = {one.number: one.placed.all_files for one in site.batches}
    needs = {one.number: one.target_inodes for one in site.batches}
    for day in [step.moved_day for step in outcome.batches] + [outcome.done_day or 0.0]:
        moved = [step.batch for step in outcome.batches if step.moved_day <= day]
        used = sum(needs[number] + files[number] * site.growth_share * day for number in moved)
        assert used <= (site.target_inodes_free or 0) * (1 + 1e-6)


@settings(max_examples=300)
@given(sites(), st.data())
def test_the_sum_of_bytes_is_kept(site: ScheduleFacts, data: st.DataObject) -> None:
    source = SourceSide(site)
    left = {one.number for one in site.batches}
    moved_at: dict[int, float] = {}
    day = 0.0
    base = sum(one.placed.all_bytes for one in site.kept) + site.outside.all_bytes
    for _ in range(data.draw(st.integers(0, 8))):
        day += data.draw(st.integers(0, 5))
        step = data.draw(st.sampled_from(["drain", "move", "purge"]))
        live = [one for one in site.batches if one.number in left and one.number not in moved_at]
        moved = [one for one in site.batches if one.number in left and one.number in moved_at]
        if step == "drain" and len(source.active) > 1:
            source.takes_out(data.draw(st.sampled_from(source.active)))
        elif step == "move" and live:
            one = data.draw(st.sampled_from(live))
            source.settle(one.placed, day)
            moved_at[one.number] = day
        elif step == "purge" and moved:
            one = data.draw(st.sampled_from(moved))
            source.remove(one.placed, grown_until_day=moved_at[one.number])
            left.discard(one.number)
        expected = base + sum(
            one.placed.all_bytes * (1 + site.growth_share * moved_at.get(one.number, day))
            for one in site.batches
            if one.number in left
        )
        assert sum(source.content(place, day) for place in source.active) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=300)
@given(sites(growth=False))
def test_what_is_called_impossible_is_so_and_nothing_else(site: ScheduleFacts) -> None:
    possible = is_possible(site, every_batch(site))
    event(f"possible: {possible}")
    assert possible == any_way(site)


def any_way(site: ScheduleFacts) -> bool:
    """Whether any sequence of moves and drains leads to the end, with all the time in the world: every one is tried."""
    goal = len(site.subvolumes) - 1
    seen = set()
    start = tuple(
        float(one.total_bytes - one.free_bytes - held) for one, held in zip(site.subvolumes, first(site), strict=True)
    )
    waiting = [(0, frozenset[int]())]
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        moved, drained = state
        if moved == len(site.batches) and len(drained) == goal:
            return True
        if moved < len(site.batches) and target_takes(site, moved + 1, drained):
            waiting.append((moved + 1, drained))
        for place in set(range(len(site.subvolumes))) - drained:
            if len(drained) < goal and others_take(site, moved, drained | {place}, start):
                waiting.append((moved, drained | {place}))
    return False


def first(site: ScheduleFacts) -> list[int]:
    every = [one.placed for one in site.batches] + [one.placed for one in site.kept]
    return [
        sum(one.size_bytes[place] for one in every) + site.outside.size_bytes[place]
        for place in range(len(site.subvolumes))
    ]


def target_takes(site: ScheduleFacts, moved: int, drained: frozenset[int]) -> bool:
    part = site.target[0]
    room = max(part.total_bytes * site.max_fill - (part.total_bytes - part.free_bytes), 0)
    if site.bricks_join:
        room += sum(site.subvolumes[place].added_bytes for place in drained) * site.max_fill
    inodes = site.target_inodes_free
    need_inodes = sum(one.target_inodes for one in site.batches[:moved])
    return sum(one.target_bytes for one in site.batches[:moved]) <= room + 1e-6 and (
        inodes is None or need_inodes <= inodes
    )


def others_take(site: ScheduleFacts, moved: int, drained: frozenset[int], overhead: Sequence[float]) -> bool:
    held = [
        float(sum(one.placed.size_bytes[place] for one in site.batches[moved:]) + site.outside.size_bytes[place])
        for place in range(len(site.subvolumes))
    ]
    stay = set(range(len(held))) - drained
    whole = sum(site.subvolumes[place].total_bytes for place in stay)
    moving = sum(held[place] for place in drained)
    return all(
        held[place] + moving * site.subvolumes[place].total_bytes / whole + max(overhead[place], 0.0)
        <= site.subvolumes[place].total_bytes * site.max_fill + 1e-6
        for place in stay
    )


@settings(max_examples=300)
@given(sites(), st.integers(1, 200))
def test_more_space_is_never_later(site: ScheduleFacts, more: int) -> None:
    order = every_batch(site)
    before, after = best_outcome(site, order), best_outcome(with_room(site, more, more), order)
    if before.obstacle is None:
        assert after.obstacle is None
        assert sum_of_days(after) <= sum_of_days(before) + 1e-6


def sum_of_days(outcome: Outcome) -> float:
    return sum(step.cleared_day for step in outcome.subvolumes if step.cleared_day is not None)


def test_what_grows_over_its_limit_first_is_the_obstacle() -> None:
    """The trash alone is more than the target may hold, but a day before that users have filled the source."""
    site = facts(
        [subvolume(1, total=10, free=0)],
        [batch(1, [10])],
        target=(TargetPart(total_bytes=0, free_bytes=0),),
        kept=(
            KeptFacts(placed=Placed(size_bytes=(0,), files=(0,), unplaced_bytes=0, unplaced_files=0), freed_day=1.0),
        ),
        max_fill=0.5,
        growth=1.0,
        trash_keep=1.0,
    )
    outcome = play(site, [0], [0])
    assert outcome.obstacle is not None
    assert (outcome.obstacle.kind, outcome.obstacle.day) == (ObstacleKind.SOURCE_GROWTH, 0.0)
    assert Replay(site, outcome).run().worst == []
