"""Calls of the program in forks of this process, where its modules are loaded already."""

import gc
import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import migrator
from tests.support.json_documents import require_valid, verb_of

_NOT_LOADED = ("__main__", ".far_", ".brick_hook")
"""Modules that do something when they are loaded, or that are scripts of other hosts."""
_LIBRARIES = ("alembic.command", "duckdb", "pyarrow.parquet", "sqlalchemy.dialects.sqlite")
"""What the program loads in the middle of a verb."""


@cache
def load_program() -> None:
    """Load all modules of the program, so that no fork has to. What cannot be loaded is for the verb to say that needs it."""
    for found in pkgutil.walk_packages(migrator.__path__, "migrator."):
        if not any(part in f".{found.name}" for part in _NOT_LOADED):
            _load(found.name)
    for name in _LIBRARIES:
        _load(name)


def _load(name: str) -> None:
    try:
        import_module(name)
    except ImportError:
        return


def start_program(
    words: list[str],
    *,
    out: Path,
    err: Path,
    before: Callable[[], None] = lambda: None,
) -> int:
    """Begin a call in a fork, whose pid is returned; `before` runs first, in the fork. Output goes to the files."""
    load_program()
    for file in (out, err):
        file.touch()  # it may be killed before it says anything
    # The threads of this process are gone in the fork, and what they held is in no known state: no collection looks at it there.
    gc.disable()
    try:
        pid = os.fork()
        if pid == 0:
            gc.freeze()
            gc.enable()
            _be_the_program(words, out, err, before)
    finally:
        gc.enable()
    return pid


def _be_the_program(words: list[str], out: Path, err: Path, before: Callable[[], None]) -> NoReturn:
    code = 70
    try:
        for number, file in ((1, out), (2, err)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        from migrator.__main__ import UMASK, drop_unread_output
        from migrator.cli.main import main

        before()
        drop_unread_output()
        os.umask(UMASK)
        main(args=words, prog_name="migrator")
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end(pid: int, within_s: float) -> int:
    """Wait for a call; its code, negative for a signal. It is killed at the deadline, and when the test is ended."""
    deadline = time.monotonic() + within_s
    ended = 0
    try:
        while not ended:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the call has not ended within {within_s} s")
            time.sleep(0.005)
            ended, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status)
    finally:
        if not ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def run_program(
    words: list[str],
    *,
    within_s: float,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> "subprocess.CompletedProcess[str]":
    """One call to its end, with its output as text. A JSON document has to fit the schema of its verb."""

    def enter() -> None:
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        if directory is not None:
            os.chdir(directory)

    with TemporaryDirectory(prefix="migrator-test-") as place:
        out, err = Path(place, "out"), Path(place, "err")
        pid = start_program(words, out=out, err=err, before=enter)
        code = _end(pid, within_s)
        printed, said = (file.read_text(errors="replace") for file in (out, err))
    if "--json" in words and printed and code >= 0:
        require_valid(verb_of(words), json.loads(printed))
    return subprocess.CompletedProcess(words, code, printed, said)
