"""Lanes of a step: processes that begin together, each with one program or one piece of work. Standard library only.

The programs are children of this script, in the session that whoever started it has given it, and die with it: ending that
session ends all of them.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import time
from typing import Any

from migrator.adapters.benchmarks import far_work

_libc = ctypes.CDLL(None, use_errno=True)
_KEPT_BYTES = 1 << 20
_STDERR_BYTES = 2000
_STARTS = {
    "cc": (
        # The compiler proper is a program of its own, of 30 MB.
        ("cc", "-O1", "-S", "-x", "c", "-o", "-", "/dev/null"),
        ("as", "--version"),
        ("ar", "--version"),
        ("sh", "-c", ":"),
        ("rm", "--version"),
    )
}
"""What has to be called for all that a program will start to be in memory; of others it is the program itself."""


def perform(lanes: list[dict[str, Any]], seed: int, start_at: float | None, synced: bool) -> dict[str, Any]:
    """All lanes at once, from `start_at` on this host's clock (None: now). Times are seconds of the monotonic clock."""
    go_read, go_write = os.pipe()
    answers = [_lane(lane, seed, go_read, go_write) for lane in lanes]
    os.close(go_read)
    late = 0.0
    if start_at is not None:
        late = time.time() - start_at
        time.sleep(max(0.0, -late))
    began_at, begin = time.time(), time.monotonic()
    os.close(go_write)
    results = [_answer(pid, reading) for pid, reading in answers]
    if synced:
        sync(".")
    return {
        "began_at_s": began_at,
        "late_s": max(0.0, late),
        "elapsed_s": time.monotonic() - begin,
        "lanes": results,
    }


def _lane(lane: dict[str, Any], seed: int, go_read: int, go_write: int) -> tuple[int, int]:
    reading, writing = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        far_work.die_with(parent)
        os.close(reading)
        os.close(go_write)
        os.read(go_read, 1)
        begin = time.monotonic()
        try:
            result: dict[str, Any] = _program(lane) if "argv" in lane else {"details": far_work.do(lane, seed)}
        except (OSError, ValueError) as error:
            result = {"problem": str(error)}
        result["elapsed_s"] = time.monotonic() - begin
        with os.fdopen(writing, "w") as out:
            json.dump(result, out)
        os._exit(0)
    finally:
        os._exit(1)


def _answer(pid: int, reading: int) -> Any:
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"problem": "it was ended from outside", "elapsed_s": 0.0}


def _program(lane: dict[str, Any]) -> dict[str, Any]:
    out_read, out_write = os.pipe()
    error_read, error_write = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            far_work.die_with(parent)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(out_write, 1)
            os.dup2(error_write, 2)
            os.execvp(lane["argv"][0], lane["argv"])  # noqa: S606 - no shell is wanted
        except OSError as error:
            os.write(2, str(error).encode())
        finally:
            os._exit(127)
    os.close(out_write)
    os.close(error_write)
    # A file of nothing will not do: grep ends at the first match when it sees that nobody reads.
    output, errors = _drained(out_read, error_read)
    _, status, usage = os.wait4(pid, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    result: dict[str, Any] = {"details": {"cpu_s": usage.ru_utime + usage.ru_stime}}
    if code != 0:
        said = " ".join(errors.decode("utf-8", "backslashreplace").split())
        result["problem"] = f"{os.fsdecode(lane['argv'][0])} ended with {code}: {said}"
    if lane["report"]:
        result["output"] = output.decode("utf-8", "replace")
    return result


def load(program: str) -> None:
    """Have a program in memory, and those that it starts."""
    for argv in _STARTS.get(program, ((program, "--version"),)):
        _program({"argv": [os.fsencode(word) for word in argv], "report": ""})


def _drained(out_read: int, error_read: int) -> tuple[bytes, bytes]:
    kept = {out_read: b"", error_read: b""}
    left = {out_read, error_read}
    while left:
        for descriptor in select.select(left, [], [])[0]:
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                os.close(descriptor)
                left.discard(descriptor)
            elif descriptor == error_read:
                kept[descriptor] = (kept[descriptor] + piece)[-_STDERR_BYTES:]
            elif len(kept[descriptor]) < _KEPT_BYTES:
                kept[descriptor] += piece
    return kept[out_read], kept[error_read]


def sync(path: str | bytes) -> None:
    """Everything that was written to the file system is on its disks. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    finally:
        os.close(descriptor)


def drop_caches() -> bool:
    """Pages, names and inodes out of this host's memory; False where this process may not."""
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3\n")
    except OSError:
        return False
    return True
