"""Probing both file systems with small operations beside other work."""

import asyncio
import errno
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import Struct

from migrator.core.clock import Clock
from migrator.core.errors import LockHeld, MigratorError
from migrator.core.probe import ENTRIES, PROBE_NAME, Probe, ProbeSide, ProbeTimes
from migrator.core.tasks import Blocking, beside
from migrator.fs.beneath import exists, held
from migrator.fs.model import SENTINEL_NAME
from migrator.fs.writing import open_own

# Probing one file system.


T = TypeVar("T")

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CONTENT = b"probe\n" * 64
_COMPLETE = b"complete"
"""The mark that all entries have been made; they are made only once."""

_SWITCH_S = 0.0002


class _Undisturbed:
    """A block in which a thread resumes quickly after its system call, by a shorter switch interval of the interpreter.
    Otherwise the thread waits 5 ms for each computing thread, and the measured latency includes that (median 13 ms
    instead of 2). The cost is a few percent of the computing threads' speed. Blocks may overlap, in several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = 0
        self._usual_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(_SWITCH_S)
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                sys.setswitchinterval(self._usual_s)


_undisturbed = _Undisturbed()


class DirectoryProber:
    """Measures small operations in a mounted directory. One call at a time.

    Every call opens the root anew, and makes nothing in a root without a sentinel: an empty directory in place of a
    mount is not filled. `monotonic_s` is the clock that measures.
    """

    def __init__(self, root: bytes, monotonic_s: Callable[[], float]) -> None:
        self._root = root
        self._monotonic_s = monotonic_s

    def probe(self, number: int) -> ProbeTimes:
        """One probe; `number` selects the names, which repeat. Files left by a killed process are reused.

        Raises OSError, also if the root is not the recorded file system, or if a foreign entry has the name of the
        probes' directory.
        """
        name, entry = _file_name(number), _entry_name(number)
        with self._open_root() as root_fd, self._made(root_fd) as fd, _undisturbed:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
            # By now the kernel's and the client's cached attributes from an earlier round have expired.
            stat_s, _ = self._timed(lambda: os.stat(entry, dir_fd=fd, follow_symlinks=False))
            readdir_s, _ = self._timed(lambda: os.listdir(fd))
            create_s, file_fd = self._timed(lambda: os.open(name, _NEW_FILE, 0o600, dir_fd=fd))
            with held(file_fd):
                write_s, _ = self._timed(lambda: os.write(file_fd, _CONTENT))
                sync_s, _ = self._timed(lambda: os.fsync(file_fd))
            unlink_s, _ = self._timed(lambda: os.unlink(name, dir_fd=fd))
        return ProbeTimes(
            create_s=create_s,
            write_s=write_s,
            sync_s=sync_s,
            stat_s=stat_s,
            unlink_s=unlink_s,
            readdir_s=readdir_s,
        )

    def clean(self) -> None:
        """Remove everything that probes make, including leftovers of a killed process. May be called again. Raises
        OSError.
        """
        with self._open_root() as root_fd:
            try:
                fd = open_own(root_fd, PROBE_NAME, _not_own, make=False)
            except FileNotFoundError:
                return
            with held(fd):
                # Remove the mark first: without it, missing entries are made again.
                for name in (_COMPLETE, *_names(_file_name), *_names(_entry_name)):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=fd)
            with suppress(FileNotFoundError):
                os.rmdir(PROBE_NAME, dir_fd=root_fd)

    def _timed(self, operation: Callable[[], T]) -> tuple[float, T]:
        begun_s = self._monotonic_s()
        result = operation()
        return max(self._monotonic_s() - begun_s, 0.0), result

    @contextmanager
    def _open_root(self) -> Iterator[int]:
        with held(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
            if not exists(fd, SENTINEL_NAME):
                raise OSError(errno.ESTALE, "it has no sentinel: not the file system that was set up")
            yield fd

    @contextmanager
    def _made(self, root_fd: int) -> Iterator[int]:
        """The directory, with all entries that are to be listed."""
        with held(open_own(root_fd, PROBE_NAME, _not_own)) as fd:
            if not exists(fd, _COMPLETE):
                for name in (*_names(_entry_name), _COMPLETE):
                    with suppress(FileExistsError):
                        os.close(os.open(name, _NEW_FILE, 0o600, dir_fd=fd))
            yield fd


def _not_own(why: str) -> OSError:
    return OSError(errno.EPERM, f"its directory for probes is not its own ({why}): remove it", PROBE_NAME)


def _names(named: Callable[[int], bytes]) -> tuple[bytes, ...]:
    return tuple(named(number) for number in range(ENTRIES))


def _file_name(number: int) -> bytes:
    return b"probe-%02d" % (number % ENTRIES)


def _entry_name(number: int) -> bytes:
    return b"entry-%02d" % (number % ENTRIES)


# Probing both file systems at intervals, beside other work.


NO_ANSWER_S = 30.0
"""The longest wait for a probe. A probe that takes longer continues, and the next one starts only after its end."""

CLEANING_S = 5.0
"""The longest wait for the clean-up at the end of a program; the next program removes leftovers."""

_FOR_EVER_S = 365.0 * 86400.0


class ProbePorts(Struct, frozen=True, kw_only=True):
    """The ports. `interval_s` is the time between the starts of two rounds; `keep` receives every probe. A block of `alone`
    holds the lock of all probes, and raises LockHeld if another process holds it.
    """

    probers: Mapping[ProbeSide, DirectoryProber]
    keep: Callable[[Probe], None]
    alone: Callable[[], AbstractContextManager[None]]
    clock: Clock
    blocking: Blocking
    interval_s: float
    no_answer_s: float = NO_ANSWER_S


@dataclass(slots=True, kw_only=True)
class _Probing:
    world: ProbePorts
    _under_way: dict[ProbeSide, tuple[float, asyncio.Task[ProbeTimes]]] = field(default_factory=dict)

    async def go_on(self) -> None:
        """Probe while this process holds the lock; while another process holds it, wait."""
        world = self.world
        while True:
            try:
                with world.alone():
                    await self._rounds()
            except LockHeld:
                await world.clock.sleep(world.interval_s)

    async def _rounds(self) -> None:
        number, world = 0, self.world
        try:
            while True:
                # Not at once: a short program does not need to throttle.
                await world.clock.sleep(world.interval_s)
                await asyncio.gather(*(self._probe(side, number) for side in world.probers))
                number += 1
        finally:
            await asyncio.gather(*(self._clean(side) for side in world.probers))

    async def _probe(self, side: ProbeSide, number: int) -> None:
        """One probe; if the previous one still hangs, this round reports that."""
        world, at_s = self.world, self.world.clock.now_s()
        hanging = self._under_way.get(side)
        if hanging is None:
            prober = world.probers[side]
            begun = world.clock.monotonic_s()
            work = asyncio.create_task(world.blocking(lambda: prober.probe(number), timeout_s=_FOR_EVER_S))
            self._under_way[side] = begun, work
        else:
            begun, work = hanging
        await asyncio.wait({work}, timeout=world.no_answer_s if hanging is None else 0.0)
        if not work.done():
            world.keep(Probe(side=side, at_s=at_s, waited_s=max(world.clock.monotonic_s() - begun, 0.0)))
            return
        del self._under_way[side]
        world.keep(_ended(side, at_s, work))

    async def _clean(self, side: ProbeSide) -> None:
        """Remove the probes' files, including leftovers of a killed program. A file system that does not answer is left
        alone.
        """
        hanging = self._under_way.pop(side, None)
        if hanging is not None:
            await asyncio.wait({hanging[1]}, timeout=CLEANING_S)
            if hanging[1].cancel():
                # The thread cannot be ended, but it does not block the end of the program.
                return
            hanging[1].exception()
        try:
            await self.world.blocking(self.world.probers[side].clean, timeout_s=CLEANING_S)
        except (OSError, TimeoutError):
            return


def _ended(side: ProbeSide, at_s: float, work: asyncio.Task[ProbeTimes]) -> Probe:
    try:
        return Probe(side=side, at_s=at_s, times=work.result())
    except (OSError, MigratorError) as error:
        return Probe(side=side, at_s=at_s, failure=_reason(error))


def _reason(error: OSError | MigratorError) -> str:
    if isinstance(error, MigratorError):
        return error.message
    return error.strerror or str(error) or type(error).__name__


@asynccontextmanager
async def probing(world: ProbePorts | None) -> AsyncIterator[None]:
    """Probe both sides beside the block, unless another process of the site does; None: no probes.

    At the end all files of the probes are removed. Errors of probing are only logged.
    """
    if world is None:
        yield
        return
    async with beside(_Probing(world=world).go_on(), "probing"):
        yield
