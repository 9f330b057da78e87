"""What would make an impossible schedule possible: the least room that does, or the fewest users whose old files go."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil

from migrator.decide.schedule_orders import is_possible
from migrator.domain.schedule import Remedies
from migrator.domain.schedule_facts import BatchFacts, ScheduleFacts, TargetPart
from migrator.domain.units import GIB, PIB

_MOST_BYTES = 1024 * PIB
_MOST_INODES = 10**12
_EXACT_SHARE = 1 / 256
"""Of what is found: nobody orders disks by the byte."""

_FULLEST_PERCENT = 98
"""Beyond that XFS and BeeGFS slow down, and a few hours of writing fill a disk."""


def remedies(facts: ScheduleFacts, order: Sequence[int]) -> Remedies:
    """For an order of batches that is impossible with these facts."""
    more_bytes, more_inodes = _more_room(facts, order)
    reap_users = _reaped_users(facts, order)
    saved = None
    if reap_users is not None:
        saved = sum(old.size_bytes for batch in facts.batches for old in batch.old if old.user in reap_users)
    return Remedies(
        more_bytes=more_bytes,
        more_inodes=more_inodes,
        reap_bytes=saved,
        reap_users=reap_users or (),
        max_fill=_fuller(facts, order),
    )


def with_room(facts: ScheduleFacts, more_bytes: int, more_inodes: int) -> ScheduleFacts:
    """The same with so much more, empty, on the target, beyond what `max_fill` leaves free."""
    inodes = facts.target_inodes_free
    whole = ceil(more_bytes / facts.max_fill) if facts.max_fill else more_bytes
    return replace(
        facts,
        target=_enlarged(facts, whole),
        target_inodes_free=None if inodes is None else inodes + more_inodes,
    )


def _enlarged(facts: ScheduleFacts, more_bytes: int) -> tuple[TargetPart, ...]:
    """Storage targets that take new files grow alike: what a smaller one than the others would bring is not all room."""
    growing = sum(part.takes_new for part in facts.target)
    if facts.target_low_bytes is None or not growing:
        return (*facts.target, TargetPart(total_bytes=more_bytes, free_bytes=more_bytes))
    each = ceil(more_bytes / growing)
    return tuple(
        replace(part, total_bytes=part.total_bytes + each, free_bytes=part.free_bytes + each)
        if part.takes_new
        else part
        for part in facts.target
    )


def _more_room(facts: ScheduleFacts, order: Sequence[int]) -> tuple[int | None, int | None]:
    def possible(more_bytes: int, more_inodes: int) -> bool:
        return is_possible(with_room(facts, more_bytes, more_inodes), order)

    if not possible(_MOST_BYTES, _MOST_INODES):
        return None, None
    inodes_suffice = possible(_MOST_BYTES, 0)
    more_bytes = _least(lambda most: possible(most, 0 if inodes_suffice else _MOST_INODES), GIB, _MOST_BYTES)
    if inodes_suffice:
        return more_bytes, 0
    return more_bytes, _least(lambda most: possible(more_bytes, most), 1000, _MOST_INODES)


def _least(possible: Callable[[int], bool], step: int, most: int) -> int:
    """The least amount, in whole steps and nearly, that suffices, where `most` does; more always suffices too."""
    if possible(0):
        return 0
    low, high = 0, step
    while high < most and not possible(high):
        low, high = high, high * 2
    while high - low > max(step, round(high * _EXACT_SHARE)):
        middle = (low + high) // 2 // step * step
        if middle <= low:
            break
        low, high = (low, middle) if possible(middle) else (middle, high)
    return min(high, most)


def _fuller(facts: ScheduleFacts, order: Sequence[int]) -> float | None:
    """The least whole percentage that suffices, on both sides."""
    percents = range(int(facts.max_fill * 100) + 1, _FULLEST_PERCENT + 1)
    found = (percent / 100 for percent in percents if is_possible(replace(facts, max_fill=percent / 100), order))
    return next(found, None)


def _reaped_users(facts: ScheduleFacts, order: Sequence[int]) -> tuple[str, ...] | None:
    """The users with most old files, as few of them as suffice."""
    old: dict[str, int] = {}
    for batch in facts.batches:
        for one in batch.old:
            old[one.user] = old.get(one.user, 0) + one.size_bytes
    users = sorted((user for user in old if old[user]), key=lambda user: (-old[user], user))

    def possible(count: int) -> bool:
        return is_possible(without_old(facts, users[:count]), order)

    if not users or not possible(len(users)):
        return None
    return tuple(users[: _least(possible, 1, len(users))])


def without_old(facts: ScheduleFacts, users: Sequence[str]) -> ScheduleFacts:
    """The same where old files of these users are not copied; their sources stay until they are purged with the rest."""
    return replace(facts, batches=tuple(_without(batch, frozenset(users)) for batch in facts.batches))


def _without(batch: BatchFacts, users: frozenset[str]) -> BatchFacts:
    saved = sum(old.size_bytes for old in batch.old if old.user in users)
    share = saved / batch.placed.all_bytes if batch.placed.all_bytes else 0.0
    return replace(
        batch,
        target_bytes=max(batch.target_bytes - saved, 0),
        copy_days=batch.copy_days * max(1.0 - share, 0.0),
    )
