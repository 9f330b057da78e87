"""What is said of additions. Pure."""

from collections.abc import Sequence

from migrator.domain.addition import AdditionRecord, AdditionSide, AdditionState
from migrator.domain.addition_seen import Halt
from migrator.domain.units import several

AGAIN = "then run the same command again: it goes on from what it finds"


def against(record: AdditionRecord, problems: Sequence[str]) -> Halt:
    """Guards speak against going on."""
    count = "1 guard speaks" if len(problems) == 1 else f"{several(len(problems), 'guard')} speak"
    return Halt(
        words=f"{count} against adding {record.shown_bricks} now",
        reasons=tuple(problems),
        hint=f"put it right, {AGAIN}",
    )


def finished_words(record: AdditionRecord) -> str:
    """What it came to."""
    if record.side is AdditionSide.TARGET:
        return f"{record.shown_bricks} is part of the target, whose new capacity is seen"
    if record.state is AdditionState.TAKEN_BACK:
        return f"{record.shown_bricks} serves again what it held, and is healed"
    if record.in_place:
        return (
            f"{record.shown_bricks} is in volume {record.volume} on its new file system, and healed (with --once-more its disk "
            "is exchanged again)"
        )
    if record.instead_of is not None:
        return f"{record.shown_bricks} is in volume {record.volume} in the place of {record.instead_of}, and healed"
    return f"{record.shown_bricks} is in volume {record.volume}, and directories take new files there"


def removal_commands(path: str, *, gluster_directory: bool, volume_id: bool, gfid: bool) -> str:
    """What takes off what Gluster has left on an empty brick."""
    quoted = "'" + path.replace("'", "'\\''") + "'"
    commands = []
    if volume_id:
        commands.append(f"setfattr -x trusted.glusterfs.volume-id {quoted}")
    if gfid:
        commands.append(f"setfattr -x trusted.gfid {quoted}")
    if gluster_directory:
        commands.append(f"rm -rf -- {quoted}/.glusterfs")
    return " && ".join(commands)


def host_of(name: str) -> str:
    """The host of a brick's name; the whole where it is none."""
    return name.partition(":/")[0]


def path_of(name: str) -> str:
    """The path of a brick's name; empty where it is none."""
    host, separator, path = name.partition(":/")
    return f"/{path}" if separator and host else ""
