"""A stream with two ends: the reading one on a brick server, the writing one on a host of the target.

Both ends are runs of the compiled program (`native/src/copy_ends.h`), each confined to the tree of its side. Their bytes
pass through the connections to both hosts, and through this process.
"""

import asyncio
import re
from collections import Counter, deque
from collections.abc import Awaitable, Mapping, Sequence

from msgspec.structs import replace

from migrator.core.tasks import to_the_end
from migrator.gluster.model import BrickRules
from migrator.hosts.ports import Command, Completed, Host, HostFacts, OnOutput, OnStart
from migrator.transfer.executors import Executor, PlaceCompiled
from migrator.transfer.rules import two_hosts

_OTHER_END_LOST = 75
"""The exit code of a writing end that has got no more (`copy.h`)."""
_REQUEST = re.compile(rb"(?m)^Q .*\n")
_WAITING_BYTES = 4 << 20
_LONGER_S = 10.0
"""The time in which one end ends by itself after the other one."""


class Passage:
    """Bytes on their way from the output of one program to the input of another, at most so many."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._ended = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, piece: bytes) -> None:
        """Wait for room, and add a piece. After `end` it is dropped."""
        self.add(piece)
        await self._room.wait()

    def add(self, piece: bytes) -> None:
        """Add a piece, without waiting."""
        if not self._ended and piece:
            self._pieces.append(piece)
            self._waiting_bytes += len(piece)
            self._news.set()
            if self._waiting_bytes > _WAITING_BYTES:
                self._room.clear()

    def end(self) -> None:
        """Nothing follows."""
        self._ended = True
        self._news.set()
        self._room.set()

    async def next(self) -> bytes:
        """The next piece; empty at the end."""
        while not self._pieces:
            if self._ended:
                return b""
            self._news.clear()
            await self._news.wait()
        piece = self._pieces.popleft()
        self._waiting_bytes -= len(piece)
        if self._waiting_bytes <= _WAITING_BYTES:
            self._room.set()
        return piece


def split_requests(rest: bytes, piece: bytes) -> tuple[bytes, bytes, bytes]:
    """Split output of a writing end, after the rest of the piece before, into requests, other whole lines, and a rest."""
    whole, newline, rest = (rest + piece).rpartition(b"\n")
    lines = whole + newline
    requests = b"".join(_REQUEST.findall(lines))
    return requests, _REQUEST.sub(b"", lines) if requests else lines, rest


def without_side(command: Command, option: bytes) -> tuple[bytes, ...]:
    """The arguments of one end: those of a copy with both sides, without this side."""
    at = command.argv.index(option)
    return (*command.argv[:at], *command.argv[at + 2 :], b"--list-bytes", b"%d" % len(command.stdin))


class TwoEnds(Executor):
    """The `Executor` of a brick server that does not have the target: `reader` reads there, and this host writes.

    A stream has ended when both of its ends have. If one is lost, the other one ends too.
    """

    def __init__(
        self, writer: Host, reader: Executor, *, target_root: bytes, compiled: PlaceCompiled, facts: HostFacts
    ) -> None:
        """`reader` has only the root of the source, and `writer`, with its facts, that of the target."""
        super().__init__(writer, source_root=b"", target_root=target_root, compiled=compiled, facts=facts)
        self.host = two_hosts(reader.host, writer.name)
        self._reader = reader

    async def execute(
        self,
        command: Command,
        *,
        program: bytes,
        tree: bytes,
        on_start: OnStart,
        on_stdout: OnOutput,
        on_stderr: OnOutput,
    ) -> Completed:
        """As that of `Executor`. The outcome is that of the writing end, unless the reading end has failed."""
        content, requests = Passage(), Passage()
        placed = await self._reader.compiled_program()
        reading = replace(command, argv=(placed, *without_side(command, b"--target")[1:]), more=requests.next)
        writing = replace(command, argv=without_side(command, b"--source"), more=content.next)
        rest = b""

        def take(piece: bytes) -> Awaitable[None] | None:
            nonlocal rest
            asked, lines, rest = split_requests(rest, piece)
            requests.add(asked)
            return on_stdout(lines) if lines else None

        reader = asyncio.ensure_future(
            self._reader.execute(
                reading,
                program=placed,
                tree=tree,
                on_start=lambda _identity: None,
                on_stdout=content.put,
                on_stderr=on_stderr,
            )
        )
        writer = asyncio.ensure_future(
            super().execute(writing, program=program, tree=tree, on_start=on_start, on_stdout=take, on_stderr=on_stderr)
        )
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            # Each end comes to its own end when the output of the other one is over.
            content.end()
            requests.end()
            await asyncio.wait((reader, writer), timeout=_LONGER_S)
        finally:
            await to_the_end(_cancelled(reader, writer))
        lost = Completed(exit_code=_OTHER_END_LOST, stdout=b"", stderr=b"", timed_out=False)
        written = lost if writer.cancelled() else writer.result()
        if written.exit_code != _OTHER_END_LOST or reader.cancelled():
            return written
        # The reading end has ended first, for a reason of its own.
        read = reader.result()
        return read if read.exit_code else written

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """As that of `Executor`, on both hosts."""
        ended = await asyncio.gather(super().end_orphans(tokens), self._reader.end_orphans(tokens))
        return list(dict.fromkeys(token for left in ended for token in left))

    async def activity(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """As that of `Executor`, of both hosts."""
        found: Counter[str] = Counter()
        for counted in await asyncio.gather(super().activity(tokens), self._reader.activity(tokens)):
            found.update(counted)
        return found

    async def digest(
        self,
        paths: Sequence[bytes],
        *,
        token: str,
        of_target: bool,
        brick: BrickRules | None,
        bwlimit_bytes_per_s: int | None,
        on_stdout: OnOutput,
    ) -> Completed:
        """As that of `Executor`, on the host of that side."""
        digest = super().digest if of_target else self._reader.digest
        return await digest(
            paths,
            token=token,
            of_target=of_target,
            brick=brick,
            bwlimit_bytes_per_s=bwlimit_bytes_per_s,
            on_stdout=on_stdout,
        )


async def _cancelled(*ends: "asyncio.Future[Completed]") -> None:
    """Cancel both, and wait for them. Their errors are dropped here."""
    for end in ends:
        end.cancel()
    await asyncio.gather(*ends, return_exceptions=True)
