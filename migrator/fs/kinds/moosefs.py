"""MooseFS: room, missing chunks and lost chunkservers by `mfscli`, asked at the master of the mount (MooseFS 3)."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from migrator.core.units import several
from migrator.fs.kinds.model import FileSystemKind, FileSystemReport, Malformed, MountedDirectory, Question, number
from migrator.fs.model import Capacity


def _asked(place: MountedDirectory, *questions: str) -> Sequence[str | bytes]:
    """A mount's source is `mfs#HOST:PORT`, in MooseFS 4 `HOST:PORT`."""
    host, _, port = place.mounted_from.rpartition(b"#")[2].partition(b":")
    return (
        "mfscli",
        "-H",
        host or b"mfsmaster",
        "-P",
        port.split(b"/")[0] or b"9421",
        "-n",
        "-p",
        "-s",
        "|",
        *questions,
    )


def _values(output: bytes, heading: str) -> dict[str, str]:
    """The lines `heading:|name|value`."""
    lines = (line.split("|") for line in output.decode("utf-8", "replace").split("\n"))
    return {fields[1]: fields[2] for fields in lines if fields[0] == heading and len(fields) == 3}


def parse_room(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """The space by the master is that of all copies: it is divided by the goal of the directory. Raises Malformed."""
    reported = _values(outputs[0], "master info:")
    total, free = (number(reported.get(key), key) for key in ("total space", "avail space"))
    goal = re.search(rb": (\d+)\s*$", outputs[1])
    if goal is None or not int(goal[1]):
        raise Malformed("`mfsgetgoal` names no goal")
    room = Capacity(total_bytes=total, free_bytes=free, total_inodes=None, free_inodes=None)
    copies = int(goal[1])
    return FileSystemReport(
        room=replace(room, total_bytes=total // copies, free_bytes=free // copies),
        notes=(f"new files have {copies} {'copy' if copies == 1 else 'copies'}",),
    )


def parse_health(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """Chunks without any copy, and chunkservers that are gone. Raises Malformed."""
    missing = number(_values(outputs[0], "all chunks matrix:").get("chunkclass missing:"), "chunkclass missing")
    lines = [line.split("|") for line in outputs[1].decode("utf-8", "replace").split("\n")]
    gone = [":".join(fields[1:3]) for fields in lines if fields[0] == "Disconnected chunk servers:" and len(fields) > 2]
    if not any(fields[0] == "chunk servers:" for fields in lines) and not gone:
        raise Malformed("`mfscli -SCS` names no chunkserver")
    problems = [f"MooseFS: {several(missing, 'chunk has', 'chunks have')} no copy"] if missing else []
    return FileSystemReport(
        problems=tuple(problems),
        doubts=tuple(f"MooseFS: chunkserver {name} is disconnected" for name in gone),
    )


MOOSEFS = FileSystemKind(
    name="moosefs",
    title="MooseFS",
    types=("fuse.mfs", "fuse.mfsmount"),
    fuse_source="mfs#",
    partial="a file whose chunks have no copy is listed with its size, and cannot be read",
    layouts="new files get the storage class (goal) of their directory; that of each file is not copied",
    room=Question(
        commands=(lambda place: _asked(place, "-SIG"), lambda place: ("mfsgetgoal", place.root)), parse=parse_room
    ),
    health=Question(
        commands=(lambda place: _asked(place, "-SIC"), lambda place: _asked(place, "-SCS")), parse=parse_health
    ),
)
