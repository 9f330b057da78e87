"""What /proc says of processes: who they are, which of them carry a token, how much they have done.

Everything here is a look that may be out of date when it returns; a process that ends in the middle is left out.
"""

import os
import time
from collections.abc import Mapping, Sequence
from functools import cache

from migrator.adapters.executors import far_looks
from migrator.domain.transfer import ProcessIdentity

TOKEN_VARIABLE = far_looks.TOKEN_VARIABLE.decode("ascii")
"""What every process of an attempt carries in its environment."""

_CLOCK_ERROR_S = 60.0


@cache
def boot_id() -> str:
    """Which boot of the machine this is: start times and pids mean something only together with it."""
    return far_looks.boot_id()


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a process that exists (it may have ended and wait to be reaped)."""
    look = far_looks.look_at(pid)
    return None if look is None else ProcessIdentity(pid=pid, start_ticks=look.start_ticks, boot_id=boot_id())


def lives(identity: ProcessIdentity) -> bool:
    """Whether that very process is still there and has not ended."""
    if identity.boot_id != boot_id():
        return False
    look = far_looks.look_at(identity.pid)
    return look is not None and look.start_ticks == identity.start_ticks and not look.ended


def was_at_work(pid: int, at_s: float) -> bool:
    """Whether the process that has this pid now had it at that time too (seconds since the epoch), and has not ended.

    The clock may have been set in between: a pid that was given out anew shortly after counts as the same process.
    """
    look = far_looks.look_at(pid)
    if look is None or look.ended:
        return False
    uptime_s = float(far_looks.read(b"/proc/uptime").split()[0])
    age_s = uptime_s - look.start_ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s <= at_s + _CLOCK_ERROR_S


def session_members(session: int) -> tuple[ProcessIdentity, ...]:
    """The living processes of a session."""
    return tuple(_identity(look) for look in far_looks.looks() if look.session == session)


def carriers(tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
    """The living processes that carry one of the tokens in their environment, by token; tokens without any are left out.

    Without root only the caller's own processes can be seen. What carriers start while this looks, and end themselves, is
    found.
    """
    wanted = {token.encode(): token for token in tokens if token}
    found: dict[str, list[ProcessIdentity]] = {}
    for look in far_looks.looks(lambda: found.keys() == set(wanted.values())) if wanted else ():
        token = wanted.get(far_looks.token_of(look))
        if token is not None:
            found.setdefault(token, []).append(_identity(look))
    return {token: tuple(identities) for token, identities in found.items()}


def work_done(pid: int) -> int:
    """A number that grows whenever the process reads, writes or computes; 0 where that cannot be seen."""
    look = far_looks.look_at(pid)
    return 0 if look is None else far_looks.work_done(look)


def _identity(look: far_looks.Look) -> ProcessIdentity:
    return ProcessIdentity(pid=look.pid, start_ticks=look.start_ticks, boot_id=boot_id())
