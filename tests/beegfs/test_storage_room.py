"""How BeeGFS fills its storage targets, and what room follows."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.beegfs.model import CapacityPool, Reachability, StorageTarget, TargetKind
from migrator.beegfs.rules import even_room, low_limit
from migrator.core.units import GIB, TIB

NORMAL, LOW, EMERGENCY = CapacityPool


def target(
    free: int | None, pool: CapacityPool | None = NORMAL, state: Reachability = Reachability.ONLINE
) -> StorageTarget:
    return StorageTarget(
        kind=TargetKind.STORAGE,
        number=1,
        name="t",
        node="n",
        reachability=state,
        consistency=None,
        pool=pool,
        total_bytes=40 * TIB,
        free_bytes=free,
    )


@pytest.mark.parametrize(
    ("targets", "limit"),
    [
        # The default of version 7, of version 8, and neither: then nobody can tell.
        ([target(2 * TIB), target(30 * TIB)], TIB),
        ([target(700 * GIB), target(30 * TIB)], 512 * GIB),
        ([target(100 * GIB), target(30 * TIB)], 0),
        # One that is passed over tells more than a default.
        ([target(3 * TIB, LOW), target(30 * TIB)], 3 * TIB),
        ([target(100 * GIB, LOW), target(30 * TIB)], TIB),
        ([target(80 * GIB, EMERGENCY), target(100 * GIB)], 80 * GIB),
        # It lacks inodes, not room.
        ([target(3 * TIB, LOW), target(2 * TIB)], 0),
        ([target(5 * GIB, LOW), target(6 * GIB, LOW)], 0),
        ([target(2 * TIB, None), target(30 * TIB, None)], 0),
        ([target(2 * TIB), target(None)], 0),
        ([target(GIB, NORMAL, Reachability.OFFLINE), target(30 * TIB)], TIB),
        ([], 0),
    ],
)
def test_from_which_room_on_a_target_is_passed_over(targets: Sequence[StorageTarget], limit: int) -> None:
    assert low_limit(targets) == limit


@pytest.mark.parametrize(
    ("free", "low", "room"),
    [
        # Where no limit is known, the fullest one ends it.
        ([20, 100], 0, 40),
        ([0, 100], 0, 0),
        ([], 0, 0),
        # Otherwise full ones are passed over.
        ([20, 100], 5, 110),
        ([4, 100], 5, 95),
        ([6, 6], 5, 12),
        ([4, 3], 5, 6),
    ],
)
def test_the_room_of_several_targets(free: list[float], low: float, room: float) -> None:
    assert even_room(free, low) == room


rooms = st.lists(st.integers(0, 1000), min_size=1, max_size=6)


def fill(free: Sequence[float], added: float, low: float) -> list[float]:
    """By pieces, each on all that are not low, or on all where every one is."""
    left = list(free)
    while added > 1e-9 and left:
        normal = [place for place, one in enumerate(left) if low and one > low + 1e-9]
        piece = min([added / len(normal), *(left[place] - low for place in normal)]) if normal else added / len(left)
        for place in normal or range(len(left)):
            left[place] -= piece
        added = added - piece * len(normal) if normal else 0.0
    return left


@given(rooms, st.integers(0, 300), st.floats(0, 1))
def test_what_is_said_to_fit_fits_and_still_does_on_the_way(free: list[int], low: int, share: float) -> None:
    """To look again never shows less than was promised, and no more either as long as nothing is passed over."""
    whole = even_room(free, low)
    left = fill(free, whole * share, low)
    assert all(one >= -1e-6 for one in left)
    again = even_room(left, low)
    assert again >= whole * (1 - share) - 1e-5
    if not low:
        assert again == pytest.approx(whole * (1 - share), abs=1e-6)
