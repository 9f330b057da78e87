"""Invented facts of schedules, and a plain replay of what a schedule says, for tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from msgspec.structs import replace

from migrator.core.units import DAY_S, MIB, TIB
from migrator.plan.schedule import model as schedule

TB = 10**12


def subvolume(number: int, *, total: int = 100, free: int = 50, host: str = "") -> schedule.ScheduledSubvolume:
    """One brick on a host of its own, which gives the target its size."""
    name = host or f"gl{number}"
    return schedule.ScheduledSubvolume(
        number=number,
        bricks=(f"{name}:/b{number}",),
        hosts=(name,),
        total_bytes=total,
        free_bytes=free,
        added_bytes=total,
    )


def batch(
    number: int,
    placed: Sequence[int],
    *,
    files: Sequence[int] | None = None,
    days: float = 1.0,
    in_drain: float | None = None,
) -> schedule.ScheduledBatch:
    """A batch that takes as much of the target as it holds on the source."""
    on = schedule.PlacedContent(size_bytes=tuple(placed), files=tuple(files or (0,) * len(placed)))
    return schedule.ScheduledBatch(
        number=number,
        placed=on,
        target_bytes=on.all_bytes,
        target_inodes=on.all_files,
        copy_days=days,
        copy_days_in_drain=in_drain,
    )


def facts(
    subvolumes: Sequence[schedule.ScheduledSubvolume],
    batches: Sequence[schedule.ScheduledBatch],
    *,
    target: int = 1000,
    target_used: int = 0,
    target_inodes: int | None = None,
    reserve: int = 0,
    kept: tuple[schedule.UnpurgedSource, ...] = (),
    outside: Sequence[int] | None = None,
    max_fill: float = 1.0,
    growth: float = 0.0,
    retain: float = 1.0,
    trash_keep: float = 0.0,
    drain: float = 0.01,
    handover: float = 1.0,
    move: float = 0.0,
) -> schedule.ScheduleInput:
    """A small site: bytes by ones, days by ones. `target` is free there."""
    return schedule.ScheduleInput(
        subvolumes=tuple(subvolumes),
        batches=tuple(batches),
        kept=kept,
        outside=schedule.PlacedContent(
            size_bytes=tuple(outside or (0,) * len(subvolumes)), files=(0,) * len(subvolumes)
        ),
        target_total_bytes=target + target_used,
        target_free_bytes=target,
        target_inodes_free=target_inodes,
        max_fill=max_fill,
        reserve_bytes=reserve,
        growth_bytes_per_day=growth,
        retain_days=retain,
        trash_keep_days=trash_keep,
        purge_days_per_file=0.0,
        drain_days_per_byte=drain,
        drain_days_per_file=0.0,
        handover_days=handover,
        move_days=move,
    )


def field_example(target_bytes: int) -> schedule.ScheduleInput:
    """Four servers with two bricks of 40 TiB each hold 340 TB in 17 batches, evenly. 1 GB/s are copied, drains move 50 MiB/s."""
    one = 20 * TB
    batches = [batch(number, [one // 8] * 8, files=[500_000] * 8, days=one / 10**9 / DAY_S) for number in range(1, 18)]
    used = 17 * one // 8
    volumes = [subvolume(at + 1, total=40 * TIB, free=40 * TIB - used, host=f"gl{at // 2 + 1}") for at in range(8)]
    site = facts(volumes, batches, target=target_bytes, max_fill=0.9, retain=14, drain=1.0 / (50 * MIB * DAY_S))
    return replace(site, purge_days_per_file=1.0 / (1000 * DAY_S))


@dataclass
class Replay:
    """What lies where when the steps of an outcome are carried out one after the other, by plain bookkeeping.

    `source[batch][subvolume]` are bytes; what a drain moves arrives at its end. A batch is on the target from
    when it begins: its place is taken then.
    """

    facts: schedule.ScheduleInput
    outcome: schedule.ScheduleOutcome
    day: float = 0.0
    source: dict[int, list[float]] = field(default_factory=dict)
    whole: dict[int, tuple[int, int]] = field(default_factory=dict)
    on_target: dict[int, float] = field(default_factory=dict)
    inodes: dict[int, float] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    overhead: list[float] = field(default_factory=list)
    above: set[int] = field(default_factory=set)
    joined: int = 0
    worst: list[str] = field(default_factory=list)

    def run(self) -> "Replay":
        """To the end of the outcome, or to its obstacle; `worst` says which limits were passed."""
        kept = {-1 - number: one.placed for number, one in enumerate(self.facts.kept)}
        every = {one.number: one.placed for one in self.facts.batches} | kept | {0: self.facts.outside}
        self.source = {number: [*map(float, placed.size_bytes)] for number, placed in every.items()}
        self.whole = {number: (placed.all_bytes, placed.all_files) for number, placed in every.items() if number}
        self.on_target, self.inodes = dict.fromkeys(kept, 0.0), dict.fromkeys(kept, 0.0)
        self.moved = set(kept)
        places = range(len(self.facts.subvolumes))
        self.open = set(places)
        used = [one.total_bytes - one.free_bytes for one in self.facts.subvolumes]
        self.overhead = [max(used[place] - self.held(place), 0.0) for place in places]
        self.above = {place for place in places if self.held(place) > self.limit(place)}
        obstacle = self.outcome.obstacle
        done_day = inf if self.outcome.done_day is None else self.outcome.done_day
        end_day = done_day if obstacle is None else obstacle.day
        grown = obstacle is not None and obstacle.kind in (
            schedule.ObstacleKind.TARGET_GROWTH,
            schedule.ObstacleKind.SOURCE_GROWTH,
        )
        for day, _, act in sorted(self.events(), key=lambda event: event[:2]):
            # What growth fills is full on that very day.
            if day > end_day or (grown and day == end_day):
                break
            self.pass_time(day)
            self.check()
            act()
            self.check()
        return self

    @property
    def trash(self) -> float:
        return self.facts.growth_bytes_per_day * self.facts.trash_keep_days

    def events(self) -> list[tuple[float, int, Callable[[], object]]]:
        """By day, and on one day by what brings about what: whatever ends comes before what begins."""
        place_of = {one.number: place for place, one in enumerate(self.facts.subvolumes)}
        found: list[tuple[float, int, Callable[[], object]]] = []
        for step in self.outcome.batches:
            found.append((step.begins_day, 2, partial(self.begin, step.batch)))
            found.append((step.moved_day, 0, partial(self.moved.add, step.batch)))
            found.append((step.freed_day, 0, partial(self.purge, step.batch)))
        for number, kept in enumerate(self.facts.kept):
            found.append((kept.freed_day, 0, partial(self.purge, -1 - number)))
        for drain in self.outcome.subvolumes:
            place, begins_day = place_of[drain.subvolume], drain.drain_begins_day
            if begins_day is None:
                continue
            found.append((begins_day, 3, partial(self.begin_drain, place)))
            if drain.cleared_day is not None:
                # Of an empty brick a drain takes no time.
                found.append(
                    (drain.cleared_day, 0 if drain.cleared_day > begins_day else 3, partial(self.clear, place))
                )
                found.append((drain.cleared_day + self.facts.handover_days, 1, partial(self.join, place)))
        return found

    def share(self, place: int) -> float:
        volumes = self.facts.subvolumes
        return volumes[place].total_bytes / sum(volumes[other].total_bytes for other in self.open)

    def pass_time(self, day: float) -> None:
        for number, (size_bytes, files) in self.whole.items():
            added = size_bytes * self.facts.growth_share * (day - self.day)
            more = files * self.facts.growth_share * (day - self.day)
            if number in self.on_target:
                self.on_target[number] += added
                self.inodes[number] += more
            if number not in self.moved:
                for place in self.open:
                    self.source[number][place] += added * self.share(place)
        self.day = day

    def begin(self, number: int) -> None:
        one = next(one for one in self.facts.batches if one.number == number)
        grown = self.facts.growth_share * self.day
        self.on_target[number] = one.target_bytes + one.placed.all_bytes * grown
        self.inodes[number] = one.target_inodes + one.placed.all_files * grown

    def purge(self, number: int) -> None:
        del self.source[number]

    def begin_drain(self, place: int) -> None:
        self.open.discard(place)

    def clear(self, place: int) -> None:
        for held in self.source.values():
            for other in self.open:
                held[other] += held[place] * self.share(other)
            held[place] = 0.0
        self.gone.add(place)

    def join(self, place: int) -> None:
        self.joined += self.facts.subvolumes[place].added_bytes

    def held(self, place: int) -> float:
        return sum(held[place] for held in self.source.values())

    def limit(self, place: int) -> float:
        return self.facts.subvolumes[place].total_bytes * self.facts.max_fill - self.overhead[place]

    def check(self) -> None:
        for place in set(range(len(self.facts.subvolumes))) - self.gone:
            held, limit = self.held(place), self.limit(place)
            if over(held, limit) <= 0:
                self.above.discard(place)
            elif place not in self.above:
                self.worst.append(f"day {self.day}: subvolume {place + 1} holds {held}, may hold {limit}")
            elif over(held, self.facts.subvolumes[place].total_bytes - self.overhead[place]) > 0:
                self.worst.append(f"day {self.day}: subvolume {place + 1} is full")
        if self.on_target:
            self.check_target()

    def room(self) -> float:
        """Of the target as a whole, by what has joined it until now."""
        site = self.facts
        whole, free = site.target_total_bytes + self.joined, site.target_free_bytes + self.joined
        return max(min(whole * site.max_fill - (whole - free), free - site.reserve_bytes), 0.0)

    def check_target(self) -> None:
        site = self.facts
        used = sum(self.on_target.values()) + self.trash
        if over(used, self.room()) > 0:
            self.worst.append(f"day {self.day}: the target holds {used}, may hold {self.room()}")
        inodes = sum(self.inodes.values())
        if site.target_inodes_free is not None and over(inodes, site.target_inodes_free) > 0:
            self.worst.append(
                f"day {self.day}: the target has {inodes} inodes more, may have {site.target_inodes_free}"
            )


def over(amount: float, limit: float) -> float:
    """What is beyond a limit, but for rounding."""
    return amount - (limit * (1 + 1e-6) + 1e-6)
