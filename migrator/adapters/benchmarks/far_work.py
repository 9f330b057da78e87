"""What the script does itself on a host. Each gives what it measured beside its own time. Standard library only.

`busy_s`, where it is given, is the time that counts: what was made or checked meanwhile is not in it.
"""

from __future__ import annotations

import ctypes
import fnmatch
import hashlib
import json
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from migrator.adapters.benchmarks.far_content import (
    BLOCK_BYTES,
    blocks,
    make_archive,
    make_sources,
    make_tree,
)

_PRINT = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefghijklmnopqrstuvwxyzA\n"
_BUFFER_BYTES = 8192
"""Perl's, and about that of C's standard output."""
_SET_DEATH_SIGNAL = 1
_STEPS = 32
"""Buckets of latencies in each doubling: a percentile is right to 2 %."""


def die_with(parent: int) -> None:
    """End when the process that started this one ends."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def do(work: dict[str, Any], seed: int) -> dict[str, float]:
    """One piece of work; returns what else it measured. Raises OSError, ValueError."""
    return _WORK[work["kind"]](work, seed) or {}


def prints(work: dict[str, Any], _seed: int) -> None:
    """Prints of 100 bytes, through a buffer, synced."""
    left = work["size_bytes"]
    with open(work["path"], "wb", buffering=_BUFFER_BYTES) as file:
        write = file.write
        for _ in range(left // len(_PRINT)):
            write(_PRINT)
        write(_PRINT[: left % len(_PRINT)])
        file.flush()
        os.fsync(file.fileno())


def one_write(work: dict[str, Any], _seed: int) -> None:
    """Writes of 1 MiB of the same text, synced: zeros would be less work where a file system compresses, or leaves holes."""
    left, block = work["size_bytes"], (_PRINT * (BLOCK_BYTES // len(_PRINT) + 1))[:BLOCK_BYTES]
    with open(work["path"], "wb", buffering=0) as file:
        while left:
            left -= file.write(block[:left])
        os.fsync(file.fileno())


def _names(work: dict[str, Any], letter: str) -> list[str]:
    place = os.fsdecode(work["path"])
    return [f"{place}/{letter}{number:06d}" for number in range(work["count"])]


def make_directories(work: dict[str, Any], _seed: int) -> None:
    """Subdirectories of a new directory."""
    os.mkdir(work["path"])
    for name in _names(work, "d"):
        os.mkdir(name)


def remove_directories(work: dict[str, Any], _seed: int) -> None:
    """The same, deleted, with their directory."""
    for name in _names(work, "d"):
        os.rmdir(name)
    os.rmdir(work["path"])


def make_files(work: dict[str, Any], seed: int) -> None:
    """Files of a new directory, empty or of random sizes."""
    os.mkdir(work["path"])
    source, most = random.Random(f"sizes {seed}"), work["size_bytes"]
    content = random.Random(seed).getrandbits(8 * most).to_bytes(most, "big") if most else b""
    for name in _names(work, "f"):
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        if most:
            os.write(descriptor, content[: source.randint(0, most)])
        os.close(descriptor)


def open_files(work: dict[str, Any], _seed: int) -> None:
    """The same, opened and closed."""
    for name in _names(work, "f"):
        os.close(os.open(name, os.O_RDONLY))


def remove_files(work: dict[str, Any], _seed: int) -> None:
    """The same, deleted, with their directory."""
    for name in _names(work, "f"):
        os.unlink(name)
    os.rmdir(work["path"])


def upload(work: dict[str, Any], seed: int) -> dict[str, float]:
    """Files from memory, each synced. The clock runs from the opening of a file to its closing: what the system writes out while
    a program does something else would be measured by nobody.
    """
    os.mkdir(work["path"])
    times = []
    for number in range(work["count"]):
        name = os.path.join(work["path"], b"%06d" % number)
        pieces = blocks(seed, work["path"], number, work["size_bytes"])
        first = next(pieces, b"")
        begin = time.monotonic()
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        for piece in chain((first,), pieces):
            written = 0
            while written < len(piece):
                written += os.write(descriptor, piece[written:])
        os.fsync(descriptor)
        os.close(descriptor)
        times.append(time.monotonic() - begin)
    return _rates(times, work)


def download(work: dict[str, Any], seed: int) -> dict[str, float]:
    """The same files into memory, as fast as they come: the system would read ahead while digests are made. These are made
    afterwards, of what a second look at the file says. Raises ValueError where their content is another one.
    """
    times = []
    buffer = bytearray(BLOCK_BYTES)
    for number in range(work["count"]):
        name = os.path.join(work["path"], b"%06d" % number)
        begin = time.monotonic()
        descriptor = os.open(name, os.O_RDONLY)
        while os.readv(descriptor, [buffer]):
            pass
        os.close(descriptor)
        times.append(time.monotonic() - begin)
        if _digest(name, buffer) != _digest_of_blocks(blocks(seed, work["path"], number, work["size_bytes"])):
            raise ValueError(
                f"file {number} of {os.fsdecode(work['path'])} came back with another content than was written"
            )
    return _rates(times, work)


def _digest(name: bytes, buffer: bytearray) -> bytes:
    found = hashlib.blake2b()
    descriptor = os.open(name, os.O_RDONLY)
    while count := os.readv(descriptor, [buffer]):
        found.update(memoryview(buffer)[:count])
    os.close(descriptor)
    return found.digest()


def _digest_of_blocks(pieces: Iterable[memoryview]) -> bytes:
    wanted = hashlib.blake2b()
    for piece in pieces:
        wanted.update(piece)
    return wanted.digest()


def _rates(times: list[float], work: dict[str, Any]) -> dict[str, float]:
    size = work["size_bytes"]
    rates = [size / max(spent, 1e-9) for spent in times]
    return {
        "busy_s": sum(times),
        "slowest_file_bytes_per_s": min(rates),
        "fastest_file_bytes_per_s": max(rates),
    }


def read_again(work: dict[str, Any], _seed: int) -> dict[str, float]:
    """Readers are processes: threads of this interpreter would wait for one another."""
    pipes = []
    for _ in range(work["threads"]):
        reading, writing = os.pipe()
        parent = os.getpid()
        if os.fork() == 0:
            try:
                die_with(parent)
                with os.fdopen(writing, "w") as out:
                    json.dump(_read_for(work["path"], work["duration_s"]), out)
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writing)
        pipes.append(reading)
    buckets: dict[int, int] = {}
    count, total, largest = 0, 0.0, 0.0
    for reading in pipes:
        with os.fdopen(reading) as answer:
            found = json.loads(answer.read() or "{}")
        if not found.get("count"):
            raise ValueError("a reader ended without having read the file")
        for bucket, number in found["buckets"]:
            buckets[bucket] = buckets.get(bucket, 0) + number
        count, total, largest = count + found["count"], total + found["total_s"], max(largest, found["largest_s"])
    for _ in pipes:
        os.wait()
    details = {"mean_ms": 1000 * total / count, "max_ms": 1000 * largest, "reads": float(count)}
    for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("p999_ms", 0.999)):
        details[name] = min(_percentile(buckets, count, share), details["max_ms"])
    return details


def _read_for(path: bytes, duration: float) -> dict[str, Any]:
    buckets: dict[int, int] = {}
    count, total, largest = 0, 0.0, 0.0
    end = time.monotonic() + duration
    while True:
        begin = time.perf_counter()
        descriptor = os.open(path, os.O_RDONLY)
        while os.read(descriptor, BLOCK_BYTES):
            pass
        os.close(descriptor)
        spent = time.perf_counter() - begin
        bucket = math.ceil(math.log2(max(spent, 1e-9)) * _STEPS)
        buckets[bucket] = buckets.get(bucket, 0) + 1
        count, total, largest = count + 1, total + spent, max(largest, spent)
        if time.monotonic() >= end:
            return {"buckets": list(buckets.items()), "count": count, "total_s": total, "largest_s": largest}


def _percentile(buckets: dict[int, int], count: int, share: float) -> float:
    seen = 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= share * count:
            break
    return 1000 * 2 ** (bucket / _STEPS)


def remove(work: dict[str, Any], _seed: int) -> None:
    """What a pattern matches in the work directory."""
    pattern = os.fsdecode(work["path"])
    for name in os.listdir("."):
        if fnmatch.fnmatchcase(name, pattern):
            if os.path.isdir(name) and not os.path.islink(name):
                shutil.rmtree(name)
            else:
                os.unlink(name)


_WORK: dict[str, Callable[[dict[str, Any], int], dict[str, float] | None]] = {
    "tree": make_tree,
    "sources": make_sources,
    "archive": make_archive,
    "prints": prints,
    "one-write": one_write,
    "make-directories": make_directories,
    "remove-directories": remove_directories,
    "make-files": make_files,
    "open-files": open_files,
    "remove-files": remove_files,
    "read-again": read_again,
    "upload": upload,
    "download": download,
    "remove": remove,
}
