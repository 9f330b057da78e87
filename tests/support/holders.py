"""Processes that hold on to something below a tree, for tests: each says when it does, and ends with the block."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLD = "held = os.open(sys.argv[1], eval(sys.argv[2]))"
"""Code for `holding`: a path, and the flags that it is opened with."""


@contextmanager
def holding(code: str, *arguments: str | Path, cwd: Path | None = None, prefix: tuple[str, ...] = ()) -> Iterator[int]:
    """A Python process in `/` that runs the code with these arguments and stays; its pid. A `prefix` executes it."""
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
