"""The entry of the script: one question as JSON on standard input, one answer as JSON on standard output."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from migrator.adapters.benchmarks import far_lanes, far_work

_SECTOR_BYTES = 512
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
    own = os.path.join(root, _bytes(request["own"]))
    return {
        "filesystem": _filesystem(os.path.realpath(root)),
        "free_bytes": found.f_bavail * found.f_frsize,
        "free_inodes": found.f_favail if found.f_files else None,
        "is_root": os.geteuid() == 0,
        "left": sorted(os.listdir(os.fsdecode(own))) if _is_ours(own) else [],
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


def _is_ours(own: bytes) -> bool:
    """Whether the directory of benchmarks is there. Raises ValueError for one that others can change."""
    try:
        found = os.lstat(own)
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ValueError(f"{os.fsdecode(own)} is not a directory that only this user can enter: move it away")
    return True


def _place(request: dict[str, Any]) -> tuple[bytes, bytes]:
    own = os.path.join(_bytes(request["root"]), _bytes(request["own"]))
    return own, os.path.join(own, os.fsencode(request["name"]))


def make(request: dict[str, Any]) -> dict[str, Any]:
    """The work directory."""
    own, place = _place(request)
    if not _is_ours(own):
        try:
            os.mkdir(own, 0o700)
        except FileExistsError:
            # Another host has made it meanwhile.
            _is_ours(own)
    os.makedirs(os.path.join(place, os.fsencode(request["part"])), exist_ok=True)
    return {}


def remove(request: dict[str, Any]) -> dict[str, Any]:
    """The work directory with everything in it, and the one above where it is empty then."""
    own, place = _place(request)
    if _is_ours(own):
        if os.path.lexists(place):
            shutil.rmtree(place)
        try:
            os.rmdir(own)
        except OSError:
            # Others are at work in it, or have left something.
            return {}
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
    _, place = _place(request)
    far_lanes.sync(place)
    dropped = far_lanes.drop_caches()
    for program in request["programs"]:
        far_lanes.load(program)
    return {"dropped": dropped}


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """One step."""
    _, place = _place(request)
    os.chdir(os.path.join(place, os.fsencode(request["part"])))
    lanes = [_lane(lane) for lane in request["lanes"]]
    return far_lanes.perform(lanes, request["seed"], request["start_at"], request["synced"])


def _lane(lane: dict[str, Any]) -> dict[str, Any]:
    if "argv" in lane:
        return {"argv": [_bytes(argument) for argument in lane["argv"]], "report": lane["report"]}
    return {**lane, "path": _bytes(lane["path"])}


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


_ANSWERS = {"look": look, "make": make, "remove": remove, "background": background, "drop": drop, "perform": perform}
