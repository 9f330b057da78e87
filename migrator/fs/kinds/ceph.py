"""CephFS: room of the data pool, state of MDS and placement groups, by `ceph` (Ceph 16 and later)."""

import json
from collections.abc import Sequence
from typing import Any

from migrator.fs.kinds.model import (
    FileSystemKind,
    FileSystemReport,
    Malformed,
    MountedDirectory,
    Property,
    Question,
    member,
    number,
)
from migrator.fs.model import Capacity

_BROKEN = frozenset(
    {
        *("FS_DEGRADED", "FS_WITH_FAILED_MDS", "MDS_ALL_DOWN", "MDS_DAMAGE", "PG_AVAILABILITY", "PG_DAMAGED"),
        *("OBJECT_UNFOUND", "OSD_FULL", "POOL_FULL"),
    }
)
"""Health checks with which names or content are missing, or writes block. Others (a daemon less, slow requests, old
clients) do not change what is shown."""
_DEGRADED = frozenset({"OSD_DOWN", "OSD_HOST_DOWN"})
"""Ceph reports placement groups without a running copy some seconds later."""
_ENDLESS = 1 << 62
_JSON = ("--connect-timeout", "10", "--format", "json")


def _document(output: bytes) -> Any:  # noqa: ANN401 -- any JSON
    try:
        return json.loads(output)
    except ValueError:
        raise Malformed("the answer is no JSON") from None


def parse_room(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """`max_avail` of the pool that new files of the directory go to, after copies and for its fullest OSD; without a layout
    the first data pool of the only file system. Inodes are not limited.
    """
    pools, systems = member(_document(outputs[0]), "pools"), _document(outputs[1])
    name = outputs[2].decode("utf-8", "replace").strip()
    if not name:
        if len(systems) != 1:
            raise Malformed(f"there are {len(systems)} file systems, and the directory's layout names no pool")
        name = str(member(systems, 0, "data_pools", 0))
    pool = next((one for one in pools if member(one, "name") == name), None)
    if pool is None:
        raise Malformed(f"`ceph df` names no pool {name}")
    free, stored = (number(str(member(pool, "stats", key)), key) for key in ("max_avail", "stored"))
    return FileSystemReport(
        room=Capacity(total_bytes=free + stored, free_bytes=free, total_inodes=_ENDLESS, free_inodes=_ENDLESS),
        notes=(f"new files go to the pool {name}; inodes are not limited",),
    )


def parse_health(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """The checks that make the view partial. Raises Malformed."""
    document = _document(outputs[0])
    checks = member(document, "checks")
    if not isinstance(checks, dict):
        raise Malformed("the checks of `ceph health` are no table")
    words = {name: f"Ceph {name}: {member(one, 'summary', 'message')}" for name, one in checks.items()}
    return FileSystemReport(
        problems=tuple(text for name, text in words.items() if name in _BROKEN),
        doubts=tuple(text for name, text in words.items() if name in _DEGRADED),
        notes=tuple(text for name, text in words.items() if name not in _BROKEN | _DEGRADED),
    )


def parse_layout(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """The layout of a directory, as `getfattr` shows it."""
    printed = outputs[0].decode("utf-8", "replace").strip()
    return FileSystemReport(notes=(f"new files get the layout {printed}",) if printed else ())


def _layout(attribute: str, place: MountedDirectory) -> tuple[str | bytes, ...]:
    return ("getfattr", "--absolute-names", "--only-values", "-n", attribute, place.root)


def _pool(place: MountedDirectory) -> tuple[str | bytes, ...]:
    return _layout("ceph.dir.layout.pool", place)


def _whole(place: MountedDirectory) -> tuple[str | bytes, ...]:
    return _layout("ceph.dir.layout", place)


CEPHFS = FileSystemKind(
    name="cephfs",
    title="CephFS",
    types=("ceph", "fuse.ceph-fuse", "fuse.ceph"),
    # Linux 5.19: "ceph: disable updating the atime since cephfs won't maintain it".
    atimes=Property(holds=False, why="CephFS does not maintain access times"),
    partial="without its MDS everything hangs; damaged metadata loses names, inactive placement groups block reads",
    layouts="new files get the layout of their directory (`setfattr -n ceph.dir.layout`); that of each file is not copied",
    room=Question(
        commands=(lambda _: ("ceph", "df", *_JSON), lambda _: ("ceph", "fs", "ls", *_JSON), _pool),
        parse=parse_room,
        last_may_fail=True,
    ),
    health=Question(commands=(lambda _: ("ceph", "health", "detail", *_JSON),), parse=parse_health),
    layout=Question(commands=(_whole,), parse=parse_layout, last_may_fail=True),
    environment=("CEPH_CONF", "CEPH_ARGS", "CEPH_KEYRING"),
)
