"""The web server's clients that are slow: none of them is waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from migrator.adapters.web.access import Access
from migrator.adapters.web.requests import Request
from migrator.adapters.web.server import (
    MOST_CONNECTIONS,
    MOST_FROM_ONE,
    MOST_REFUSED,
    STREAM_LIMIT,
    Answer,
    Route,
    WebServer,
)

LARGE = b"x" * 50_000_000
ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


async def large(_: Request) -> Answer:
    return Answer(body=LARGE)


async def small(_: Request) -> Answer:
    return Answer(body=b"small")


def served(client: Client, *, head_s: float = 60.0, answer_s: float = 60.0) -> bytes:
    """What a client got of a server with these limits, and that the server had no connection left then."""

    async def both() -> bytes:
        access = Access(names=(), token=None, loopback=True, port=1)
        web = WebServer({"/": Route(answer=large)}, access, head_s=head_s, answer_s=answer_s)
        server = await asyncio.start_server(web.converse, "127.0.0.1", 0, limit=STREAM_LIMIT)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2], limit=2**20)
            got = await client(reader, writer)
            while web.connections:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)
            rest = b""
            with suppress(ConnectionResetError):
                while block := await reader.read(2**20):
                    rest += block
            writer.transport.abort()
            return got + rest

    return asyncio.run(both())


def test_whoever_asks_too_slowly_is_told_so() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(ASK[:-2])
        return await reader.read()

    assert served(slow, head_s=0.1).startswith(b"HTTP/1.1 408 ")


def test_whoever_does_not_take_the_answer_is_left() -> None:
    async def idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(ASK)
        return await reader.readexactly(10)

    assert len(served(idle, answer_s=0.1)) < len(LARGE)


def test_whoever_takes_it_gets_all_of_it() -> None:
    async def eager(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(ASK)
        return await reader.read()

    assert served(eager).endswith(b"\r\n\r\n" + LARGE)


def test_one_greedy_client_keeps_no_other_one_out() -> None:
    async def both() -> tuple[int, bytes]:
        access = Access(names=(), token=None, loopback=True, port=1)
        web = WebServer({"/": Route(answer=small)}, access)
        server = await asyncio.start_server(web.converse, "127.0.0.1", 0, limit=STREAM_LIMIT)
        async with server:
            address, port = server.sockets[0].getsockname()[:2]
            greedy = [await asyncio.open_connection(address, port) for _ in range(MOST_FROM_ONE)]
            # They are told that there are too many, and do not go away.
            for _ in range(MOST_CONNECTIONS + MOST_REFUSED):
                greedy.append(await asyncio.open_connection(address, port))
            refused = 0
            for reader, _ in greedy[MOST_FROM_ONE:]:
                with suppress(ConnectionResetError):
                    refused += (await reader.read(12)).endswith(b"503")
            reader, writer = await asyncio.open_connection(address, port, local_addr=("127.0.0.2", 0))
            writer.write(ASK)
            got = await reader.read()
            for _, other in (*greedy, (reader, writer)):
                other.transport.abort()
            return refused, got

    refused, got = asyncio.run(both())
    assert refused >= MOST_REFUSED
    assert got.startswith(b"HTTP/1.1 200 ")


def test_a_client_that_goes_away_leaves_nothing() -> None:
    async def gone(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(ASK)
        await writer.drain()
        writer.transport.abort()
        return b""

    assert served(gone) == b""
