"""What /proc says of processes, here and at the far end of a connection (so: Python 3.9, standard library)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

TOKEN_VARIABLE = b"MIGRATOR_TOKEN"
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel's sched.h."""

_EXEC_LOOKS = 100
_EXEC_PAUSE_S = 0.002
_NEW_LOOKS = 20
_NEW_LOOKS_FOR_NONE = 400
"""Where what is sought was not found: of processes that live for a millisecond each, a slow machine misses several in a row."""


class Look(NamedTuple):
    """One look at `/proc/PID/stat`. `has_environment` is false for threads of the kernel, for what has ended, and for a
    program that is only just being started.
    """

    pid: int
    parent_pid: int
    session: int
    used_ticks: int
    start_ticks: int
    ended: bool
    kernel: bool
    has_environment: bool


def look_at(pid: int) -> Look | None:
    """One process; None where there is none of that pid."""
    try:
        content = read(b"/proc/%d/stat" % pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything, blanks and parentheses too: the fields follow the last one.
    fields = content[content.rfind(b")") + 2 :].split(b" ")
    return Look(
        pid=pid,
        parent_pid=int(fields[1]),
        session=int(fields[3]),
        used_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        ended=fields[0] in (b"Z", b"X", b"x"),
        kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        has_environment=int(fields[48]) != 0,
    )


def looks(is_found: Callable[[], bool] = lambda: True) -> Iterator[Look]:
    """Looks at all living processes, and then at those that were started meanwhile, until there are none: who was in the list
    may have started another and ended before its turn came. A machine that starts processes without end is not followed for ever,
    and for longest until `is_found` is true.
    """
    seen: set[str] = set()
    for turn in range(_NEW_LOOKS_FOR_NONE):
        if turn >= _NEW_LOOKS and is_found():
            return
        new = [name for name in os.listdir("/proc") if name.isdigit() and name not in seen]
        if not new:
            return
        seen.update(new)
        for name in new:
            look = look_at(int(name))
            if look is not None and not look.ended:
                yield look


class Snapshot:
    """The living processes of this machine at one moment."""

    def __init__(self) -> None:
        self.looks: list[Look] = list(looks())
        self._tokens: dict[bytes, list[Look]] | None = None

    def with_token(self, token: bytes) -> list[Look]:
        """Those that carry a token in their environment."""
        if self._tokens is None:
            found: dict[bytes, list[Look]] = {}
            # Each at the time of its look: one that has gone since the looks above may have started another.
            for look in looks(lambda: token in found):
                value = token_of(look)
                if value:
                    found.setdefault(value, []).append(look)
            self._tokens = found
        return self._tokens.get(token, [])

    def of_session(self, session: int) -> list[Look]:
        """Those of a session."""
        return [look for look in self.looks if look.session == session]

    def beneath(self, roots: Iterable[int]) -> list[Look]:
        """Those that descend from some processes, without these."""
        found: set[int] = set(roots)
        beneath: list[Look] = []
        left = self.looks
        while True:
            more = [look for look in left if look.parent_pid in found and look.pid not in found]
            if not more:
                return beneath
            beneath += more
            found.update(look.pid for look in more)

    def still(self, looks: Iterable[Look]) -> list[Look]:
        """Those of an earlier look that are still there."""
        now = {(look.pid, look.start_ticks) for look in self.looks}
        return [look for look in looks if (look.pid, look.start_ticks) in now]


def token_of(look: Look) -> bytes:
    """The token that a process carries; empty where it has none, or where it cannot be seen."""
    variables = _environment(look).split(b"\0")
    token = next((v[len(TOKEN_VARIABLE) + 1 :] for v in variables if v.startswith(TOKEN_VARIABLE + b"=")), b"")
    # The pid may have been given out again between the two reads: only the same start time confirms it.
    again = look_at(look.pid) if token else None
    return token if again is not None and again.start_ticks == look.start_ticks and not again.ended else b""


def _environment(look: Look) -> bytes:
    for _ in range(_EXEC_LOOKS):
        try:
            content = read(b"/proc/%d/environ" % look.pid)
        except OSError:
            return b""
        if content or look.kernel:
            return content
        # Between the two ends of an exec a process has no environment yet, as one that was started without any.
        now = look_at(look.pid)
        if now is None or now.ended or now.start_ticks != look.start_ticks:
            return b""
        if now.has_environment and look.has_environment:
            return b""
        look = now
        time.sleep(_EXEC_PAUSE_S)
    return b""


def work_done(look: Look) -> int:
    """A number that grows whenever the process reads, writes or computes."""
    try:
        lines = read(b"/proc/%d/io" % look.pid).split(b"\n")
    except OSError:
        lines = []
    moved = (line.partition(b": ") for line in lines)
    return look.used_ticks + sum(int(value) for name, _, value in moved if name in (b"rchar", b"wchar"))


def arguments_of(pid: int) -> list[bytes]:
    """The command line of a process; empty where it is gone."""
    try:
        return read(b"/proc/%d/cmdline" % pid).split(b"\0")
    except OSError:
        return []


def boot_id() -> str:
    """Which boot of the machine this is."""
    return read(b"/proc/sys/kernel/random/boot_id").decode("ascii").strip()


def read(path: bytes) -> bytes:
    """A whole file of /proc."""
    with open(path, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(1 << 16), b""))
