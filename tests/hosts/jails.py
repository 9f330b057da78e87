"""The confinement of streams, started by hand."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from migrator.hosts.local import LocalHost
from tests.support.native_builds import built
from tests.support.streams import make_trees

BASH = os.path.realpath(b"/bin/bash")
TREE = b"home/al ice\n"
"""Any name may be one of a tree."""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TOKEN": "t"}


def said(step: str, code: int, text: str) -> bytes:
    """The one line of a confinement that could not be set up."""
    reason = os.strerror(code) if code else "refused"
    return f"migrator-jail: {step}: {code}: {text}: {reason}\n".encode()


@dataclass(frozen=True, kw_only=True)
class Inside:
    """A program that is confined now. `pid` is its number out here."""

    popen: "subprocess.Popen[bytes]"
    pid: int

    @property
    def proc(self) -> Path:
        """What the kernel says of it."""
        return Path("/proc") / str(self.pid)

    def status(self) -> Mapping[str, str]:
        """/proc/PID/status."""
        lines = (self.proc / "status").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def capabilities(self, name: str) -> set[int]:
        """One of its sets."""
        mask = int(self.status()[name], 16)
        return {number for number in range(64) if mask >> number & 1}

    def go_on(self) -> int:
        """Let it read a line, and wait for its end."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(b"on\n")
        self.popen.stdin.close()
        return self.popen.wait()


class JailWorld:
    """One tree on both sides, and the program that confines."""

    def __init__(self, scratch: Path) -> None:
        self.argv = (os.fsencode(built()), b"confine")
        self.scratch = scratch
        self.source_root, self.target_root = scratch / "source", scratch / "target"
        self.source, self.target = make_trees(self.source_root, self.target_root, tree=TREE)
        files = asyncio.run(LocalHost().files_of(BASH))
        self.files = tuple(word for path in files for word in (b"--file", path))

    def options(self, *, tree: bytes = TREE) -> tuple[bytes, ...]:
        """Both roots and the tree."""
        roots = (b"--source-root", os.fsencode(self.source_root), b"--target-root", os.fsencode(self.target_root))
        return (*roots, b"--tree", tree)

    def ask(self, *words: bytes, before: Sequence[str] = ()) -> "subprocess.CompletedProcess[bytes]":
        """Run the program with these words, to its end."""
        return subprocess.run(
            [*before, *self.argv, *words], env=ENVIRONMENT, capture_output=True, check=False, stdin=subprocess.DEVNULL
        )

    def run(self, script: str, *, tree: bytes = TREE) -> "subprocess.CompletedProcess[bytes]":
        """Run a script of bash, confined."""
        return self.ask(*self.options(tree=tree), *self.files, b"--", BASH, b"-c", script.encode())

    @contextlib.contextmanager
    def running(self, script: str = "echo up; read line", *, before: Sequence[str] = ()) -> Iterator[Inside]:
        """While a script runs that says `up` and waits for a line."""
        argv: list[str | bytes] = [*before, *self.argv, *self.options(), *self.files]
        argv += [b"--", BASH, b"-c", script.encode()]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            argv, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, cwd=self.scratch
        ) as popen:
            try:
                assert popen.stdout is not None
                assert popen.stdout.readline() == b"up\n", popen.communicate()[1]
                yield Inside(popen=popen, pid=only_child(popen.pid))
            finally:
                popen.kill()


def only_child(pid: int) -> int:
    """The one process that another one has started."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
