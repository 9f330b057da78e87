"""What /proc says of processes: who they are, which of them carry a token, how much they have done.

Everything here is a look that may be out of date when it returns; a process that ends in the middle is left out.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from migrator.domain.transfer import ProcessIdentity

TOKEN_VARIABLE = "MIGRATOR_TOKEN"
"""What every process of an attempt carries in its environment."""

_ENDED_STATES = (b"Z", b"X", b"x")
_READ_BYTES = 1 << 20
_CLOCK_ERROR_S = 60.0
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel's sched.h."""

_EXEC_LOOKS = 100
_EXEC_PAUSE_S = 0.002
_NEW_LOOKS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLook:
    """One look at `/proc/PID/stat`. `used_ticks` is the time on the processor, user and system; `has_environment` is false
    for threads of the kernel, for what has ended, and for a program that is only just being started.
    """

    pid: int
    state: bytes
    parent_pid: int
    group: int
    session: int
    used_ticks: int
    start_ticks: int
    kernel: bool
    has_environment: bool

    @property
    def ended(self) -> bool:
        """Dead, and perhaps not reaped yet."""
        return self.state in _ENDED_STATES


@cache
def boot_id() -> str:
    """Which boot of the machine this is: start times and pids mean something only together with it."""
    return _read(b"/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()


def look_at(pid: int) -> ProcessLook | None:
    """One process; None where there is none of that pid."""
    try:
        content = _read(b"/proc/%d/stat" % pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything, blanks and parentheses too: the fields follow the last one.
    fields = content[content.rfind(b")") + 2 :].split(b" ")
    return ProcessLook(
        pid=pid,
        state=fields[0],
        parent_pid=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        used_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        has_environment=int(fields[48]) != 0,
    )


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a process that exists (it may have ended and wait to be reaped)."""
    look = look_at(pid)
    return None if look is None else ProcessIdentity(pid=pid, start_ticks=look.start_ticks, boot_id=boot_id())


def lives(identity: ProcessIdentity) -> bool:
    """Whether that very process is still there and has not ended."""
    if identity.boot_id != boot_id():
        return False
    look = look_at(identity.pid)
    return look is not None and look.start_ticks == identity.start_ticks and not look.ended


def was_at_work(pid: int, at_s: float) -> bool:
    """Whether the process that has this pid now had it at that time too (seconds since the epoch), and has not ended.

    The clock may have been set in between: a pid that was given out anew shortly after counts as the same process.
    """
    look = look_at(pid)
    if look is None or look.ended:
        return False
    uptime_s = float(_read(b"/proc/uptime").split()[0])
    age_s = uptime_s - look.start_ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s <= at_s + _CLOCK_ERROR_S


def session_members(session: int) -> tuple[ProcessIdentity, ...]:
    """The living processes of a session."""
    return tuple(_identity(look) for look in _looks() if look.session == session and not look.ended)


def carriers(tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
    """The living processes that carry one of the tokens in their environment, by token; tokens without any are left out.

    Without root only the caller's own processes can be seen. What carriers start while this looks, and end themselves, is
    found.
    """
    wanted = {f"{TOKEN_VARIABLE}={token}".encode(): token for token in tokens}
    found: dict[str, list[ProcessIdentity]] = {}
    if not wanted:
        return {}
    for look in _looks():
        if look.ended:
            continue
        variables = _environment(look)
        token = next((wanted[variable] for variable in variables if variable in wanted), None)
        # The pid may have been given out again between the two reads: only the same start time confirms it.
        if token is not None and lives(_identity(look)):
            found.setdefault(token, []).append(_identity(look))
    return {token: tuple(identities) for token, identities in found.items()}


def work_done(pid: int) -> int:
    """A number that grows whenever the process reads, writes or computes; 0 where that cannot be seen."""
    look = look_at(pid)
    if look is None:
        return 0
    try:
        counters = _read(b"/proc/%d/io" % pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        counters = b""
    moved = sum(
        int(value)
        for name, _, value in (line.partition(b": ") for line in counters.split(b"\n"))
        if name in (b"rchar", b"wchar")
    )
    return moved + look.used_ticks


def _identity(look: ProcessLook) -> ProcessIdentity:
    return ProcessIdentity(pid=look.pid, start_ticks=look.start_ticks, boot_id=boot_id())


def _looks() -> Iterator[ProcessLook]:
    """Looks at all processes, and then at those that were started meanwhile, until there are none: who was in the list may have
    started another and ended before its turn came. A machine that starts processes without end is not followed for ever.
    """
    seen: set[bytes] = set()
    for _ in range(_NEW_LOOKS):
        new = [name for name in os.listdir(b"/proc") if name.isdigit() and name not in seen]
        if not new:
            return
        seen.update(new)
        for name in new:
            look = look_at(int(name))
            if look is not None:
                yield look


def _environment(look: ProcessLook) -> Sequence[bytes]:
    """The variables of a process; none where they cannot be seen."""
    for _ in range(_EXEC_LOOKS):
        try:
            content = _read(b"/proc/%d/environ" % look.pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return ()
        if content or look.kernel:
            return content.split(b"\0")
        # Between the two ends of an exec a process has no environment yet, as one that was started without any.
        now = look_at(look.pid)
        if now is None or now.ended or now.start_ticks != look.start_ticks:
            return ()
        if now.has_environment and look.has_environment:
            return ()
        look = now
        time.sleep(_EXEC_PAUSE_S)
    return ()


def _read(path: bytes) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces: list[bytes] = []
        while piece := os.read(fd, _READ_BYTES):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)
