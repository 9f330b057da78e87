"""Simulation of one schedule, event by event. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil, inf

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.units import DAY_S
from migrator.plan.schedule import model

# --- Bricks that were not drained, and hosts


def waiting_steps(rest: Sequence[model.ScheduledSubvolume], done_day: float | None) -> tuple[model.SubvolumeStep, ...]:
    """Steps of subvolumes whose drain has not begun; the last of them is retired on `done_day`."""
    return tuple(
        model.SubvolumeStep(
            subvolume=one.number,
            bricks=one.bricks,
            drain_begins_day=None,
            cleared_day=done_day if one is rest[-1] else None,
            moved_bytes=0,
            retired=one is rest[-1],
        )
        for one in rest
    )


def host_steps(
    subvolumes: Sequence[model.ScheduledSubvolume], steps: Sequence[model.SubvolumeStep]
) -> tuple[model.HostStep, ...]:
    """The day of each server: that of its last brick."""
    cleared = {step.subvolume: step.cleared_day for step in steps}
    days: dict[str, list[float | None]] = {}
    for one in subvolumes:
        for host in one.hosts:
            days.setdefault(host, []).append(cleared[one.number])
    return tuple(
        model.HostStep(host=host, free_day=None if None in found else max(day for day in found if day is not None))
        for host, found in sorted(days.items())
    )


# --- The source
#
# Gluster places files by their names, each subvolume a share by its size, and a drain spreads the files that it moves
# in the same way. So the content of a subvolume depends only on which others are drained, not on their order: its own
# initial content, plus its share of everything that lay on drained ones or was added since.


_TOLERANCE = 1e-9
"""Relative tolerance for sums of floating-point numbers."""


def within(amount: float, limit: float) -> bool:
    """True if an amount is within a limit, up to rounding."""
    return amount <= limit + _TOLERANCE * max(abs(amount), abs(limit))


class Amount:
    """Bytes or files on the source: the initial content by subvolume, and the growth since."""

    def __init__(self, subvolumes: int, growth_share: float) -> None:
        self._base = [0.0] * subvolumes
        self._growth_share = growth_share
        self._settled = 0.0
        self._live = 0.0

    def add(self, placed: Sequence[int], *, live: bool) -> None:
        """Add initial content; with `live` it grows."""
        for place, amount in enumerate(placed):
            self._base[place] += amount
        if live:
            self._live += sum(placed) * self._growth_share

    def settle(self, whole: float, day: float) -> None:
        """Content that was `whole` initially stops growing on this day."""
        growth = whole * self._growth_share
        self._live -= growth
        self._settled += growth * day

    def remove(self, placed: Sequence[int], *, grown_until_day: float) -> None:
        """Remove content that grew until that day."""
        for place, amount in enumerate(placed):
            self._base[place] -= amount
        self._settled -= sum(placed) * self._growth_share * grown_until_day

    def loose(self, gone: Sequence[int], day: float) -> float:
        """The content spread over all active subvolumes: that of the drained ones, and all growth."""
        return sum(self._base[other] for other in gone) + self._settled + self._live * day

    def on(self, place: int, share: float, loose: float) -> float:
        """The content of one subvolume, which takes `share` of `loose`."""
        return self._base[place] + loose * share

    def rate(self, share: float) -> float:
        """Growth per day of a subvolume that takes this share."""
        return self._live * share


class SimulatedSource:
    """The subvolumes. One in a drain counts as removed: the others reserve room for all files that it moves."""

    def __init__(self, facts: model.ScheduleInput) -> None:
        self.facts = facts.subvolumes
        self._max_fill = facts.max_fill
        count = len(self.facts)
        self.bytes = Amount(count, facts.growth_share)
        self.files = Amount(count, facts.growth_share)
        for batch in facts.batches:
            self._add(batch.placed, live=True)
        for placed in (*(kept.placed for kept in facts.kept), facts.outside):
            self._add(placed, live=False)
        self.active = list(range(count))
        self._gone: list[int] = []
        self._weights = [max(one.total_bytes, 1) for one in self.facts]
        self._active_weight = sum(self._weights)
        # A drain does not move file system overhead, nor files written since the scan.
        content = [self.content(place, 0.0) for place in range(count)]
        self._overhead = [max(one.used_bytes - held, 0.0) for one, held in zip(self.facts, content, strict=True)]
        # One that exceeds its limit from the start is limited by its size until it has fallen below the limit.
        self._above = {place for place in self.active if not within(content[place], self._limit(place))}

    def _add(self, placed: model.PlacedContent, *, live: bool) -> None:
        self.bytes.add(placed.size_bytes, live=live)
        self.files.add(placed.files, live=live)

    def settle(self, placed: model.PlacedContent, day: float) -> None:
        """The users of this content work on the target from now on."""
        self.bytes.settle(placed.all_bytes, day)
        self.files.settle(placed.all_files, day)

    def remove(self, placed: model.PlacedContent, *, grown_until_day: float) -> None:
        """This content was purged."""
        self.bytes.remove(placed.size_bytes, grown_until_day=grown_until_day)
        self.files.remove(placed.files, grown_until_day=grown_until_day)

    def _share(self, place: int) -> float:
        return self._weights[place] / self._active_weight

    def content(self, place: int, day: float) -> float:
        """Bytes of files on an active subvolume, including its share of a drain in flight."""
        return self.bytes.on(place, self._share(place), self.bytes.loose(self._gone, day))

    def leaving(self, place: int, day: float) -> tuple[float, float]:
        """Bytes and files that a drain of it moves, without growth after this day."""
        rest = [other for other in self._gone if other != place]
        weight = self._active_weight + (0 if place in self.active else self._weights[place])
        share = self._weights[place] / weight
        return (
            self.bytes.on(place, share, self.bytes.loose(rest, day)),
            self.files.on(place, share, self.files.loose(rest, day)),
        )

    def _limit(self, place: int) -> float:
        return self.facts[place].total_bytes * self._max_fill - self._overhead[place]

    def takes_out(self, place: int) -> None:
        """Begin its drain: the others take all growth, and reserve room for its content."""
        self.active.remove(place)
        self._gone.append(place)
        self._active_weight -= self._weights[place]

    def room_without(self, place: int, day: float) -> bool:
        """True if all others would be within their limits on that day if this one was drained."""
        self.takes_out(place)
        loose = self.bytes.loose(self._gone, day)
        kept = all(within(self.bytes.on(other, self._share(other), loose), self._limit(other)) for other in self.active)
        self._gone.pop()
        self.active.append(place)
        self.active.sort()
        self._active_weight += self._weights[place]
        return kept

    def note_emptied(self, day: float) -> None:
        """Subvolumes that have fallen below their limit must keep it from now on."""
        self._above = {place for place in self._above if not within(self.content(place, day), self._limit(place))}

    def limit(self, place: int) -> float:
        """The bytes of files that it may hold now."""
        if place in self._above:
            return self.facts[place].total_bytes - self._overhead[place]
        return self._limit(place)

    def overfull(self, day: float) -> tuple[int, float, float] | None:
        """A subvolume that exceeds its limit by growth alone before that day, the day on which it does, and the excess
        in bytes at the end; None if there is none.
        """
        loose, found = self.bytes.loose(self._gone, day), []
        for place in self.active:
            share, most = self._share(place), self.limit(place)
            held = self.bytes.on(place, share, loose)
            if not within(held, most):
                rate = self.bytes.rate(share)
                found.append((place, day - (held - most) / rate if rate > 0 else day, held - most))
        return min(found, key=lambda one: one[1], default=None)


# --- The target: content only grows, because nothing is deleted there


class SimulatedTarget:
    """The target keeps `max_fill` and the reserve."""

    def __init__(self, facts: model.ScheduleInput) -> None:
        self._facts = facts
        self._joined_bytes = 0
        self._room_inodes = facts.target_inodes_free
        share = facts.growth_share
        self._bytes = facts.growth_bytes_per_day * facts.trash_keep_days
        self._inodes = 0.0
        self.bytes_rate = sum(kept.placed.all_bytes for kept in facts.kept) * share
        self.inodes_rate = sum(kept.placed.all_files for kept in facts.kept) * share

    @property
    def room_bytes(self) -> float:
        """Bytes that may be copied in all."""
        total_bytes = self._facts.target_total_bytes + self._joined_bytes
        free_bytes = self._facts.target_free_bytes + self._joined_bytes
        below_fill_bytes = total_bytes * self._facts.max_fill - (total_bytes - free_bytes)
        return max(min(below_fill_bytes, free_bytes - self._facts.reserve_bytes), 0.0)

    def join(self, added_bytes: int) -> None:
        """Cleared bricks become room of the target."""
        self._joined_bytes += added_bytes

    def take(self, batch: model.ScheduledBatch) -> None:
        """Begin to copy a batch: from now on its room is taken, and it grows."""
        self._bytes += batch.target_bytes
        self._inodes += batch.target_inodes
        self.bytes_rate += batch.placed.all_bytes * self._facts.growth_share
        self.inodes_rate += batch.placed.all_files * self._facts.growth_share

    def lacking(self, day: float, batch: model.ScheduledBatch | None = None) -> tuple[float, float]:
        """Bytes and inodes beyond the limits on that day, with another batch; 0 if within. It counts the content
        copied by the migration, with growth and trash.
        """
        used_bytes, used_inodes = self._bytes + self.bytes_rate * day, self._inodes + self.inodes_rate * day
        if batch is not None:
            grown = self._facts.growth_share * day
            used_bytes += batch.target_bytes + batch.placed.all_bytes * grown
            used_inodes += batch.target_inodes + batch.placed.all_files * grown
        lacks_bytes = 0.0 if within(used_bytes, self.room_bytes) else used_bytes - self.room_bytes
        inodes_kept = self._room_inodes is None or within(used_inodes, self._room_inodes)
        return lacks_bytes, 0.0 if inodes_kept else used_inodes - (self._room_inodes or 0)


# --- The simulation
#
# Batches are copied one after the other, and bricks drained one after the other; a copy and a drain may run at the same
# time. Each reserves all its room when it starts, so no limit is exceeded in between.


_MOST_TRIES = 1000


class Holds(Struct, frozen=True, kw_only=True):
    """Steps that wait although there is room, because growth would fill that room later: batches (by place) for a
    number of bricks to join the target, drains (by place) for a number of purges.
    """

    batches: Mapping[int, int] = {}
    drains: Mapping[int, int] = {}


def play(facts: model.ScheduleInput, drain_order: Sequence[int]) -> model.ScheduleOutcome:
    """Simulate the batches in their order, and drains in this order of places in `facts.subvolumes`. The last of them is
    retired.
    """
    holds = Holds()
    for _ in range(_MOST_TRIES):
        player = _Player(facts, drain_order, holds)
        outcome = player.run()
        again = player.hold_back(outcome.obstacle)
        if again is None:
            break
        holds = again
    return outcome


@dataclass(slots=True)
class _Drain:
    """The drain in flight; `done` is the moved share."""

    place: int
    begins_day: float
    moved_bytes: float
    done: float = 0.0


@dataclass(slots=True)
class _Copy:
    """The copy in flight: the place of its batch in the order, and the copied part in days without a drain."""

    place: int
    facts: model.ScheduledBatch
    begins_day: float
    waited_days: float
    done_days: float = 0.0


class _Player:
    """The state of one simulation."""

    def __init__(self, facts: model.ScheduleInput, drain_order: Sequence[int], holds: Holds) -> None:
        self._facts = facts
        self._order = facts.batches
        self._drains = list(drain_order)
        self._holds = holds
        self._source = SimulatedSource(facts)
        self._target = SimulatedTarget(facts)
        self._growth_share = facts.growth_share
        self._day = 0.0
        self._copy: _Copy | None = None
        self._drain: _Drain | None = None
        self._next_batch = 0
        self._next_drain = 0
        self._copied_day = 0.0
        # A heap of purges: day, a number that makes it unique, content, and the day until which it grew.
        self._freeing = [(kept.freed_day, -1 - number, kept.placed, 0.0) for number, kept in enumerate(facts.kept)]
        heapify(self._freeing)
        # A heap of moves: day, a number that makes it unique, content.
        self._moving: list[tuple[float, int, model.PlacedContent]] = []
        self._joining: list[tuple[float, int]] = []
        self._purges = 0
        self._joins = 0
        self._batch_began_at_joins: dict[int, int] = {}
        self._drain_began_at_purges: dict[int, int] = {}
        self._steps: list[model.BatchStep] = []
        self._cleared: list[model.SubvolumeStep] = []

    def run(self) -> model.ScheduleOutcome:
        """Run to the end, or to an obstacle."""
        while True:
            # A new drain takes room on the source only, so the order of these two does not matter.
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

    def hold_back(self, obstacle: model.Obstacle | None) -> Holds | None:
        """The steps that must wait longer in the next simulation; None if waiting cannot avoid the obstacle."""
        if obstacle is None:
            return None
        if obstacle.kind is model.ObstacleKind.TARGET_GROWTH and self._batch_began_at_joins:
            place = max(self._batch_began_at_joins)
            wait = self._batch_began_at_joins[place] + 1
            return replace(self._holds, batches={**self._holds.batches, place: wait})
        if obstacle.kind is model.ObstacleKind.SOURCE_GROWTH and self._drain_began_at_purges:
            place = max(self._drain_began_at_purges)
            wait = self._drain_began_at_purges[place] + 1
            return replace(self._holds, drains={**self._holds.drains, place: wait})
        return None

    def _begin_drain(self) -> None:
        while self._drain is None and self._next_drain < len(self._drains) - 1:
            place = self._drains[self._next_drain]
            if self._purges < self._holds.drains.get(self._next_drain, 0):
                return
            moved_bytes, moved_files = self._source.leaving(place, self._day)
            if not self._source.room_without(place, self._day + self._drain_days(moved_bytes, moved_files)):
                return
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
        if ends_day == inf or any(self._target.lacking(ends_day, batch)):
            return
        self._copy = _Copy(
            place=self._next_batch, facts=batch, begins_day=self._day, waited_days=self._day - self._copied_day
        )
        self._target.take(batch)
        self._batch_began_at_joins[self._next_batch] = self._joins
        self._next_batch += 1

    def _copy_end(self, batch: model.ScheduledBatch, done_days: float = 0.0) -> float:
        """The day on which the batch is copied, including the files that users add meanwhile, if no other drain begins.
        Copying is slower while a drain moves files.
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

    def _copied_by(self, batch: model.ScheduledBatch, share: float, day: float, done_days: float) -> float:
        """The day on which it is copied at this share of the rate, with `done_days` done on that day."""
        gained = share - self._growth_share * batch.copy_days
        return inf if gained <= 0.0 else max((batch.copy_days - done_days + share * day) / gained, day)

    def _next_day(self) -> float:
        days = [heap[0][0] for heap in (self._freeing, self._moving) if heap]
        days += [day for day, _ in self._joining]
        if self._copy is not None:
            days.append(self._copy_end(self._copy.facts, self._copy.done_days))
        if self._drain is not None:
            days.append(self._day + self._drain_left_days(self._drain))
        return max(min(days, default=inf), self._day)

    def _is_done(self) -> bool:
        """True if only the last subvolume is left, to be retired."""
        begun = self._next_batch == len(self._order) and self._next_drain >= len(self._drains) - 1
        return begun and self._copy is None and self._drain is None and not self._freeing

    def _growth_problem(self, day: float) -> model.Obstacle | None:
        """The first limit, of either side, that growth exceeds before that day."""
        found = [one for one in (self._target_growth(day), self._source_growth(day)) if one is not None]
        return min(found, key=lambda one: one.day, default=None)

    def _target_growth(self, day: float) -> model.Obstacle | None:
        lacks_bytes, lacks_inodes = self._target.lacking(day)
        if not lacks_bytes and not lacks_inodes:
            return None
        rate = self._target.bytes_rate if lacks_bytes else self._target.inodes_rate
        # What does not grow, as trash, lacks room already.
        back = (lacks_bytes or lacks_inodes) / rate if rate > 0 else inf
        return model.Obstacle(
            kind=model.ObstacleKind.TARGET_GROWTH,
            day=max(day - back, self._day),
            lacking_bytes=ceil(lacks_bytes),
            lacking_inodes=ceil(lacks_inodes),
        )

    def _source_growth(self, day: float) -> model.Obstacle | None:
        over = self._source.overfull(day)
        if over is None:
            return None
        place, over_day, over_bytes = over
        return model.Obstacle(
            kind=model.ObstacleKind.SOURCE_GROWTH,
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
            self._is_copied(self._copy)
        while self._moving and self._moving[0][0] <= day:
            moved_day, _, placed = heappop(self._moving)
            self._source.settle(placed, moved_day)
        while self._freeing and self._freeing[0][0] <= day:
            _, _, placed, grown_until_day = heappop(self._freeing)
            self._source.remove(placed, grown_until_day=grown_until_day)
            self._purges += 1
        if drained and self._drain is not None:
            self._is_cleared(self._drain)
        for joined in [one for one in self._joining if one[0] <= day]:
            self._joining.remove(joined)
            self._target.join(joined[1])
            self._joins += 1
        self._source.note_emptied(day)

    def _opened(self, day: float) -> float:
        """The first day from this one on on which freezes may begin."""
        facts = self._facts
        opens_at_s = facts.cutovers.from_(facts.begins_at_s + day * DAY_S)
        return max(day, (opens_at_s - facts.begins_at_s) / DAY_S) if facts.cutovers.windows else day

    def _is_copied(self, copy: _Copy) -> None:
        placed = copy.facts.placed
        moved_day = self._opened(self._day + self._facts.move_days)
        heappush(self._moving, (moved_day, copy.place, placed))
        files = placed.all_files * (1.0 + self._growth_share * moved_day)
        freed_day = moved_day + self._facts.retain_days + files * self._facts.purge_days_per_file
        heappush(self._freeing, (freed_day, copy.place, placed, moved_day))
        self._steps.append(
            model.BatchStep(
                batch=copy.facts.number,
                begins_day=copy.begins_day,
                moved_day=moved_day,
                freed_day=freed_day,
                waited_days=copy.waited_days,
            )
        )
        self._copied_day = self._day
        self._copy = None

    def _is_cleared(self, drain: _Drain) -> None:
        self._cleared.append(self._step(drain, cleared_day=self._day))
        self._joining.append((self._day + self._facts.handover_days, self._facts.subvolumes[drain.place].added_bytes))
        self._drain = None

    def _step(self, drain: _Drain, *, cleared_day: float | None) -> model.SubvolumeStep:
        one = self._facts.subvolumes[drain.place]
        return model.SubvolumeStep(
            subvolume=one.number,
            bricks=one.bricks,
            drain_begins_day=drain.begins_day,
            cleared_day=cleared_day,
            moved_bytes=round(max(drain.moved_bytes, 0.0)),
        )

    def _stuck(self) -> model.Obstacle:
        if self._next_batch == len(self._order):
            return model.Obstacle(
                kind=model.ObstacleKind.SOURCE_ROOM,
                day=self._day,
                subvolume=self._facts.subvolumes[self._drains[self._next_drain]].number,
            )
        batch = self._order[self._next_batch]
        ends_day = self._copy_end(batch)
        if ends_day == inf:
            return model.Obstacle(kind=model.ObstacleKind.COPY_TOO_SLOW, day=self._day, batch=batch.number)
        lacks_bytes, lacks_inodes = self._target.lacking(ends_day, batch)
        if not lacks_bytes and not lacks_inodes:
            # The batch waits only because it would grow beyond the room.
            return model.Obstacle(kind=model.ObstacleKind.TARGET_GROWTH, day=self._day, batch=batch.number)
        return model.Obstacle(
            kind=model.ObstacleKind.TARGET_BYTES if lacks_bytes else model.ObstacleKind.TARGET_INODES,
            day=self._day,
            batch=batch.number,
            lacking_bytes=ceil(lacks_bytes),
            lacking_inodes=ceil(lacks_inodes),
        )

    def _outcome(self, obstacle: model.Obstacle | None) -> model.ScheduleOutcome:
        done_day = self._day if obstacle is None else None
        under_way = () if self._drain is None else (self._step(self._drain, cleared_day=None),)
        rest = [self._facts.subvolumes[place] for place in self._drains[self._next_drain :]]
        steps = (*self._cleared, *under_way, *waiting_steps(rest, done_day))
        return model.ScheduleOutcome(
            done_day=done_day,
            obstacle=obstacle,
            batches=tuple(self._steps),
            subvolumes=steps,
            hosts=host_steps(self._facts.subvolumes, steps),
        )
