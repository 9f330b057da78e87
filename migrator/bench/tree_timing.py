"""The `TreeTiming` port: runs a script confined to the tree and the installed programs."""

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.core.units import MIB
from migrator.cutover.model import TreeMeasurement, TreeTest, TreeVisit, TreeVisited
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


class _Answer(msgspec.Struct, frozen=True):
    files: list[str] | None = None
    test: str = ""
    run: int = 0
    seconds: float = 0.0
    amount: int = 0
    complete: bool = False
    cold: bool | None = None
    failure: str = ""


class ConfinedTreeTiming:
    """For the trees of one site."""

    def __init__(self, executor: LocalExecutor, *, python: str | None = None) -> None:
        """`python` None: the interpreter of this process if it is an installed one, otherwise `/usr/bin/python3`."""
        self._executor = executor
        self._python = python or _python()

    async def visit(self, visit: TreeVisit, now_s: Callable[[], float]) -> TreeVisited:
        """Run the measurement. On cancellation everything is ended first. `directory` is made if it is missing. Raises
        OSError, ToolFailed.
        """
        os.makedirs(visit.directory, mode=0o700, exist_ok=True)
        view = self._executor.driver_view(visit.tree, Path(visit.directory))
        here, there = view.source_tree, view.target_tree
        if visit.side is Side.TARGET:
            here, there = there, here
        question = {
            "tree": _text(here),
            "other": _text(there) if visit.side is Side.SOURCE else None,
            "files": [_text(name) for name in visit.files],
            "limit_s": visit.limit_s,
            "most_bytes": MOST_BYTES,
            "file_bytes": FILE_BYTES,
        }
        command = Command(
            argv=far_argv(os.fsencode(self._python), _script()),
            stdin=json.dumps(question).encode(),
            timeout_s=visit.limit_s + _SPARE_S,
            token=visit.token,
        )
        reader = _Reader(side=visit.side, now_s=now_s)
        errors = bytearray()
        completed = await self._executor.drive(
            command,
            files=(),
            tree=visit.tree,
            directory=Path(visit.directory),
            on_start=lambda _: None,
            on_stdout=reader.take,
            on_stderr=errors.extend,
        )
        problem = ""
        if completed.timed_out:
            problem = f"no answer within {visit.limit_s:.0f} s"
        elif completed.exit_code:
            problem = f"exit code {completed.exit_code}: {show(bytes(errors[-300:]).strip()) or 'nothing was said'}"
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
                self._add(msgspec.json.decode(line, type=_Answer))
            except (msgspec.DecodeError, ValueError) as error:
                raise ToolFailed(
                    f"the measurement of a user tree answers in an unknown way: {show(line[:200])}"
                ) from error

    def _add(self, answer: _Answer) -> None:
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
