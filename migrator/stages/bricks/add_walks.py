"""Which bricks tell what directories have, while others are added to their volume."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from migrator.decide.subvolumes import subvolumes
from migrator.decide.volume_options import is_on
from migrator.domain.addition import AdditionRecord
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.directory_owners import DirectoryFacts
from migrator.domain.errors import MigratorError, ToolFailed
from migrator.stages.bricks.add_context import AdditionCall, DirectoryWorld

Take = Callable[[Sequence[DirectoryFacts]], None]
_ASKED_AT_ONCE = 1000


async def walk_older(
    call: AdditionCall,
    record: AdditionRecord,
    world: DirectoryWorld,
    take: Take,
    *,
    only: Sequence[bytes] | None = None,
) -> int:
    """Every directory of one brick that was there before, or these: each of them has all, and GlusterFS changes all copies alike.
    Of the first that can be read: others have other times, which tell nothing beside those that are known. Returns how many could
    not be looked at. Raises ToolFailed where no brick can be read.
    """
    state = await _state(call)
    reasons: list[str] = []
    for brick in _readable(state.bricks):
        if brick.name in record.bricks:
            continue
        take_it = _without_times(take) if reasons or not _has_times(state) else take
        try:
            return await world.walks.walk(brick, volume_id=state.volume_id, take=take_it, only=only)
        except MigratorError as error:
            reasons.append(error.message)
    raise ToolFailed(
        "no brick tells what directories have now: " + ("; ".join(dict.fromkeys(reasons)) or "none of them is up"),
        cause="while bricks are added, directories can lose owner and mode, and have to get them back",
        hint="see that a brick is up whose host has a section in site.toml, then run the same command again",
    )


async def walk_new(call: AdditionCall, record: AdditionRecord, world: DirectoryWorld, take: Take) -> None:
    """The same of one brick of every new set. Raises MigratorError."""
    state = await _state(call)
    for bricks in subvolumes(state):
        new = [one for one in _readable(bricks) if one.name in record.bricks]
        if new:
            await world.walks.walk(new[0], volume_id=state.volume_id, take=take)


async def look_everywhere_at(
    call: AdditionCall, world: DirectoryWorld, paths: Callable[[], Sequence[bytes]], take: Take
) -> None:
    """Directories on one brick of every set, one after the other, for as long as `paths` has any that a look at another brick
    would tell more of. Nothing is looked at where copies have no times. Raises MigratorError.
    """
    state = await _state(call)
    if not _has_times(state):
        return
    for bricks in subvolumes(state):
        for brick in _readable(bricks)[:1]:
            if not (asked := paths()[:_ASKED_AT_ONCE]):
                return
            await world.walks.walk(brick, volume_id=state.volume_id, take=take, only=asked)


async def _state(call: AdditionCall) -> VolumeState:
    state, _ = await call.world.volume.state_and_tasks()
    return state


def _has_times(state: VolumeState) -> bool:
    """Whether Gluster keeps its own record of times up to date: it stays where it is when the option is turned off."""
    return is_on(dict(state.options), "features.ctime", default=True) is True


def _readable(bricks: Sequence[Brick]) -> list[Brick]:
    return [brick for brick in bricks if brick.online and not brick.arbiter]


def _without_times(take: Take) -> Take:
    return lambda found: take([replace(one, changed_ns=None, modified_ns=None) for one in found])
