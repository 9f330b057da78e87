"""What is done with a brick that takes its own place, beside what every addition does."""

from migrator.decide.addition import problems_before
from migrator.decide.addition_places import begun_to_put_in
from migrator.domain.addition import NO_NOTES, AdditionNotes, AdditionRecord, AdditionState, AdditionStep
from migrator.domain.addition_seen import Act, NewPlace
from migrator.domain.errors import Refused, ToolFailed
from migrator.stages.bricks.add_context import AdditionCall
from migrator.stages.bricks.add_seeing import AdditionLooker, told

_LIMIT_S = 60.0
"""How long a process may take to end or to come up."""
_POLL_S = 0.5

OFFLINE_HINT = (
    "it stays offline meanwhile, and its files have a copy less: exchange the disk, make a new file system and mount it there, then "
    "run the same command again; as long as nothing was wiped, the same command with --take-back has it serve again what it held"
)


def notes_in_place(act: Act, record: AdditionRecord, place: NewPlace | None) -> AdditionNotes:
    """Which file system lies there when a step begins."""
    if place is None or place.unread or not place.own or not place.filesystem_id:
        return NO_NOTES
    if act.step is AdditionStep.RESET and AdditionState.RESETTING not in record.times:
        # Later ones may be new already.
        return AdditionNotes(filesystem_before=place.filesystem_id) if place.volume_id else NO_NOTES
    if act.step is AdditionStep.ADD and act.seen_done:
        return AdditionNotes(filesystem_id=place.filesystem_id)
    return NO_NOTES


async def take_offline(call: AdditionCall, record: AdditionRecord) -> str:
    """End the brick's process, and wait until Gluster knows. Returns what is to be said. May be called again. Raises ToolFailed."""
    (name,) = record.bricks
    await call.world.blocking(lambda: call.world.back_up(f"addition-{record.id}"), timeout_s=600.0)
    await call.world.volume.take_offline(name)
    await _until(call, name, online=False)
    return f"{name} is offline: until its new file system is filled, its files have a copy less"


async def put_in(call: AdditionCall, looker: AdditionLooker, record: AdditionRecord) -> None:
    """Take the new file system into the volume, after one more look. Raises Refused, ToolFailed."""
    (name,) = record.bricks
    seen = await looker.see(record)
    if problems := problems_before(record, seen, call.request.wish, prepared=True):
        raise Refused("; ".join(problems), hint=OFFLINE_HINT)
    place = looker.places[name]
    await call.world.volume.put_in(name, marked=begun_to_put_in(record, place))


async def serve_again(call: AdditionCall, record: AdditionRecord) -> str:
    """Start the brick with what it has, and wait until it is up. Returns what is to be said. May be called again. Raises ToolFailed."""
    (name,) = record.bricks
    await call.world.volume.start_bricks()
    await _until(call, name, online=True)
    return f"{name} is up again with what it held"


async def _until(call: AdditionCall, name: str, *, online: bool) -> None:
    clock = call.world.clock
    end_s = clock.monotonic_s() + _LIMIT_S
    while True:
        found = await told(call.world.volume.state_and_tasks())
        bricks = () if found is None else found[0].bricks
        if any(brick.name == name and brick.online is online for brick in bricks):
            return
        if clock.monotonic_s() >= end_s:
            raise ToolFailed(
                f"{name} is not {'up' if online else 'down'} after {_LIMIT_S:.0f} s",
                hint="see the log of the brick on its host (/var/log/glusterfs/bricks)",
            )
        await clock.sleep(_POLL_S)
