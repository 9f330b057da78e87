"""What the far end of a connection is asked (Python 3.9, standard library)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from migrator.adapters.executors import far_wire as wire
from migrator.adapters.executors.far_looks import (
    TOKEN_VARIABLE,
    Look,
    Snapshot,
    arguments_of,
    boot_id,
    token_of,
    work_done,
)
from migrator.adapters.executors.far_start import FORKING, Ending, sync_file_system

if TYPE_CHECKING:
    from migrator.adapters.executors.far_end import FarEnd

_PLACES = ("/run", "/dev/shm", "/var/tmp", "/tmp")  # noqa: S108 - a directory of mode 0700 is made in it
_PREFIX = "migrator-far-end-"
_ST_NOEXEC = 0x8

Answer = tuple[dict[str, Any], bytes]


class PrivateDirectory:
    """Where files are placed: mode 0700, in memory where that can be, removed at the end. One that a killed far end
    left behind is removed by the next: it is locked as long as somebody uses it.
    """

    def __init__(self) -> None:
        self._path = ""
        self._lock_fd = -1
        self._placed: dict[str, bytes] = {}
        place = next((path for path in _PLACES if _fits(path)), tempfile.gettempdir())
        for name in os.listdir(place):
            if name.startswith(_PREFIX):
                _remove_if_left(os.path.join(place, name))
        self._path = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        self._lock_fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock_fd, fcntl.LOCK_SH)

    def place(self, name: str, content: bytes) -> bytes:
        """Write an executable file; its path. Raises OSError.

        Never during a fork, and what is there already is left alone: see `FORKING`.
        """
        if "/" in name or name in ("", ".", ".."):
            raise OSError(22, "not a plain file name")
        path = os.path.join(self._path, name)
        temporary = path + ".new"
        digest = hashlib.blake2b(content).digest()
        with FORKING:
            if self._placed.get(name) != digest:
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700)
                with os.fdopen(fd, "wb") as file:
                    file.write(content)
                os.rename(temporary, path)  # noqa: PTH104
                self._placed[name] = digest
        return os.fsencode(path)

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self._path, ignore_errors=True)


def _fits(path: str) -> bool:
    return (
        os.path.exists(path + "/.") and os.access(path, os.W_OK | os.X_OK) and not os.statvfs(path).f_flag & _ST_NOEXEC
    )


def _remove_if_left(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        facts = os.fstat(fd)
        if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < 60:
            return  # it may be about to be locked
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return
    finally:
        os.close(fd)


class Calls:
    """Every call in a thread of its own: a file system that does not answer holds nothing else."""

    def __init__(self, loop: FarEnd, private: PrivateDirectory, waker: int) -> None:
        self._loop = loop
        self._private = private
        self._waker = waker
        self._done: deque[tuple[int, dict[str, Any], bytes]] = deque()
        self._endings: dict[int, Ending] = {}
        self._placing = threading.Lock()
        self._syncing = threading.Lock()
        self._sync_fds: dict[bytes, int] = {}
        self._operations: dict[str, Callable[[dict[str, Any], bytes], Answer]] = {
            "survivors": self._survivors,
            "activity": self._activity,
            "place": self._place,
            "find": self._find,
            "head": self._head,
            "watch_sync": self._watch_sync,
            "sync": self._sync,
        }

    def begin(self, number: int, fields: dict[str, Any], content: bytes) -> None:
        """Begin a call; the answer is sent by `deliver`, or at once."""
        operation = fields.get("operation")
        if operation == "facts":
            self._loop.say(wire.ANSWER, number, _facts())
        elif operation == "end":
            tokens = [wire.raw(token) for token in fields["tokens"]]
            self._end(number, lambda snapshot: [x for token in tokens for x in snapshot.with_token(token)], fields)
        elif operation == "end_predecessors":
            self._end(number, Predecessors(wire.raw(fields["own"]), wire.raw(fields["prefix"])), fields)
        elif operation in self._operations:
            body = self._operations[operation]
            threading.Thread(target=self._run, args=(number, body, fields, content), daemon=True).start()
        else:
            self._loop.say(wire.ANSWER, number, {"errno": 95, "text": "unknown operation"})

    def deliver(self) -> None:
        """Send the answers that are there."""
        while self._done:
            number, fields, content = self._done.popleft()
            self._loop.say(wire.ANSWER, number, fields, content)

    def look(self) -> None:
        """Send the answers of what was to be ended and is over."""
        for number in [number for number, ending in self._endings.items() if ending.result is not None]:
            self._loop.say(wire.ANSWER, number, {"ended": self._endings.pop(number).result})

    def _end(self, number: int, find: Callable[[Snapshot], list[Look]], fields: dict[str, Any]) -> None:
        ending = Ending(find, fields["grace_s"])
        self._endings[number] = ending
        self._loop.add_ending(ending)

    def _run(
        self, number: int, body: Callable[[dict[str, Any], bytes], Answer], fields: dict[str, Any], content: bytes
    ) -> None:
        try:
            answer, more = body(fields, content)
        except OSError as error:
            answer, more = {"errno": error.errno or 5, "text": wire.text(str(error.strerror).encode())}, b""
        except Exception as error:  # noqa: BLE001 - said on the other side
            answer, more = {"errno": 22, "text": wire.text(repr(error).encode("ascii", "backslashreplace"))}, b""
        self._done.append((number, answer, more))
        try:
            os.write(self._waker, b"\0")
        except BlockingIOError:
            return  # enough is there to wake it

    def _survivors(self, fields: dict[str, Any], _: bytes) -> Answer:
        snapshot = Snapshot()
        found = {token: snapshot.with_token(wire.raw(token)) for token in fields["tokens"]}
        identities = {
            token: [[look.pid, look.start_ticks] for look in looks] for token, looks in found.items() if looks
        }
        return {"boot_id": boot_id(), "survivors": identities}, b""

    def _activity(self, fields: dict[str, Any], _: bytes) -> Answer:
        snapshot = Snapshot()
        found = {token: snapshot.with_token(wire.raw(token)) for token in fields["tokens"]}
        sums = {token: sum(work_done(x) + x.pid for x in looks) for token, looks in found.items() if looks}
        return {"activity": sums}, b""

    def _place(self, fields: dict[str, Any], content: bytes) -> Answer:
        with self._placing:
            return {"path": wire.text(self._private.place(fields["name"], content))}, b""

    def _find(self, fields: dict[str, Any], _: bytes) -> Answer:
        found = shutil.which(os.fsdecode(wire.raw(fields["program"])), path=os.fsdecode(wire.raw(fields["path"])))
        return {"path": None if found is None else wire.text(os.fsencode(os.path.abspath(found)))}, b""

    def _head(self, fields: dict[str, Any], _: bytes) -> Answer:
        with open(wire.raw(fields["path"]), "rb") as file:
            return {}, file.read(fields["size_bytes"])

    def _watch_sync(self, fields: dict[str, Any], _: bytes) -> Answer:
        """Opened before anything is written: syncfs(2) tells of errors since the descriptor was opened."""
        self._sync_fd(wire.raw(fields["path"]))
        return {}, b""

    def _sync(self, fields: dict[str, Any], _: bytes) -> Answer:
        sync_file_system(self._sync_fd(wire.raw(fields["path"])))
        return {}, b""

    def _sync_fd(self, path: bytes) -> int:
        with self._syncing:
            if path not in self._sync_fds:
                self._sync_fds[path] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            return self._sync_fds[path]


def _facts() -> dict[str, Any]:
    return {
        "node_name": platform.node(),
        "architecture": platform.machine(),
        "python_version": list(sys.version_info[:3]),
        "python": wire.text(os.fsencode(sys.executable)),
        "effective_uid": os.geteuid(),
        "boot_id": boot_id(),
        "process_id": os.getpid(),
        "time_ns": time.time_ns(),
    }


class Predecessors:
    """Finds far ends of the same caller whose connection was lost, and all that they started: what descends from them, and,
    since a process that is ended may start another in that very moment, what carries a token that was seen on any of these.
    A token that a far end has itself is somebody else's, who has started it; and what is beneath a far end that is none of
    these is at work, whatever it carries.
    """

    def __init__(self, own: bytes, prefix: bytes) -> None:
        self._own = own
        self._prefix = prefix
        self._tokens: set[bytes] = set()
        self._others = {b"", os.environb.get(TOKEN_VARIABLE, b"")}

    def __call__(self, snapshot: Snapshot) -> list[Look]:
        """Those that are there now."""
        older, others = self._far_ends(snapshot)
        beneath = snapshot.beneath(look.pid for look in older)
        self._others.update(map(token_of, older))
        self._tokens.update(map(token_of, beneath))
        passed = {look.pid for look in (*older, *beneath, *snapshot.beneath(look.pid for look in others))}
        carriers = (look for token in self._tokens - self._others for look in snapshot.with_token(token))
        return [*older, *beneath, *(look for look in carriers if look.pid not in passed)]

    def _far_ends(self, snapshot: Snapshot) -> tuple[list[Look], list[Look]]:
        """Those that were lost, and the others."""
        older, others = [], []
        for look in snapshot.looks:
            arguments = arguments_of(look.pid)
            if self._own not in arguments and any(word.startswith(self._prefix) for word in arguments):
                older.append(look)
            elif any(word.startswith(_PREFIX.encode("ascii")) for word in arguments):
                others.append(look)
        return older, others
