"""The script of `bench` for hosts: one question as JSON on standard input, one answer as JSON on standard output.

Standard library of Python 3.9 only. Works by descriptors and relative names in the directory of benchmarks, which only
this user can change: users who can write to the root above may rename that directory at any time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import math
import os
import random
import shutil
import signal
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from migrator.bench import far_consistency

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SET_DEATH_SIGNAL = 1
_KEPT_BYTES = 1 << 20
_STDERR_BYTES = 2000
_BLOCK_BYTES = 1 << 20
_RARE = b"zyzzyva\n"
"""The text to search for: one file contains it."""
_BUCKETS = 32
"""Buckets of latencies in each doubling: percentiles are exact to 2 %."""

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Answer the question. An error of the file system is an answer too."""
    request = json.loads(sys.stdin.buffer.read())
    os.umask(0o077)
    # This script parses the output of programs, so it must not be translated.
    os.environ.update(LC_ALL="C", PATH=os.environ.get("PATH") or _PATH)
    if request.get("dies_with") is not None:
        _die_with(request["dies_with"])
    try:
        answer = _ANSWERS[request["do"]](request)
    except OSError as error:
        answer = {"problem": f"{error.strerror or error}: {os.fsdecode(error.filename or '')}"}
    except ValueError as error:
        answer = {"problem": str(error)}
    json.dump(answer, sys.stdout)


def _die_with(parent: int) -> None:
    """End when the parent process ends."""
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


# -- the directory of benchmarks


def read_root(request: dict[str, Any]) -> dict[str, Any]:
    """The file system, its room, leftovers in it, and which programs the host has."""
    root = _root(request)
    # statvfs accepts a file too, and later steps would fail.
    if not os.path.isdir(root):
        raise ValueError(f"there is no directory {os.fsdecode(root)}; name one of a file system that is mounted there")
    found = os.statvfs(root)
    own = _opened_own(request)
    left = []
    if own is not None:
        left = sorted(os.listdir(own))
        os.close(own)
    return {
        "device": os.stat(root).st_dev,
        "filesystem": _filesystem(os.path.realpath(root)),
        "free_bytes": found.f_bavail * found.f_frsize,
        "free_inodes": found.f_favail if found.f_files else None,
        "left": left,
        "programs": [name for name in request["programs"] if shutil.which(name)],
    }


def _filesystem(root: bytes) -> str:
    best, kind = b"", ""
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            left, _, right = line.partition(b" - ")
            point = left.split(b" ")[4].decode("unicode_escape").encode("latin-1")
            if (root == point or root.startswith(point.rstrip(b"/") + b"/")) and len(point) >= len(best):
                best, kind = point, right.split(b" ")[0].decode("ascii", "replace")
    return kind


def _root(request: dict[str, Any]) -> bytes:
    root: str = request["root"]
    return root.encode("latin-1")


def _own_path(request: dict[str, Any]) -> bytes:
    return os.path.join(_root(request), os.fsencode(request["own"]))


def _opened_own(request: dict[str, Any]) -> int | None:
    """The directory of benchmarks, opened; None if there is none. Raises ValueError if others can change it."""
    own = _own_path(request)
    problem = f"{os.fsdecode(own)} is not a directory that only this user can enter: move it away"
    try:
        descriptor = os.open(own, _DIRECTORY)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise ValueError(problem) from None
        raise
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(descriptor)
        raise ValueError(problem)
    return descriptor


def _enter(request: dict[str, Any], *names: str) -> None:
    """Change to the directory of benchmarks, or to one below it."""
    descriptor = _opened_own(request)
    if descriptor is None:
        raise ValueError(f"{os.fsdecode(_own_path(request))} is not there any more")
    os.fchdir(descriptor)
    os.close(descriptor)
    for name in names:
        descriptor = os.open(os.fsencode(name), _DIRECTORY)
        os.fchdir(descriptor)
        os.close(descriptor)


def make(request: dict[str, Any]) -> dict[str, Any]:
    """Make the work directory; returns the load of the host before it is used."""
    # Another host may create it at the same time.
    with contextlib.suppress(FileExistsError):
        os.mkdir(_own_path(request), 0o700)
    _enter(request)
    os.makedirs(os.path.join(request["name"], request["part"]), exist_ok=True)
    return {"load_average": os.getloadavg()[0]}


def remove(request: dict[str, Any]) -> dict[str, Any]:
    """Remove the work directory with everything in it, and its parent if that is empty then."""
    if not os.path.lexists(_own_path(request)):
        return {}
    _enter(request)
    # Another host may have removed it, and this one still lists it.
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(request["name"])
    # Other hosts may work in it, or have left something.
    with contextlib.suppress(OSError):
        os.rmdir(_own_path(request))
    return {}


# -- the host


def drop(request: dict[str, Any]) -> dict[str, Any]:
    """Sync, and drop pages, names and inodes from this host's memory, if permitted; then load the programs of the
    step, so that loading them is not measured.
    """
    _enter(request, request["name"])
    _sync()
    dropped = True
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3\n")
    except OSError:
        dropped = False
    for argv in request["warm"]:
        _lanes([argv], 0, None)
    return {"dropped": dropped}


def _sync() -> None:
    """Return when all data of this directory's file system are on its disks. Raises OSError."""
    descriptor = os.open(".", os.O_RDONLY)
    try:
        if _libc.syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), ".")
    finally:
        os.close(descriptor)


# -- steps


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """Run all lanes of one step at once."""
    _enter(request, request["name"], request["part"])
    began_at, begin, lanes = _lanes(request["lanes"], request["seed"], request["start_at"])
    if request["synced"]:
        _sync()
    elapsed = time.monotonic() - begin
    kept = request["keeps_output"] or request["lanes"][0][0].startswith("@")
    return {
        "began_at_s": began_at,
        "elapsed_s": elapsed,
        "lanes": [{"problem": problem, "output": output if kept else ""} for problem, output in lanes],
    }


def _lanes(
    argvs: Sequence[Sequence[str]], seed: int, start_at: float | None
) -> tuple[float, float, list[tuple[str, str]]]:
    """Start processes together at a time of this host's clock (None: now); they end with this one. Returns their start
    by that clock and by the monotonic one, the reason of each failure (empty if there is none), and the output.
    """
    parent = os.getpid()
    go_read, go_write = os.pipe()
    started = []
    for argv in argvs:
        # Not /dev/null: grep would then stop at the first match.
        output, errors = os.memfd_create("output"), os.memfd_create("errors")
        pid = os.fork()
        if pid == 0:
            try:
                _die_with(parent)
                os.close(go_write)
                for number, descriptor in enumerate((os.open("/dev/null", os.O_RDONLY), output, errors)):
                    os.dup2(descriptor, number)
                os.read(go_read, 1)
                _lane(argv, seed)
            except (OSError, ValueError) as error:
                os.write(2, str(error).encode("utf-8", "backslashreplace"))
            finally:
                os._exit(127)
        started.append((argv[0], pid, output, errors))
    os.close(go_read)
    if start_at is not None:
        time.sleep(max(0.0, start_at - time.time()))
    began_at, begin = time.time(), time.monotonic()
    os.close(go_write)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for _, pid, _, _ in started]
    return began_at, begin, [_ended(code, *one) for code, one in zip(codes, started)]


def _lane(argv: Sequence[str], seed: int) -> None:
    if not argv[0].startswith("@"):
        os.execvp(argv[0], list(argv))  # noqa: S606 - no shell is wanted
    words = [int(word) if word.isdigit() else word for word in argv[1:]]
    details = _FUNCTIONS[argv[0]](seed, *words)
    os.write(1, json.dumps(details or {}).encode())
    os._exit(0)


def _ended(code: int, name: str, _pid: int, output: int, errors: int) -> tuple[str, str]:
    with open(output, "rb") as out, open(errors, "rb") as err:
        out.seek(0)
        err.seek(-min(_STDERR_BYTES, err.seek(0, os.SEEK_END)), os.SEEK_END)
        error_text = " ".join(err.read().decode("utf-8", "backslashreplace").split())
        return f"{name} ended with {code}: {error_text}" if code else "", out.read(_KEPT_BYTES).decode(
            "utf-8", "replace"
        )


# -- functions for steps without a command


def _text(seed: int) -> bytes:
    """Lines of words, the content of the files of trees."""
    source = random.Random(seed)
    words = ["".join(source.choices("etaoinshrdlucmfwpvbgkj", k=source.randint(2, 9))) for _ in range(2000)]
    return "".join(" ".join(source.choices(words, k=9)) + "\n" for _ in range(5000)).encode("ascii")


def _files(seed: int, count: int, directories: int, mean: int) -> Iterator[tuple[str, bytes]]:
    """The files of a tree: pairs of relative path and content."""
    source, text = random.Random(f"tree {seed}"), _text(seed)
    for number in range(count):
        size, begin = source.randrange(2 * mean + 1), source.randrange(len(text))
        content = (text[begin:] + text * (size // len(text) + 1))[:size]
        yield f"{_directory(number % directories)}/f{number:06d}.txt", (_RARE + content if number == 0 else content)


def _directory(number: int) -> str:
    """Nested directories, eight in each, as in a source tree."""
    return f"{_directory((number - 1) // 8)}/d{number}" if number else "d0"


def tree(seed: int, path: str, count: int, directories: int, mean: int) -> None:
    """A tree of files of words."""
    for name, content in _files(seed, count, directories, mean):
        full = f"{path}/{name}"
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "xb") as file:
            file.write(content)


def sources(seed: int, path: str, count: int) -> None:
    """C sources that include common headers, and a Makefile."""
    source = random.Random(f"sources {seed}")
    headers = range(8)
    files = {
        f"common{one}.h": "#pragma once\n"
        + "".join(f"struct s{one}_{field} {{ long a; struct s{one}_{field} *next; }};\n" for field in range(60))
        for one in headers
    }
    objects = [f"u{number:06d}" for number in range(count)]
    for name in objects:
        files[f"{name}.c"] = "".join(f'#include "common{one}.h"\n' for one in headers) + "".join(
            f"long {name}_{function}(struct s{source.choice(headers)}_{source.randrange(60)} *p, long n) {{\n"
            f"  long t = {source.randrange(1000)};\n"
            "  for (; p; p = p->next) { t = t * 31 + p->a; if (t > n) t -= n; }\n  return t;\n}\n"
            for function in range(6)
        )
    files["Makefile"] = (
        f"OBJECTS = {' '.join(f'{name}.o' for name in objects)}\nlibrary.a: $(OBJECTS)\n\t@rm -f $@ && ar qcS $@ $(OBJECTS)\n"
        "%.o: %.c\n\t@cc -O1 -c -o $@ $<\nclean:\n\t@rm -f library.a $(OBJECTS)\n"
    )
    os.mkdir(path)
    for name, content in files.items():
        with open(f"{path}/{name}", "x") as file:
            file.write(content)


def write(_seed: int, path: str, size: int, record: int) -> None:
    """Write `size` bytes of text in records, and sync. Smaller records go through a buffer of 8 KiB, as in Perl and
    about as in C. Not zeros: file systems may compress them or leave holes.
    """
    line = bytes(range(33, 127)) + b"abcde\n"
    text = (line * (record // len(line) + 1))[:record]
    with open(path, "xb", buffering=8192) as file:
        for _ in range(size // record):
            file.write(text)
        file.write(text[: size % record])
        file.flush()
        os.fsync(file.fileno())


def make_directories(_seed: int, path: str, count: int) -> None:
    """Make a directory with `count` subdirectories."""
    os.mkdir(path)
    for number in range(count):
        os.mkdir(f"{path}/{number:06d}")


def open_files(_seed: int, path: str, count: int) -> None:
    """Open and close the files that `create` made, without reading."""
    for number in range(count):
        os.close(os.open(f"{path}/{number:06d}", os.O_RDONLY))


def create(seed: int, path: str, count: int, most: int) -> None:
    """Make a new directory with files of random sizes up to `most` bytes."""
    os.mkdir(path)
    source = random.Random(seed)
    content = source.getrandbits(8 * most).to_bytes(most, "big") if most else b""
    for number in range(count):
        descriptor = os.open(f"{path}/{number:06d}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        if most:
            os.write(descriptor, content[: source.randint(0, most)])
        os.close(descriptor)


def _blocks(seed: int, count: int, size: int) -> Iterator[Iterator[memoryview]]:
    """The content of the files of a transfer, block by block. No two blocks are equal. Creating a block is part of the
    measured time, and costs hardly any. A block is valid until the next one is requested.
    """
    block = bytearray(random.Random(seed).getrandbits(8 * _BLOCK_BYTES).to_bytes(_BLOCK_BYTES, "big"))

    def content(number: int) -> Iterator[memoryview]:
        for at in range(0, size, _BLOCK_BYTES):
            block[:16] = number.to_bytes(8, "big") + at.to_bytes(8, "big")
            yield memoryview(block)[: size - at]

    for number in range(count):
        yield content(number)


def upload(seed: int, path: str, count: int, size: int) -> None:
    """Write files from memory, and sync each."""
    os.mkdir(path)
    for number, blocks in enumerate(_blocks(seed, count, size)):
        with open(f"{path}/{number:06d}", "xb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())


def download(_seed: int, path: str, count: int, _size: int) -> None:
    """Read the same files into memory, as fast as possible."""
    buffer = bytearray(_BLOCK_BYTES)
    for number in range(count):
        with open(f"{path}/{number:06d}", "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def compare(seed: int, path: str, count: int, size: int) -> None:
    """Compare their content. Raises ValueError if it differs from the written content."""
    for number, blocks in enumerate(_blocks(seed, count, size)):
        with open(f"{path}/{number:06d}", "rb") as file:
            if not all(file.read(len(block)) == block for block in blocks) or file.read(1):
                raise ValueError(f"file {number} of {path} came back with another content than was written")


def read_again(_seed: int, path: str, milliseconds: int) -> dict[str, float]:
    """Open, read and close one file until the time is over; returns each latency."""
    buckets: Counter[int] = Counter()
    total = largest = 0.0
    end = time.monotonic() + milliseconds / 1000
    while not buckets or time.monotonic() < end:
        begin = time.perf_counter()
        descriptor = os.open(path, os.O_RDONLY)
        while os.read(descriptor, _BLOCK_BYTES):
            pass
        os.close(descriptor)
        spent = time.perf_counter() - begin
        buckets[math.ceil(math.log2(max(spent, 1e-9)) * _BUCKETS)] += 1
        total, largest = total + spent, max(largest, spent)
    order = sorted(buckets)
    below = list(accumulate(buckets[bucket] for bucket in order))
    shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
    return {
        "mean_ms": 1000 * total / below[-1],
        "max_ms": 1000 * largest,
        "reads": below[-1],
        **{
            name: 1000 * min(2 ** (order[bisect_left(below, share * below[-1])] / _BUCKETS), largest)
            for name, share in shares.items()
        },
    }


_ANSWERS = {"read_root": read_root, "make": make, "remove": remove, "drop": drop, "perform": perform}
_FUNCTIONS: dict[str, Any] = {
    **far_consistency.FUNCTIONS,
    "@tree": tree,
    "@sources": sources,
    "@write": write,
    "@mkdir": make_directories,
    "@create": create,
    "@open": open_files,
    "@upload": upload,
    "@download": download,
    "@compare": compare,
    "@read-again": read_again,
}
