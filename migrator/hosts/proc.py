"""Processes of this machine in /proc: identity, tokens, activity.

Every result may be out of date when it returns; a process that ends meanwhile is left out.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from migrator.hosts import far_procfs
from migrator.hosts.model import ProcessIdentity

TOKEN_VARIABLE = far_procfs.TOKEN_VARIABLE.decode("ascii")
"""The variable that marks every process of an attempt."""


@cache
def boot_id() -> str:
    """The id of the current boot; pids and start times are valid only together with it."""
    return far_procfs.boot_id()


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a process, also of a zombie; None if there is none."""
    stat = far_procfs.process_stat(pid)
    return None if stat is None else _identity(stat)


def lives(identity: ProcessIdentity) -> bool:
    """True if this process is still alive."""
    if identity.boot_id != boot_id():
        return False
    stat = far_procfs.process_stat(identity.pid)
    return stat is not None and stat.start_ticks == identity.start_ticks and not stat.ended


def carriers(tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
    """As `far_procfs.carriers`."""
    return {token: tuple(map(_identity, found)) for token, found in far_procfs.carriers(tokens).items()}


def _identity(stat: far_procfs.ProcessStat) -> ProcessIdentity:
    return ProcessIdentity(pid=stat.pid, start_ticks=stat.start_ticks, boot_id=boot_id())
