"""What a drain leaves on the bricks of a replica set, made by hand."""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from migrator.lab.model import LabBrick
from tests.support.cluster.handle import LabHandle

GFID = "trusted.gfid"


def linked_symlink(lab: LabHandle, brick: LabBrick, directory: Path, name: str) -> Path:
    """A new symlink with two names on this brick, which no drain can move. Gluster places it by its name."""
    on_brick = lab.brick_directory(brick) / directory.relative_to(lab.source)
    for number in range(200):
        one = directory / f"{name}-{number}"
        one.symlink_to(f"nowhere-{number}")
        if os.path.lexists(on_brick / one.name):
            os.link(one, directory / f"{name}-again", follow_symlinks=False)
            return one
        one.unlink()
    raise AssertionError("no name lies there")


def left_file(lab: LabHandle, members: Sequence[LabBrick], path: Path, content: bytes, *, mtime_ns: int) -> None:
    """A file that lies on every brick of a set, the last of which is an arbiter, and that the volume has not shown yet."""
    gfid = uuid.uuid4()
    for number, brick in enumerate(members):
        root = lab.brick_directory(brick)
        made = root / path.relative_to(lab.source)
        made.write_bytes(content if number < len(members) - 1 else b"")
        os.setxattr(made, GFID, gfid.bytes)
        stored = root / ".glusterfs" / gfid.hex[:2] / gfid.hex[2:4] / str(gfid)
        stored.parent.mkdir(parents=True, exist_ok=True)
        os.link(made, stored)
        os.chown(made, 20001, 20002)
        made.chmod(0o640)
        os.utime(made, ns=(mtime_ns, mtime_ns))
