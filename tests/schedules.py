"""Invented facts of schedules, and a plain replay of what a schedule says, for tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from migrator.domain.schedule import Outcome
from migrator.domain.schedule_facts import (
    BatchFacts,
    KeptFacts,
    Placed,
    ScheduleFacts,
    SubvolumeFacts,
    TargetPart,
)
from migrator.domain.units import DAY_S, MIB, TIB

TB = 10**12


def subvolume(
    number: int,
    *,
    total: int = 100,
    free: int = 50,
    host: str = "",
    added: int | None = None,
    inodes: int | None = None,
) -> SubvolumeFacts:
    """One brick on a host of its own, which gives the target its size."""
    name = host or f"gl{number}"
    return SubvolumeFacts(
        number=number,
        bricks=(f"{name}:/b{number}",),
        hosts=(name,),
        total_bytes=total,
        free_bytes=free,
        free_inodes=inodes,
        added_bytes=total if added is None else added,
    )


def batch(
    number: int,
    placed: Sequence[int],
    *,
    files: Sequence[int] | None = None,
    days: float = 1.0,
    in_drain: float | None = None,
    target: int | None = None,
    inodes: int | None = None,
) -> BatchFacts:
    """A batch that takes as much of the target as it holds on the source."""
    on = Placed(size_bytes=tuple(placed), files=tuple(files or (0,) * len(placed)))
    return BatchFacts(
        number=number,
        placed=on,
        target_bytes=on.all_bytes if target is None else target,
        target_inodes=on.all_files if inodes is None else inodes,
        copy_days=days,
        copy_days_in_drain=in_drain,
    )


def facts(
    subvolumes: Sequence[SubvolumeFacts],
    batches: Sequence[BatchFacts],
    *,
    target: tuple[TargetPart, ...] = (TargetPart(total_bytes=1000, free_bytes=1000),),
    target_inodes: int | None = None,
    kept: tuple[KeptFacts, ...] = (),
    outside: Sequence[int] | None = None,
    max_fill: float = 1.0,
    growth: float = 0.0,
    retain: float = 1.0,
    trash_keep: float = 0.0,
    drain: float = 0.01,
    handover: float = 1.0,
    bricks_join: bool = True,
) -> ScheduleFacts:
    """A small site: bytes by ones, days by ones."""
    return ScheduleFacts(
        subvolumes=tuple(subvolumes),
        batches=tuple(batches),
        kept=kept,
        outside=Placed(size_bytes=tuple(outside or (0,) * len(subvolumes)), files=(0,) * len(subvolumes)),
        target=target,
        target_inodes_free=target_inodes,
        max_fill=max_fill,
        reserve_bytes=0,
        growth_bytes_per_day=growth,
        retain_days=retain,
        trash_keep_days=trash_keep,
        purge_days_per_file=0.0,
        drain_days_per_byte=drain,
        drain_days_per_file=0.0,
        handover_days=handover,
        bricks_join=bricks_join,
    )


def field_example(target_bytes: int) -> ScheduleFacts:
    """Four servers with two bricks of 40 TiB each hold 340 TB in 17 batches, evenly. 1 GB/s are copied, drains move 50 MiB/s."""
    one = 20 * TB
    batches = [batch(number, [one // 8] * 8, files=[500_000] * 8, days=one / 10**9 / DAY_S) for number in range(1, 18)]
    used = 17 * one // 8
    volumes = [
        subvolume(number + 1, total=40 * TIB, free=40 * TIB - used, host=f"gl{number // 2 + 1}") for number in range(8)
    ]
    site = facts(
        volumes,
        batches,
        target=(TargetPart(total_bytes=target_bytes, free_bytes=target_bytes),),
        max_fill=0.9,
        retain=14,
        drain=1.0 / (50 * MIB * DAY_S),
    )
    return replace(site, purge_days_per_file=1.0 / (1000 * DAY_S))


@dataclass
class Replay:
    """What lies where when the steps of an outcome are carried out one after the other, by plain bookkeeping.

    `source[batch][subvolume]` are bytes; what a drain moves arrives at its end.
    """

    facts: ScheduleFacts
    outcome: Outcome
    day: float = 0.0
    source: dict[int, list[float]] = field(default_factory=dict)
    on_target: dict[int, float] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    overhead: list[float] = field(default_factory=list)
    worst: list[str] = field(default_factory=list)
    above: set[int] = field(default_factory=set)

    def run(self) -> "Replay":
        """To the end of the outcome, or to its obstacle; `worst` says which limits were passed."""
        self.source = {one.number: [float(held) for held in one.placed.size_bytes] for one in self.facts.batches}
        self.source |= {-1 - number: [*map(float, one.placed.size_bytes)] for number, one in enumerate(self.facts.kept)}
        self.source[0] = [float(held) for held in self.facts.outside.size_bytes]
        places = range(len(self.facts.subvolumes))
        self.open = set(places)
        used = [one.total_bytes - one.free_bytes for one in self.facts.subvolumes]
        self.overhead = [max(used[place] - self.held(place), 0.0) for place in places]
        self.above = {place for place in places if self.held(place) > self.limit(place)}
        end_day = inf if self.outcome.obstacle is None else self.outcome.obstacle.day
        for day, act in sorted(self.events(), key=lambda event: event[0]):
            if day > end_day:
                break
            self.pass_time(day)
            self.check()
            act()
            self.check()
        return self

    def events(self) -> list[tuple[float, Callable[[], object]]]:
        place_of = {one.number: place for place, one in enumerate(self.facts.subvolumes)}
        found: list[tuple[float, Callable[[], object]]] = []
        for step in self.outcome.batches:
            found.append((step.moved_day, partial(self.move, step.batch)))
            found.append((step.freed_day, partial(self.source.pop, step.batch)))
        for number, kept in enumerate(self.facts.kept):
            found.append((kept.freed_day, partial(self.source.pop, -1 - number)))
        for cleared in self.outcome.subvolumes:
            if cleared.drain_begins_day is not None:
                found.append((cleared.drain_begins_day, partial(self.open.discard, place_of[cleared.subvolume])))
            if cleared.cleared_day is not None and not cleared.retired:
                found.append((cleared.cleared_day, partial(self.clear, place_of[cleared.subvolume])))
        return found

    def share(self, place: int) -> float:
        return self.facts.subvolumes[place].total_bytes / sum(
            self.facts.subvolumes[other].total_bytes for other in self.open
        )

    def pass_time(self, day: float) -> None:
        for one in self.facts.batches:
            added = one.placed.all_bytes * self.facts.growth_share * (day - self.day)
            if one.number in self.on_target:
                self.on_target[one.number] += added
            else:
                for place in self.open:
                    self.source[one.number][place] += added * self.share(place)
        self.day = day

    def move(self, number: int) -> None:
        one = next(one for one in self.facts.batches if one.number == number)
        self.on_target[number] = one.target_bytes + one.placed.all_bytes * self.facts.growth_share * self.day

    def clear(self, place: int) -> None:
        for held in self.source.values():
            for other in self.open:
                held[other] += held[place] * self.share(other)
            held[place] = 0.0
        self.gone.add(place)

    def held(self, place: int) -> float:
        return sum(held[place] for held in self.source.values())

    def limit(self, place: int) -> float:
        return self.facts.subvolumes[place].total_bytes * self.facts.max_fill - self.overhead[place]

    def room(self) -> float:
        """By what has joined the target until now."""
        room = sum(
            max(part.total_bytes * self.facts.max_fill - (part.total_bytes - part.free_bytes), 0)
            for part in self.facts.target
        )
        if self.facts.bricks_join:
            for step in self.outcome.subvolumes:
                joined = step.cleared_day is not None and not step.retired
                if joined and (step.cleared_day or 0.0) + self.facts.handover_days <= self.day:
                    one = next(one for one in self.facts.subvolumes if one.number == step.subvolume)
                    room += one.added_bytes * self.facts.max_fill
        return room

    def check(self) -> None:
        for place in set(range(len(self.facts.subvolumes))) - self.gone:
            held, limit = self.held(place), self.limit(place)
            if held <= limit * (1 + 1e-6) + 1e-6:
                self.above.discard(place)
            elif place not in self.above:
                self.worst.append(f"day {self.day}: subvolume {place + 1} holds {held}, may hold {limit}")
            elif held > self.facts.subvolumes[place].total_bytes - self.overhead[place] + 1e-6:
                self.worst.append(f"day {self.day}: subvolume {place + 1} is full")
        trash = self.facts.growth_bytes_per_day * self.facts.trash_keep_days
        used = sum(self.on_target.values()) + (trash if self.on_target else 0.0)
        if used > self.room() * (1 + 1e-6) + 1e-6:
            self.worst.append(f"day {self.day}: the target holds {used}, may hold {self.room()}")
