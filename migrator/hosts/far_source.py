"""Modules of this program as one Python source, for hosts without an installation."""

from collections.abc import Sequence
from importlib import resources

_LOADER = """
import sys, types
for end in range(1, PACKAGE.count(".") + 2):
    name = ".".join(PACKAGE.split(".")[:end])
    sys.modules[name] = types.ModuleType(name)
for name, source in MODULES:
    module = types.ModuleType(PACKAGE + "." + name)
    sys.modules[module.__name__] = module
    setattr(sys.modules[PACKAGE], name, module)
    exec(compile(source, name + ".py", "exec"), module.__dict__)
raise SystemExit(module.main(*ARGUMENTS))
"""


def far_source(package: str, modules: Sequence[str], *arguments: object) -> bytes:
    """One ASCII source that loads the modules in this order, calls `main` of the last one with these literals, and exits with
    its result. Each module imports only earlier ones and the standard library of Python 3.9.
    """
    files = resources.files(package)
    sources = [(name, (files / f"{name}.py").read_text(encoding="utf-8")) for name in modules]
    return f"PACKAGE = {package!r}\nMODULES = {sources!a}\nARGUMENTS = {arguments!a}\n{_LOADER}".encode("ascii")


def far_argv(python: bytes, source: bytes, *words: bytes) -> tuple[bytes, ...]:
    """The command that runs this source in an isolated interpreter: no environment variables, no site packages."""
    return (python, b"-I", b"-S", b"-c", source, *words)
