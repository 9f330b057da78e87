"""The program `migrator`, also as `python -m migrator`: the process around the command line."""

import atexit
import errno
import gc
import io
import os
import stat
import sys
import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""Above what is made by loading (some 130,000 objects for `run`), so that a short verb never looks for garbage."""
UMASK = 0o027
"""Plans, lists and reports name users and paths: they are for root and the group of their directory."""
_INTERRUPTED = "migrator: interrupted\n  next:  no work was started; run the same command again"
_INTERRUPTED_CODE, _FAILED_CODE = 130, 1
"""As in `ExitCode`, which may not be loaded by then."""


def program() -> None:
    """One call of the program, from the words of the command line to the exit code."""
    # Nearly all that is made while libraries are loaded stays to the end. To look for garbage among it some 200 times,
    # as Python does of itself, takes 25 ms of the 400 of a verb that has little to do.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # Arrow's own allocator keeps pages for each thread: a verification of 50,000 files takes 450 MiB with it, 260 without.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.umask(UMASK)
    drop_unread_output()

    try:
        from migrator.cli.main import main  # noqa: PLC0415

        main(prog_name="migrator")
    except SystemExit as end:
        if not isinstance(end.code, str):
            leave(int(end.code or 0))
        raise
    except KeyboardInterrupt:
        # While libraries are loaded, before anything was begun.
        sys.stderr.write(f"{_INTERRUPTED}\n")
        leave(_INTERRUPTED_CODE)
        raise SystemExit(_INTERRUPTED_CODE) from None


def drop_unread_output() -> None:
    """Let output to a closed terminal or pipe vanish: nobody can read it, and an error would end a freeze with it."""
    sys.stdout, sys.stderr = _readable_or_dropped(sys.stdout), _readable_or_dropped(sys.stderr)


def _readable_or_dropped(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # closed by the caller
        return stream
    raw = _RawOutput(stream.fileno(), "wb", closefd=False)
    lines = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=lines)


class _RawOutput(io.FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # EIO of a file is an error of its disk; of a terminal it is the end of the terminal.
            if error.errno != errno.EPIPE and (error.errno != errno.EIO or not _is_device(self.fileno())):
                raise
            return memoryview(data).nbytes


def _is_device(fd: int) -> bool:
    return stat.S_ISCHR(os.fstat(fd).st_mode)


def leave(code: int) -> None:
    """End the process, after all that is to be done at its end: what was registered for it, and output.

    What Python would do beyond that is to take every object apart, for 40 to 60 ms with our libraries. Returns, for
    Python to end it, where a thread has to be waited for. Output that cannot be written makes a failure of success.
    """
    if any(not thread.daemon and thread is not threading.current_thread() for thread in threading.enumerate()):
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - it has no public name
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # closed by the caller
                stream.flush()
        except (OSError, ValueError):
            code = code or _FAILED_CODE
    os._exit(code)


if __name__ == "__main__":
    program()
