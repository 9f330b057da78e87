"""What follows from the states and the room of a target's storage and metadata targets. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from migrator.decide.storage_room import best_pool, even_room, low_limit
from migrator.domain.site import Capacity
from migrator.domain.storage_targets import (
    CapacityPool,
    Consistency,
    Reachability,
    StorageSeen,
    StorageTarget,
    StripeSettings,
    TargetKind,
)
from migrator.domain.units import format_count, format_duration, format_size

SILENT_AFTER_S = 40.0
"""A server that is well reports every 30 s at the latest (BeeGFS 8.3.1, as recorded); its targets count as online for
another minute and more after it has gone.
"""
_TOLD_IN_S = 1.0
"""The tool tells whole seconds since it heard of a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookTimes:
    """What bounds how soon an outage is told, in seconds. A stream is seen to stand still after `quiet_s`; looks begin
    `every_s` apart, when the one before has ended, and are begun by a watch that comes round every `tick_s`. A call that
    gets no answer within its time is ended within `ending_s`. `list_s` is the one question of version 8, `room_s` the
    first of version 7, `states_s` what is asked there when that has no answer.
    """

    quiet_s: float
    every_s: float
    tick_s: float
    ending_s: float
    list_s: float
    room_s: float
    states_s: float


def told_within_s(times: LookTimes) -> tuple[float, float]:
    """How long after a server is off at most it is told, by version 8 and by version 7, where the management service answers
    the look that counts.

    Version 8 tells since when a server is silent: the server was heard just before it went, and a look that has begun just
    before the silence is long enough gets no answer. Version 7 tells it by a look that begins after the streams stand still:
    a look that has begun just before the server went uses up all its time.
    """
    missed_8 = max(times.every_s, times.list_s + times.ending_s)
    silent_s = max(SILENT_AFTER_S + _TOLD_IN_S, times.quiet_s)
    version_8 = silent_s + missed_8 + times.tick_s + times.list_s
    missed_7 = max(times.every_s, times.room_s + times.states_s + 2 * times.ending_s)
    version_7 = max(times.quiet_s, missed_7) + times.tick_s + times.room_s + times.ending_s + times.states_s
    return version_8, version_7


def target_problems(seen: StorageSeen) -> tuple[str, ...]:
    """Why what lies on the target may not be readable; none where every storage and metadata target is online, good, and
    was heard of.

    What is not known counts as a problem, and so does an answer that leaves out either kind.
    """
    problems = [
        f"BeeGFS names no {kind.value} target, so nothing is known of them"
        for kind in TargetKind
        if not any(one.kind is kind for one in seen.targets)
    ]
    problems += [f"{one.shown}: {state_words(one)}" for one in seen.targets if not _is_well(one)]
    return (*problems, *_unanswered_words(seen))


def lost_targets(seen: StorageSeen) -> tuple[str, ...]:
    """The targets whose server does not answer, with why that is thought: streams that write there stand still."""
    found = (f"{one.shown}: {state_words(one)}" for one in seen.targets if is_lost(one))
    return (*found, *_unanswered_words(seen))


def is_lost(target: StorageTarget) -> bool:
    """Whether its server is gone, or has not been heard of for too long."""
    silent = target.last_contact_s is not None and target.last_contact_s > SILENT_AFTER_S
    return target.reachability is not Reachability.ONLINE or target.answers is False or silent


def state_words(target: StorageTarget) -> str:
    """Reachability, consistency, and since when nothing was heard."""
    words = ["state not known" if target.reachability is None else target.reachability.value]
    if target.consistency is not Consistency.GOOD:
        words.append("consistency not known" if target.consistency is None else target.consistency.value)
    if target.answers is False:
        words.append("its server does not answer")
    if target.last_contact_s is not None and is_lost(target):
        words.append(f"last heard of {format_duration(target.last_contact_s)} ago")
    return ", ".join(words)


def room_words(target: StorageTarget) -> str:
    """Room and pool of one target."""
    words = [] if target.free_bytes is None else [f"{format_size(target.free_bytes)} free"]
    if target.kind is TargetKind.METADATA and target.free_inodes is not None:
        words.append(f"{format_count(target.free_inodes)} inodes free")
    words.append("capacity pool not known" if target.pool is None else f"capacity pool {target.pool.value}")
    return ", ".join(words)


def fullest_words(targets: Sequence[StorageTarget]) -> str:
    """The targets to look at after a write that found no room: those that are not in the normal pool; where all are (what
    is known lags by a minute), the fullest of either kind.
    """
    tight = [one for one in targets if one.pool in (CapacityPool.LOW, CapacityPool.EMERGENCY)]
    if not tight:
        storage = [one for one in targets if one.kind is TargetKind.STORAGE and one.free_bytes is not None]
        metadata = [one for one in targets if one.kind is TargetKind.METADATA and one.free_inodes is not None]
        tight = [
            *sorted(storage, key=lambda one: one.free_bytes or 0)[:1],
            *sorted(metadata, key=lambda one: one.free_inodes or 0)[:1],
        ]
    return "; ".join(f"{one.shown}: {room_words(one)}" for one in tight)


def room_of(capacity: Capacity, seen: StorageSeen) -> Capacity:
    """The room that new files really have: never more than df shows.

    By `even_room` over the storage targets of the best pool. Inodes come from the metadata targets of the best pool: the
    one with fewest free, times their number; without any that tells its inodes statfs's word is kept, which on BeeGFS is none.
    """
    storage = [
        one for one in seen.targets if one.kind is TargetKind.STORAGE and seen.storage_pool in (None, one.storage_pool)
    ]
    free = [one.free_bytes for one in best_pool(storage) if one.free_bytes is not None]
    metadata = best_pool([one for one in seen.targets if one.kind is TargetKind.METADATA])
    counted = [one for one in metadata if one.free_inodes is not None]
    inodes = _spread([one.free_inodes for one in counted]) if len(counted) == len(metadata) else None
    found = capacity
    if free:
        found = replace(found, free_bytes=min(int(even_room(free, low_limit(storage))), capacity.free_bytes))
    if inodes is not None and capacity.free_inodes is None:
        totals = [one.total_inodes for one in counted]
        total = sum(one for one in totals if one is not None) if None not in totals else inodes
        found = replace(found, free_inodes=inodes, total_inodes=max(total, inodes))
    return found


def emergency_problems(seen: StorageSeen) -> tuple[str, ...]:
    """Why no file can be made, or hardly any: all targets of a kind that trees may use are in the emergency pool."""
    problems = []
    for kind in TargetKind:
        of_kind = [
            one
            for one in seen.targets
            if one.kind is kind and (kind is TargetKind.METADATA or seen.storage_pool in (None, one.storage_pool))
        ]
        if of_kind and all(one.pool is CapacityPool.EMERGENCY for one in of_kind):
            problems.append(f"every {kind.value} target that new files may lie on is in the emergency pool")
    return tuple(problems)


def stripe_words(stripe: StripeSettings) -> str:
    """As events tell of it."""
    words = [] if stripe.targets is None else [f"over {stripe.targets} storage targets"]
    if stripe.chunk_bytes is not None:
        words.append(f"in chunks of {format_size(stripe.chunk_bytes)}")
    return " ".join(words)


def stripe_differs(wanted: StripeSettings, found: StripeSettings) -> bool:
    """Whether a directory has other settings than were asked for."""
    return (wanted.targets is not None and wanted.targets != found.targets) or (
        wanted.chunk_bytes is not None and wanted.chunk_bytes != found.chunk_bytes
    )


def _unanswered_words(seen: StorageSeen) -> tuple[str, ...]:
    return tuple(f"a {kind.value} server: does not answer, and which one is not known" for kind in seen.unanswered)


def _is_well(target: StorageTarget) -> bool:
    return target.consistency is Consistency.GOOD and not is_lost(target)


def _spread(free: Sequence[int | None]) -> int | None:
    known = [one for one in free if one is not None]
    return min(known) * len(known) if known else None
