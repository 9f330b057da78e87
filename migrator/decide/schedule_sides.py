"""How full the source is while a schedule is played through.

Gluster places files by their names, each subvolume a share by its size, and a drain spreads what it moves the same way. So
what a subvolume holds depends only on which others are drained, and on no history: what lay on it from the beginning,
and its share of everything that lay on drained ones or was added since.
"""

from collections.abc import Sequence

from migrator.domain.schedule_facts import Placed, ScheduleFacts, SubvolumeFacts

_TOLERANCE = 1e-9
"""Of sums of floating-point numbers, relative to what they are compared with."""


def within(amount: float, limit: float) -> bool:
    """Whether an amount keeps a limit, but for rounding."""
    return amount <= limit + _TOLERANCE * max(abs(amount), abs(limit))


class Amount:
    """Bytes, or files, on the source: where they were first, and what was added since."""

    def __init__(self, subvolumes: int, growth_share: float) -> None:
        self._base = [0.0] * subvolumes
        self._unplaced = 0.0
        self._growth_share = growth_share
        self._settled = 0.0
        self._live = 0.0

    def add(self, placed: Sequence[int], unplaced: int, *, live: bool) -> None:
        """What lies there in the beginning; `live`: it grows."""
        for place, amount in enumerate(placed):
            self._base[place] += amount
        self._unplaced += unplaced
        if live:
            self._live += (sum(placed) + unplaced) * self._growth_share

    def settle(self, whole: float, day: float) -> None:
        """What was `whole` in the beginning grows no more from this day on."""
        growth = whole * self._growth_share
        self._live -= growth
        self._settled += growth * day

    def remove(self, placed: Sequence[int], unplaced: int, *, grown_until_day: float) -> None:
        """Take away what grew until that day."""
        for place, amount in enumerate(placed):
            self._base[place] -= amount
        self._unplaced -= unplaced
        self._settled -= (sum(placed) + unplaced) * self._growth_share * grown_until_day

    def loose(self, gone: Sequence[int], day: float) -> float:
        """What all subvolumes share in: what lay on those that are gone, and what was added."""
        return sum(self._base[other] for other in gone) + self._unplaced + self._settled + self._live * day

    def on(self, place: int, share: float, loose: float) -> float:
        """On one subvolume, which takes `share` of what is loose."""
        return self._base[place] + loose * share

    def rate(self, share: float) -> float:
        """What is added in a day to a subvolume that takes this share."""
        return self._live * share


class SourceSide:
    """The subvolumes. One that is being drained counts as gone for the others: room is kept for all that it moves."""

    def __init__(self, facts: ScheduleFacts) -> None:
        self._facts = facts.subvolumes
        self._max_fill = facts.max_fill
        count = len(self._facts)
        self.bytes = Amount(count, facts.growth_share)
        self.files = Amount(count, facts.growth_share)
        for batch in facts.batches:
            self._add(batch.placed, live=True)
        for placed in (*(kept.placed for kept in facts.kept), facts.outside):
            self._add(placed, live=False)
        self.active = list(range(count))
        self._gone: list[int] = []
        self._weights = [max(one.total_bytes, 1) for one in self._facts]
        self._active_weight = sum(self._weights)
        # What the file system takes for itself, and what was written since the scan, is not moved by a drain.
        content = [self.content(place, 0.0) for place in range(count)]
        self._overhead = [
            max(one.total_bytes - one.free_bytes - held, 0.0) for one, held in zip(self._facts, content, strict=True)
        ]
        files_loose = self.files.loose((), 0.0)
        self._most_files = [
            None if one.free_inodes is None else one.free_inodes + self.files.on(place, self._share(place), files_loose)
            for place, one in enumerate(self._facts)
        ]
        # One that is too full already cannot be said to become so: until it has emptied, it is held to its size.
        self._above = {place for place in self.active if not within(content[place], self._limit(place))}

    def _add(self, placed: Placed, *, live: bool) -> None:
        self.bytes.add(placed.size_bytes, placed.unplaced_bytes, live=live)
        self.files.add(placed.files, placed.unplaced_files, live=live)

    def settle(self, placed: Placed, day: float) -> None:
        """Its users work on the target from now on."""
        self.bytes.settle(placed.all_bytes, day)
        self.files.settle(placed.all_files, day)

    def remove(self, placed: Placed, *, grown_until_day: float) -> None:
        """It was purged."""
        self.bytes.remove(placed.size_bytes, placed.unplaced_bytes, grown_until_day=grown_until_day)
        self.files.remove(placed.files, placed.unplaced_files, grown_until_day=grown_until_day)

    def _share(self, place: int) -> float:
        return self._weights[place] / self._active_weight

    def content(self, place: int, day: float) -> float:
        """Bytes of files on an active subvolume, with what a drain under way brings it."""
        return self.bytes.on(place, self._share(place), self.bytes.loose(self._gone, day))

    def leaving(self, place: int, day: float) -> tuple[float, float]:
        """Bytes and files that a drain of it has to move if it holds nothing that was added after this day."""
        rest = [other for other in self._gone if other != place]
        weight = self._active_weight + (0 if place in self.active else self._weights[place])
        share = self._weights[place] / weight
        return (
            self.bytes.on(place, share, self.bytes.loose(rest, day)),
            self.files.on(place, share, self.files.loose(rest, day)),
        )

    def _limit(self, place: int) -> float:
        return self._facts[place].total_bytes * self._max_fill - self._overhead[place]

    def takes_out(self, place: int) -> None:
        """Its drain begins: others take what is added, and have room for what it holds."""
        self.active.remove(place)
        self._gone.append(place)
        self._active_weight -= self._weights[place]

    def room_without(self, place: int, day: float) -> bool:
        """Whether all others would keep their limits on that day if this one was drained."""
        self.takes_out(place)
        bytes_loose, files_loose = self._loose(day)
        kept = all(
            within(self.bytes.on(other, self._share(other), bytes_loose), self._limit(other))
            and self._files_fit(other, files_loose)
            for other in self.active
        )
        self._gone.pop()
        self.active.append(place)
        self.active.sort()
        self._active_weight += self._weights[place]
        return kept

    def _loose(self, day: float) -> tuple[float, float]:
        return self.bytes.loose(self._gone, day), self.files.loose(self._gone, day)

    def _files_fit(self, place: int, files_loose: float) -> bool:
        most = self._most_files[place]
        return most is None or within(self.files.on(place, self._share(place), files_loose), most)

    def note_emptied(self, day: float) -> None:
        """Whoever has come below its limit is held to it from now on."""
        self._above = {place for place in self._above if not within(self.content(place, day), self._limit(place))}

    def limit(self, place: int) -> float:
        """What it may hold of files now."""
        if place in self._above:
            return self._facts[place].total_bytes - self._overhead[place]
        return self._limit(place)

    def overfull(self, day: float) -> tuple[int, float, float] | None:
        """A subvolume that growth alone brings over a limit by that day, the day on which it does, and the bytes over it
        in the end; None where all keep theirs.
        """
        bytes_loose, files_loose = self._loose(day)
        found = []
        for place in self.active:
            share = self._share(place)
            for amount, loose, most in (
                (self.bytes, bytes_loose, self.limit(place)),
                (self.files, files_loose, self._most_files[place]),
            ):
                held = amount.on(place, share, loose)
                if most is not None and not within(held, most):
                    rate = amount.rate(share)
                    over_day = day - (held - most) / rate if rate > 0 else day
                    found.append((place, over_day, held - most if amount is self.bytes else 0.0))
        return min(found, key=lambda one: one[1]) if found else None

    @property
    def facts(self) -> tuple[SubvolumeFacts, ...]:
        """The subvolumes."""
        return self._facts
