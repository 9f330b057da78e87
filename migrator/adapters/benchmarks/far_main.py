"""The entry of the script: one question as JSON on standard input, one answer as JSON on standard output."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from migrator.adapters.benchmarks import far_lanes, far_work

_SECTOR_BYTES = 512
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> None:
    """Answer. What the file system refuses is an answer too."""
    request = json.loads(sys.stdin.buffer.read())
    os.umask(0o077)
    # What programs say is for this script: not in anybody's language.
    os.environ.update(LC_ALL="C", PATH=os.environ.get("PATH") or _PATH)
    if request.get("dies_with") is not None:
        far_work.die_with(request["dies_with"])
    try:
        answer = _ANSWERS[request["do"]](request)
    except OSError as error:
        answer = {"problem": f"{error.strerror or error}: {os.fsdecode(error.filename or '')}"}
    except ValueError as error:
        answer = {"problem": str(error)}
    json.dump(answer, sys.stdout)


def look(request: dict[str, Any]) -> dict[str, Any]:
    """What the file system is, what room it has, what was left in it, and which programs the host has."""
    root = _bytes(request["root"])
    # A file would do for statvfs, and fail in the middle.
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
        "is_root": os.geteuid() == 0,
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


def _own_path(request: dict[str, Any]) -> bytes:
    return os.path.join(_bytes(request["root"]), _bytes(request["own"]))


def _opened_own(request: dict[str, Any]) -> int | None:
    """The directory of benchmarks, opened; None where there is none. Raises ValueError for one that others can change.

    From there on everything goes by descriptors and relative names: nobody else can change what lies in it, but its own name
    may be exchanged at any time by whoever may write in the root.
    """
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


def _enter(descriptor: int, *names: str) -> None:
    """Be in a directory below an opened one, which is closed."""
    os.fchdir(descriptor)
    os.close(descriptor)
    for name in names:
        descriptor = os.open(os.fsencode(name), _DIRECTORY)
        os.fchdir(descriptor)
        os.close(descriptor)


def _enter_own(request: dict[str, Any], *names: str) -> None:
    own = _opened_own(request)
    if own is None:
        raise ValueError(f"{os.fsdecode(_own_path(request))} is not there any more")
    _enter(own, *names)


def make(request: dict[str, Any]) -> dict[str, Any]:
    """The work directory."""
    own = _opened_own(request)
    if own is None:
        # Another host may make it at the same time.
        with contextlib.suppress(FileExistsError):
            os.mkdir(_own_path(request), 0o700)
        _enter_own(request)
    else:
        _enter(own)
    os.makedirs(os.path.join(request["name"], request["part"]), exist_ok=True)
    return {}


def remove(request: dict[str, Any]) -> dict[str, Any]:
    """The work directory with everything in it, and the one above where it is empty then."""
    own = _opened_own(request)
    if own is None:
        return {}
    _enter(own)
    if os.path.lexists(request["name"]):
        shutil.rmtree(request["name"])
    # Others may be at work in it, or have left something.
    with contextlib.suppress(OSError):
        os.rmdir(_own_path(request))
    return {}


def background(request: dict[str, Any]) -> dict[str, Any]:
    """What disks, network and processors do while this waits."""
    disks, network, begin = _disks(), _network(), time.monotonic()
    time.sleep(request["span_s"])
    span = max(time.monotonic() - begin, 1e-9)
    return {
        "span_s": span,
        "load_average": _load(),
        "disk_bytes_per_s": _rate(disks, _disks(), span),
        "network_bytes_per_s": _rate(network, _network(), span),
    }


def _rate(before: int | None, after: int | None, span: float) -> float | None:
    return None if before is None or after is None else max(0, after - before) / span


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _disks() -> int | None:
    try:
        with open("/proc/diskstats") as file:
            lines = [line.split() for line in file]
    except OSError:
        return None
    # Partitions, and what lies on other devices, would count twice.
    whole = [line for line in lines if os.path.exists(f"/sys/block/{line[2]}") and not _is_upper(line[2])]
    return sum(int(line[5]) + int(line[9]) for line in whole) * _SECTOR_BYTES


def _is_upper(name: str) -> bool:
    return name.startswith(("loop", "ram", "zram")) or bool(_entries(f"/sys/block/{name}/slaves"))


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _network() -> int | None:
    try:
        with open("/proc/net/dev") as file:
            return network_bytes(file.readlines()[2:], _lies_on_others)
    except OSError:
        return None


def network_bytes(lines: Iterable[str], lies_on_others: Callable[[str], bool]) -> int:
    """What all devices have received and sent, by their lines in /proc/net/dev, each byte once: bonds, bridges and VLANs lie on
    other devices.
    """
    parts = [line.partition(":") for line in lines]
    fields = [right.split() for left, _, right in parts if left.strip() != "lo" and not lies_on_others(left.strip())]
    return sum(int(one[0]) + int(one[8]) for one in fields)


def _lies_on_others(name: str) -> bool:
    return any(entry.startswith("lower_") for entry in _entries(f"/sys/class/net/{name}"))


def drop(request: dict[str, Any]) -> dict[str, Any]:
    """Everything written out, and nothing kept in memory but the programs: how long they take to load is not asked."""
    _enter_own(request, request["name"])
    far_lanes.sync(".")
    dropped = far_lanes.drop_caches()
    for program in request["programs"]:
        far_lanes.load(program)
    return {"dropped": dropped}


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """One step."""
    _enter_own(request, request["name"], request["part"])
    lanes = [_lane(lane) for lane in request["lanes"]]
    return far_lanes.perform(lanes, request["seed"], request["start_at"], request["synced"])


def _lane(lane: dict[str, Any]) -> dict[str, Any]:
    if "argv" in lane:
        return {"argv": [_bytes(argument) for argument in lane["argv"]], "report": lane["report"]}
    return {**lane, "path": _bytes(lane["path"])}


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


_ANSWERS = {"look": look, "make": make, "remove": remove, "background": background, "drop": drop, "perform": perform}
