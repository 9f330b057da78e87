"""What `doctor` looks at, and how it asks file systems."""

import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from migrator.config.site import Site
from migrator.domain.mounts import Mount
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.filesystem import SourceFileSystem, TargetFileSystem
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.processes import Processes
from migrator.ports.storage_targets import StorageTargets
from migrator.stages.doctor.hosts import HostWorld
from migrator.stages.doctor.links import LinkWorld

Answer = TypeVar("Answer")

LOOK_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorWorld:
    """What `doctor` looks at. `ledger` is None before `init`; `mounts` are this machine's, now.

    `confinement_problem` says of a program why no stream of it could be confined here, None where it can. `hosts` is
    what is looked at on the hosts of site.toml, None: nothing. `find_driver` raises ToolFailed where an engine that is a
    driver cannot be used. `hooks` None: nobody looks at them. `links` None: no path
    of a user is to be switched. `storage` None: the target has no storage targets.
    """

    site: Site
    source: SourceFileSystem
    target: TargetFileSystem
    ledger: Ledger | None
    processes: Processes
    clock: Clock
    blocking: Blocking
    mounts: Sequence[Mount]
    confinement_problem: Callable[[bytes], Awaitable[str | None]]
    find_program: Callable[[str], str | None] = shutil.which
    euid: int | None = None
    hosts: HostWorld | None = None
    find_driver: Callable[[str], object] = lambda _engine: None
    hooks: Hooks | None = None
    links: LinkWorld | None = None
    storage: StorageTargets | None = None


async def ask(
    world: DoctorWorld, question: Callable[[], Answer], *, timeout_s: float = LOOK_TIMEOUT_S
) -> tuple[Answer | None, str]:
    """The answer of a file system, or None and the reason why there is none."""
    try:
        return await world.blocking(question, timeout_s=timeout_s), ""
    except TimeoutError:
        return None, f"no answer within {timeout_s:.0f} s"
    except OSError as error:
        return None, error.strerror or str(error)


def real_path(path: bytes) -> bytes:
    """Where a path leads, symlinks followed. Only to be asked of what answered: it may hang with its mount."""
    return os.path.realpath(path)
