"""Walks of bricks: the compiled program is started on the brick's host, and what it writes read.

It is placed on the host for as long as the connection lasts: nothing is installed there.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence

from migrator.adapters.bricks.frames import FrameKind, FrameReader, decode_end, decode_hello, decode_problems
from migrator.domain.brick import Brick
from migrator.domain.paths import show
from migrator.ports.bricks import BrickListener, BrickLost, BrickTotals
from migrator.ports.hosts import Host, Hosts
from migrator.ports.processes import Command, Completed

_STDERR_TAIL_BYTES = 2000
_NOT_A_BRICK = 3
"""The walk's exit code for a path that is no brick's root."""


class HostBrickWalks:
    """The `BrickWalks` port. `place` puts the compiled program on a host; it raises HostLost and ToolFailed."""

    def __init__(
        self,
        hosts: Hosts,
        place: Callable[[Host], Awaitable[bytes]],
        *,
        names: Collection[str],
        workers: int | None = None,
    ) -> None:
        self._hosts = hosts
        self._place = place
        self._names = frozenset(names)
        self._workers = workers

    @property
    def hosts(self) -> Collection[str]:
        """The hosts that the site names."""
        return self._names

    async def reach(self, host: str) -> None:
        """Connect to a host. Raises HostLost, UsageError."""
        await self._hosts.reach(host)

    async def walk(
        self,
        brick: Brick,
        *,
        trees: Sequence[bytes],
        only_trees: bool,
        times_from_mdata: bool,
        listener: BrickListener,
        own: bool = False,
    ) -> BrickTotals:
        """Walk a brick, the whole of it or with `only_trees` these trees and the way to them; with `own` the program's own in the root, too. Raises BrickLost, HostLost, ToolFailed, UsageError, and what the listener raises."""
        host = await self._hosts.reach(brick.host)
        argv = [
            await self._place(host),
            b"walk",
            b"--brick",
            brick.path,
            b"--times",
            b"mdata" if times_from_mdata else b"file",
        ]
        if only_trees:
            argv.append(b"--only-trees")
        if own:
            argv.append(b"--own")
        if self._workers is not None:
            argv += [b"--workers", b"%d" % self._workers]
        stream = _Stream(brick, listener)
        completed = await host.processes.stream(
            Command(argv=tuple(argv), stdin=b"".join(tree + b"\0" for tree in trees), timeout_s=None),
            on_start=lambda _identity: None,
            on_stdout=stream.take,
            on_stderr=stream.take_stderr,
        )
        return stream.end(completed)


class _Stream:
    """One walk's output, frame by frame, to its listener."""

    def __init__(self, brick: Brick, listener: BrickListener) -> None:
        self._brick = brick
        self._listener = listener
        self._reader = FrameReader()
        self._greeted = False
        self._totals: BrickTotals | None = None
        self._stderr = b""

    async def take(self, piece: bytes) -> None:
        for frame in self._reader.feed(piece):
            await self._hand_out(frame.kind, frame.payload)

    def take_stderr(self, piece: bytes) -> None:
        self._stderr = (self._stderr + piece)[-_STDERR_TAIL_BYTES:]

    def end(self, completed: Completed) -> BrickTotals:
        """What the walk counted. Raises BrickLost where it did not come to its end."""
        if completed.exit_code == 0 and self._totals is not None:
            self._reader.finish()
            return self._totals
        if completed.exit_code == _NOT_A_BRICK:
            raise BrickLost(
                f"{self._brick.name} is no root of a brick",
                cause="its file system is not mounted there, or glusterd names another path",
                hint=f"look at {show(self._brick.path)} on host {self._brick.host} and at `gluster volume info`",
            )
        how = f"exit code {completed.exit_code}" if completed.exit_code >= 0 else f"signal {-completed.exit_code}"
        said = " ".join(self._stderr.decode("utf-8", "backslashreplace").split())
        raise BrickLost(
            f"the walk of brick {self._brick.name} broke off ({how}){': ' + said if said else ''}",
            cause="its program was ended on the host, or the brick's file system is ill",
            hint="look at the host's kernel log, then run `migrator scan` again",
        )

    async def _hand_out(self, kind: FrameKind, payload: memoryview) -> None:
        if self._totals is not None or self._greeted == (kind is FrameKind.HELLO):
            raise BrickLost(
                f"the walk of brick {self._brick.name} sends its frames in the wrong order",
                cause="another version of migrator placed it on that host",
            )
        match kind:
            case FrameKind.HELLO:
                self._greeted = True
                await self._listener.hello(decode_hello(payload))
            case FrameKind.ROWS:
                await self._listener.rows(payload)
            case FrameKind.DIRECTORIES:
                await self._listener.directories(payload)
            case FrameKind.PROBLEMS:
                await self._listener.problems(*decode_problems(payload))
            case FrameKind.END:
                self._totals = decode_end(payload)
