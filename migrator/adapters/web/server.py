"""The server itself: one request a connection, few connections, and nobody is waited for."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from migrator.adapters.web.access import Access
from migrator.adapters.web.requests import MOST_HEAD_BYTES, BadRequest, Request, parse_head

MOST_CONNECTIONS = 64
MOST_FROM_ONE = 16
MOST_REFUSED = 64
"""So many are told at once that there are too many connections; further ones are ended without a word."""

_HEAD_S = 10.0
_ANSWER_S = 60.0
_LINGER_S = 1.0
_LINGER_BYTES = 65536

_REFUSED = ""
"""Stands for no address."""

_TEXT = "text/plain; charset=utf-8"
_ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Connection": "close",
}
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_POLICY = "Content-Security-Policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent back. Without a policy of its own it may do nothing in a browser."""

    status: int = 200
    content_type: str = _TEXT
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one path is answered; `open_to_all`: without the token too, so it must tell nothing of the migration."""

    answer: Callable[[Request], Awaitable[Answer]]
    open_to_all: bool = False


def text(status: int, words: str, **headers: str) -> Answer:
    """A sentence for people."""
    return Answer(status=status, body=f"{words}\n".encode("utf-8", "backslashreplace"), headers=headers)


class WebServer:
    """Answers `GET` and `HEAD` of a few paths. Each connection is one request; what comes too slowly is ended."""

    def __init__(
        self, routes: Mapping[str, Route], access: Access, *, head_s: float = _HEAD_S, answer_s: float = _ANSWER_S
    ) -> None:
        self._routes = routes
        self._access = access
        self._head_s = head_s
        self._answer_s = answer_s
        self._open: Counter[str] = Counter()

    @property
    def connections(self) -> int:
        """How many are open, without those that are told that there are too many."""
        return self._open.total() - self._open[_REFUSED]

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its beginning to its end. Raises nothing but CancelledError."""
        peer = str((writer.get_extra_info("peername") or ("?",))[0])
        if self.connections >= MOST_CONNECTIONS or self._open[peer] >= MOST_FROM_ONE:
            # Who is refused takes nobody's place: one client that comes again and again keeps no other one out.
            peer = _REFUSED
        self._open[peer] += 1
        try:
            if self._open[_REFUSED] <= MOST_REFUSED or peer != _REFUSED:
                await self._talk(reader, writer, refused=peer == _REFUSED)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, refused: bool) -> None:
        # What the kernel has not taken yet counts as not sent: a client that reads nothing is seen.
        writer.transport.set_write_buffer_limits(high=0)
        method, answer = ("GET", text(503, "too many connections")) if refused else await self._asked(reader)
        async with asyncio.timeout(self._answer_s):
            writer.write(_bytes(answer, with_body=method != "HEAD"))
            await writer.drain()
            await _linger(reader, writer)

    async def _asked(self, reader: asyncio.StreamReader) -> tuple[str, Answer]:
        method = "GET"
        try:
            async with asyncio.timeout(self._head_s):
                head = await reader.readuntil(b"\r\n\r\n")
            request = parse_head(head[:-4])
            method = request.method
            return method, await self._answer(request)
        except asyncio.LimitOverrunError:
            return method, text(431, "the request is too long")
        except TimeoutError:
            return method, text(408, "the request came too slowly")
        except BadRequest as bad:
            allow = {"Allow": "GET, HEAD"} if bad.status == 405 else {}
            return method, text(bad.status, bad.reason, **allow)

    async def _answer(self, request: Request) -> Answer:
        self._access.check_host(request)
        route = self._routes.get(request.path)
        if route is not None and route.open_to_all:
            return await route.answer(request)
        cookie = self._access.cookie_for(request)
        if cookie is not None:
            # The token does not stay in the address line, nor in the history.
            place = request.path if request.path in self._routes else "/"
            return text(303, "go on", Location=place, **{"Set-Cookie": cookie})
        if not self._access.may_read(request):
            words = "a token is needed: open this address with ?token=..., or send it as Authorization: Bearer ..."
            return text(401, words, **{"WWW-Authenticate": "Bearer"})
        return text(404, "there is nothing here") if route is None else await route.answer(request)


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What is still coming is thrown away for a moment: closed at once, the answer could be lost on the way."""
    writer.write_eof()
    left = _LINGER_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while left > 0 and (taken := await reader.read(left)):
                left -= len(taken)


def _bytes(answer: Answer, *, with_body: bool) -> bytes:
    headers = {
        **_ALWAYS,
        _POLICY: _NOTHING,
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        **answer.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n{lines}\r\n".encode("latin-1")
    return head + answer.body if with_body else head


STREAM_LIMIT = MOST_HEAD_BYTES
"""For `asyncio.start_server`: a head that is longer is refused."""
