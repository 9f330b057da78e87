"""What is sent over a new connection: the modules of the far end, and the command that takes them."""

import shlex

from migrator.adapters.far_source import far_source

_PACKAGE = __name__.rpartition(".")[0]
_MODULES = ("far_wire", "far_looks", "far_start", "far_stream", "far_calls", "far_end")
"""In the order in which they are loaded: each imports only earlier ones."""

TOO_OLD = "migrator-far-end: this Python is too old: "


def bundle(*, lease_s: float, grace_s: float) -> bytes:
    """The far end as one Python source in ASCII."""
    return far_source(_PACKAGE, _MODULES, {"lease_s": lease_s, "grace_s": grace_s})


def arguments(size_bytes: int, key: str) -> tuple[str, ...]:
    """What the interpreter is given, to read so many bytes of source and to run them. `key` marks its processes.

    No quote but the double one, so that every login shell takes it in single quotes; Python 2 understands it too.
    """
    code = (
        f'import sys; v = sys.version_info[:3]; v < (3, 9) and sys.exit("{TOO_OLD}%d.%d.%d" % tuple(v)); '
        f'exec(compile(sys.stdin.buffer.read({size_bytes}), "migrator-far-end", "exec"))'
    )
    return ("-I", "-S", "-c", code, key)


def shell_command(python: str, words: tuple[str, ...]) -> str:
    """For a login shell."""
    return " ".join(shlex.quote(word) for word in (python, *words))
