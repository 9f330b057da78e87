"""Holding the reads of block devices to a fixed rate, by the kernel's control groups: version 2 or version 1."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_VERSION_1 = Path("/sys/fs/cgroup/blkio")
_VERSION_2 = Path("/sys/fs/cgroup")
_NAME = "migrator-bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """A group whose processes read each device of the list at `bytes_per_s` at most."""

    group: Path
    kind: str

    def join(self) -> None:
        """Take this very process in: to be called in a child before its program starts."""
        self.take((os.getpid(),))

    def take(self, pids: Iterable[int]) -> None:
        """Take processes in, with everything they start from now on."""
        for pid in pids:
            with suppress(ProcessLookupError):
                (self.group / "cgroup.procs").write_text(str(pid))


def throttle_kind() -> str | None:
    """Which control this kernel has; None where it has none."""
    if (_VERSION_1 / "blkio.throttle.read_bps_device").exists():
        return "blkio.throttle of control groups version 1"
    controllers = _VERSION_2 / "cgroup.controllers"
    if controllers.exists() and "io" in controllers.read_text().split():
        return "io.max of control groups version 2"
    return None


@contextmanager
def throttled(devices: Iterable[int], bytes_per_s: int) -> Iterator[Throttle]:
    """A group with that limit on every device; at the end its processes go back to where all others are."""
    kind = throttle_kind()
    assert kind is not None
    first = kind.endswith("1")
    root = _VERSION_1 if first else _VERSION_2
    if not first:
        (root / "cgroup.subtree_control").write_text("+io")
    group = root / _NAME
    group.mkdir(exist_ok=True)
    try:
        for device in devices:
            number = f"{os.major(device)}:{os.minor(device)}"
            if first:
                (group / "blkio.throttle.read_bps_device").write_text(f"{number} {bytes_per_s}")
            else:
                (group / "io.max").write_text(f"{number} rbps={bytes_per_s}")
        yield Throttle(group=group, kind=kind)
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (root / "cgroup.procs").write_text(pid)
        group.rmdir()
