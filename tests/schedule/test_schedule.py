"""The conversion schedule: worked examples, and every obstacle by itself."""

from dataclasses import replace

import pytest

from migrator.core.units import TIB
from migrator.schedule import model, rules
from migrator.schedule.rules_play import play
from tests.schedule.schedules import Replay, batch, facts, subvolume


def outcome(site: model.ScheduleFacts) -> model.Outcome:
    return rules.best_outcome(site, range(len(site.batches)))


def obstacle(site: model.ScheduleFacts) -> model.Obstacle:
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
    found = play(site, (0, 1, 2), (0, 1, 2))
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


def test_growth_is_copied_and_counts_on_both_sides() -> None:
    # 100 grow by 10 a day; what is there after 1.25 days takes 1.25 times as long: begins 0, ends at 1 / (1 - 0.1).
    site = facts([subvolume(1, total=200, free=100)], [batch(1, [100], days=1)], target=112, growth=10, retain=0)
    assert outcome(site).batches[0].moved_day == pytest.approx(1 / 0.9)
    assert obstacle(replace(site, target_free_bytes=111)).kind is model.ObstacleKind.TARGET_BYTES


def test_the_last_brick_is_retired_and_a_replica_set_leaves_as_one() -> None:
    one = replace(subvolume(1), bricks=("gl1:/b", "gl2:/b"), hosts=("gl1", "gl2"), added_bytes=200)
    two = replace(subvolume(2), bricks=("gl2:/c", "gl3:/c"), hosts=("gl2", "gl3"), added_bytes=200)
    found = outcome(facts([one, two], [batch(1, [20, 10], days=1)], retain=1))
    first, last = found.subvolumes
    assert (first.retired, last.retired) == (False, True)
    free = {step.host: step.free_day for step in found.hosts}
    assert free["gl2"] == max(first.cleared_day or 0, last.cleared_day or 0)
    alone = outcome(facts([one], [batch(1, [20], days=1)], retain=1))
    assert [(step.retired, step.cleared_day, step.drain_begins_day) for step in alone.subvolumes] == [(True, 2, None)]


def test_sources_that_are_kept_of_users_who_moved_before_stand_in_the_way_until_they_are_purged() -> None:
    kept = model.KeptFacts(placed=model.Placed(size_bytes=(60, 60), files=(0, 0)), freed_day=7)
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
        assert rules.obstacle_words(model.Obstacle(kind=kind, day=3, batch=2, subvolume=1), 0.0)


def test_remedies_are_enough_and_less_is_not() -> None:
    volumes = [subvolume(1, total=100 * TIB, free=10 * TIB), subvolume(2, total=100 * TIB, free=10 * TIB)]
    one = replace(
        batch(1, [90 * TIB, 90 * TIB], files=[5000, 5000]),
        old=(
            model.OldFiles(user="ada", size_bytes=70 * TIB),
            model.OldFiles(user="bob", size_bytes=50 * TIB),
        ),
    )
    site = facts(volumes, [one], target=80 * TIB, target_inodes=8000)
    found = rules.remedies(site, (0,))
    assert found.more_bytes is not None
    assert found.more_inodes is not None
    assert 100 * TIB <= found.more_bytes <= 101 * TIB
    assert 2000 <= found.more_inodes <= 2100
    assert rules.is_possible(rules.with_room(site, found.more_bytes, found.more_inodes), (0,))
    # There are not the inodes either way.
    assert (found.reap_bytes, found.reap_users, found.max_fill) == (None, (), None)
    enough = replace(site, target_inodes_free=None)
    found = rules.remedies(enough, (0,))
    assert (found.more_inodes, found.reap_users, found.reap_bytes) == (0, ("ada", "bob"), 120 * TIB)
    assert not rules.is_possible(rules.without_old(enough, ["ada"]), (0,))
    fuller = facts([subvolume(1)], [batch(1, [50])], target=60, max_fill=0.8)
    assert rules.remedies(fuller, (0,)).max_fill == 0.84
    hopeless = facts([subvolume(1)], [batch(1, [50], days=60)], growth=1)
    assert rules.remedies(hopeless, (0,)).more_bytes is None


def test_orders_stand_side_by_side() -> None:
    # The heaviest takes long and lies on no brick alone; the small one frees brick 1 at once.
    volumes = [subvolume(1, free=90), subvolume(2, free=0)]
    batches = [batch(1, [0, 90], days=50), batch(2, [10, 10], days=1)]
    site = facts(volumes, batches, max_fill=0.9, retain=1)
    schedule = rules.make_schedule(site)
    assert [one.order for one in schedule.orders] == list(model.ScheduleOrder)
    planned, heaviest, soonest = (one.outcome for one in schedule.orders)
    assert planned == heaviest
    assert [step.batch for step in soonest.batches] == [2, 1]
    assert (planned.done_day, soonest.done_day) == (52, 52)
    first, sooner = planned.subvolumes[0].cleared_day, soonest.subvolumes[0].cleared_day
    assert first is not None
    assert sooner is not None
    assert sooner < first
    assert schedule.remedies is None
    assert schedule.every_drain_order
    assert rules.schedule_problem(schedule, 0.0) is None
    assert rules.make_schedule(site) == schedule
