"""`python -m tests.reap.archive_child DIRECTORY KILL_AT`: `reap archive`, which kills itself before that step."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migrator.ledger.plans import ArchiveRecords
from migrator.reap.archives import FrameWriter
from migrator.reap.files import HeldFolder
from migrator.reap.model import ArchiveLimits
from tests.reap.archive_world import archive_world

MEMBERS = 25


class Steps:
    def __init__(self, kill_at: int) -> None:
        self._left = kill_at

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, owner: type, name: str) -> None:
        """Count the calls of a method: each may be the last thing that does not happen."""
        self._wrap(owner, name, owner.__dict__[name])

    def before_system_call(self, name: str) -> None:
        self._wrap(os, name, getattr(os, name))

    def _wrap(self, owner: Any, name: str, real: Callable[..., Any]) -> None:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.step()
            return real(*arguments, **named)

        setattr(owner, name, counted)


def main() -> None:
    with archive_world(Path(sys.argv[1])) as world:
        rows = world.rows()
        steps = Steps(int(sys.argv[2]))
        for name in ("add", "enter"):
            steps.before(ArchiveRecords, name)
        steps.before(FrameWriter, "_put")
        steps.before(HeldFolder, "create")
        for name in ("mkdir", "unlink", "rename", "fsync"):
            steps.before_system_call(name)
        world.archive(rows, limits=ArchiveLimits(max_members=MEMBERS, frame_bytes=1024))
    os.write(1, b"done\n")


if __name__ == "__main__":
    main()
