"""What a recovery works with, as a part of a drain."""

from migrator.decide.volume_options import is_on
from migrator.domain.brick import VolumeState
from migrator.domain.drain import DrainRecord
from migrator.domain.volume_tasks import VolumeTask
from migrator.stages.bricks.drain_context import DrainCall, bricks_of
from migrator.stages.bricks.recover import Recovery


def recovery_of(
    call: DrainCall, record: DrainRecord, found: tuple[VolumeState, tuple[VolumeTask, ...]] | None
) -> Recovery | None:
    """The recovery for a drain; None where none was asked for, or where it is not known whether its bricks are in the volume."""
    world = call.world
    if not call.request.recover or found is None or world.leftovers is None or world.recovery is None:
        return None
    state, _ = found
    return Recovery(
        bricks=bricks_of(record, state.bricks),
        volume_id=record.volume_id,
        in_volume=any(brick.name in record.bricks for brick in state.bricks),
        own_times=is_on(dict(state.options), "features.ctime", default=True) is not False,
        leftovers=world.leftovers,
        volume=world.recovery,
        blocking=world.blocking,
        clock=world.clock,
    )
