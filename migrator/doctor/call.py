"""One call of `doctor`: its ports, and questions that may have no answer."""

import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from migrator.beegfs.tool import StorageTargets
from migrator.core.clock import Clock
from migrator.core.errors import ToolFailed
from migrator.core.tasks import Blocking
from migrator.cutover.writers import WriterSearch
from migrator.fs.model import Mount
from migrator.fs.ports import SourceFileSystem, TargetFileSystem
from migrator.hooks.calls import Hooks
from migrator.hosts.ports import Command, Host, HostLost, Hosts, Processes
from migrator.ledger.locks import Holders
from migrator.native.program import native_program
from migrator.site.config import Site
from migrator.site.filesystem import FileSystemCommand
from migrator.transfer.engines.drivers import locate_fpsync, locate_parsyncfp2

if TYPE_CHECKING:
    from migrator.bricks.records import BrickLedger


DRIVERS: Mapping[str, Callable[[], object]] = {"fpsync": locate_fpsync, "parsyncfp2": locate_parsyncfp2}


LOOK_TIMEOUT_S = 30.0
VERSION_TIMEOUT_S = 30.0
Answer = TypeVar("Answer")


class DoctorPorts(Struct, frozen=True, kw_only=True):
    """The ports of `doctor`. `ledger` is None before `init`; `mounts` are the current ones of this machine. By default no
    command is at work. `confinement_problem` returns why streams cannot be confined here, None if they can. `find_driver`
    raises ToolFailed if the driver cannot be used. `require_newest` raises Refused if the ledger is an older one. Checks
    are left out if `hosts`, `hooks` or `target_writers` is None, or if `storage` is (the target has no storage targets).
    """

    site: Site
    source: SourceFileSystem
    target: TargetFileSystem
    ledger: "BrickLedger | None"
    processes: Processes
    clock: Clock
    blocking: Blocking
    mounts: Sequence[Mount]
    confinement_problem: Callable[[], Awaitable[str | None]]
    find_program: Callable[[str], str | None] = shutil.which
    euid: int = field(default_factory=os.geteuid)
    kernel: str = field(default_factory=lambda: os.uname().release)
    hosts: Hosts | None = None
    place_native: Callable[[Host], Awaitable[bytes]] = lambda host: native_program().place(host)
    find_driver: Callable[[str], object] = lambda engine: DRIVERS[engine]()
    hooks: Hooks | None = None
    target_writers: WriterSearch | None = None
    storage: StorageTargets | None = None
    source_tool: FileSystemCommand | None = None
    target_tool: FileSystemCommand | None = None
    holders: Holders = tuple
    require_newest: Callable[[], None] | None = None


async def ask(
    ports: DoctorPorts, question: Callable[[], Answer], *, timeout_s: float = LOOK_TIMEOUT_S
) -> tuple[Answer | None, str]:
    """The answer of a file system, or None and the reason."""
    try:
        return await ports.blocking(question, timeout_s=timeout_s), ""
    except TimeoutError:
        return None, f"no answer within {timeout_s:.0f} s"
    except OSError as error:
        return None, error.strerror or str(error)


def real_path(path: bytes) -> bytes:
    """The path with symlinks resolved. Only for file systems that answered before: it may hang with its mount."""
    return os.path.realpath(path)


async def answer_of(question: Awaitable[Answer]) -> tuple[Answer | None, str]:
    """The answer of a host, or None and why it failed. Raises HostLost."""
    try:
        return await question, ""
    except HostLost:
        raise
    except ToolFailed as error:
        return None, error.message


async def version_of(processes: Processes, program: bytes | None) -> bytes | None:
    """The output of `--version`; None if the program is missing or fails. Raises HostLost."""
    if program is None:
        return None
    completed, _ = await answer_of(processes.run(Command(argv=(program, b"--version"), timeout_s=VERSION_TIMEOUT_S)))
    return completed.stdout if completed is not None and not completed.failure else None


async def rsync_version(ports: DoctorPorts) -> bytes | None:
    """The output of `rsync --version` here; None if it is missing or fails."""
    program = ports.find_program("rsync")
    return await version_of(ports.processes, None if program is None else os.fsencode(program))
