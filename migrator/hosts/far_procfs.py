"""Processes in /proc, and roots of file systems, on this machine and at the far end of a connection. Plain Python 3.9."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

TOKEN_VARIABLE = b"MIGRATOR_TOKEN"
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel's sched.h."""

_EXEC_LOOKS = 100
_EXEC_PAUSE_S = 0.002
_NEW_LOOKS = 20
_NEW_LOOKS_FOR_NONE = 400
"""The limit while nothing was found: a slow machine can miss several short-lived processes in a row."""


class ProcessStat(NamedTuple):
    """One reading of `/proc/PID/stat`. `environment_bytes` is None for kernel threads, for ended processes, during
    exec, and if the reader lacks permission.
    """

    pid: int
    parent_pid: int
    session: int
    used_ticks: int
    start_ticks: int
    ended: bool
    kernel: bool
    environment_bytes: int | None


def process_stat(pid: int) -> ProcessStat | None:
    """One process; None if there is none with that pid."""
    try:
        content = read(b"/proc/%d/stat" % pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may contain blanks and parentheses: the fields follow the last parenthesis.
    fields = content[content.rfind(b")") + 2 :].split(b" ")
    # The kernel's load_elf_binary sets the start of the code last: before that, an environment is not complete.
    code_start, environment_start, environment_end = int(fields[23]), int(fields[47]), int(fields[48])
    return ProcessStat(
        pid=pid,
        parent_pid=int(fields[1]),
        session=int(fields[3]),
        used_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        ended=fields[0] in (b"Z", b"X", b"x"),
        kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        environment_bytes=environment_end - environment_start if code_start and environment_end else None,
    )


def living_processes(is_found: Callable[[], bool] = lambda: True) -> Iterator[ProcessStat]:
    """All living processes, then those that started meanwhile, until no new ones are found: a listed process may start
    another one and end before it is read. Until `is_found` is true, two listings in a row must find none: a listing
    goes upwards, and misses a low pid that is reused behind it. The number of rounds is limited, and higher until
    then.
    """
    seen: set[str] = set()
    quiet = 0
    for turn in range(_NEW_LOOKS_FOR_NONE):
        if turn >= _NEW_LOOKS and is_found():
            return
        new = [name for name in os.listdir("/proc") if name.isdigit() and name not in seen]
        quiet = 0 if new else quiet + 1
        if quiet > 1 or (quiet and is_found()):
            return
        seen.update(new)
        for name in new:
            stat = process_stat(int(name))
            if stat is not None and not stat.ended:
                yield stat


def carriers(tokens: Iterable[str]) -> dict[str, list[ProcessStat]]:
    """The living processes that carry one of the tokens in their environment, by token; tokens without any are left
    out.

    Without root, only the caller's own processes are visible. Processes that carriers start during the search are
    found, too.
    """
    wanted = {token.encode(): token for token in tokens if token}
    found: dict[str, list[ProcessStat]] = {}
    for stat in living_processes(lambda: len(found) == len(wanted)) if wanted else ():
        token = wanted.get(token_of(stat))
        if token is not None:
            found.setdefault(token, []).append(stat)
    return found


def activity(tokens: Iterable[str], counts: Callable[[int], bool] = lambda _pid: True) -> dict[str, int]:
    """For every token with living processes the sum of bytes read and written, processor time, and the pids that count."""
    return {
        token: sum(work_done(stat) + stat.pid for stat in found if counts(stat.pid))
        for token, found in carriers(tokens).items()
    }


class ProcessTable:
    """The living processes of this machine at the first query."""

    def __init__(self) -> None:
        self._tokens: dict[bytes, list[ProcessStat]] | None = None

    @cached_property
    def processes(self) -> list[ProcessStat]:
        return list(living_processes())

    def with_token(self, token: bytes) -> list[ProcessStat]:
        """The processes with this token in their environment."""
        if self._tokens is None:
            found: dict[bytes, list[ProcessStat]] = {}
            # Read anew: a process of `self.living_processes` that has ended since may have started another.
            for stat in living_processes(lambda: token in found):
                value = token_of(stat)
                if value:
                    found.setdefault(value, []).append(stat)
            self._tokens = found
        return self._tokens.get(token, [])

    def of_session(self, session: int) -> list[ProcessStat]:
        return [stat for stat in self.processes if stat.session == session]

    def beneath(self, roots: Iterable[int]) -> list[ProcessStat]:
        """The descendants of these processes, without themselves."""
        found: set[int] = set(roots)
        beneath: list[ProcessStat] = []
        left = self.processes
        while True:
            more = [stat for stat in left if stat.parent_pid in found and stat.pid not in found]
            if not more:
                return beneath
            beneath += more
            found.update(stat.pid for stat in more)

    def still(self, earlier: list[ProcessStat]) -> list[ProcessStat]:
        """The processes of an earlier search that are still alive."""
        if not earlier:
            return []
        now = {(stat.pid, stat.start_ticks) for stat in self.processes}
        return [stat for stat in earlier if (stat.pid, stat.start_ticks) in now]


def token_of(stat: ProcessStat) -> bytes:
    """The token in a process's environment; empty if it has none, or if the environment cannot be read."""
    variables = _environment(stat).split(b"\0")
    token = next((v[len(TOKEN_VARIABLE) + 1 :] for v in variables if v.startswith(TOKEN_VARIABLE + b"=")), b"")
    # The pid may have been reused between the two reads: only the same start time confirms it.
    again = process_stat(stat.pid) if token else None
    return token if again is not None and again.start_ticks == stat.start_ticks and not again.ended else b""


def _environment(stat: ProcessStat) -> bytes:
    if stat.kernel:
        return b""  # They are most processes of a server, and have none.
    for _ in range(_EXEC_LOOKS):
        try:
            content = read(b"/proc/%d/environ" % stat.pid)
        except OSError:
            return b""
        if content:
            return content
        # An empty environment is unreadable, also during exec, which may be over by now: only an environment of size 0
        # is none.
        now = process_stat(stat.pid)
        if now is None or now.ended or now.start_ticks != stat.start_ticks or now.environment_bytes == 0:
            return b""
        if now.environment_bytes is None:
            time.sleep(_EXEC_PAUSE_S)
    return b""


def work_done(stat: ProcessStat) -> int:
    """A number that grows whenever the process reads, writes or computes."""
    try:
        lines = read(b"/proc/%d/io" % stat.pid).split(b"\n")
    except OSError:
        lines = []
    moved = (line.partition(b": ") for line in lines)
    return stat.used_ticks + sum(int(value) for name, _, value in moved if name in (b"rchar", b"wchar"))


def arguments_of(pid: int) -> list[bytes]:
    """The command line of a process; empty if it has ended."""
    try:
        return read(b"/proc/%d/cmdline" % pid).split(b"\0")
    except OSError:
        return []


def boot_id() -> str:
    """The id of the machine's current boot."""
    return read(b"/proc/sys/kernel/random/boot_id").decode("ascii").strip()


def roots(target: bytes, brick: bytes, sentinel: bytes) -> dict[str, str | None]:
    """The fields of `HostRoots`: the file `sentinel` in the target's root, and a brick's volume id (empty: not asked for)."""
    found: dict[str, str | None] = dict.fromkeys(("sentinel", "target_error", "volume_id", "brick_error"))
    if target:
        try:
            descriptor = os.open(os.path.join(target, sentinel), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                found["sentinel"] = os.read(descriptor, 4096).decode("utf-8", "backslashreplace").strip()
            finally:
                os.close(descriptor)
        except OSError as error:
            found["target_error"] = error.strerror
    if brick:
        try:
            found["volume_id"] = os.getxattr(brick, b"trusted.glusterfs.volume-id").hex()
        except OSError as error:
            found["brick_error"] = error.strerror
    return found


def read(path: bytes) -> bytes:
    """A whole file of /proc."""
    descriptor = os.open(path, os.O_RDONLY)  # `open` takes a quarter more of a search
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b""))
    finally:
        os.close(descriptor)
