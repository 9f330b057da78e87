"""How BeeGFS fills its storage targets with new files, and what room follows. Guards and schedules go by this alike. Pure.

A new file is put on targets of the best capacity pool that is not empty (normal, low, emergency), chosen at random, so all of
them take alike. A target leaves the normal pool when no more than the low limit is free on it; from then on the others take
all. Nobody's tool tells that limit. One that is not online is in no pool (BeeGFS 7 and 8, the sources of its management
service).
"""

from collections.abc import Sequence
from math import inf

from migrator.domain.storage_targets import CapacityPool, Reachability, StorageTarget
from migrator.domain.units import GIB, TIB

DEFAULT_LOW_LIMITS = (TIB, 512 * GIB)
"""Of storage targets: BeeGFS 7 (`tuneStorageSpaceLowLimit`), BeeGFS 8 (`cap-pool-storage-limits`)."""

_GONE = frozenset({Reachability.OFFLINE, Reachability.PROBABLY_OFFLINE})


def there(targets: Sequence[StorageTarget]) -> Sequence[StorageTarget]:
    """Those that can be written to at all; where none can, all of them: whoever asks has other reasons to refuse then."""
    return [one for one in targets if one.reachability not in _GONE] or targets


def best_pool(targets: Sequence[StorageTarget]) -> Sequence[StorageTarget]:
    """Those that take new files now. A target whose pool is not known counts as normal: its room then counts too."""
    found = there(targets)
    best = min((_rank(one) for one in found), default=0)
    return [one for one in found if _rank(one) == best]


def _rank(target: StorageTarget) -> int:
    return list(CapacityPool).index(target.pool or CapacityPool.NORMAL)


def low_limit(targets: Sequence[StorageTarget]) -> int:
    """With so much free a target is passed over, as long as others are normal; 0 where that cannot be told.

    It is told by targets that are passed over already; otherwise a default of BeeGFS, where no normal target has less free.
    """
    found = there(targets)
    normal = [one.free_bytes for one in found if one.pool is CapacityPool.NORMAL]
    passed = [one.free_bytes for one in found if one.pool in (CapacityPool.LOW, CapacityPool.EMERGENCY)]
    known = [one for one in (*normal, *passed) if one is not None]
    if not normal or len(known) < len(found):
        return 0
    least = min(one for one in normal if one is not None)
    most_passed = max((one for one in passed if one is not None), default=0)
    if most_passed >= least:
        # It is not room that it lacks: BeeGFS counts inodes too.
        return 0
    return next((limit for limit in DEFAULT_LOW_LIMITS if most_passed <= limit < least), most_passed)


def even_room(free: Sequence[float], low_bytes: float) -> float:
    """What new files may take, in bytes, of targets with so many bytes free. Where the low limit is known all of it counts but for that limit
    on each. Where it is not (0) the first that is full is the end: the fullest one's room, times their number.
    """
    if not free:
        return 0
    evenly = max(min(free), 0) * len(free)
    if low_bytes <= 0:
        return evenly
    # Shortly before all of them are low they are still filled evenly.
    return max(evenly, sum(max(one - low_bytes, 0) for one in free))


def filled(free: Sequence[float], taken: float, low_bytes: float) -> list[float]:
    """What is free on each, in bytes, when new files have taken so many, which is no more than there is room for."""
    left = list(free)
    while taken > 0.0 and left:
        best = [place for place, one in enumerate(left) if one > low_bytes] if low_bytes > 0 else []
        step = min((left[place] for place in best), default=inf) - low_bytes
        best = best or list(range(len(left)))
        share = taken / len(best)
        if share < step:
            for place in best:
                left[place] -= share
            return left
        for place in best:
            # Exactly the limit: what is left by rounding would take for ever.
            left[place] = max(left[place] - step, low_bytes) if left[place] - low_bytes > step else low_bytes
        taken -= step * len(best)
    return left
