"""Sending the script to where it looks, and reading its answer."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from migrator.adapters.far_source import far_argv, far_source
from migrator.domain.errors import ToolFailed
from migrator.domain.freezing import OpenFile, OpenKind
from migrator.domain.paths import show
from migrator.ports.processes import Command, Processes

_TIMEOUT_S = 600.0
"""It takes milliseconds; only where names must be looked for by inode numbers it walks a tree."""

_MODULES = ("far_mounts", "far_trees", "far_search")
"""In the order in which they are loaded: each imports only earlier ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one look found. `served` is False where the process of the brick was not found."""

    open_files: tuple[OpenFile, ...]
    unseen: tuple[str, ...]
    served: bool


class _Answer(msgspec.Struct, frozen=True):
    open: list[tuple[str, int | None, str, str, bool, bool]]
    unseen: list[str]
    served: bool


@cache
def script() -> bytes:
    """The script as one Python source in ASCII."""
    return far_source(__package__, _MODULES)


async def ask(
    processes: Processes,
    *,
    python: bytes,
    way: str,
    root: bytes,
    trees: Sequence[bytes],
    host: str,
    brick: str = "",
    own: Collection[int] = (),
) -> Answer:
    """Look once, at the processes of a machine. `own` are left out. Raises HostLost, ToolFailed."""
    question = {
        "way": way,
        "root": root.decode("latin-1"),
        "trees": [tree.decode("latin-1") for tree in trees],
        "own": sorted(own),
    }
    command = Command(argv=far_argv(python, script()), stdin=json.dumps(question).encode(), timeout_s=_TIMEOUT_S)
    completed = await processes.run(command)
    try:
        answer = msgspec.json.decode(completed.stdout, type=_Answer)
    except msgspec.DecodeError as error:
        said = show(completed.stderr.strip()[-300:]) or f"exit code {completed.exit_code}"
        if completed.timed_out:
            said = f"no answer within {_TIMEOUT_S:.0f} s"
        raise ToolFailed(f"open files cannot be looked for on {host}: {said}", cause="its Python fails") from error
    return Answer(
        open_files=tuple(
            OpenFile(
                host=host,
                path=path.encode("latin-1"),
                kind=OpenKind(kind),
                writable=writable,
                unlinked=unlinked,
                # The process of a brick is Gluster's: whose it is for is not known there.
                pid=None if brick else pid,
                program=b"" if brick else program.encode("latin-1"),
                brick=brick,
            )
            for path, pid, program, kind, writable, unlinked in answer.open
        ),
        unseen=tuple(answer.unseen),
        served=answer.served,
    )
