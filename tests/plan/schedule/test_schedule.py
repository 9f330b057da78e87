"""The conversion schedule: worked examples, every obstacle by itself, what drains cost, and what holds for every schedule."""

import dataclasses
from dataclasses import dataclass

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.bricks.drain.model import drain_tally
from migrator.core.units import DAY_S
from migrator.core.windows import OpenTimes, Window
from migrator.plan.model import TransferCost
from migrator.plan.schedule import model, rules, rules_drains
from migrator.plan.schedule.model import (
    CopyTally,
    DrainCopying,
    PlacedContent,
    ScheduleInput,
    ScheduleOutcome,
    UnpurgedSource,
)
from migrator.plan.schedule.rules import best_outcome, drain_orders
from migrator.plan.schedule.rules_drains import ASSUMED_SHARE, ENOUGH_S, slower_in_drains
from migrator.plan.schedule.rules_habits import habits
from migrator.plan.schedule.rules_play import play
from tests.plan.schedule.schedules import Replay, batch, facts, subvolume
from tests.support.volumes import drain_sample


def outcome(site: model.ScheduleInput) -> model.ScheduleOutcome:
    return rules.best_outcome(site)


def obstacle(site: model.ScheduleInput) -> model.Obstacle:
    found = outcome(site).obstacle
    assert found is not None
    return found


def test_a_worked_example() -> None:
    """Three bricks of 100 with 60 each, a target of 120: worked out by hand."""
    site = facts(
        [subvolume(number, free=40) for number in (1, 2, 3)],
        [batch(1, [30, 30, 30], days=3), batch(2, [20, 20, 20], days=2), batch(3, [10, 10, 10], days=1)],
        target=120,
        retain=5,
        drain=0.1,
    )
    found = play(site, (0, 1, 2))
    # 180 fit on two bricks at once: the first drain begins on day 0, and moves 60 in 6 days. After it brick 1 is given to
    # the target on day 7, so that batch 2 (150 in all) fits. On day 8 the purge of batch 1 leaves 90 on two bricks: the drain
    # of brick 2 moves 45 of them in 4.5 days, less what the purge of batch 2 (9 + 5) does not leave in time.
    assert [(step.begins_day, step.moved_day, step.freed_day, step.waited_days) for step in found.batches] == [
        (0, 3, 8, 0),
        (7, 9, 14, 4),
        (9, 10, 15, 0),
    ]
    steps = [(one.subvolume, one.drain_begins_day, one.cleared_day, one.moved_bytes) for one in found.subvolumes]
    assert steps == [(1, 0, 6, 60), (2, 8, 12.5, 45), (3, None, 15, 0)]
    assert [one.retired for one in found.subvolumes] == [False, False, True]
    assert [(one.host, one.free_day) for one in found.hosts] == [("gl1", 6), ("gl2", 12.5), ("gl3", 15)]
    assert found.done_day == 15
    assert Replay(site, found).run().worst == []


def test_users_move_some_time_after_their_batch_is_copied() -> None:
    """The next batch is copied meanwhile, and the source is kept from the move on."""
    site = facts(
        [subvolume(1, free=40)], [batch(1, [30], days=3), batch(2, [30], days=2)], target=200, retain=5, move=2.0
    )
    found = play(site, (0,))
    assert [(step.begins_day, step.moved_day, step.freed_day) for step in found.batches] == [(0, 5, 10), (3, 7, 12)]
    assert found.done_day == 12


def test_users_move_while_freezes_may_begin() -> None:
    """On the second day of each week; the source is kept from then on."""
    site = facts([subvolume(1, free=40)], [batch(1, [30], days=3), batch(2, [30], days=8)], target=200, retain=5)
    second = OpenTimes(
        windows=(Window(days=(1,), start_minute=0, end_minute=24 * 60),),
        local_time=lambda at_s: (int(at_s // DAY_S) % 7, int(at_s % DAY_S // 60)),
    )
    found = play(replace(site, cutovers=second, begins_at_s=700 * DAY_S), (0,))
    assert [(step.begins_day, step.moved_day, step.freed_day) for step in found.batches] == [(0, 8, 13), (3, 15, 20)]


@pytest.mark.parametrize(
    ("days", "waits_days", "expected"),
    [
        ([], [], (1.0, 0.0)),
        # The first and the last day are not whole, and the whole ones too few.
        ([0.1, 0.5, 0.5, 0.1], [], (1.0, 0.0)),
        ([0.1, 0.5, 0.25, 0.75, 0.1], [1, 2, 9], (0.5, 2.0)),
        # The newest twenty.
        ([], [50] * 100 + [3] * 20, (1.0, 3.0)),
    ],
)
def test_habits(days: list[float], waits_days: list[int], expected: tuple[float, float]) -> None:
    found = habits([(share * DAY_S, DAY_S) for share in days], [wait * DAY_S for wait in waits_days])
    assert (found.run_share, found.move_days) == expected
    assert len(found.basis) == (found.run_share != 1.0) + (found.move_days != 0.0)


def test_growth_is_copied_and_counts_on_both_sides() -> None:
    # 100 grow by 10 a day; what is there after 1.25 days takes 1.25 times as long: begins 0, ends at 1 / (1 - 0.1).
    site = facts([subvolume(1, total=200, free=100)], [batch(1, [100], days=1)], target=112, growth=10, retain=0)
    assert outcome(site).batches[0].moved_day == pytest.approx(1 / 0.9)
    assert obstacle(replace(site, target_free_bytes=111)).kind is model.ObstacleKind.TARGET_BYTES


def test_sources_that_are_kept_of_users_who_moved_before_stand_in_the_way_until_they_are_purged() -> None:
    kept = model.UnpurgedSource(placed=model.PlacedContent(size_bytes=(60, 60), files=(0, 0)), freed_day=7)
    site = facts([subvolume(1, free=20), subvolume(2, free=20)], [batch(1, [20, 20], days=1)], kept=(kept,), retain=30)
    found = outcome(site)
    assert found.subvolumes[0].drain_begins_day == 7
    assert found.done_day == 31


def test_every_obstacle() -> None:
    volumes = [subvolume(1, free=10), subvolume(2, free=10)]
    big = batch(1, [90, 90], files=[5, 5])
    assert obstacle(facts(volumes, [big], target=179)) == model.Obstacle(
        kind=model.ObstacleKind.TARGET_BYTES, day=0, batch=1, lacking_bytes=1
    )
    assert obstacle(facts(volumes, [big], target_inodes=9)) == model.Obstacle(
        kind=model.ObstacleKind.TARGET_INODES, day=0, batch=1, lacking_inodes=1
    )
    assert obstacle(facts(volumes, [batch(1, [1, 1])], outside=[80, 80])).kind is model.ObstacleKind.SOURCE_ROOM
    assert obstacle(facts(volumes, [batch(1, [10, 10], days=20)], growth=1)).kind is model.ObstacleKind.COPY_TOO_SLOW
    grown = facts(volumes, [batch(1, [90, 90], days=9)], growth=3)
    found = obstacle(grown)
    assert (found.kind, found.subvolume) == (model.ObstacleKind.SOURCE_GROWTH, 1)
    assert found.day == pytest.approx(20 / 3)
    target = facts([subvolume(1, total=1000, free=900)], [batch(1, [100], days=0)], target=101, growth=1, retain=9)
    found = obstacle(target)
    assert found.kind is model.ObstacleKind.TARGET_GROWTH
    for kind in model.ObstacleKind:
        assert rules.describe_obstacle(model.Obstacle(kind=kind, day=3, batch=2, subvolume=1), 0.0)


COST = TransferCost(s_per_file=0.002, s_per_byte=1e-8, streams=4, basis="measured here")


def tally(*, files: int = 0, size_bytes: int = 0, busy_s: float = ENOUGH_S) -> CopyTally:
    return CopyTally(files=files, size_bytes=size_bytes, busy_s=busy_s)


def test_files_and_bytes_are_weighed_by_what_they_cost() -> None:
    # 2,000 s of one stream's work in an hour, by small files; 8,000 s otherwise, by big ones.
    seen = DrainCopying(in_drains=tally(files=10**6), outside=tally(size_bytes=8 * 10**11))
    found = slower_in_drains(seen, COST)
    assert found.share == pytest.approx(0.25)
    assert "measured here, 25%" in found.basis
    assert found.days_in_drain(2.0, files=1, size_bytes=1, cost=COST) == pytest.approx(8.0)


@pytest.mark.parametrize(("files", "share"), [(0, 0.01), (10**9, 1.0)])
def test_a_drain_neither_stops_copying_nor_makes_it_faster(files: int, share: float) -> None:
    seen = DrainCopying(in_drains=tally(files=files), outside=tally(files=10**6))
    assert slower_in_drains(seen, COST).share == share


ENOUGH = DrainCopying(in_drains=tally(files=10), outside=tally(files=10))


@pytest.mark.parametrize(
    "seen",
    [
        replace(ENOUGH, in_drains=tally(files=10, busy_s=ENOUGH_S - 1)),
        replace(ENOUGH, outside=tally(files=10, busy_s=ENOUGH_S - 1)),
        replace(ENOUGH, outside=tally()),
    ],
    ids=["short-in-drains", "short-outside", "nothing-outside"],
)
def test_too_little_is_no_measurement(seen: DrainCopying) -> None:
    found = slower_in_drains(seen, COST)
    assert found.share == ASSUMED_SHARE
    assert found.basis.startswith("assumed")


def drain(files: int, size_bytes: int, *, s_per_file: float, s_per_byte: float) -> CopyTally:
    return CopyTally(files=files, size_bytes=size_bytes, busy_s=files * s_per_file + size_bytes * s_per_byte)


def test_a_drain_is_counted_by_its_last_looks() -> None:
    samples = [
        drain_sample(1, 10, at_s=10, runtime_s=10),
        drain_sample(5, 50, at_s=20, runtime_s=20),
        drain_sample(2, 20, at_s=20, host="b", runtime_s=18),
        # Begun again after a failure, an hour later.
        drain_sample(3, 30, at_s=3600, task_id="u", runtime_s=7),
    ]
    assert drain_tally(samples) == CopyTally(files=10, size_bytes=100, busy_s=27)
    assert drain_tally([]) == CopyTally(files=0, size_bytes=0, busy_s=0)


drain_tallies = st.builds(
    CopyTally,
    files=st.integers(0, 10**8),
    size_bytes=st.integers(1, 10**14),
    busy_s=st.floats(rules_drains.ENOUGH_S, 100 * DAY_S),
)


@given(st.lists(drain_tallies, min_size=1, max_size=6))
def test_in_sum_it_gives_what_was_measured(tallies: list[CopyTally]) -> None:
    found = rules_drains.drain_cost(tallies)
    assert found.s_per_file > 0
    assert found.s_per_byte > 0
    told = sum(one.files * found.s_per_file + one.size_bytes * found.s_per_byte for one in tallies)
    assert told == pytest.approx(sum(one.busy_s for one in tallies))


@st.composite
def sites(draw: st.DrawFn, *, growth: bool = True) -> ScheduleInput:
    """Small sites, mostly tight ones. Nothing takes no time, so what happens when is never in doubt."""
    count = draw(st.integers(1, 3))
    held = st.lists(st.integers(0, 30), min_size=count, max_size=count)
    slower = draw(st.sampled_from([1, 3, 20]))
    batches = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        days = draw(st.integers(0, 5)) + 0.13
        batches.append(batch(number, draw(held), files=draw(held), days=days, in_drain=days * slower))
    outside = [draw(st.integers(0, 5)) for _ in range(count)]
    kept = tuple(
        UnpurgedSource(
            placed=PlacedContent(size_bytes=tuple(draw(held)), files=tuple(draw(held))),
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
        move=draw(st.sampled_from([0.0, 0.0, 1.5])),
    )


_NO_ROOM_FOR_TRASH = facts(
    [subvolume(1, total=2, free=2), subvolume(2, total=1, free=0)],
    [batch(1, [0, 0])],
    target=0,
    kept=(model.UnpurgedSource(placed=model.PlacedContent(size_bytes=(0, 0), files=(0, 0)), freed_day=1),),
    outside=[0, 1],
    growth=0.1,
    trash_keep=1,
)


@example(_NO_ROOM_FOR_TRASH)
@given(sites())
def test_no_instant_passes_a_limit(site: ScheduleInput) -> None:
    for order in drain_orders(site):
        outcome = play(site, order)
        event("possible" if outcome.obstacle is None else outcome.obstacle.kind.value)
        assert Replay(site, outcome).run().worst == []
        if outcome.obstacle is None:
            assert [step.batch for step in outcome.batches] == [one.number for one in site.batches]
            assert [step.retired for step in outcome.subvolumes] == [False] * (len(site.subvolumes) - 1) + [True]
            assert outcome.done_day is not None
            assert all(host.free_day is not None and host.free_day <= outcome.done_day for host in outcome.hosts)


@given(sites(growth=False))
def test_a_schedule_is_impossible_exactly_if_no_sequence_exists(site: ScheduleInput) -> None:
    possible = best_outcome(site).obstacle is None
    event(f"possible: {possible}")
    assert possible is any_way(site)


@dataclass(frozen=True)
class Way:
    """How far a way through is: batches moved, places drained, places that joined."""

    moved: int
    drained: frozenset[int]
    joined: frozenset[int]


def any_way(site: ScheduleInput) -> bool:
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
            waiting.append(dataclasses.replace(way, moved=way.moved + 1))
        for place in set(range(len(site.subvolumes))) - way.drained:
            if len(way.drained) < goal and others_take(site, way.moved, way.drained | {place}):
                waiting.append(dataclasses.replace(way, drained=way.drained | {place}))
        for place in way.drained - way.joined:
            waiting.append(dataclasses.replace(way, joined=way.joined | {place}))
    return False


def target_takes(site: ScheduleInput, way: Way) -> bool:
    """Whether the next batch fits, by plain sums."""
    added = sum(site.subvolumes[place].added_bytes for place in way.joined)
    whole, free = site.target_total_bytes + added, site.target_free_bytes + added
    used = sum(one.target_bytes for one in site.batches[: way.moved + 1])
    room = max(min(whole * site.max_fill - (whole - free), free - site.reserve_bytes), 0)
    inodes = site.target_inodes_free
    need_inodes = sum(one.target_inodes for one in site.batches[: way.moved + 1])
    return used <= room + 1e-5 and (inodes is None or need_inodes <= inodes)


def others_take(site: ScheduleInput, moved: int, drained: frozenset[int]) -> bool:
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
def test_more_space_is_never_later(site: ScheduleInput, more: int) -> None:
    inodes = site.target_inodes_free
    larger = replace(
        site,
        target_total_bytes=site.target_total_bytes + more,
        target_free_bytes=site.target_free_bytes + more,
        target_inodes_free=None if inodes is None else inodes + more,
    )
    before, after = best_outcome(site), best_outcome(larger)
    if before.obstacle is None:
        assert after.obstacle is None
        assert sum_of_days(after) <= sum_of_days(before) + 1e-6


def sum_of_days(outcome: ScheduleOutcome) -> float:
    return sum(step.cleared_day for step in outcome.subvolumes if step.cleared_day is not None)
