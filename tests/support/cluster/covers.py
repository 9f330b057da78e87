"""Something else mounted in the place of a brick's file system."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from migrator.lab.model import LabBrick
from tests.support.cluster.handle import LabHandle


@contextmanager
def brick_covered(lab: LabHandle, brick: LabBrick) -> Iterator[None]:
    """An empty file system is in the place of a brick's own. Its process goes on, and what it is asked it looks for there."""
    host, path = lab.host_of(brick), os.fsdecode(lab.brick_path(brick))
    aside, point = "/srv/aside", os.path.dirname(path)
    # Every 30 s the process writes into this directory, by its path. Where it cannot, it tells that it is down, and ends.
    inside = f"{aside}/{os.path.basename(path)}/.glusterfs"
    for argv in (
        ("mkdir", "-p", aside),
        ("mount", "-t", "tmpfs", "tmpfs", aside),
        ("mkdir", "-p", inside),
        ("mount", "--move", aside, point),
    ):
        done = lab.on_host(host, *argv)
        assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        lab.unmount_on(host, point)
        # What clients asked the brick meanwhile, it looked for in the empty one: they may have given directories other layouts
        # on the other bricks.
        lab.let_client_know()
