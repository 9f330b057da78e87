"""The script that times `ls -lR`, `du -s` and reading some files in one user's tree, in rounds.

Standard library only, Python 3.9 or later. It runs confined to the tree, so no name in its input leads elsewhere. It
reads one question as JSON from standard input and writes each answer as a line of JSON at once, so that no
measurement is lost if the next one hangs. Names are texts in which a character is a byte.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from typing import Any

MOST_ROUNDS = 6
_LISTING_SHARE = 0.3
"""The share of the time limit for `ls`, and again for `du`, in the first round; the rest is for reading."""
_READ_SHARE = 0.2
_BLOCK_BYTES = 1 << 20
_TIMED_OUT = (-9, 137)
"""`timeout -s KILL` kills itself too, or exits with 137."""
_AGAIN = 1.2
"""Another round starts if at least this many times the duration of the last one remain."""


def main() -> None:
    """Answer the question."""
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
    """Run one measurement of each kind; returns whether all finished."""
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
    """The files that exist with equal sizes on both sides, up to the byte limit."""
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
    """The size of a regular file; 0 for anything else."""
    try:
        seen = os.lstat(path)
    except OSError:
        return 0
    return seen.st_size if stat.S_ISREG(seen.st_mode) else 0


def run(argv: list[bytes], ends: float, *, counted: bool) -> dict[str, Any]:
    """Run a command, discard its output and count the lines; end it at the time limit."""
    name, began, lines = argv[0].decode(), time.monotonic(), 0
    limited = [b"timeout", b"-s", b"KILL", b"%f" % max(ends - began, 0.001), *argv]
    reading, writing = os.pipe()
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    places = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    try:
        program = os.posix_spawnp("timeout", limited, os.environ, file_actions=places)
    except OSError as error:
        os.close(reading)
        return _answer(0.0, 0, complete=False, failure=f"{name}: {error.strerror}")
    finally:
        os.close(writing)
        os.close(null)
    while piece := os.read(reading, _BLOCK_BYTES):
        lines += piece.count(b"\n")
    os.close(reading)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    # ls and du exit with 1 if single names could not be read: others may change the tree meanwhile.
    failure = f"{name} ended with {code}" if code not in (0, 1, *_TIMED_OUT) else ""
    seconds = time.monotonic() - began
    return _answer(seconds, lines if counted else 0, complete=code in (0, 1), failure=failure)


def read(tree: bytes, files: list[bytes], ends: float, file_bytes: int) -> dict[str, Any]:
    """Open, read from the beginning, and close each file; its pages are dropped before the clock starts."""
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
            continue  # an unreadable file is a finding of `verify`, not of this script
        finally:
            os.close(fd)
    seconds = time.monotonic() - began
    failure = "" if size_bytes else "none of the files could be read"
    return _answer(seconds, size_bytes, complete=not failure, cold=cold, failure=failure)


def _drop(path: bytes) -> bool:
    """Drop the cached pages of one file on this machine. A missing file has none."""
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
    # Do not wait for pipes and devices, and do not change access times.
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
