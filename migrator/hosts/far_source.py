"""Modules of this program as one Python source, for hosts without an installation."""

from collections.abc import Sequence
from importlib import resources

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
