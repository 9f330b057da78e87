"""Which directories lose their mtime with the bricks of a drain. Pure.

A client that makes, removes or renames an entry sets mtime and ctime of the directory on the brick of that entry alone,
and the mount shows the latest of all bricks (GlusterFS 10.3, observed; dht_iatt_merge in dht-helper.c). So a directory
whose last entry was made on a drained brick shows an earlier mtime after the commit: 97 of 1,854 directories with one
brick of six. A utimes, chmod or chown sets the times of every copy.
"""

from migrator.gluster.model import BrickDirectory


def is_latest(leaving: BrickDirectory, staying: BrickDirectory) -> bool:
    """True if the copy on a brick that stays has an earlier mtime than the copy that leaves."""
    if leaving.modified_ns is None:
        return False
    return staying.modified_ns is None or staying.modified_ns < leaving.modified_ns
