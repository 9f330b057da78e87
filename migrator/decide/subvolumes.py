"""Which bricks together hold every file of a volume once. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from migrator.domain.brick import Brick, VolumeState


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenBricks:
    """One data brick of every subvolume, and sentences for the subvolumes that have none that can be read."""

    bricks: tuple[Brick, ...]
    problems: tuple[str, ...]


def subvolumes(state: VolumeState) -> tuple[tuple[Brick, ...], ...]:
    """The bricks in groups that hold the same files: Gluster lists the copies of a set one after the other.

    Raises ValueError where the list does not divide into whole sets.
    """
    size = max(state.replica_count, 1) * max(state.stripe_count, 1) * max(state.disperse_count, 1)
    if len(state.bricks) % size:
        raise ValueError(f"{len(state.bricks)} bricks do not divide into sets of {size}")
    return tuple(state.bricks[start : start + size] for start in range(0, len(state.bricks), size))


def choose_bricks(state: VolumeState, unreachable: Mapping[str, str], reachable: Collection[str]) -> ChosenBricks:
    """One brick of every subvolume: never an arbiter, which holds no content, and one that is up, on a host that is
    reached. Hosts get equally many as far as that goes; equal input gives equal choice.

    `unreachable` says why, by host, where a host that is known was not reached.
    """
    chosen: dict[int, Brick] = {}
    problems: list[str] = []
    load: Counter[str] = Counter()
    sets = subvolumes(state)
    usable = {
        number: tuple(brick for brick in bricks if not brick.arbiter and brick.online and brick.host in reachable)
        for number, bricks in enumerate(sets)
    }
    # Those with the least choice first: what is left over evens out the load.
    for number in sorted(usable, key=lambda number: (len(usable[number]), number)):
        if not usable[number]:
            problems.append(_problem(sets[number], unreachable, reachable))
            continue
        brick = min(usable[number], key=lambda brick: (load[brick.host], usable[number].index(brick)))
        load[brick.host] += 1
        chosen[number] = brick
    return ChosenBricks(bricks=tuple(chosen[number] for number in sorted(chosen)), problems=tuple(problems))


def _problem(bricks: tuple[Brick, ...], unreachable: Mapping[str, str], reachable: Collection[str]) -> str:
    shown = " or ".join(brick.name for brick in bricks if not brick.arbiter)
    reasons: list[str] = []
    for brick in bricks:
        if brick.arbiter:
            continue
        if brick.host in unreachable:
            reasons.append(unreachable[brick.host])
        elif brick.host not in reachable:
            reasons.append(f'site.toml has no [source.hosts."{brick.host}"]')
        elif brick.online is not True:
            reasons.append(f"brick {brick.name} is down")
    return f"no host reads {shown}: {'; '.join(dict.fromkeys(reasons)) or 'it has only arbiters'}"
