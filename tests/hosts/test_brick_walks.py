"""A walk on a host: what comes out of it, however it is cut, and every way for it to break off."""

import asyncio
import struct
import uuid
from typing import Any

import pytest

from migrator.core.errors import MigratorError
from migrator.gluster.model import Brick, BrickRules
from migrator.gluster.walks import BrickHello, HostBrickWalks, WalkProblems
from migrator.hosts.ports import Command, Completed, Host, OnOutput, OnStart

VOLUME = uuid.UUID("f9855758-fe85-4982-b480-bec8dcb39254")
RULES = BrickRules(times_from_mdata=True, distributed=True)
BRICK = Brick(name="h1:/srv/b1", host="h1", path=b"/srv/b1", online=True)


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("<IIQ", 0x57474D31, kind, len(payload)) + payload


def problem(kind: int, path: bytes) -> bytes:
    return struct.pack("<Iiiii", kind, 13, len(path), 4, 3) + path + b"open" + b"why"


HELLO = frame(1, struct.pack("<II16s16sQQ", 3, 7, VOLUME.bytes, bytes(15) + b"\1", 2, 99))
PROBLEMS = frame(4, struct.pack("<Q", 4) + b"".join(map(problem, range(4), (b"a\n", b"\xff", b"s", b"m"))))
END = frame(5, struct.pack("<12Q", 10, 3, 0, 4, 1, 0, 0, 0, 1, 1, 2, 1))
STREAM = HELLO + frame(3, b"directories") + frame(2, b"rows") + PROBLEMS + END


class Said:
    """A host whose walk says what it was told to."""

    name = "h1"

    def __init__(self, output: bytes, *, exit_code: int = 0, stderr: bytes = b"", piece_bytes: int = 7) -> None:
        self._output = output
        self._end = Completed(exit_code=exit_code, stdout=b"", stderr=b"", timed_out=False)
        self._stderr = stderr
        self._piece_bytes = piece_bytes
        self.commands: list[Command] = []
        self.processes = self

    async def reach(self, name: str) -> "Said":
        assert name == "h1"
        return self

    async def close(self) -> None:
        """Nothing is open."""

    async def stream(
        self, command: Command, *, on_start: OnStart, on_stdout: OnOutput, on_stderr: OnOutput
    ) -> Completed:
        self.commands.append(command)
        for at in range(0, len(self._output), self._piece_bytes):
            taken = on_stdout(self._output[at : at + self._piece_bytes])
            if taken is not None:
                await taken
        on_stderr(self._stderr)
        return self._end


class Heard:
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    async def hello(self, hello: BrickHello) -> None:
        self.calls.append(hello)

    async def rows(self, payload: memoryview) -> None:
        self.calls.append(("rows", bytes(payload)))

    async def directories(self, payload: memoryview) -> None:
        self.calls.append(("directories", bytes(payload)))

    async def listings(self, payload: memoryview) -> None:
        self.calls.append(("listings", bytes(payload)))

    async def problems(self, found: WalkProblems) -> None:
        kinds = (found.unreadable, found.to_ask, found.strange, found.marked)
        self.calls.append([[one.path for one in some] for some in kinds])


async def place(host: Host) -> bytes:
    return b"/placed/on " + host.name.encode()


def walk(host: Said, heard: Heard | None = None, *, only_trees: bool = False) -> Any:
    walks = HostBrickWalks(host, place, names=["h1"])  # type: ignore[arg-type]
    listener = heard or Heard()
    walking = walks.walk(BRICK, trees=[b"a", b"b\n"], only_trees=only_trees, rules=RULES, listener=listener)
    return asyncio.run(walking)


@pytest.mark.parametrize("piece_bytes", [1, 7, 16, 1000])
def test_everything_is_handed_out_in_order_however_it_is_cut(piece_bytes: int) -> None:
    heard = Heard()
    totals = walk(Said(STREAM, piece_bytes=piece_bytes), heard)
    assert heard.calls == [
        BrickHello(volume_id=str(VOLUME), root_gfid=bytes(15) + b"\1", device=99),
        ("directories", b"directories"),
        ("rows", b"rows"),
        [[b"a\n"], [b"\xff"], [b"s"], [b"m"]],
    ]
    assert (totals.rows, totals.directories, totals.problems, totals.vanished) == (10, 3, 4, 1)
    assert (totals.ask_the_mount, totals.strange, totals.hidden_marks) == (1, 1, 2)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (Said(STREAM[: -len(END)]), "broke off"),
        *((Said(STREAM[:-missing]), "broke off") for missing in (1, len(END) - 15)),
        (Said(frame(9, b"")), "kind 9"),
        (Said(frame(2, b"")[:8] + struct.pack("<Q", 2**40)), "claims"),
        (Said(STREAM, exit_code=-9), "signal 9"),
        (Said(HELLO, exit_code=1, stderr=b"migrator-native: out of memory\n"), "out of memory"),
        (Said(HELLO, exit_code=3), "no root of a brick"),
        (Said(STREAM + b"\0"), "within a frame"),
        (Said(b"Welcome to host h1!\n" + STREAM), "cannot be parsed"),
        (Said(STREAM[len(HELLO) :]), "wrong order"),
        (Said(HELLO + HELLO + END), "wrong order"),
        (Said(STREAM + frame(2, b"late")), "wrong order"),
        (Said(frame(1, struct.pack("<II16s16sQQ", 1, 7, VOLUME.bytes, bytes(16), 0, 0))), "version 1"),
        (Said(b""), "broke off"),
    ],
)
def test_a_walk_that_does_not_come_to_its_end_says_why(host: Said, said: str) -> None:
    with pytest.raises(MigratorError, match=said):
        walk(host)
