"""Invented volumes, and counters of what Gluster moves in them."""

from dataclasses import replace

from migrator.bricks.drain.model import DrainSample
from migrator.gluster.model import Brick, TaskStatus, VolumeState


def brick(name: str, **changes: object) -> Brick:
    """The brick `HOST:PATH`, which is up; with other facts."""
    host, _, path = name.partition(":")
    return replace(Brick(name=name, host=host, path=path.encode(), online=True), **changes)  # type: ignore[arg-type]


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
    return replace(state, **changes)  # type: ignore[arg-type]


def drain_sample(files: int, size_bytes: int, **changes: object) -> DrainSample:
    """What a host has moved until it was asked."""
    sample = DrainSample(
        task_id="t",
        at_s=10.0,
        host="a",
        status=TaskStatus.IN_PROGRESS,
        runtime_s=0.0,
        files=files,
        size_bytes=size_bytes,
        lookups=0,
        failures=0,
        skipped=0,
    )
    return replace(sample, **changes)  # type: ignore[arg-type]
