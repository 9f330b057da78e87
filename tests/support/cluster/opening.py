"""When the client of a rehearsal lab opens files on their bricks: at once, or only when it must (`performance.open-behind`)."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from migrator.lab.model import LabBrick
from tests.support.cluster.handle import LabHandle
from tests.support.holders import HOLD, holding
from tests.support.waiting import wait_for

OPEN_BEHIND = "performance.open-behind"


def open_behind(lab: LabHandle, value: str) -> None:
    """Set the option, and wait until this machine's client does as it says."""
    lab.gluster("volume", "set", lab.state.spec.volume, OPEN_BEHIND, value)
    wait_for(lambda: opens_late(lab) is (value == "on"), "the client has taken the option")


def opens_late(lab: LabHandle) -> bool:
    """Whether this machine's client opens a file on its brick only when it must: tried, as the graph that it shows as the active
    one (`.meta/graphs`) is used only when its bricks have answered.
    """
    tried = lab.source / "tried"
    os.mknod(tried, stat.S_IFREG | 0o600)
    try:
        with holding(HOLD, tried, "os.O_RDWR"):
            pids = lab.brick_pids()
            return not any(is_open(copy, pids[brick.name]) for brick, copy in copies(lab, tried))
    finally:
        tried.unlink()


def copies(lab: LabHandle, path: Path) -> Iterator[tuple[LabBrick, os.stat_result]]:
    """Where the data of a file lies: link-to files are left out."""
    for brick in lab.bricks:
        copy = lab.brick_directory(brick) / path.relative_to(lab.source)
        if copy.exists() and stat.S_IMODE((facts := copy.lstat()).st_mode) != stat.S_ISVTX:
            yield brick, facts


def is_open(file: os.stat_result, pid: int) -> bool:
    """Whether a process has that file open."""
    return any(
        facts is not None and os.path.samestat(facts, file)
        for facts in map(facts_of, Path(f"/proc/{pid}/fd").iterdir())
    )


def facts_of(fd: Path) -> os.stat_result | None:
    """What a descriptor is of; None where it was closed meanwhile."""
    try:
        return fd.stat()
    except OSError:
        return None
