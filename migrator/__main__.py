"""The program `migrator`, also as `python -m migrator`: the process around the command line."""

import atexit
import gc
import os
import sys
import threading

_OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""Above what is made by loading (some 130,000 objects for `run`), so that a short verb never looks for garbage."""
UMASK = 0o027
"""Plans, lists and reports name users and paths: they are for root and the group of their directory."""
_INTERRUPTED = "migrator: interrupted\n  next:  nothing was started; run the same command again"
_INTERRUPTED_CODE = 130
"""As `ExitCode.INTERRUPTED`, which may not be loaded by then."""


def program() -> None:
    """One call of the program, from the words of the command line to the exit code."""
    # Nearly all that is made while libraries are loaded stays to the end. To look for garbage among it some 200 times,
    # as Python does of itself, takes 25 ms of the 400 of a verb that has little to do.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # Arrow's own allocator keeps pages for each thread: a verification of 50,000 files takes 450 MiB with it, 260 without.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.umask(UMASK)

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


def leave(code: int) -> None:
    """End the process, after all that is to be done at its end: what was registered for it, and output.

    What Python would do beyond that is to take every object apart, for 40 to 60 ms with our libraries. Returns, for
    Python to end it, where a thread has to be waited for or output cannot be written.
    """
    if any(not thread.daemon and thread is not threading.current_thread() for thread in threading.enumerate()):
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - it has no public name
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # closed by the caller
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


if __name__ == "__main__":
    program()
