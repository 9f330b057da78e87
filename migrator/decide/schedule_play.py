"""Plays one schedule through, event by event: batches in one order, drains in one order, each as soon as there is room.

Batches are copied one after the other, bricks are drained one after the other, both at the same time. Whatever begins
has its room from the first moment, so no instant in between passes a limit either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from math import ceil, inf

from migrator.decide.schedule_outcome import host_steps, waiting_steps
from migrator.decide.schedule_sides import SourceSide
from migrator.decide.schedule_target import TargetSide
from migrator.domain.schedule import BatchStep, Obstacle, ObstacleKind, Outcome, SubvolumeStep
from migrator.domain.schedule_facts import BatchFacts, ScheduleFacts

_MOST_TRIES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """What waits although there is room, since growth would fill that room later: a batch, by its place, for so many
    bricks that joined the target; a drain, by its place, for so many purges.
    """

    batches: Mapping[int, int] = field(default_factory=dict)
    drains: Mapping[int, int] = field(default_factory=dict)


def play(facts: ScheduleFacts, batch_order: Sequence[int], drain_order: Sequence[int]) -> Outcome:
    """What becomes of these orders: places in `facts.batches`, and in `facts.subvolumes`, of which the last is retired."""
    holds = Holds()
    for _ in range(_MOST_TRIES):
        player = _Player(facts, batch_order, drain_order, holds)
        outcome = player.run()
        again = player.hold_back(outcome.obstacle)
        if again is None:
            break
        holds = again
    return outcome


@dataclass(slots=True)
class _Drain:
    """The drain under way; `done` is the share of it that is moved."""

    place: int
    begins_day: float
    moved_bytes: float
    done: float = 0.0


@dataclass(slots=True)
class _Copy:
    """The batch that is copied, by its place in the order; `done_days` is what is copied, in days without a drain."""

    place: int
    facts: BatchFacts
    begins_day: float
    waited_days: float
    done_days: float = 0.0


class _Player:
    """The state of one run through a schedule."""

    def __init__(
        self, facts: ScheduleFacts, batch_order: Sequence[int], drain_order: Sequence[int], holds: Holds
    ) -> None:
        self._facts = facts
        self._order = [facts.batches[index] for index in batch_order]
        self._drains = list(drain_order)
        self._holds = holds
        self._source = SourceSide(facts)
        self._target = TargetSide(facts)
        self._growth_share = facts.growth_share
        self._day = 0.0
        self._copy: _Copy | None = None
        self._drain: _Drain | None = None
        self._next_batch = 0
        self._next_drain = 0
        self._copied_day = 0.0
        # A heap of what is to be purged: when, a number that makes it unique, what, and until when it grew.
        self._freeing = [(kept.freed_day, -1 - number, kept.placed, 0.0) for number, kept in enumerate(facts.kept)]
        heapify(self._freeing)
        self._joining: list[tuple[float, int]] = []
        self._purges = 0
        self._joins = 0
        self._batch_began_at_joins: dict[int, int] = {}
        self._drain_began_at_purges: dict[int, int] = {}
        self._steps: list[BatchStep] = []
        self._cleared: list[SubvolumeStep] = []

    def run(self) -> Outcome:
        """To the end, or to an obstacle."""
        while True:
            # A drain that begins leaves less room on the source and none less on the target: the order is all one.
            self._begin_drain()
            self._begin_batch()
            if self._is_done():
                return self._outcome(None)
            coming = self._next_day()
            if coming == inf:
                return self._outcome(self._stuck())
            obstacle = self._growth_problem(coming)
            if obstacle is not None:
                return self._outcome(obstacle)
            self._advance(coming)

    def hold_back(self, obstacle: Obstacle | None) -> Holds | None:
        """What has to wait longer the next time, where something could have; None where nothing can be mended so."""
        if obstacle is None:
            return None
        if obstacle.kind is ObstacleKind.TARGET_GROWTH and self._batch_began_at_joins:
            place = max(self._batch_began_at_joins)
            wait = self._batch_began_at_joins[place] + 1
            return replace(self._holds, batches={**self._holds.batches, place: wait})
        if obstacle.kind is ObstacleKind.SOURCE_GROWTH and self._drain_began_at_purges:
            place = max(self._drain_began_at_purges)
            wait = self._drain_began_at_purges[place] + 1
            return replace(self._holds, drains={**self._holds.drains, place: wait})
        return None

    def _begin_drain(self) -> None:
        while self._drain is None and self._next_drain < len(self._drains) - 1:
            place = self._drains[self._next_drain]
            if self._purges < self._holds.drains.get(self._next_drain, 0):
                return
            ends_day = self._day + self._drain_days(*self._source.leaving(place, self._day))
            if not self._source.room_without(place, ends_day):
                return
            moved_bytes, _ = self._source.leaving(place, self._day)
            self._source.takes_out(place)
            self._drain = _Drain(place=place, begins_day=self._day, moved_bytes=moved_bytes)
            self._drain_began_at_purges[self._next_drain] = self._purges
            self._next_drain += 1

    def _drain_days(self, size_bytes: float, files: float) -> float:
        return (
            max(size_bytes, 0.0) * self._facts.drain_days_per_byte + max(files, 0.0) * self._facts.drain_days_per_file
        )

    def _drain_left_days(self, drain: _Drain) -> float:
        return (1.0 - drain.done) * self._drain_days(*self._source.leaving(drain.place, drain.begins_day))

    def _begin_batch(self) -> None:
        if self._copy is not None or self._next_batch == len(self._order):
            return
        batch = self._order[self._next_batch]
        if self._joins < self._holds.batches.get(self._next_batch, 0):
            return
        ends_day = self._copy_end(batch)
        if ends_day == inf or any(self._lacks_with(batch, ends_day)):
            return
        self._copy = _Copy(
            place=self._next_batch,
            facts=batch,
            begins_day=self._day,
            waited_days=self._day - self._copied_day,
        )
        self._take(self._target, batch)
        self._batch_began_at_joins[self._next_batch] = self._joins
        self._next_batch += 1

    def _copy_end(self, batch: BatchFacts, done_days: float = 0.0) -> float:
        """When it is copied, where no other drain begins: everything that was there when copying ends has been copied, as users
        go on meanwhile. While a drain moves files less is copied in a day.
        """
        day = self._day
        if self._drain is not None:
            drained_day = day + self._drain_left_days(self._drain)
            ends_day = self._copied_by(batch, batch.share_in_drain, day, done_days)
            if ends_day <= drained_day:
                return ends_day
            done_days += batch.share_in_drain * (drained_day - day)
            day = drained_day
        return self._copied_by(batch, 1.0, day, done_days)

    def _copied_by(self, batch: BatchFacts, share: float, day: float, done_days: float) -> float:
        """When it is copied at this share of the rate, of which so much is done on that day."""
        gained = share - self._growth_share * batch.copy_days
        return inf if gained <= 0.0 else max((batch.copy_days - done_days + share * day) / gained, day)

    def _take(self, target: TargetSide, batch: BatchFacts) -> None:
        share = self._growth_share
        target.take(
            batch.target_bytes, batch.target_inodes, batch.placed.all_bytes * share, batch.placed.all_files * share
        )

    def _lacks_with(self, batch: BatchFacts, day: float) -> tuple[float, float]:
        """What the target would lack on that day with this batch, by the room that it has now."""
        share = self._growth_share
        return self._target.lacking(
            day,
            with_bytes=batch.target_bytes + batch.placed.all_bytes * share * day,
            with_inodes=batch.target_inodes + batch.placed.all_files * share * day,
        )

    def _next_day(self) -> float:
        days = [self._freeing[0][0]] if self._freeing else []
        days += [day for day, _ in self._joining]
        if self._copy is not None:
            days.append(self._copy_end(self._copy.facts, self._copy.done_days))
        if self._drain is not None:
            days.append(self._day + self._drain_left_days(self._drain))
        return max(min(days, default=inf), self._day)

    def _is_done(self) -> bool:
        """Whether nothing is left to do but to retire the last subvolume."""
        begun = self._next_batch == len(self._order) and self._next_drain >= len(self._drains) - 1
        return begun and self._copy is None and self._drain is None and not self._freeing

    def _growth_problem(self, day: float) -> Obstacle | None:
        """What growth brings over a limit until that day, on the side where it does so first."""
        found = [one for one in (self._target_growth(day), self._source_growth(day)) if one is not None]
        return min(found, key=lambda one: one.day) if found else None

    def _target_growth(self, day: float) -> Obstacle | None:
        lacks_bytes, lacks_inodes = self._target.lacking(day)
        if not lacks_bytes and not lacks_inodes:
            return None
        rate = self._target.bytes_rate if lacks_bytes else self._target.inodes_rate
        back = (lacks_bytes or lacks_inodes) / rate if rate > 0 else 0.0
        return Obstacle(
            kind=ObstacleKind.TARGET_GROWTH,
            day=max(day - back, self._day),
            lacking_bytes=ceil(lacks_bytes),
            lacking_inodes=ceil(lacks_inodes),
        )

    def _source_growth(self, day: float) -> Obstacle | None:
        over = self._source.overfull(day)
        if over is None:
            return None
        place, over_day, over_bytes = over
        return Obstacle(
            kind=ObstacleKind.SOURCE_GROWTH,
            day=max(over_day, self._day),
            subvolume=self._source.facts[place].number,
            lacking_bytes=ceil(over_bytes),
        )

    def _advance(self, day: float) -> None:
        drained = copied = False
        if self._copy is not None:
            copied = self._copy_end(self._copy.facts, self._copy.done_days) <= day
            share = 1.0 if self._drain is None else self._copy.facts.share_in_drain
            self._copy.done_days += share * (day - self._day)
        if self._drain is not None:
            left_days = self._drain_left_days(self._drain)
            drained = self._day + left_days <= day
            if left_days > 0:
                self._drain.done += (1.0 - self._drain.done) * min((day - self._day) / left_days, 1.0)
        self._day = day
        if copied and self._copy is not None:
            self._moved(self._copy)
        while self._freeing and self._freeing[0][0] <= day:
            _, _, placed, grown_until_day = heappop(self._freeing)
            self._source.remove(placed, grown_until_day=grown_until_day)
            self._purges += 1
        if drained and self._drain is not None:
            self._is_cleared(self._drain)
        for joined in [one for one in self._joining if one[0] <= day]:
            self._joining.remove(joined)
            self._target.join(joined[1], day)
            self._joins += 1
        self._source.note_emptied(day)

    def _moved(self, copy: _Copy) -> None:
        placed = copy.facts.placed
        self._source.settle(placed, self._day)
        files = placed.all_files * (1.0 + self._growth_share * self._day)
        freed_day = self._day + self._facts.retain_days + files * self._facts.purge_days_per_file
        heappush(self._freeing, (freed_day, copy.place, placed, self._day))
        self._steps.append(
            BatchStep(
                batch=copy.facts.number,
                begins_day=copy.begins_day,
                moved_day=self._day,
                freed_day=freed_day,
                waited_days=copy.waited_days,
            )
        )
        self._copied_day = self._day
        self._copy = None

    def _is_cleared(self, drain: _Drain) -> None:
        self._cleared.append(self._step(drain, cleared_day=self._day))
        if self._facts.bricks_join:
            self._joining.append(
                (self._day + self._facts.handover_days, self._facts.subvolumes[drain.place].added_bytes)
            )
        self._drain = None

    def _step(self, drain: _Drain, *, cleared_day: float | None) -> SubvolumeStep:
        one = self._facts.subvolumes[drain.place]
        return SubvolumeStep(
            subvolume=one.number,
            bricks=one.bricks,
            drain_begins_day=drain.begins_day,
            cleared_day=cleared_day,
            moved_bytes=round(max(drain.moved_bytes, 0.0)),
        )

    def _stuck(self) -> Obstacle:
        if self._next_batch == len(self._order):
            return Obstacle(
                kind=ObstacleKind.SOURCE_ROOM,
                day=self._day,
                subvolume=self._facts.subvolumes[self._drains[self._next_drain]].number,
            )
        batch = self._order[self._next_batch]
        ends_day = self._copy_end(batch)
        if ends_day == inf:
            return Obstacle(kind=ObstacleKind.COPY_TOO_SLOW, day=self._day, batch=batch.number)
        lacks_bytes, lacks_inodes = self._lacks_with(batch, ends_day)
        if not lacks_bytes and not lacks_inodes:
            # It waits only since it would grow beyond the room that there is.
            return Obstacle(kind=ObstacleKind.TARGET_GROWTH, day=self._day, batch=batch.number)
        return Obstacle(
            kind=ObstacleKind.TARGET_BYTES if lacks_bytes else ObstacleKind.TARGET_INODES,
            day=self._day,
            batch=batch.number,
            lacking_bytes=ceil(lacks_bytes),
            lacking_inodes=ceil(lacks_inodes),
        )

    def _outcome(self, obstacle: Obstacle | None) -> Outcome:
        done_day = self._day if obstacle is None else None
        under_way = () if self._drain is None else (self._step(self._drain, cleared_day=None),)
        rest = [self._facts.subvolumes[place] for place in self._drains[self._next_drain :]]
        steps = (*self._cleared, *under_way, *waiting_steps(rest, done_day))
        return Outcome(
            done_day=done_day,
            obstacle=obstacle,
            batches=tuple(self._steps),
            subvolumes=steps,
            hosts=host_steps(self._facts.subvolumes, steps),
        )
