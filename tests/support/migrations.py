"""Simulated migrations, from the first stream to the last brick: nights, outages, growth, users who clean up, days without
cutovers, retention and drains. They have the facts of the ledger at any time on the way, and the true ends.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from migrator.core.units import DAY_S, HOUR_S
from migrator.plan.model import CostSums, fit_cost, sum_of
from migrator.report import rules_stages
from migrator.report.model import BrickCourse, CopyForecast, Goal, Milestone, ProgressCounts, TreeCourse
from migrator.report.rules_forecast import forecast_copy, slots_of

MONDAY_S = 1_763_337_600.0
"""Monday, 2025-11-17, 00:00 UTC."""

_GROUPS = 20
_LONGEST_S = 3000 * DAY_S
_ENOUGH_DAYS = 7


# --- A migration that has ended


@dataclass
class Tree:
    """A user tree: what is left to copy, and when it reached each goal."""

    files: float
    size_bytes: float
    batch: int = 0
    begun: bool = False
    cleans_up_s: float = math.inf
    kept_share: float = 1.0
    times: dict[Goal, float] = field(default_factory=dict)


@dataclass
class BrickSet:
    """A subvolume. The drain of the last one is the stop of the volume."""

    size_bytes: float
    began_s: float | None = None
    times: dict[Goal, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Hour:
    """The files and bytes that streams copied in the hour until `at_s`, and those left then."""

    at_s: float
    files: int
    size_bytes: int
    left_files: int
    left_bytes: int
    attempts: tuple[tuple[int, int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Migration:
    """A migration that has ended. `added` and `worked` have the growth and the bytes of users on the source, by day."""

    began_s: float
    hours: Sequence[Hour]
    trees: Sequence[Tree]
    sets: Sequence[BrickSet]
    retain_s: float
    scheduled_drain_s: float
    is_added: bool
    added: Sequence[float]
    worked: Sequence[float]

    def end_s(self, goal: Goal) -> float | None:
        """When the last of all reached a goal; None if the migration does not have it."""
        if goal is Goal.COMPLETE:
            return max(end_s for one in Goal if one is not goal and (end_s := self.end_s(one)) is not None)
        units: Sequence[Tree | BrickSet] = self.sets if goal in (Goal.CLEARED, Goal.ADDED) else self.trees
        times = [unit.times[goal] for unit in units if goal in unit.times]
        return max(times, default=None)

    # --- The facts at a time on the way

    def past(self, now_s: float) -> Sequence[Hour]:
        return self.hours[: bisect_right(self.hours, now_s, key=lambda hour: hour.at_s)]

    def growth_per_day(self, now_s: float) -> float:
        """As measured by samples of the source, after a week of them."""
        days = int((now_s - self.began_s) // DAY_S)
        worked = sum(self.worked[:days])
        return max(sum(self.added[:days]) / worked, 0.0) if days >= _ENOUGH_DAYS and worked else 0.0

    def copy_forecast(self, now_s: float) -> CopyForecast | None:
        past = self.past(now_s)
        attempts = [attempt for hour in past for attempt in hour.attempts]
        groups = [cost_sums(attempts[turn::_GROUPS]) for turn in range(_GROUPS)]
        cost = fit_cost(sum_of(groups), streams=1)
        if cost is None or not past:
            return None
        copied = [(hour.at_s, hour.files, hour.size_bytes) for hour in past]
        return forecast_copy(
            now_s=now_s,
            slots=slots_of(copied, from_s=self.began_s, now_s=now_s),
            left=ProgressCounts(total_files=past[-1].left_files, total_bytes=past[-1].left_bytes),
            cost=cost,
            cost_groups=groups,
            growth_per_day=self.growth_per_day(now_s),
        )

    def expected(self, now_s: float) -> dict[Goal, Milestone]:
        """The dates that the program expects at a time."""
        trees = [TreeCourse(batch=f"{tree.batch}", reached=_until(tree.times, now_s)) for tree in self.trees]
        bricks = [
            BrickCourse(
                is_drained=one.began_s is not None,
                size_bytes=round(one.size_bytes),
                began_at_s=one.began_s if one.began_s is not None and one.began_s <= now_s else None,
                reached=_until(one.times, now_s),
            )
            for one in self.sets
        ]
        clearing = rules_stages.clearing(bricks, drains_s=self.scheduled_drain_s)
        stages = [
            rules_stages.verifying(trees),
            rules_stages.moving(trees),
            rules_stages.purging(trees, retain_s=self.retain_s),
            clearing,
            *([rules_stages.adding(bricks, clearing)] if self.is_added else []),
        ]
        return {one.goal: one for one in rules_stages.chain(self._copied(now_s), stages, now_s=now_s)}

    def _copied(self, now_s: float) -> Milestone:
        end_s = self.end_s(Goal.COPIED)
        assert end_s is not None
        if end_s <= now_s:
            return Milestone(goal=Goal.COPIED, done=True, at_s=end_s)
        made = self.copy_forecast(now_s)
        if made is None:
            return Milestone(goal=Goal.COPIED, unknown="no files were copied yet")
        return Milestone(
            goal=Goal.COPIED, at_s=made.likely_at_s, earliest_at_s=made.earliest_at_s, latest_at_s=made.latest_at_s
        )

    def naive_end_s(self, goal: Goal, now_s: float) -> float | None:
        """The naive estimate: the bytes left at the bytes per second so far. It knows of no other stage, so that the
        whole ends with them, and with the retention.
        """
        past = self.past(now_s)
        copied = sum(hour.size_bytes for hour in past)
        if not copied:
            return None
        left_s = past[-1].left_bytes / (copied / (now_s - self.began_s))
        return now_s + left_s + (self.retain_s if goal is Goal.COMPLETE else 0.0)


def _until(times: Mapping[Goal, float], now_s: float) -> dict[Goal, float | None]:
    return {goal: at_s for goal, at_s in times.items() if at_s <= now_s}


def cost_sums(attempts: Sequence[tuple[float, float, float]]) -> CostSums:
    """The sums of attempts with files, bytes and seconds, as the ledger makes them."""
    files, sizes, seconds = ([one[place] for one in attempts] for place in range(3))

    def products(one: list[float], other: list[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    return CostSums(
        attempts=len(attempts),
        files=sum(files),
        size_bytes=sum(sizes),
        seconds=sum(seconds),
        files_files=products(files, files),
        files_bytes=products(files, sizes),
        bytes_bytes=products(sizes, sizes),
        files_seconds=products(files, seconds),
        bytes_seconds=products(sizes, seconds),
    )


# --- The simulation


def simulate(seed: int) -> Migration:
    """One migration, the same for the same seed."""
    dice = random.Random(seed)
    per_byte, per_file = dice.uniform(0.5, 2.0) / 2**27, dice.uniform(0.0005, 0.006)
    trees = _trees(dice)
    whole = sum(tree.size_bytes * per_byte + tree.files * per_file for tree in trees)
    usual_s = dice.uniform(4, 55) * DAY_S
    began_s = MONDAY_S + dice.randrange(7 * 24) * HOUR_S
    growth = dice.choice((0.0, dice.uniform(0.0005, 0.004)))
    for tree in trees:
        if dice.random() < 0.1:
            tree.cleans_up_s, tree.kept_share = began_s + dice.uniform(0, usual_s), dice.uniform(0.3, 0.9)
    copying = _Copying(dice, trees, per_byte, per_file, _pace(dice, whole / usual_s), began_s, growth)
    hours = copying.run()
    _verify_and_move(dice, trees, usual_s)
    retain_s = dice.choice((7, 14, 30)) * DAY_S
    _purge(dice, trees, retain_s)
    sets, scheduled_s, is_added = _clear(dice, trees)
    return Migration(
        began_s=began_s,
        hours=hours,
        trees=trees,
        sets=sets,
        retain_s=retain_s,
        scheduled_drain_s=scheduled_s,
        is_added=is_added,
        added=copying.added,
        worked=copying.worked,
    )


def _trees(dice: random.Random) -> list[Tree]:
    """Users, the heaviest first, in batches; some have tiny files, some huge ones."""
    trees = []
    for _ in range(dice.randrange(15, 80)):
        size = math.exp(dice.gauss(math.log(2**40), 1.3))
        of_a_file = math.exp(dice.gauss(math.log(2**22), 1.5))
        trees.append(Tree(files=max(round(size / of_a_file), 1), size_bytes=round(size)))
    trees.sort(key=lambda tree: -tree.size_bytes)
    most, in_batch, batch = dice.randrange(1, 11), 0, 0
    for tree in trees:
        tree.batch = batch
        in_batch += 1
        if in_batch >= most or tree.size_bytes > 2**42:
            batch, in_batch = batch + 1, 0
    return trees


class _Copying:
    """The copying, hour by hour, of one tree after the other. Users add and remove until theirs is begun."""

    def __init__(  # noqa: PLR0917
        self,
        dice: random.Random,
        trees: Sequence[Tree],
        per_byte: float,
        per_file: float,
        pace: Callable[[float], float],
        began_s: float,
        growth: float,
    ) -> None:
        self.dice, self.trees, self.pace, self.began_s = dice, trees, pace, began_s
        self.per_byte, self.per_file, self.growth = per_byte, per_file, growth
        self.added: list[float] = []
        self.worked: list[float] = []

    def run(self) -> list[Hour]:
        left = [[float(tree.files), float(tree.size_bytes)] for tree in self.trees]
        first, at_s, hours = 0, self.began_s, []
        while first < len(left):
            if round((at_s - self.began_s) / HOUR_S) % 24 == 0:
                self._day(left, at_s)
            rest = can = self.pace(at_s) * HOUR_S
            copied, attempts = [0.0, 0.0], []
            while rest > 0 and first < len(left):
                own, tree = left[first], self.trees[first]
                tree.begun = True
                costs = own[0] * self.per_file + own[1] * self.per_byte
                share = min(rest / costs, 1.0) if costs > 0 else 1.0
                took = (own[0] * share, own[1] * share)
                copied, rest = [copied[0] + took[0], copied[1] + took[1]], rest - costs * share
                own[0], own[1] = own[0] - took[0], own[1] - took[1]
                seconds = (took[0] * self.per_file + took[1] * self.per_byte) * math.exp(self.dice.gauss(0, 0.3))
                if seconds > 0:
                    attempts.append((round(took[0]), round(took[1]), seconds))
                if share >= 1.0:
                    tree.times[Goal.COPIED] = at_s + HOUR_S * (1 - rest / can)
                    first += 1
                else:
                    rest = 0.0
            at_s += HOUR_S
            sums = [round(sum(own[place] for own in left)) for place in (0, 1)]
            hours.append(
                Hour(
                    at_s=at_s,
                    files=round(copied[0]),
                    size_bytes=round(copied[1]),
                    left_files=sums[0],
                    left_bytes=sums[1],
                    attempts=tuple(attempts),
                )
            )
            assert at_s < self.began_s + _LONGEST_S
        return hours

    def _day(self, left: list[list[float]], at_s: float) -> None:
        """Growth and clean-ups of a day, of all users; of those begun it is for later passes."""
        worked = added = 0.0
        for own, tree in zip(left, self.trees, strict=True):
            share = self.growth * self.dice.uniform(0.5, 1.5)
            if at_s <= tree.cleans_up_s < at_s + DAY_S:
                share = tree.kept_share - 1.0
            worked += tree.size_bytes
            added += share * tree.size_bytes
            tree.size_bytes *= 1 + share
            tree.files *= 1 + share
            if not tree.begun:
                own[0], own[1] = own[0] * (1 + share), own[1] * (1 + share)
        self.worked.append(worked)
        self.added.append(added)


def _pace(dice: random.Random, usual: float) -> Callable[[float], float]:
    depth, darkest = dice.uniform(0.0, 0.6), dice.uniform(8, 18)
    on_weekends = dice.uniform(0.8, 1.8)
    only_nights = dice.random() < 0.12
    hourly, daily = dice.uniform(0.02, 0.25), dice.uniform(0.05, 0.4)
    memory = dice.uniform(0.0, 0.6)
    drifts = dice.uniform(0.0, 0.03)
    breaks_per_h = dice.uniform(0.0, 1.2) / (7 * 24)
    state = {"day": 0.0, "trend": 0.0, "down_until": 0.0, "date": -1.0}

    def pace(at_s: float) -> float:
        hour, day = at_s / HOUR_S % 24, at_s // DAY_S
        if day != state["date"]:
            state["date"] = day
            state["day"] = memory * state["day"] + math.sqrt(1 - memory**2) * dice.gauss(0, daily)
            state["trend"] += dice.gauss(0, drifts)
        if dice.random() < breaks_per_h:
            state["down_until"] = at_s + math.exp(dice.gauss(math.log(6), 0.9)) * HOUR_S
        if at_s < state["down_until"] or (only_nights and 7 <= hour < 19):
            return 0.0
        light = 1 - depth * (1 + math.cos((hour - darkest) / 24 * 2 * math.pi)) / 2
        weekend = on_weekends if (day + 3) % 7 >= 5 else 1.0
        return usual * light * weekend * math.exp(state["day"] + state["trend"] + dice.gauss(0, hourly))

    return pace


def _verify_and_move(dice: random.Random, trees: Sequence[Tree], usual_s: float) -> None:
    """Batches are verified one after the other when their delta passes are over, or with their users. Users move on
    some days of the week, some of them on each, after an announcement; some have to wait for the next time.
    """
    alone = dice.random() < 0.7
    delta_s, slower = dice.uniform(0.1, 3) * DAY_S, dice.uniform(0.1, 0.9)
    whole = sum(tree.size_bytes for tree in trees)
    free_s, ready = 0.0, {}
    for batch in range(trees[-1].batch + 1):
        own = [tree for tree in trees if tree.batch == batch]
        copied_s = max(tree.times[Goal.COPIED] for tree in own)
        took_s = sum(tree.size_bytes for tree in own) / whole * usual_s * slower * math.exp(dice.gauss(0, 0.2))
        free_s = max(copied_s + delta_s * math.exp(dice.gauss(0, 0.3)), free_s) + (took_s if alone else 0.0)
        for tree in own:
            # A tree counts as copied with its batch: then its pass has ended.
            tree.times[Goal.COPIED] = copied_s
            ready[id(tree)] = free_s
    weekdays = set(dice.sample(range(5), dice.choice((1, 2, 3, 5))))
    most, announced_s = dice.choice((1, 2, 3, 5, 8, 80)), dice.uniform(0, 7) * DAY_S
    longest_s = usual_s + 60 * DAY_S
    closed = [trees[0].times[Goal.COPIED] + dice.uniform(0, longest_s) for _ in range(dice.choice((0, 0, 1, 2)))]
    waiting = sorted(trees, key=lambda tree: ready[id(tree)])
    day = math.floor(ready[id(waiting[0])] / DAY_S)
    while waiting:
        day += 1
        begins_s = day * DAY_S + 9 * HOUR_S
        if (day + 3) % 7 not in weekdays or any(from_s <= begins_s < from_s + 12 * DAY_S for from_s in closed):
            continue
        able = [tree for tree in waiting if ready[id(tree)] + announced_s <= begins_s]
        for turn, tree in enumerate(able[:most]):
            if dice.random() < 0.05:
                continue
            tree.times[Goal.MOVED] = begins_s + turn * 1200.0
            tree.times[Goal.VERIFIED] = ready[id(tree)] if alone else tree.times[Goal.MOVED]
            waiting.remove(tree)


def _purge(dice: random.Random, trees: Sequence[Tree], retain_s: float) -> None:
    """An operator purges on some days, one source after the other."""
    every_days, files_per_s, free_s = dice.choice((1, 1, 3, 7)), dice.uniform(300, 1000), 0.0
    for tree in sorted(trees, key=lambda tree: tree.times[Goal.MOVED]):
        due_s = tree.times[Goal.MOVED] + retain_s
        begins_s = math.ceil(due_s / DAY_S / every_days) * every_days * DAY_S + 10 * HOUR_S
        free_s = max(begins_s, free_s) + min(tree.files / files_per_s, 2 * DAY_S)
        tree.times[Goal.PURGED] = free_s


def _clear(dice: random.Random, trees: Sequence[Tree]) -> tuple[list[BrickSet], float, bool]:
    """Subvolumes are drained one after the other as room is freed; the last one is retired when all is purged. Also the
    time that the plan had for all drains.
    """
    count, is_added = dice.choice((2, 4, 6, 8)), dice.random() < 0.6
    whole = sum(tree.size_bytes for tree in trees)
    purged = sorted((tree.times[Goal.PURGED], tree.size_bytes) for tree in trees)
    bytes_per_day = whole / dice.uniform(8, 40)
    sets, free_s, scheduled_s = [], 0.0, 0.0
    for number in range(count - 1):
        wanted, freed, begins_s = (number + dice.uniform(0.7, 1.0)) / count, 0.0, 0.0
        for at_s, size in purged:
            freed += size / whole
            begins_s = at_s
            if freed >= wanted:
                break
        begins_s = max(begins_s, free_s) + dice.uniform(0, 3) * DAY_S
        left = whole * max(1 - freed, 0.01) / (count - number)
        free_s = begins_s + left / bytes_per_day * math.exp(dice.gauss(0, 0.3)) * DAY_S
        scheduled_s += left / bytes_per_day * math.exp(dice.gauss(0, 0.5)) * DAY_S
        sets.append(BrickSet(size_bytes=left, began_s=begins_s, times={Goal.CLEARED: free_s}))
    retired_s = max(free_s, purged[-1][0]) + dice.uniform(0.3, 5) * DAY_S
    sets.append(BrickSet(size_bytes=0.0, times={Goal.CLEARED: retired_s}))
    for one in sets[:-1] if is_added else ():
        one.times[Goal.ADDED] = one.times[Goal.CLEARED] + dice.uniform(0.3, 6) * DAY_S
    return sets, scheduled_s, is_added


# --- Day by day


@dataclass(frozen=True, kw_only=True)
class Look:
    """The expected date of a goal at one time: `way` is the share of the time until its end that had passed."""

    seed: int
    goal: Goal
    way: float
    left_s: float
    expected: Milestone
    true_s: float
    naive_s: float | None

    @property
    def whole_s(self) -> float:
        """From the begin of the migration to this end."""
        return self.left_s / (1.0 - self.way)

    @property
    def likely_s(self) -> float | None:
        return self.expected.at_s

    @property
    def is_held(self) -> bool | None:
        """Whether the true end lies in the range; None without a range."""
        earliest_s, latest_s = self.expected.earliest_at_s, self.expected.latest_at_s
        return None if earliest_s is None or latest_s is None else earliest_s <= self.true_s <= latest_s


def replay(seed: int, *, every_days: float = 1.0, from_days: float = 1.5) -> Iterator[Look]:
    """The expected date of every open goal on each day, or at this interval."""
    migration = simulate(seed)
    ends = {goal: end_s for goal in Goal if (end_s := migration.end_s(goal)) is not None}
    now_s = migration.began_s + from_days * DAY_S
    while now_s < ends[Goal.COMPLETE]:
        for goal, one in migration.expected(now_s).items():
            if not one.done and now_s < ends[goal]:
                yield Look(
                    seed=seed,
                    goal=goal,
                    way=(now_s - migration.began_s) / (ends[goal] - migration.began_s),
                    left_s=ends[goal] - now_s,
                    expected=one,
                    true_s=ends[goal],
                    naive_s=migration.naive_end_s(goal, now_s) if goal in (Goal.COPIED, Goal.COMPLETE) else None,
                )
        now_s += every_days * DAY_S


# --- How good the forecast is


WAYS = (0.25, 0.5, 0.75)
"""The shares of the way at which errors are taken."""

_NEAR = 0.1


def held(looks: Iterable[Look], goal: Goal) -> float:
    """The share of the true ends that lie in the range. Each migration counts once."""
    return _share(looks, goal, lambda look: bool(look.is_held))


def late(looks: Iterable[Look], goal: Goal) -> float:
    """The share of the true ends after the likely end. Each migration counts once."""
    return _share(looks, goal, lambda look: look.true_s > (look.expected.at_s or 0.0))


def _share(looks: Iterable[Look], goal: Goal, is_counted: Callable[[Look], bool]) -> float:
    ranged = (look for look in looks if look.is_held is not None)
    return fmean(fmean(is_counted(look) for look in some) for some in by_migration(ranged, goal))


def by_migration(looks: Iterable[Look], goal: Goal) -> Sequence[Sequence[Look]]:
    found: dict[int, list[Look]] = {}
    for look in looks:
        if look.goal is goal:
            found.setdefault(look.seed, []).append(look)
    return list(found.values())


def errors(looks: Iterable[Look], goal: Goal, end_s: Callable[[Look], float | None]) -> tuple[float, ...]:
    """The median errors of an end at WAYS, as shares of the time left then."""
    migrations = by_migration(looks, goal)
    return tuple(
        median(
            abs(at_s - look.true_s) / look.left_s for look in _at(migrations, way) if (at_s := end_s(look)) is not None
        )
        for way in WAYS
    )


def _at(migrations: Iterable[Sequence[Look]], way: float) -> Iterator[Look]:
    """The look of each migration that is nearest to a share of its way, if it expected an end."""
    for some in migrations:
        known = [look for look in some if look.expected.at_s is not None]
        nearest = min(known, key=lambda look: abs(look.way - way), default=None)
        if nearest is not None and abs(nearest.way - way) <= _NEAR:
            yield nearest
