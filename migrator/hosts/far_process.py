"""Starts programs and ends them, on this machine and at the far end of a connection. Plain Python 3.9.

No other module starts programs. Each gets a session of its own, this environment and no other descriptors; ending it
means TERM to all of its processes, a grace, and KILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from migrator.hosts import far_procfs as procfs

_PR_SET_PDEATHSIG = 1
_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)

FORKING = threading.Lock()
"""Held while a program is started, and while an executable is written: a forked child inherits the open file until its
own execve, and execve refuses a file that is open for writing."""


class Program:
    """A started program: its pid, its start time (None: /proc hides it), its exit code (None: it was not reaped, else
    minus the number of the signal), and this side's ends of its pipes (-1: none), which do not block. The owner closes
    them.
    """

    def __init__(
        self,
        argv: Sequence[bytes],
        environment: Mapping[bytes, bytes] | Mapping[str, str],
        *,
        with_input: bool,
        dies_with_parent: bool,
        one_output: bool = False,
        umask: int | None = None,
    ) -> None:
        """`dies_with_parent`: KILL it when the thread that started it ends. `one_output`: its standard error goes to its
        standard output. Raises OSError or ValueError if it cannot be started.
        """
        input_ends, output_ends, error_ends = (
            os.pipe() if wanted else (-1, -1) for wanted in (with_input, True, not one_output)
        )
        self.input, self.output, self.errors = input_ends[1], output_ends[0], error_ends[0]
        try:
            with FORKING:
                self._popen = subprocess.Popen(
                    argv,
                    stdin=input_ends[0] if with_input else subprocess.DEVNULL,
                    stdout=output_ends[1],
                    stderr=subprocess.STDOUT if one_output else error_ends[1],
                    env=environment,
                    start_new_session=True,
                    umask=-1 if umask is None else umask,
                    # `_die_with` takes no lock that another thread may hold during the fork.
                    preexec_fn=partial(_die_with, os.getpid()) if dies_with_parent else None,  # noqa: PLW1509
                )
        except BaseException:
            close(self.input, self.output, self.errors)
            raise
        finally:
            close(input_ends[0], output_ends[1], error_ends[1])
        for fd in (self.input, self.output, self.errors):
            if fd >= 0:
                os.set_blocking(fd, False)
        self.pid = self._popen.pid
        # It is not reaped yet, so /proc lists it even if it has ended.
        stat = procfs.process_stat(self.pid)
        self.start_ticks = None if stat is None else stat.start_ticks

    @property
    def exit_code(self) -> int | None:
        return self._popen.returncode

    def reap(self) -> bool:
        """Whether it has ended. An ended program is reaped."""
        return self._popen.poll() is not None

    def was_reaped(self, exit_code: int) -> None:
        """Somebody else, who reaps all children, has reaped it."""
        self._popen.returncode = exit_code

    def wait(self) -> None:
        """Wait for its end, and reap it."""
        self._popen.wait()

    def kill(self) -> None:
        """KILL its process group at once, unless it has ended."""
        # Until it is reaped, the number of its group is not given to another one.
        if not self.reap():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def processes(self, snapshot: procfs.ProcessTable, token: bytes = b"") -> list[procfs.ProcessStat]:
        """The living processes of its session, and those with its token."""
        found = {stat.pid: stat for stat in snapshot.of_session(self.pid)}
        if token:
            found.update((stat.pid, stat) for stat in snapshot.with_token(token))
        return list(found.values())


def _die_with(parent: int) -> None:
    """In the child, before execve."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(127)


def die_with_parent(number: int) -> None:
    """Get this signal when the thread that forked this process ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def widen(pipe: int) -> None:
    """Give a pipe room for a MiB. It keeps its size if the user's limit for all pipes is reached."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES)


def take_off(unsent: deque[memoryview], sent_bytes: int) -> None:
    """Remove sent bytes from the front of a queue."""
    while sent_bytes:
        first = unsent[0]
        if sent_bytes < len(first):
            unsent[0] = first[sent_bytes:]
            return
        sent_bytes -= len(first)
        unsent.popleft()


def close(*descriptors: int) -> None:
    """Close those that are there (not -1)."""
    for fd in descriptors:
        if fd >= 0:
            os.close(fd)


def set_limit(pid: int, bytes_per_s: int) -> None:
    """Give a running `migrator-native copy` or `digest` another limit (0: none). Other programs ignore it."""
    _libc.sigqueue(pid, int(signal.SIGURG), ctypes.c_void_p(bytes_per_s))


KILL_WAIT_S = 5.0
"""How long a killed process may take to end; only a hang in the kernel takes longer."""
POLL_S = 0.02


FindProcesses = Callable[[procfs.ProcessTable], "list[procfs.ProcessStat]"]
"""Finds the processes to end."""


class Termination:
    """TERM to all processes found, a grace, KILL, until none is found; over when `result` is not None.

    Polls, since a process that is ending may start others. A signalled process counts until it is gone, even if `find`
    no longer returns it. One poll may take long, so the wait counts from the end of the first step that sent KILL to
    the end of the previous step: any process found after that has outlived it.
    """

    def __init__(self, find: FindProcesses, grace_s: float) -> None:
        self._find = find
        self._kill_from_s = time.monotonic() + grace_s
        self._killed_s: float | None = None
        self._stepped_s = time.monotonic()
        self._signalled: list[procfs.ProcessStat] = []
        self.result: bool | None = None

    def step(self, snapshot: procfs.ProcessTable) -> None:
        """Run `find` once, and signal the processes found."""
        killing = time.monotonic() >= self._kill_from_s
        left = {
            (stat.pid, stat.start_ticks): stat for stat in (*self._find(snapshot), *snapshot.still(self._signalled))
        }
        signalled = {(stat.pid, stat.start_ticks) for stat in self._signalled}
        for key, stat in left.items():
            if killing or key not in signalled:
                _signal(stat, signal.SIGKILL if killing else signal.SIGTERM)
        self._signalled = list(left.values())
        if not left:
            self.result = True
        elif self._killed_s is not None and self._stepped_s >= self._killed_s + KILL_WAIT_S:
            self.result = False
        self._stepped_s = time.monotonic()
        if killing and self._killed_s is None:
            self._killed_s = self._stepped_s


def end_all(find: FindProcesses, grace_s: float) -> bool:
    """Step an `Termination` to its result."""
    ending = Termination(find, grace_s)
    while True:
        reap()
        ending.step(procfs.ProcessTable())
        if ending.result is not None:
            return ending.result
        time.sleep(POLL_S)


def reap() -> dict[int, int]:
    """Reap the ended children: wait status by pid."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _signal(stat: procfs.ProcessStat, number: int) -> None:
    """Signal this process, through a pidfd if the kernel has them (5.3), so that a reused pid is not hit."""
    try:
        fd = os.pidfd_open(stat.pid)
    except ProcessLookupError:
        return
    except (OSError, AttributeError):
        fd = -1
    try:
        again = procfs.process_stat(stat.pid)
        if again is None or again.start_ticks != stat.start_ticks:
            return
        if fd >= 0:
            signal.pidfd_send_signal(fd, number)
        else:
            os.kill(stat.pid, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        close(fd)
