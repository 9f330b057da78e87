"""What an outcome says of bricks that were not drained, and of servers. Pure."""

from collections.abc import Sequence

from migrator.domain.schedule import HostStep, SubvolumeStep
from migrator.domain.schedule_facts import SubvolumeFacts


def waiting_steps(rest: Sequence[SubvolumeFacts], done_day: float | None) -> tuple[SubvolumeStep, ...]:
    """Subvolumes whose drain has not begun; the last of them is retired when everything is done."""
    return tuple(
        SubvolumeStep(
            subvolume=one.number,
            bricks=one.bricks,
            drain_begins_day=None,
            cleared_day=done_day if one is rest[-1] else None,
            moved_bytes=0,
            retired=one is rest[-1],
        )
        for one in rest
    )


def host_steps(subvolumes: Sequence[SubvolumeFacts], steps: Sequence[SubvolumeStep]) -> tuple[HostStep, ...]:
    """Every server is free with the last of its bricks."""
    cleared = {step.subvolume: step.cleared_day for step in steps}
    days: dict[str, list[float | None]] = {}
    for one in subvolumes:
        for host in one.hosts:
            days.setdefault(host, []).append(cleared[one.number])
    return tuple(
        HostStep(host=host, free_day=None if None in found else max(day for day in found if day is not None))
        for host, found in sorted(days.items())
    )
