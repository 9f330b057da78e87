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

    Looks again and again, since what is told to end may start others on its way.
    """
    loop = asyncio.get_running_loop()
    kill_from_s = loop.time() + grace_s
    give_up_s = kill_from_s + KILL_WAIT_S
    told: set[ProcessIdentity] = set()
    while left := find():
        killing = loop.time() >= kill_from_s
        for identity in left:
            if killing or identity not in told:
                send_signal(identity, signal.SIGKILL if killing else signal.SIGTERM)
                told.add(identity)
        if loop.time() >= give_up_s:
            return False
        await asyncio.sleep(_POLL_S)
    return True


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
