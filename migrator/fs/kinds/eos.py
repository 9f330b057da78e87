"""EOS by FUSE (`eosxd`): room and states of the storage nodes by `eos ... ls -m` (EOS 4 and 5)."""

import re
from collections.abc import Sequence

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

_PAIR = re.compile(r"(?:^| )([^ =]+)=([^ ]*)")


def _nodes(output: bytes) -> list[dict[str, str]]:
    """The lines of a view, by key. Raises Malformed."""
    lines = [dict(_PAIR.findall(line)) for line in output.decode("utf-8", "replace").split("\n") if line.strip()]
    if not lines or any("hostport" not in one or "status" not in one for one in lines):
        raise Malformed("`eos node ls -m` names no node, or one without a state")
    return lines


def parse_room(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """The sum of the nodes that are online. EOS counts it before copies. Raises Malformed."""
    online = [one for one in _nodes(outputs[0]) if one["status"] == "online"]
    total, free, inodes, free_inodes = (
        sum(number(one.get(f"sum.stat.statfs.{key}"), key) for one in online)
        for key in ("capacity", "freebytes", "files", "ffree")
    )
    return FileSystemReport(
        room=Capacity(total_bytes=total, free_bytes=free, total_inodes=inodes, free_inodes=free_inodes),
        notes=(
            "free bytes are those of all nodes, before copies (`eos attr ls`), and without quotas (`eos quota ls -m`)",
        ),
    )


def parse_health(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """Nodes that are offline: with a second replica nothing is missing. Raises Malformed."""
    return FileSystemReport(
        doubts=tuple(
            f"EOS node {one['hostport']} is {one['status']}"
            for one in _nodes(outputs[0])
            if one["status"] != "online" and one.get("cfg.status") != "off"
        )
    )


_NODES = ("eos", "-b", "node", "ls", "-m")

EOS = FileSystemKind(
    name="eos",
    title="EOS (FUSE)",
    types=("fuse.eosxd", "fuse.eosd"),
    fuse_source="eos",
    links=Property(holds=False, why="the client emulates hard links, and within one directory alone"),
    partial="a file whose replicas are on nodes that are offline is listed with its size, and gives EIO",
    layouts="new files get the layout of their directory (`eos attr ls`: sys.forced.*); that of each file is not copied",
    room=Question(commands=(lambda _: _NODES,), parse=parse_room),
    health=Question(commands=(lambda _: _NODES,), parse=parse_health),
    environment=("EOS_MGM_URL", "KRB5CCNAME", "XrdSecPROTOCOL", "XrdSecSSSKT"),
)
