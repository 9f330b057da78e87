"""Locks of a site: `flock(2)` on files, released by the kernel with the process."""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from migrator.core.clock import Clock
from migrator.core.errors import LockHeld, MigratorError

_NAME = re.compile(r"[a-z][a-z0-9-]*")


class Locks:
    """Named locks in one directory on a local disk. The file names the holder, for the error message. The kernel
    releases the lock of a killed holder, so no cleanup is needed.

    The descriptors are closed on exec: a stream that outlives its run does not hold the lock.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    @contextmanager
    def hold(self, name: str, purpose: str) -> Iterator[None]:
        """Hold a lock until the end of the block. Raises LockHeld at once if it is held, also by this process."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"no name of a lock: {name!r}")
        fd = self._open(name)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockHeld(
                    f"another process holds the {name} lock: {_describe(_read(fd))}",
                    cause=f"two of the same kind at once would undo each other's work ({purpose} was asked for)",
                    hint="wait until it has ended, or stop it with Ctrl-C or SIGTERM; see `migrator status`",
                ) from None
            holder = {"pid": os.getpid(), "purpose": purpose, "since_s": self._clock.now_s()}
            _write(fd, json.dumps(holder).encode())
            try:
                yield
            finally:
                _write(fd, b"")
        finally:
            os.close(fd)

    def _open(self, name: str) -> int:
        # The file is never removed: a process that has the removed file open would hold a lock that no other process sees.
        path = self._directory / f"{name}.lock"
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise MigratorError(
                f"the lock {path} cannot be opened: {error.strerror}",
                cause="no permission on the state directory, or its file system is mounted read-only",
                hint="run as the user who ran `migrator init`",
            ) from error


def _read(fd: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        return {}  # its holder has not written it yet, or is releasing it
    return found if isinstance(found, dict) else {}


def _write(fd: int, content: bytes) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, content, 0)


def _describe(holder: dict[str, object]) -> str:
    since = holder.get("since_s")
    if not isinstance(since, int | float):
        return "it has only just taken it"
    at = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"process {holder.get('pid')} ({holder.get('purpose')}), since {at}"
