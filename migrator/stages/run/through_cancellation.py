"""Ending what was begun although the task that began it is being cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

_T = TypeVar("_T")


async def through_cancellation(work: Coroutine[object, object, _T]) -> _T:
    """Let something short and bounded come to its end however often this task is cancelled; tells the caller nothing
    of that, who is being cancelled anyway.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    return task.result()
