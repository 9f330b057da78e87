"""The script that measures one user's tree: `ls -lR`, `du -s` and a read of some of its files, in rounds.

Standard library only, Python 3.9 or later. It is run confined to the tree, so nothing that it names can lead elsewhere. It
reads one question as JSON on standard input and writes a line of JSON for every answer as soon as it is there, so that what
was measured is not lost where the next one hangs. Names are texts in which a character is a byte.
"""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import sys
import time
from typing import Any

MOST_ROUNDS = 6
_LISTING_SHARE = 0.3
"""Of the time that there is, in the first round, for `ls` and again for `du`; then the rest is for reading."""
_READ_SHARE = 0.2
_BLOCK_BYTES = 1 << 20
_AGAIN = 1.2
"""Another round is begun where so many times the last one still fits."""


def main() -> None:
    """Answer."""
    request = json.loads(sys.stdin.buffer.read())
    os.environ.update(LC_ALL="C", PATH="/usr/local/bin:/usr/bin:/bin")
    began = time.monotonic()
    ends = began + request["limit_s"]
    tree = _bytes(request["tree"])
    other = request.get("other")
    files = [_bytes(name) for name in request["files"]]
    if other is not None:
        files = chosen(tree, _bytes(other), files, request, began + _READ_SHARE * request["limit_s"])
    _say({"files": [name.decode("latin-1") for name in files]})
    for number in range(1, MOST_ROUNDS + 1):
        round_began = time.monotonic()
        if not _round(tree, files, number, ends, request):
            return
        if ends - time.monotonic() < _AGAIN * (time.monotonic() - round_began):
            return


def _round(tree: bytes, files: list[bytes], number: int, ends: float, request: dict[str, Any]) -> bool:
    """One of each; whether all of them came to their ends."""
    share = request["limit_s"] * _LISTING_SHARE if number == 1 else request["limit_s"]
    whole = True
    for test, argv in (("list", [b"ls", b"-lR", tree]), ("usage", [b"du", b"-s", tree])):
        found = run(argv, min(ends, time.monotonic() + share), counted=test == "list")
        whole = whole and found["complete"]
        _say({"test": test, "run": number, **found})
    if files:
        found = read(tree, files, ends, request["file_bytes"])
        whole = whole and found["complete"]
        _say({"test": "read", "run": number, **found})
    return whole


def chosen(tree: bytes, other: bytes, files: list[bytes], request: dict[str, Any], ends: float) -> list[bytes]:
    """Those files that are there on both sides and equally large, until there are bytes enough."""
    found, left = [], request["most_bytes"]
    for name in files:
        if left <= 0 or time.monotonic() > ends:
            break
        sizes = [_size(os.path.join(top, name)) for top in (tree, other)]
        if sizes[0] and sizes[0] == sizes[1]:
            found.append(name)
            left -= min(sizes[0], request["file_bytes"])
    return found


def _size(path: bytes) -> int:
    """Of a regular file; 0 for anything else."""
    try:
        seen = os.lstat(path)
    except OSError:
        return 0
    return seen.st_size if stat.S_ISREG(seen.st_mode) else 0


def run(argv: list[bytes], ends: float, *, counted: bool) -> dict[str, Any]:
    """A command with its output read and thrown away, and its lines counted; ended when the time is over."""
    name = argv[0].decode()
    reading, writing = os.pipe()
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    places = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    began = time.monotonic()
    try:
        program = os.posix_spawnp(name, argv, os.environ, file_actions=places)
    except OSError as error:
        os.close(reading)
        return _answer(0.0, 0, complete=False, failure=f"{name}: {error.strerror}")
    finally:
        os.close(writing)
        os.close(null)
    lines, complete = _lines(reading, ends)
    seconds = time.monotonic() - began
    os.close(reading)
    if not complete:
        os.kill(program, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    # ls says 1, and du too, where single names could not be read: others may change the tree meanwhile.
    failure = f"{name} ended with {code}" if complete and code not in (0, 1) else ""
    return _answer(seconds, lines if counted else 0, complete=complete and not failure, failure=failure)


def _lines(fd: int, ends: float) -> tuple[int, bool]:
    lines = 0
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLHUP)
    while (left := ends - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            piece = os.read(fd, _BLOCK_BYTES)
            if not piece:
                return lines, True
            lines += piece.count(b"\n")
    return lines, False


def read(tree: bytes, files: list[bytes], ends: float, file_bytes: int) -> dict[str, Any]:
    """Open, read from the beginning, and close each file; before the clock starts, their pages are dropped."""
    dropped = [_drop(os.path.join(tree, name)) for name in files]
    cold = all(dropped)
    began, size_bytes = time.monotonic(), 0
    for name in files:
        fd = _opened(os.path.join(tree, name))
        if fd is None:
            continue
        left = file_bytes
        try:
            while left > 0:
                if time.monotonic() > ends:
                    return _answer(time.monotonic() - began, size_bytes, complete=False, cold=cold)
                piece = os.read(fd, min(left, _BLOCK_BYTES))
                if not piece:
                    break
                size_bytes, left = size_bytes + len(piece), left - len(piece)
        except OSError:
            continue  # one file that cannot be read is for `verify` to tell, not for this
        finally:
            os.close(fd)
    seconds = time.monotonic() - began
    failure = "" if size_bytes else "none of the files could be read"
    return _answer(seconds, size_bytes, complete=not failure, cold=cold, failure=failure)


def _drop(path: bytes) -> bool:
    """Let this machine forget the pages of one file; no others. One that is gone has none."""
    fd = _opened(path)
    if fd is None:
        return True
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _opened(path: bytes) -> int | None:
    # Pipes and devices must not be waited for, and a look must not change times.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for more in (os.O_NOATIME, 0):
        try:
            fd = os.open(path, flags | more)
        except PermissionError:
            continue
        except OSError:
            return None
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        return None
    return None


def _answer(
    seconds: float, amount: int, *, complete: bool, cold: bool | None = None, failure: str = ""
) -> dict[str, Any]:
    return {"seconds": seconds, "amount": amount, "complete": complete, "cold": cold, "failure": failure}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
