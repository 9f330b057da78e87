"""Processes that hold on to something below a tree, for tests: each says when it does, and ends with the block."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def holding(code: str, *arguments: str | Path, cwd: Path | None = None, prefix: tuple[str, ...] = ()) -> Iterator[int]:
    """A Python process that runs the code (`sys.argv[1:]` are the arguments) and stays; its pid. It works in `/`, where
    nothing else is said. `prefix` is a program that executes it.
    """
    script = f"import ctypes, mmap, os, sys, threading, time\n{code}\nprint(os.getpid(), flush=True)\nsys.stdin.read()"
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", script, *map(str, arguments)],
        cwd=cwd or "/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(timeout=600)
        process.stdout.close()
