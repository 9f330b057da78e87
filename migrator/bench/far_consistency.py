"""The functions of the suite `consistency` on hosts: they change files that several clients share, or check what one of
them sees.

Plain Python 3.9, part of the script of `bench`. Each works in the shared directory of a benchmark and returns what it
saw; a path is looked up and opened anew each time, as by a program that has just started.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

STATES = ("nothing", "create", "append", "replace", "rename", "unlink")
"""What the files of a directory go through. A check is named for the state that it expects."""
_RECORD_BYTES = 64
_EVIDENCE = 5
"""How many of the things that were seen wrong are listed; all are counted."""
_POLL_S = 0.05
_RACE_EVERY_S = 0.004

Problems = dict[str, str]
"""What is wrong, by name."""


def watch(
    names: Collection[str],
    check: Callable[[Collection[str]], Problems],
    patience_ms: int,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Look at these names, and again at those that are wrong until all are right or the patience is over. What was wrong
    only at first is `late`, by `seconds`; what stays so is `wrong`.
    """
    begin = time.monotonic()
    first = left = check(names)
    seconds = 0.0
    while left and seconds < patience_ms / 1000:
        # Longer each time: clients keep alive what they know of a file as long as it is used.
        pause(max(_POLL_S, seconds / 2))
        left = check(left)
        seconds = time.monotonic() - begin
    late = {name: problem for name, problem in first.items() if name not in left}
    findings = [f"{name}: {problem}" for name, problem in left.items()]
    findings += [f"{name}: {problem}; right within {seconds:.1f} s" for name, problem in late.items()]
    kinds = Counter(problem.partition(":")[0] for problem in left.values())
    evidence = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(_EVIDENCE))
    return {
        "checked": len(names),
        "late": len(late),
        "wrong": len(left),
        "seconds": seconds,
        "evidence": ([f"for good: {evidence}"] if evidence else []) + findings[:_EVIDENCE],
    }


def _named(code: OSError) -> str:
    return errno.errorcode.get(code.errno or 0, str(code.errno))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, content: bytes) -> None:
    """Write a new file beside, close it, and rename it to its name."""
    with open(f"{path}.tmp", "xb") as file:
        file.write(content)
    os.rename(f"{path}.tmp", path)


def _content(path: str, generation: int) -> bytes:
    line = f"{path} {generation}\n".encode("ascii")
    return line * (1 + zlib.crc32(line) % 200)


# -- one client changes files, the others see it


def _wanted(path: str, state: str, count: int) -> Mapping[str, bytes | None]:
    """The content of every name in a state; None: there is no such file."""
    found: dict[str, bytes | None] = {}
    for number in range(count):
        old, new = f"f{number}", f"g{number}"
        first, second, third = (_content(f"{path}/{old}", generation) for generation in range(3))
        contents = {"create": first, "append": first + second, "replace": third}
        found[old], found[new] = contents.get(state), third if state == "rename" else None
    return found


def change(_seed: int, path: str, number: int, count: int) -> None:
    """Bring the files of a directory into a state, from the one before."""
    state = STATES[number]
    if state == "nothing":
        os.mkdir(path)
        return
    for file_number in range(count):
        old, new = f"{path}/f{file_number}", f"{path}/g{file_number}"
        if state in ("create", "append"):
            with open(old, "xb" if state == "create" else "ab") as file:
                file.write(_content(old, 0 if state == "create" else 1))
        elif state == "replace":
            _write(old, _content(old, 2))
        elif state == "rename":
            os.rename(old, new)
        else:
            os.unlink(new)


def see(_seed: int, path: str, number: int, count: int, patience_ms: int) -> dict[str, Any]:
    """Whether every file of a directory is listed, has its size, and is read as that state has it."""
    return _see_files(path, _wanted(path, STATES[number], count), patience_ms)


def _see_files(path: str, wanted: Mapping[str, bytes | None], patience_ms: int) -> dict[str, Any]:
    def check(names: Collection[str]) -> Problems:
        found = {name: _problem(f"{path}/{name}", wanted[name]) for name in names}
        # Last: a client of GlusterFS that lists a directory keeps alive what it knows of the files.
        try:
            listed = set(os.listdir(path))
        except OSError as error:
            return dict.fromkeys(names, f"missing: {_named(error)} from the listing of its directory")
        for name in names:
            if not found[name] and (name in listed) is not (wanted[name] is not None):
                found[name] = "stale: is gone, and still listed" if name in listed else "missing: not listed"
        return {name: problem for name, problem in found.items() if problem}

    return watch(wanted, check, patience_ms)


def _problem(path: str, wanted: bytes | None) -> str:
    """What is wrong when it is opened."""
    try:
        size = os.stat(path).st_size
        content = _read(path)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return "" if wanted is None else "missing: ENOENT"
        return f"failed: {_named(error)}"
    if wanted is None:
        return "stale: is gone, and is still opened"
    if content != wanted:
        kind = "short" if wanted.startswith(content) else "wrong"
        shorter = min(len(content), len(wanted))
        same = next((at for at in range(shorter) if content[at] != wanted[at]), shorter)
        return f"{kind}: {len(content)} bytes instead of {len(wanted)}, the first {same} are right"
    return "" if size == len(wanted) else f"stale: stat has {size} bytes, {len(wanted)} are read"


# -- a name that is replaced is never missing


def replace(_seed: int, path: str, first: int, last: int) -> None:
    """Rename new files over one name, again and again."""
    for generation in range(first, last + 1):
        _write(path, _content(path, generation))


def keep_reading(_seed: int, path: str, ready: str, last: int, patience_ms: int) -> dict[str, Any]:
    """Open and read one name until it has the last content. Each time it must have the content of a generation whole, and
    none older than before.
    """
    contents = {_content(path, generation): generation for generation in range(last + 1)}
    findings: Counter[str] = Counter()
    newest = reads = 0
    since = time.monotonic()
    while reads == 0 or (newest < last and time.monotonic() - since < patience_ms / 1000):
        try:
            content = _read(path)
        except OSError as error:
            findings[f"{_named(error)} while it was replaced"] += 1
        else:
            generation = contents.get(content, -1)
            if generation < 0:
                findings[f"{len(content)} bytes that were never there"] += 1
            elif generation < newest:
                findings["older content after newer"] += 1
            elif generation > newest:
                newest, since = generation, time.monotonic()
        if reads == 0:
            _write(ready, b"")
        reads += 1
    if newest < last:
        findings["the last content was never seen"] += 1
    wrong = sum(findings.values())
    evidence = [f"{path}: {words} ({times} of {reads} reads)" for words, times in findings.most_common(_EVIDENCE)]
    return {"checked": reads, "wrong": wrong, "evidence": evidence}


# -- all append to one file


def _record(lane: int, number: int) -> bytes:
    return f"record {number} of writer {lane} ".encode("ascii").ljust(_RECORD_BYTES - 1, b".") + b"\n"


def append(_seed: int, path: str, lane: int, count: int) -> None:
    """Append records, each by one write to a file that was opened with O_APPEND."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in range(count):
        if os.write(descriptor, _record(lane, number)) != _RECORD_BYTES:
            raise OSError(errno.EIO, "a record was written in part", path)
    os.close(descriptor)


def see_records(_seed: int, path: str, lanes: int, count: int, patience_ms: int) -> dict[str, Any]:
    """Whether the file holds every record once, and nothing else."""
    wanted = {
        _record(lane, number): f"{path}: record {number} of writer {lane}"
        for lane in range(lanes)
        for number in range(count)
    }

    def check(_names: Collection[str]) -> Problems:
        try:
            content = _read(path)
        except OSError as error:
            return dict.fromkeys(wanted.values(), f"failed: {_named(error)}")
        found = Counter(content[at : at + _RECORD_BYTES] for at in range(0, len(content), _RECORD_BYTES))
        problems = {
            name: "lost" if not found[one] else f"doubled: {found[one]} times"
            for one, name in wanted.items()
            if found[one] != 1
        }
        foreign = sum(times for one, times in found.items() if one not in wanted)
        return {**problems, **({path: f"overlapping: {foreign} records"} if foreign else {})}

    return {**watch(wanted.values(), check, patience_ms), "checked": len(wanted)}


# -- one of all gets it


def race(_seed: int, path: str, directories: int, count: int) -> dict[str, Any]:
    """Try to make every name, as the other hosts do at the same time; returns the error number of each, 0 if it was made
    here.
    """
    begin = time.monotonic()
    outcomes = {}
    for number in range(count):
        time.sleep(max(0.0, begin + number * _RACE_EVERY_S - time.monotonic()))
        name = f"{path}/{number}"
        try:
            if directories:
                os.mkdir(name)
            else:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            outcomes[name] = 0
        except OSError as error:
            outcomes[name] = error.errno or errno.EIO
    return {"outcomes": outcomes}


# -- locks


def _lock(path: str, whole_file: int) -> int:
    """Open a file and lock it: flock(2) if `whole_file`, otherwise fcntl(2). Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        (fcntl.flock if whole_file else fcntl.lockf)(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def hold(_seed: int, path: str, ready: str, whole_file: int) -> None:
    """Hold a lock until this process is ended. The file `ready` then has 0, or the number of the error."""
    code = 0
    try:
        _lock(path, whole_file)
    except OSError as error:
        code = error.errno or errno.EIO
    _write(ready, str(code).encode("ascii"))
    while not code:
        signal.pause()


def wait_for(_seed: int, ready: str, patience_ms: int) -> dict[str, Any]:
    """Wait for a file that another process of this host makes when it is ready; its number is an error."""
    code = b""

    def check(names: Collection[str]) -> Problems:
        nonlocal code
        try:
            code = _read(ready)
        except OSError as error:
            return dict.fromkeys(names, f"{_named(error)}: it did not begin")
        return {}

    found = watch([ready], check, patience_ms)
    failed = int(code or b"0")
    evidence = [*found["evidence"], *([f"{ready}: {errno.errorcode.get(failed, failed)}"] if failed else [])]
    wrong = found["wrong"] + (failed != 0)
    return {"checked": 1, "wrong": wrong, "evidence": evidence if wrong else []}


def lock(_seed: int, path: str, whole_file: int, refused: int, patience_ms: int) -> dict[str, Any]:
    """Whether a lock that another host holds is refused; or, when it was released, is granted."""

    def check(names: Collection[str]) -> Problems:
        try:
            os.close(_lock(path, whole_file))
        # fcntl(2) refuses by EACCES on some systems.
        except (BlockingIOError, PermissionError):
            return {} if refused else dict.fromkeys(names, "refused: after its release")
        except OSError as error:
            return dict.fromkeys(names, f"failed: {_named(error)}")
        return dict.fromkeys(names, "granted: although another host holds it") if refused else {}

    return watch([f"{path}: the lock"], check, 0 if refused else patience_ms)


# -- hundreds of small writers


def _small(path: str, writer: int, each: int) -> Mapping[str, bytes]:
    names = [f"w{writer}-{number}" for number in range(each)]
    return {name: _content(f"{path}/{name}", 0) for name in names}


def write_small(_seed: int, path: str, writer: int, each: int) -> dict[str, Any]:
    """Write, close and rename small files; returns the error number of each that failed."""
    outcomes = {}
    for name, content in _small(path, writer, each).items():
        try:
            _write(f"{path}/{name}", content)
        except OSError as error:
            outcomes[name] = error.errno or errno.EIO
            with contextlib.suppress(OSError):
                os.unlink(f"{path}/{name}.tmp")
    return {"outcomes": outcomes}


def see_small(_seed: int, path: str, writers: int, each: int, patience_ms: int) -> dict[str, Any]:
    """Whether the files of all writers are listed and read whole."""
    wanted = {name: content for writer in range(writers) for name, content in _small(path, writer, each).items()}
    return _see_files(path, wanted, patience_ms)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "@change": change,
    "@see": see,
    "@replace": replace,
    "@keep-reading": keep_reading,
    "@append": append,
    "@see-records": see_records,
    "@race": race,
    "@hold": hold,
    "@wait-for": wait_for,
    "@lock": lock,
    "@write-small": write_small,
    "@see-small": see_small,
}
