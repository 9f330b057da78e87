"""Invented volumes, and counters of what Gluster moves in them."""

from msgspec.structs import replace

from migrator.bricks.progress import TaskSample
from migrator.gluster.model import Brick, TaskKind, TaskStatus, VolumeState, VolumeTask
from tests.support.making import made


def brick(name: str, **changes: object) -> Brick:
    """The brick `HOST:PATH`, which is up; with other facts."""
    host, _, path = name.partition(":")
    return replace(Brick(name=name, host=host, path=path.encode(), online=True), **changes)


def volume(*bricks: Brick | str, **changes: object) -> VolumeState:
    """A volume that was started, of these bricks; with other facts."""
    state = VolumeState(
        volume="vol1",
        volume_id="0a1b2c3d-0000-1111-2222-333344445555",
        type="Distribute",
        started=True,
        bricks=tuple(brick(one) if isinstance(one, str) else one for one in bricks),
        options=(),
        tasks=(),
    )
    return replace(state, **changes)


def drain_sample(files: int = 0, size_bytes: int = 0, **changes: object) -> TaskSample:
    """What a host has moved until it was asked."""
    facts = {"task_id": "t", "at_s": 10.0, "host": "a", "status": TaskStatus.IN_PROGRESS, **changes}
    return made(TaskSample, files=files, size_bytes=size_bytes, **facts)


def remove_brick(*bricks: str, **changes: object) -> VolumeTask:
    """A drain of these bricks that Gluster is at work at; with other facts."""
    facts = {"name": "Remove brick", "id": "t1", "status": TaskStatus.IN_PROGRESS, **changes}
    return made(VolumeTask, kind=TaskKind.REMOVE_BRICK, bricks=bricks, **facts)
