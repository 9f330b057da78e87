"""Measures a user tree, by a script confined to the tree and the installed programs."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.core.units import MIB
from migrator.cutover.rules_speed import TreeMeasurement, TreeTest, TreeVisited
from migrator.fs.model import Side
from migrator.hosts.far_source import far_argv, far_source
from migrator.hosts.ports import Command
from migrator.transfer.executors import LocalExecutor

MOST_BYTES = 64 * MIB
"""The most bytes to read, of all files together and of each."""
FILE_BYTES = 8 * MIB

_SPARE_S = 5.0
"""The time beyond its limit after which the script is ended."""
_INSTALLED = ("/usr/", "/bin/")
_PYTHON = "/usr/bin/python3"


class _ReaderReply(msgspec.Struct, frozen=True):
    files: list[str] | None = None
    test: str = ""
    run: int = 0
    seconds: float = 0.0
    amount: int = 0
    complete: bool = False
    cold: bool | None = None
    failure: str = ""


async def visit_tree(
    executor: LocalExecutor,
    *,
    side: Side,
    tree: bytes,
    directory: str,
    files: Sequence[bytes],
    limit_s: float,
    token: str,
    now_s: Callable[[], float],
) -> TreeVisited:
    """Measure a tree on one side, for `limit_s` at most. `files` are names relative to the tree: on the source all
    candidates for the sample, in order; on the target those that were read on the source. On cancellation everything is
    ended first. `directory` is made if it is missing. Raises OSError, ToolFailed.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    view = executor.driver_view(tree, Path(directory))
    here, there = view.source_tree, view.target_tree
    if side is Side.TARGET:
        here, there = there, here
    question = {
        "tree": _text(here),
        "other": _text(there) if side is Side.SOURCE else None,
        "files": [_text(name) for name in files],
        "limit_s": limit_s,
        "most_bytes": MOST_BYTES,
        "file_bytes": FILE_BYTES,
    }
    command = Command(
        argv=far_argv(os.fsencode(_python()), _script()),
        stdin=json.dumps(question).encode(),
        timeout_s=limit_s + _SPARE_S,
        token=token,
    )
    reader = _Reader(side=side, now_s=now_s)
    errors = bytearray()
    completed = await executor.drive(
        command,
        files=(),
        tree=tree,
        directory=Path(directory),
        on_start=lambda _: None,
        on_stdout=reader.take,
        on_stderr=errors.extend,
    )
    problem = ""
    if completed.timed_out:
        problem = f"no answer within {limit_s:.0f} s"
    elif completed.exit_code:
        problem = f"exit code {completed.exit_code}: {show(bytes(errors[-300:]).strip()) or 'no output'}"
    return TreeVisited(measurements=tuple(reader.measurements), files=tuple(reader.files), problem=problem)


class _Reader:
    """Turns lines into measurements with the time of their arrival."""

    def __init__(self, *, side: Side, now_s: Callable[[], float]) -> None:
        self._side, self._now_s = side, now_s
        self._rest = b""
        self.measurements: list[TreeMeasurement] = []
        self.files: list[bytes] = []

    def take(self, piece: bytes) -> None:
        """Parse a piece of output, cut anywhere. Raises ToolFailed for a line that is no answer."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            try:
                self._add(msgspec.json.decode(line, type=_ReaderReply))
            except (msgspec.DecodeError, ValueError) as error:
                raise ToolFailed(
                    f"the measurement of a user tree answers in an unknown way: {show(line[:200])}"
                ) from error

    def _add(self, answer: _ReaderReply) -> None:
        if answer.files is not None:
            self.files = [name.encode("latin-1") for name in answer.files]
            return
        self.measurements.append(
            TreeMeasurement(
                side=self._side,
                run=answer.run,
                test=TreeTest(answer.test),
                at_s=self._now_s(),
                seconds=answer.seconds,
                amount=answer.amount,
                complete=answer.complete,
                cold=answer.cold,
                failure=answer.failure,
            )
        )


@cache
def _script() -> bytes:
    return far_source(__package__, ("far_tree",))


def _python() -> str:
    """The Python for the script: the confinement shows only installed programs, and an interpreter needs more than its
    file.
    """
    own = str(Path(sys.executable).resolve())
    return own if own.startswith(_INSTALLED) else _PYTHON


def _text(path: bytes) -> str:
    return path.decode("latin-1")
