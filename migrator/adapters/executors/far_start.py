"""Starting and ending programs at the far end of a connection (Python 3.9, standard library).

`subprocess` is not used: what is started must die with this process (PR_SET_PDEATHSIG), in a session of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from migrator.adapters.executors.far_looks import Look, Snapshot, look_at

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
_KILL_WAIT_S = 5.0
_RESET_SIGNALS = ("SIGPIPE", "SIGXFZ", "SIGXFSZ", "SIGTERM", "SIGINT", "SIGHUP", "SIGCHLD")

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(number: int) -> None:
    """Get this signal when the parent (its thread that forked) ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def sync_file_system(fd: int) -> None:
    """syncfs(2). Raises OSError."""
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


FORKING = threading.Lock()
"""Held over fork, and by who writes a file that shall be started: a child has it open, too, until its own execve, and
execve refuses what anybody has open to write."""


class Started:
    """A program that runs: its pid, when it started, and this side's ends of its pipes (-1: none)."""

    def __init__(self, argv: list[bytes], environment: dict[bytes, bytes], *, with_input: bool) -> None:
        """Raises OSError where the program cannot be started."""
        input_ends = os.pipe() if with_input else (os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), -1)
        output_ends, error_ends, trouble = _wide_pipe(), os.pipe(), os.pipe()
        ours = (input_ends[1], output_ends[0], error_ends[0], trouble[0])
        theirs = (input_ends[0], output_ends[1], error_ends[1], trouble[1])
        parent = os.getpid()
        try:
            with FORKING:
                self.pid = os.fork()
        except OSError:
            _close(*ours, *theirs)
            raise
        if self.pid == 0:
            _become(argv, environment, theirs, parent)
        _close(*theirs)
        # Nothing but an errno comes: the other end is closed by execve.
        answer = os.read(trouble[0], 16)
        os.close(trouble[0])
        if answer:
            os.waitpid(self.pid, 0)
            _close(*ours[:3])
            raise OSError(int(answer), os.strerror(int(answer)))
        self.input, self.output, self.errors = ours[:3]
        for fd in ours[:3]:
            if fd >= 0:
                os.set_blocking(fd, False)
        look = look_at(self.pid)
        self.start_ticks = look.start_ticks if look else 0


def _wide_pipe() -> tuple[int, int]:
    import fcntl  # noqa: PLC0415 - not before it is needed

    ends = os.pipe()
    try:
        fcntl.fcntl(ends[0], _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        return ends  # as wide as it is: the limit for all pipes of a user is reached
    return ends


def _close(*descriptors: int) -> None:
    for fd in descriptors:
        if fd >= 0:
            os.close(fd)


def _become(argv: list[bytes], environment: dict[bytes, bytes], ends: tuple[int, ...], parent: int) -> None:
    """In the child: never returns."""
    trouble = ends[3]
    try:
        signal.set_wakeup_fd(-1)
        for name in _RESET_SIGNALS:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.setsid()
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)
        for place in (0, 1, 2):
            os.dup2(ends[place], place, inheritable=True)
        os.chdir("/")
        path = environment.get(b"PATH", b"")
        places = [argv[0]] if b"/" in argv[0] else [where + b"/" + argv[0] for where in path.split(b":")]
        code = 2
        for executable in places:
            try:
                os.execve(executable, argv, environment)  # noqa: S606 - no shell is what is wanted
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                code = error.errno or 5
        os.write(trouble, b"%d" % code)
    except OSError as error:
        os.write(trouble, b"%d" % (error.errno or 5))
    except BaseException:  # noqa: BLE001 - a child must never come back from here
        os.write(trouble, b"22")
    finally:
        os._exit(127)
    sys.exit(127)


class Ending:
    """TERM to all that are found, a grace, KILL, until none is found; over when `result` is not None.

    Looks again and again, since what is told to end may start others on its way. What has been told is looked for also
    when `find` does not find it any more. A look may take long, so the wait counts from the end of the first step that
    sent KILL to the end of the step before: what is found after that has outlived it.
    """

    def __init__(self, find: Callable[[Snapshot], list[Look]], grace_s: float) -> None:
        self._find = find
        self._kill_from_s = time.monotonic() + grace_s
        self._killed_s: float | None = None
        self._stepped_s = time.monotonic()
        self._told: list[Look] = []
        self.result: bool | None = None

    def step(self, snapshot: Snapshot) -> None:
        """Look once, and tell."""
        killing = time.monotonic() >= self._kill_from_s
        left = {(look.pid, look.start_ticks): look for look in (*self._find(snapshot), *snapshot.still(self._told))}
        told = {(look.pid, look.start_ticks) for look in self._told}
        for key, look in left.items():
            if killing or key not in told:
                _signal(look, signal.SIGKILL if killing else signal.SIGTERM)
        self._told = list(left.values())
        if not left:
            self.result = True
        elif self._killed_s is not None and self._stepped_s >= self._killed_s + _KILL_WAIT_S:
            self.result = False
        self._stepped_s = time.monotonic()
        if killing and self._killed_s is None:
            self._killed_s = self._stepped_s


def end_all(find: Callable[[Snapshot], list[Look]], grace_s: float) -> bool:
    """Until all has ended, or cannot be."""
    ending = Ending(find, grace_s)
    while True:
        reap()
        ending.step(Snapshot())
        if ending.result is not None:
            return ending.result
        time.sleep(0.02)


def reap() -> dict[int, int]:
    """What has ended of this process's children: wait status by pid."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _signal(look: Look, number: int) -> None:
    """Signal that very process: through a descriptor where the kernel has them (5.3), so that a pid that is given out
    again is not hit.
    """
    try:
        fd = os.pidfd_open(look.pid)
    except ProcessLookupError:
        return
    except (OSError, AttributeError):
        fd = -1
    try:
        again = look_at(look.pid)
        if again is None or again.start_ticks != look.start_ticks:
            return
        if fd >= 0:
            signal.pidfd_send_signal(fd, number)
        else:
            os.kill(look.pid, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        _close(fd)
