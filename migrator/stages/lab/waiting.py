"""Waiting for what others do, and doing several things at once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from migrator.domain.errors import MigratorError, ToolFailed
from migrator.ports.clock import Clock

_POLL_S = 0.1


async def until(
    check: Callable[[], Awaitable[str | None]],
    *,
    clock: Clock,
    deadline_s: float,
    cause: str = "this machine is very busy, or Gluster is broken",
    hint: str = "give the command again when less is going on here",
) -> None:
    """Look again and again until the check says None; what it says otherwise is why it is not so yet.

    Raises ToolFailed with the last reason, and with that cause and hint, when the deadline has passed.
    """
    end_s = clock.monotonic_s() + deadline_s
    while (reason := await check()) is not None:
        if clock.monotonic_s() > end_s:
            raise ToolFailed(
                f"{reason}, after {deadline_s:.0f} s of waiting",
                cause=cause,
                hint=hint,
            )
        await clock.sleep(_POLL_S)


async def all_of(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all at once; when one fails the others are cancelled and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        for error in errors.exceptions:
            if isinstance(error, MigratorError | OSError):
                raise error from errors
        raise
