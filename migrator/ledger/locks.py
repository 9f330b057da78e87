"""Locks of a site: who is at work on what. The kernel releases the locks of a killed process (`flock(2)`)."""

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec.structs import astuple

from migrator.core.clock import Clock
from migrator.core.errors import LockHeld, MigratorError
from migrator.core.paths import show
from migrator.ledger.model import CALL, TREE, Holder, RunRecord

VOLUME = "volume"
"""Shared by all who read or write through the volume; held alone by those who make its files move."""

_SUFFIX = ".held"


def of_tree(path: bytes) -> str:
    """The lock of a user tree: held by the one verb that copies, proves, moves or purges it."""
    return TREE + show(path)


def of_batch(plan: str, batch: int) -> str:
    """The lock of the passes over a batch, which are numbered: held by a run, cutover or rollback of any of its users."""
    return f"batch {batch} of plan {plan}"


def of_brick(brick: str) -> str:
    """The lock of a brick of the source: shared by streams that read it, held alone by its commit."""
    return f"brick {brick}"


def of_call(directory: str) -> str:
    """The lock of a recorded call, by its run directory, held while the call lives."""
    return CALL + directory


Holders = Callable[[], Sequence[Holder]]
"""Reads who is at work now: `Locks.holders`."""


def is_at_work(run: RunRecord, holders: Iterable[Holder]) -> bool:
    """True if the process of a recorded call lives and has not recorded its end. Another process can hold the lock of a
    call too: the one that cleans up after it.
    """
    call = of_call(run.directory)
    return run.finished_at_s is None and any(
        (one.pid, one.purpose) == (run.pid, run.verb) and call in one.names for one in holders
    )


def directories(holders: Iterable[Holder]) -> list[str]:
    """The run directories of the recorded calls that are at work."""
    return [name.removeprefix(CALL) for one in holders for name in one.names if name.startswith(CALL)]


class Locks:
    """Named locks in one directory on a local disk.

    Each holder has a locked file with what it holds. Holders are compared under one more lock, so no command acts on half of
    what another is about to hold. Descriptors are closed on exec: a stream that outlives its run holds no lock.

    Every command that changes something takes its locks here, so here its purpose is noted in the journal, which refuses a
    ledger that is not the newest one.
    """

    def __init__(self, directory: Path, clock: Clock, journal: Callable[[str], None] | None = None) -> None:
        """`journal` notes an act before it begins, and raises Refused if nothing may be done by this ledger. None: there is
        no journal, as for the ledger of a rollback.
        """
        self._directory = directory
        self._clock = clock
        self._journal = journal

    def note(self, what: str) -> None:
        """Note an act in the journal before it begins. Raises Refused."""
        if self._journal is not None:
            with self._unusable(), self._guarded():
                self._journal(what)

    @contextmanager
    def hold(self, purpose: str, *names: str, shared: Collection[str] = (), noted: bool = True) -> Iterator[None]:
        """Hold locks until the end of the block. Raises LockHeld at once if one is held, also by this process, and Refused if
        the ledger is not the newest one. `noted` False is for what changes nothing that the ledger knows.
        """
        with self._unusable(), self._guarded():
            for holder in self.holders(clear=True):
                if (name := holder.conflict(names, shared)) is not None:
                    raise LockHeld(
                        f"another process holds the lock of {name}: {holder}",
                        cause=f"two at once would undo each other's work ({purpose} was asked for)",
                        hint="wait until it has ended, or stop it with Ctrl-C or SIGTERM; see `migrator status`",
                    )
            if self._journal is not None and noted and names:
                self._journal(purpose)
            file = self._enter(Holder(os.getpid(), purpose, self._clock.now_s(), names, tuple(shared)))
        with file:
            yield

    def _unusable(self) -> AbstractContextManager[None]:
        return MigratorError.of_files(
            f"no lock can be taken in {self._directory}",
            cause="no permission on the state directory, its disk is full, or it is mounted read-only",
            hint="run as the user who ran `migrator init`, and look at that file system",
        )

    def _enter(self, held: Holder) -> ExitStack:
        """Make the file of a holder. Raises OSError."""
        fd, path = tempfile.mkstemp(suffix=_SUFFIX, dir=self._directory)
        with ExitStack() as stack:
            stack.callback(os.close, fd)
            stack.callback(Path(path).unlink, missing_ok=True)
            fcntl.flock(fd, fcntl.LOCK_EX)  # waits only for `holders` of another process
            Path(path).write_text(json.dumps(astuple(held)))  # raises when only a part was written
            return stack.pop_all()

    def holders(self, *, clear: bool = False) -> list[Holder]:
        """Every holder that is alive. `clear`: remove the files of the others. Raises MigratorError."""
        names: Sequence[str] = ()
        found = []
        unreadable = MigratorError.of_files(
            f"the running commands are unknown: the locks in {self._directory} cannot be read",
            hint="run as the user who ran `migrator init`",
        )
        with unreadable:
            with suppress(FileNotFoundError):
                names = sorted(os.listdir(self._directory))
            for path in (self._directory / name for name in names if name.endswith(_SUFFIX)):
                try:
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                except FileNotFoundError:
                    continue  # its holder has ended meanwhile
                try:
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    if clear:
                        path.unlink(missing_ok=True)
                except BlockingIOError:
                    found.append(_decode(os.pread(fd, os.fstat(fd).st_size, 0)))
                finally:
                    os.close(fd)
        return [holder for holder in found if holder is not None]

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        # The file is never removed: a process that has the removed file open would hold a lock that no other process sees.
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self._directory / "guard", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _decode(content: bytes) -> Holder | None:
    """None: its holder has not written it yet, which only somebody without the guard can see."""
    try:
        pid, purpose, since_s, names, shared = json.loads(content)
    except ValueError:
        return None
    return Holder(pid, purpose, since_s, tuple(names), tuple(shared))
