"""Whether a volume's bricks may be read by themselves, or only its mount. Pure.

The mount is always right and slow. Every reason against the bricks is a sentence, and all of them are given.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from migrator.decide.subvolumes import choose_bricks
from migrator.decide.volume_health import volume_problems
from migrator.decide.volume_options import is_on, option_reasons
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.units import format_count, several

CTIME_OPTION = "features.ctime"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickWay:
    """How the bricks are read where nothing speaks against it: one brick of every subvolume, and where their times
    are; `reasons` against it otherwise.
    """

    bricks: tuple[Brick, ...] = ()
    times_from_mdata: bool = True
    reasons: tuple[str, ...] = ()


def choose_way(
    state: VolumeState, *, reachable: Collection[str], unreachable: Mapping[str, str] | None = None
) -> BrickWay:
    """The bricks to read, or every reason why not.

    `state` is one with heals and peers. `reachable` are the hosts, named as in the brick list, that were reached;
    `unreachable` says why others of site.toml were not.
    """
    reasons = list(reasons_against_bricks(state))
    bricks: tuple[Brick, ...] = ()
    try:
        chosen = choose_bricks(state, unreachable or {}, reachable)
    except ValueError as error:
        reasons.append(f"the volume's bricks cannot be told apart: {error}")
    else:
        bricks = chosen.bricks
        reasons.extend(chosen.problems)
    if reasons:
        return BrickWay(reasons=tuple(dict.fromkeys(reasons)))
    return BrickWay(bricks=bricks, times_from_mdata=times_from_mdata(state))


def times_from_mdata(state: VolumeState) -> bool:
    """Whether the volume keeps its files' times in an attribute of its own; where not, that attribute is stale."""
    return is_on(dict(state.options), CTIME_OPTION, default=True) is not False


def reasons_against_bricks(state: VolumeState) -> tuple[str, ...]:
    """Why what a brick holds now is not what the mount shows, whatever hosts are reached."""
    reasons = list(volume_problems(state))
    kind = state.type.lower()
    if state.disperse_count > 0 or "disperse" in kind:
        reasons.append("the volume is dispersed: a brick holds pieces of files")
    if state.stripe_count > 1 or "stripe" in kind:
        reasons.append("the volume is striped: a brick holds pieces of files")
    if "tier" in kind:
        reasons.append("the volume is tiered: files move between its tiers")
    reasons += option_reasons(state.options)
    if is_on(dict(state.options), CTIME_OPTION, default=True) is None:
        reasons.append(
            f"option {CTIME_OPTION} has a value that is not known: where the times of files are is not clear"
        )
    reasons += [f"a task moves files between bricks, or waits for its commit: {task}" for task in state.tasks]
    reasons += _peer_reasons(state)
    reasons += _heal_reasons(state)
    return tuple(dict.fromkeys(reasons))


def _peer_reasons(state: VolumeState) -> list[str]:
    if state.peers_down is None:
        return ["whether every host of the cluster is there is not known"]
    return [f"host {peer} of the cluster is down, or its glusterd is" for peer in state.peers_down]


def _heal_reasons(state: VolumeState) -> list[str]:
    if state.heals is None:
        return ["whether copies of files wait to be healed is not known"]
    reasons: list[str] = []
    for heal in state.heals:
        if heal.status != "Connected" or heal.entries is None:
            reasons.append(f"what brick {heal.brick} has to be healed is not known: {heal.status}")
        elif heal.entries:
            reasons.append(f"{several(heal.entries, 'entry', 'entries')} of brick {heal.brick} wait to be healed")
    missing = {brick.name for brick in state.bricks} - {heal.brick for heal in state.heals}
    if state.replica_count > 1 and missing:
        reasons.append(f"what {format_count(len(missing))} bricks have to be healed is not known")
    return reasons


_ROOT_GFID = bytes(15) + b"\x01"


def brick_problem(brick: Brick, *, volume_id: str, found_volume_id: str | None, found_root_gfid: bytes) -> str | None:
    """A sentence where what lies at a brick's path is not the brick of the volume that glusterd names there."""
    if found_volume_id is None or found_root_gfid != _ROOT_GFID:
        return f"{brick.name} is no root of a brick: is its file system mounted there?"
    if found_volume_id.lower() != volume_id.lower():
        return f"{brick.name} is a brick of another volume: its id is {found_volume_id}, the volume's is {volume_id}"
    return None


def task_changes(before: VolumeState, after: VolumeState) -> tuple[str, ...]:
    """Sentences for tasks that were begun between two looks, also those that have ended since."""
    new = set(after.task_ids) - set(before.task_ids)
    return ("a task that moves files between bricks was begun while they were read",) if new else ()
