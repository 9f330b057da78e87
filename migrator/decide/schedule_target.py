"""How full the target is while a schedule is played through. Nothing ever leaves it, so what it holds only grows."""

from migrator.decide.schedule_sides import within
from migrator.decide.storage_room import even_room, filled
from migrator.domain.schedule_facts import ScheduleFacts


class TargetSide:
    """The target. As a whole it keeps `max_fill` and the reserve. Where its storage targets are known, nothing is put on it
    either that would not fit when all of them take alike, by the rule of the guards (`storage_room`).
    """

    def __init__(self, facts: ScheduleFacts) -> None:
        self._facts = facts
        self._free_bytes = sum(part.free_bytes for part in facts.target)
        whole = sum(part.total_bytes for part in facts.target)
        self._below_fill_bytes = whole * facts.max_fill - (whole - self._free_bytes)
        # What was free on each at the last change of their number, and what had been brought by then.
        self._free = [float(part.free_bytes) for part in facts.target if part.takes_new]
        self._brought_bytes = 0.0
        self._left_out: list[int] = []
        self.room_inodes = facts.target_inodes_free
        share = facts.growth_share
        self._bytes = facts.growth_bytes_per_day * facts.trash_keep_days
        self._inodes = 0.0
        self.bytes_rate = sum(kept.placed.all_bytes for kept in facts.kept) * share
        self.inodes_rate = sum(kept.placed.all_files for kept in facts.kept) * share
        self.room_bytes = self._room()

    def _room(self, *added: int) -> float:
        """What may be brought in all, with so large storage targets more."""
        room = min(
            self._below_fill_bytes + sum(added) * self._facts.max_fill,
            self._free_bytes + sum(added) - self._facts.reserve_bytes,
        )
        low_bytes = self._facts.target_low_bytes
        if low_bytes is not None:
            even = self._brought_bytes + even_room([*self._free, *added], low_bytes)
            room = min(room, even - self._facts.reserve_bytes)
        return max(room, 0.0)

    def join(self, added_bytes: int, day: float) -> None:
        """Bricks that were cleared become one storage target. One that would be full before the others, so that less fits than
        without it, is left out until that is not so any more.
        """
        low_bytes = self._facts.target_low_bytes
        if low_bytes is not None:
            self._free = filled(self._free, self.used_bytes(day) - self._brought_bytes, low_bytes)
            self._brought_bytes = self.used_bytes(day)
        self._left_out.append(added_bytes)
        largest_first = sorted(self._left_out, reverse=True)
        # Of the same number the largest are best; each alone may be too small where all together are not.
        count = max(range(len(largest_first) + 1), key=lambda count: (self._room(*largest_first[:count]), count))
        joined, self._left_out = largest_first[:count], largest_first[count:]
        self._free += map(float, joined)
        self._free_bytes += sum(joined)
        self._below_fill_bytes += sum(joined) * self._facts.max_fill
        self.room_bytes = self._room()

    def take(self, batch_bytes: float, batch_inodes: float, bytes_rate: float, inodes_rate: float) -> None:
        """A batch is copied: from now on its place counts, and it grows."""
        self._bytes += batch_bytes
        self._inodes += batch_inodes
        self.bytes_rate += bytes_rate
        self.inodes_rate += inodes_rate

    def used_bytes(self, day: float) -> float:
        """What the migration has brought, with growth and trash."""
        return self._bytes + self.bytes_rate * day

    def used_inodes(self, day: float) -> float:
        """As `used_bytes`."""
        return self._inodes + self.inodes_rate * day

    def lacking(self, day: float, *, with_bytes: float = 0.0, with_inodes: float = 0.0) -> tuple[float, float]:
        """Bytes and inodes beyond the limits on that day, with so much more; none where it keeps them."""
        used_bytes, used_inodes = self.used_bytes(day) + with_bytes, self.used_inodes(day) + with_inodes
        lacks_bytes = 0.0 if within(used_bytes, self.room_bytes) else used_bytes - self.room_bytes
        inodes_kept = self.room_inodes is None or within(used_inodes, self.room_inodes)
        return lacks_bytes, 0.0 if inodes_kept else used_inodes - (self.room_inodes or 0)
