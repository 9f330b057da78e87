"""HDFS by FUSE (`fuse_dfs`): room, replication, quotas and missing blocks by `hdfs` (Hadoop 2.7 to 3)."""

import re
from collections.abc import Sequence

from migrator.core.units import format_count, format_size, several
from migrator.fs.kinds.model import (
    FileSystemKind,
    FileSystemReport,
    Malformed,
    MountedDirectory,
    Property,
    Question,
    number,
)
from migrator.fs.model import Capacity

_LINE = re.compile(r"^\t?([A-Za-z][A-Za-z ()0-9]*): (\d+)(?: |$)", re.ASCII | re.MULTILINE)
_MISSING = ("Missing blocks", "Missing blocks (with replication factor 1)", "Missing block groups")
"""Hadoop 3 indents them, and counts erasure-coded groups by themselves."""


def _summary(output: bytes) -> dict[str, int]:
    """The sums of `dfsadmin -report`, which stand before the first datanode."""
    text = output.decode("utf-8", "replace").partition("\nName:")[0]
    return {name.strip(): int(value) for name, value in _LINE.findall(text)}


def parse_room(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """Bytes by replication, within the space quota of the directory; names within its quota. Raises Malformed."""
    values = _summary(outputs[0])
    if not {"Present Capacity", "DFS Remaining"} <= values.keys():
        raise Malformed("`hdfs dfsadmin -report` names no remaining capacity")
    copies = number(outputs[1].strip(), "dfs.replication")
    quota = outputs[2].split()
    if not copies or len(quota) < 8:
        raise Malformed("the replication is 0" if not copies else "`hdfs dfs -count -q` has fewer than 8 columns")
    free, names = values["DFS Remaining"], None
    notes = [f"new files have {copies} replicas"]
    if quota[1] != b"inf":
        names = _left(quota[1])
        notes.append(f"the directory's quota leaves {format_count(names)} names")
    if quota[3] != b"inf":
        free = min(free, _left(quota[3]))
        notes.append(f"the directory's space quota leaves {format_size(_left(quota[3]))} of all replicas")
    room = Capacity(
        total_bytes=values["Present Capacity"] // copies,
        free_bytes=free // copies,
        total_inodes=None if names is None else number(quota[0], "the quota"),
        free_inodes=names,
    )
    return FileSystemReport(room=room, notes=tuple(notes))


def _left(column: bytes) -> int:
    """The rest of a quota: an exceeded one shows a negative number."""
    return 0 if column.startswith(b"-") else number(column, "the rest of a quota")


def parse_health(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """Blocks without a replica. Raises Malformed."""
    values = _summary(outputs[0])
    counts = [values[name] for name in _MISSING if name in values]
    if not counts:
        raise Malformed("`hdfs dfsadmin -report` names no missing blocks")
    missing, dead = max(counts), re.search(rb"^Dead datanodes \((\d+)\)", outputs[0], re.MULTILINE)
    return FileSystemReport(
        problems=(f"HDFS: {several(missing, 'block has', 'blocks have')} no replica",) if missing else (),
        doubts=(f"HDFS: {several(int(dead[1]), 'datanode is', 'datanodes are')} dead",)
        if dead and int(dead[1])
        else (),
    )


_REPORT = ("hdfs", "dfsadmin", "-report")

HDFS = FileSystemKind(
    name="hdfs",
    title="HDFS (FUSE)",
    types=("fuse.fuse_dfs", "fuse.hdfs"),
    fuse_source="fuse_dfs",
    inodes=Property(holds=False, why="the FUSE client makes up inode numbers: they change, and are given anew"),
    ctimes=Property(
        holds=False, why="the FUSE client shows the mtime as the ctime: changed owners and modes leave no trace"
    ),
    links=Property(holds=False, why="HDFS has no hard links"),
    partial="a file whose blocks have no replica is listed with its size, and gives EIO",
    layouts="block size and replication are those of the client's configuration; those of each file are not copied",
    statfs_inodes=False,
    room=Question(
        commands=(
            lambda _: _REPORT,
            lambda _: ("hdfs", "getconf", "-confKey", "dfs.replication"),
            lambda place: ("hdfs", "dfs", "-count", "-q", place.inside),
        ),
        parse=parse_room,
    ),
    health=Question(commands=(lambda _: _REPORT,), parse=parse_health),
    environment=("HADOOP_CONF_DIR", "HADOOP_HOME", "JAVA_HOME", "KRB5CCNAME", "HADOOP_USER_NAME"),
)
