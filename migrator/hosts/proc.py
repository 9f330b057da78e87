"""Processes of this machine in /proc: identity, tokens, activity.

Every result may be out of date when it returns; a process that ends meanwhile is left out.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from migrator.hosts import far_looks
from migrator.hosts.model import ProcessIdentity

TOKEN_VARIABLE = far_looks.TOKEN_VARIABLE.decode("ascii")
"""The variable that marks every process of an attempt."""


@cache
def boot_id() -> str:
    """The id of the current boot; pids and start times are valid only together with it."""
    return far_looks.boot_id()


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a process, also of a zombie; None if there is none."""
    look = far_looks.look_at(pid)
    return None if look is None else _identity(look)


def lives(identity: ProcessIdentity) -> bool:
    """Whether this process is still alive."""
    if identity.boot_id != boot_id():
        return False
    look = far_looks.look_at(identity.pid)
    return look is not None and look.start_ticks == identity.start_ticks and not look.ended


def carriers(tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
    """As `far_looks.carriers`."""
    return {token: tuple(map(_identity, found)) for token, found in far_looks.carriers(tokens).items()}


def _identity(look: far_looks.Look) -> ProcessIdentity:
    return ProcessIdentity(pid=look.pid, start_ticks=look.start_ticks, boot_id=boot_id())
