"""Waiting for what others do, and doing several things at once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from migrator.domain.errors import MigratorError, ToolFailed
from migrator.ports.clock import Clock

_POLL_S = 0.1


async def until(check: Callable[[], Awaitable[str | None]], *, clock: Clock, deadline_s: float) -> None:
    """Look again and again until the check says None; what it says otherwise is why it is not so yet.

    Raises ToolFailed with the last reason when the deadline has passed.
    """
    end_s = clock.monotonic_s() + deadline_s
    while (reason := await check()) is not None:
        if clock.monotonic_s() > end_s:
            raise ToolFailed(
                f"{reason}, after {deadline_s:.0f} s of waiting",
                cause="this machine is very busy, Gluster is broken, or somebody has a file or a shell open in the lab",
                hint="end what uses the lab, then call `migrator lab down`: it may be called again",
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
