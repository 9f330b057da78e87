"""Modules of this program as one Python source, for hosts without an installation; questions to such scripts."""

import asyncio
import json
from collections.abc import Sequence
from importlib import resources
from typing import TypeVar

import msgspec

from migrator.core.errors import ToolFailed
from migrator.hosts.ports import Command, Processes

T = TypeVar("T")
_TIMEOUT_S = 60.0

_LOADER = """
import sys, types
for name, source in MODULES:
    parts = (name if "." in name else PACKAGE + "." + name).split(".")
    for end in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    module = sys.modules[".".join(parts)]
    setattr(sys.modules[".".join(parts[:-1])], parts[-1], module)
    exec(compile(source, parts[-1] + ".py", "exec"), module.__dict__)
raise SystemExit(module.main(*ARGUMENTS))
"""


def far_source(package: str, modules: Sequence[str], *arguments: object) -> bytes:
    """One ASCII source that loads the modules in this order, calls `main` of the last one with these literals, and
    exits with its result. Modules are named relative to the package, or by full name. Each imports only earlier ones
    and the standard library of Python 3.9.
    """
    named = [(name, name.rpartition(".")) for name in modules]
    files = [(name, resources.files(above or package) / f"{last}.py") for name, (above, _, last) in named]
    sources = [(name, file.read_text(encoding="utf-8")) for name, file in files]
    return f"PACKAGE = {package!r}\nMODULES = {sources!a}\nARGUMENTS = {arguments!a}\n{_LOADER}".encode("ascii")


def far_argv(python: bytes, source: bytes, *words: bytes) -> tuple[bytes, ...]:
    """The command that runs this source in an isolated interpreter: no environment variables, no site packages."""
    return (python, b"-I", b"-S", b"-c", source, *words)


async def ask_script(
    processes: Processes,
    argv: tuple[bytes, ...],
    kind: type[T],
    *,
    question: object = None,
    otherwise: str = "",
    timeout_s: float = _TIMEOUT_S,
    asked: asyncio.Event | None = None,
) -> T:
    """The answer of a script, in JSON, to a question in JSON. With `asked`, the script starts, and waits for its question until
    that is set. Raises HostLost, and ToolFailed, whose message is `otherwise` and the reason.
    """
    stdin = json.dumps(question).encode()
    done = await processes.run(Command(argv=argv, stdin=stdin, timeout_s=timeout_s, asked=asked))
    try:
        if not done.failure:
            return msgspec.json.decode(done.stdout, type=kind)
    except msgspec.DecodeError as error:
        raise ToolFailed(f"{otherwise}its answer is not understood: {error}") from error
    raise ToolFailed(f"{otherwise}{done.failure}")
