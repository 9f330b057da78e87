"""Both ends of a copy by the compiled program, joined by the test instead of by connections to hosts."""

import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.support.native_builds import built
from tests.transfer.native_copy import ALL

PART = struct.Struct("=II")
"""The head of a part of the reading end's output: channel and length."""


@dataclass
class Pair:
    """Two ends that have ended: their exit codes, and the events of the writing end."""

    reading: int = 0
    writing: int = 0
    events: list[bytes] = field(default_factory=list)
    parts: int = 0


def parts_of(output: IO[bytes]) -> Iterator[bytes]:
    """Whole parts, with their heads."""
    while len(head := output.read(PART.size)) == PART.size:
        yield head + output.read(PART.unpack(head)[1])


def run_pair(
    source: Path,
    target: Path,
    names: bytes,
    *options: str,
    kind: str = "files",
    flags: Sequence[str] = (),
    between: Callable[[int, bytes, "subprocess.Popen[bytes]", "subprocess.Popen[bytes]"], bytes] | None = None,
) -> Pair:
    """Run both ends until both have ended. `between` gets the number of each part and the part, while both ends wait, and
    returns what the writing end gets instead. It may end either process.
    """
    command = [str(built(*flags)), "copy", "--kind", kind, *ALL, "--list-bytes", str(len(names)), *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    made = Pair()
    with (
        subprocess.Popen([*command, "--source", str(source)], **pipes) as reading,  # type: ignore[call-overload]
        subprocess.Popen([*command, "--target", str(target)], **pipes) as writing,  # type: ignore[call-overload]
    ):

        def give(process: "subprocess.Popen[bytes]", content: bytes) -> None:
            with suppress(BrokenPipeError):
                assert process.stdin is not None
                process.stdin.write(content)
                process.stdin.flush()

        def pass_on() -> None:
            for part in parts_of(reading.stdout):
                passed = part if between is None else between(made.parts, part, reading, writing)
                made.parts += 1
                give(writing, passed)
            with suppress(BrokenPipeError):
                writing.stdin.close()

        give(reading, names)
        give(writing, names)
        passing = threading.Thread(target=pass_on)
        passing.start()
        for line in writing.stdout:
            if line.startswith(b"Q "):
                give(reading, line)
            else:
                made.events.append(line)
        made.writing = writing.wait()
        with suppress(BrokenPipeError):
            reading.stdin.close()
        made.reading = reading.wait()
        passing.join()
    return made
