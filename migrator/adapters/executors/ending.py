"""Ending processes of this machine that are found in /proc."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

from migrator.adapters.executors import proc
from migrator.domain.transfer import ProcessIdentity

KILL_WAIT_S = 5.0
"""How long a killed process may take; only one that hangs in the kernel takes longer."""
_POLL_S = 0.02


async def end_all(find: Callable[[], Sequence[ProcessIdentity]], grace_s: float) -> bool:
    """TERM to all that are found, a grace, KILL, until none is found; False where one is left.

    Looks again and again, since what is told to end may start others on its way. A look may itself take long, so the wait
    counts from the first KILL to the beginning of a look: what that look finds has outlived it.
    """
    loop = asyncio.get_running_loop()
    kill_from_s = loop.time() + grace_s
    killed_s: float | None = None
    told: set[ProcessIdentity] = set()
    while True:
        looked_s = loop.time()
        left = find()
        if not left:
            return True
        killing = loop.time() >= kill_from_s
        for identity in left:
            if killing or identity not in told:
                send_signal(identity, signal.SIGKILL if killing else signal.SIGTERM)
                told.add(identity)
        if killed_s is not None and looked_s >= killed_s + KILL_WAIT_S:
            return False
        if killing and killed_s is None:
            killed_s = loop.time()
        await asyncio.sleep(_POLL_S)


def send_signal(identity: ProcessIdentity, number: signal.Signals) -> None:
    """Signal that very process: through a descriptor, so that a pid that is given out again is not hit."""
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        if proc.lives(identity):
            signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(fd)
