"""`serve`: a read-only web server."""

import errno
import hashlib
import hmac
import ipaddress
import json
import logging
import secrets
import socket
import socketserver
import stat
import sys
from asyncio import Event
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread, active_count
from time import monotonic
from typing import Generic, TypeVar
from urllib.parse import parse_qs

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.report.model import ReportFacts, RunLife
from migrator.report.prometheus import CONTENT_TYPE, to_prometheus
from migrator.report.rules import newest_runs
from migrator.report.rules_metrics import MetricFamily
from migrator.report.watch import pause_s

MOST_CONNECTIONS = 64

_HEAD_S, _ANSWER_S = 10.0, 60.0
_METRICS_INTERVAL_S = 5.0
"""Requests of several Prometheus servers within this time share a snapshot."""

_LEAST_TOKEN = 16
_MAKE_TOKEN = "(umask 077; openssl rand -hex 32 > token)"

_TEXT, _HTML, _JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Connection": "close",
}
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\ntoo many connections\n"

_log = logging.getLogger(__name__)
_Read = TypeVar("_Read")


class Listening(Struct, frozen=True, kw_only=True):
    """A server that accepts connections: printed by `serve` at its start."""

    url: str
    """Its address for a browser."""
    address: str
    """The address that it listens on."""
    port: int
    """The port that it listens on."""
    token: str | None
    """The token that it made for itself; None with `--token-file`."""


class HttpResponse(Struct, frozen=True, kw_only=True):
    """A response. Its headers replace default ones of the same name."""

    status: int = 200
    content_type: str = _TEXT
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Route(Struct, frozen=True, kw_only=True):
    """The answer to one path, made in a thread; a MigratorError is answered with 503. `open_to_all`: no token is
    needed, so it must not reveal anything about the migration.
    """

    answer: Callable[[], HttpResponse]
    open_to_all: bool = False


_NO_ICON = Route(answer=lambda: HttpResponse(status=204), open_to_all=True)


def text(status: int, words: str, **headers: str) -> HttpResponse:
    """A plain text answer."""
    return HttpResponse(status=status, body=f"{words}\n".encode("utf-8", "backslashreplace"), headers=headers)


class Shared(Generic[_Read]):
    """A value that is read on request and shared by all requests for `interval_s`. A failure is shared as well."""

    def __init__(self, read: Callable[[], _Read], *, interval_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._read = read
        self._interval_s = interval_s
        self._clock = clock
        self._lock = Lock()
        self._fresh_until_s = float("-inf")
        self._found: _Read | MigratorError

    def newest(self) -> _Read:
        """The value, at most `interval_s` old, or older if reading takes long. Raises MigratorError."""
        with self._lock:
            began_s = self._clock()
            if began_s >= self._fresh_until_s:
                try:
                    self._found = self._read()
                except MigratorError as error:
                    self._found = error
                ended_s = self._clock()
                self._fresh_until_s = ended_s + pause_s(self._interval_s, ended_s - began_s)
            if isinstance(self._found, MigratorError):
                raise self._found.with_traceback(None)
            return self._found


def report_routes(read: Callable[[], ReportFacts], *, interval_s: float) -> dict[str, Route]:
    """The report as a page that refreshes itself and as JSON, and a health check."""
    shared = Shared(lambda: _render(read(), interval_s), interval_s=interval_s / 2)

    def health() -> HttpResponse:
        try:
            return shared.newest()["/healthz"]
        except MigratorError:
            return _json({"status": "failed"}, status=503)

    return {
        "/": Route(answer=lambda: shared.newest()["/"]),
        "/report.json": Route(answer=lambda: shared.newest()["/report.json"]),
        "/healthz": Route(answer=health, open_to_all=True),
        "/favicon.ico": _NO_ICON,
    }


def _json(value: Mapping[str, object], *, status: int = 200) -> HttpResponse:
    return HttpResponse(status=status, content_type=_JSON, body=f"{json.dumps(value)}\n".encode())


PAGE = "report.html"
_TYPES = {
    ".html": _HTML,
    ".json": _JSON,
    ".md": "text/markdown; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".pdf": "application/pdf",
    ".ics": "text/calendar; charset=utf-8",
}


def published_routes(directory: Path, names: Sequence[str]) -> dict[str, Route]:
    """Files of the report that `report --output` wrote to a directory, as they are when somebody asks, PAGE as the first
    page, and a health check. Raises Refused if PAGE cannot be read.
    """
    page = directory / PAGE
    try:
        page.read_bytes()
    except OSError as error:
        raise Refused(
            f"no report can be read in {directory}: {error.strerror}",
            cause="`report --output` has not written one there, or its group is another",
            hint=f"as root: migrator report --output {directory}",
        ) from error
    # The page names its own style by a hash; a page of another version has another one.
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    def answer(name: str) -> HttpResponse:
        try:
            body = (directory / name).read_bytes()
        except FileNotFoundError:
            return text(404, "there is nothing here")
        except OSError as error:
            return text(503, f"{name} cannot be read: {error.strerror}")
        more = {"Content-Security-Policy": policy} if name == PAGE else {}
        return HttpResponse(content_type=_TYPES[Path(name).suffix], body=body, headers=more)

    def health() -> HttpResponse:
        try:
            return _json({"status": "ok", "read_at_s": page.stat().st_mtime})
        except OSError:
            return _json({"status": "failed"}, status=503)

    return {
        **{f"/{name}": Route(answer=partial(answer, name)) for name in names},
        "/": Route(answer=lambda: answer(PAGE)),
        "/healthz": Route(answer=health, open_to_all=True),
        "/favicon.ico": _NO_ICON,
    }


def metrics_routes(read: Callable[[], Sequence[MetricFamily]]) -> dict[str, Route]:
    """`/metrics` for Prometheus."""
    shared = Shared(lambda: to_prometheus(read()), interval_s=_METRICS_INTERVAL_S)
    return {"/metrics": Route(answer=lambda: HttpResponse(content_type=CONTENT_TYPE, body=shared.newest()))}


def _render(facts: ReportFacts, interval_s: float) -> Mapping[str, HttpResponse]:
    """The answers from one reading, by their paths."""
    # Loaded here because the template engine takes long to load.
    from migrator.render.html import content_policy, to_html  # noqa: PLC0415
    from migrator.render.text import to_json  # noqa: PLC0415
    from migrator.report.view import report_document  # noqa: PLC0415

    silent = any(run.life in (RunLife.SILENT, RunLife.KILLED) for run in newest_runs(facts.status.runs))
    page = to_html(report_document(facts), live_interval_s=interval_s).encode()
    policy = {"Content-Security-Policy": f"{content_policy(live=True)}; frame-ancestors 'none'"}
    return {
        "/": HttpResponse(content_type=_HTML, body=page, headers=policy),
        "/report.json": HttpResponse(content_type=_JSON, body=to_json(facts).encode()),
        "/healthz": _json({"status": "silent" if silent else "ok", "read_at_s": facts.status.at_s}),
    }


def listen(
    words: str, routes: Mapping[str, Route], *, token_file: Path | None = None, names: Sequence[str] = ()
) -> "Server":
    """Bind `ADDRESS:PORT`. Without a token file the token is a new one, since any user of this machine could read the
    pages. Raises UsageError, Refused for a non-local address without a token file, and MigratorError if it cannot be
    bound.
    """
    address, port = _address(words)
    token = None if token_file is None else _token(token_file)
    made = secrets.token_urlsafe() if token is None else None
    if made and not ipaddress.ip_address(address).is_loopback:
        raise Refused(
            f"{address} can be reached from other machines, and there is no token",
            cause="the pages name users, hosts and paths",
            hint=f"--token-file FILE; {_MAKE_TOKEN}; or listen on 127.0.0.1, behind ssh -L",
        )
    try:
        server = Server(address, port, routes, token=token or made or "", names=names)
    except OSError as error:
        hints = {
            errno.EADDRINUSE: "another program listens there already: name another port, 0 for any that is free",
            errno.EACCES: "ports below 1024 are root's: name one above",
            errno.EADDRNOTAVAIL: "this machine has no such address: see `ip address`",
        }
        raise MigratorError(
            f"cannot listen on {address} port {port}: {error.strerror}", hint=hints.get(error.errno or 0, "")
        ) from error
    server.listening = replace(server.listening, token=made)
    return server


def _address(words: str) -> tuple[str, int]:
    host, _, port = words.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(host)
        number = int(port) if port.isascii() and port.isdigit() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise UsageError(
            f"{words!r} is not an address to listen on",
            hint="give figures: 127.0.0.1:9466, [::1]:9466 or 10.0.0.5:9466",
        )
    return str(address), number


def _token(file: Path) -> str:
    try:
        found = file.stat()
        content = file.read_bytes() if stat.S_ISREG(found.st_mode) else b""
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=f"make one: {_MAKE_TOKEN}") from error
    if found.st_mode & 0o077:
        raise UsageError(f"{file} can be read by others", hint=f"chmod 600 {file}")
    token = content.removesuffix(b"\n").decode("ascii", "replace")
    if len(token) < _LEAST_TOKEN or not all("!" <= letter <= "~" for letter in token):
        raise UsageError(
            f"{file} holds no token: one line of at least {_LEAST_TOKEN} printable characters without spaces",
            hint=f"make one: {_MAKE_TOKEN}",
        )
    return token


class Server(ThreadingHTTPServer):
    """Bound when constructed. A thread for each connection, one request for each connection, a limited number of connections."""

    allow_reuse_port = False
    request_queue_size = 64

    def __init__(
        self,
        address: str,
        port: int,
        routes: Mapping[str, Route],
        *,
        token: str,
        names: Sequence[str] = (),
        head_s: float = _HEAD_S,
        answer_s: float = _ANSWER_S,
    ) -> None:
        """`token` is required of every request; `names` are host names that it may use, besides those of this machine.
        Raises OSError.
        """
        self.routes, self.head_s, self.answer_s = routes, head_s, answer_s
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), _Handler)
        bound = self.server_address[1]
        shown = f"[{address}]" if ":" in address else address
        self.listening = Listening(url=f"http://{shown}:{bound}/", address=address, port=bound, token=None)
        self._loopback = ipaddress.ip_address(address).is_loopback
        own = socket.gethostname()
        self._names = {name.lower().rstrip(".") for name in (*names, own, own.partition(".")[0], "localhost")}
        self._token = token.encode()
        # The cookie does not contain the token, and is void once this process ends. Cookies ignore ports, so the name
        # of the cookie contains the port: two servers on one machine must not accept each other's.
        secret = hmac.digest(secrets.token_bytes(32), self._token, hashlib.sha256).hex()
        self.cookie = f"migrator_access_{bound}={secret}"

    async def serve(self, announce: Callable[[], None] = lambda: None) -> None:
        """Answer until cancelled, then release the port. Open connections end with the process."""
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        try:
            announce()
            await Event().wait()
        finally:
            self.shutdown()
            self.server_close()

    def server_bind(self) -> None:
        """Bind without the name look-up of http.server."""
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: object, _: object) -> bool:
        """Refuse connections above the limit, without a thread."""
        if active_count() <= MOST_CONNECTIONS:
            return True
        if isinstance(request, socket.socket):
            with suppress(OSError):
                request.settimeout(0)
                request.send(_BUSY)
        return False

    def handle_error(self, *_: object) -> None:
        """Log only the type of the error, and no part of the request."""
        _log.error("a request could not be answered: %s", type(sys.exception()).__name__)

    def is_ours(self, hosts: Sequence[str]) -> bool:
        """True if `Host` names this server. A foreign page whose name resolves to this server (DNS rebinding) sends its
        own name. Any numeric address is accepted, except that a local server accepts only loopback addresses.
        """
        if len(hosts) != 1:
            return False
        host = hosts[0].strip()
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        try:
            return ipaddress.ip_address(host).is_loopback or not self._loopback
        except ValueError:
            return host.lower().rstrip(".") in self._names

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token)

    def may_read(self, authorization: str, cookies: str) -> bool:
        """True if these headers contain the token, or the cookie that replaces it."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return any(hmac.compare_digest(one.strip().encode(), self.cookie.encode()) for one in cookies.split(";"))


class _Handler(BaseHTTPRequestHandler):
    """One request: http.server closes the connection after it."""

    server: Server
    command = ""

    def setup(self) -> None:
        self.request.settimeout(self.server.head_s)
        super().setup()

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def do_GET(self) -> None:
        try:
            self._send(self._answer())
        except MigratorError as error:
            self._send(text(503, error.message))

    do_HEAD = do_GET  # noqa: N815

    def _answer(self) -> HttpResponse:
        server, headers = self.server, self.headers
        path, _, query = self.path.partition("?")
        if not path.startswith("/") or headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return text(400, "a request needs a path and no body")
        if not server.is_ours(headers.get_all("host", [])):
            return text(421, "unknown host name: use the address of this server, or start it with --name")
        route = server.routes.get(path)
        if route is not None and route.open_to_all:
            return route.answer()
        if any(server.is_token(given) for given in parse_qs(query).get("token", ())):
            # The redirect keeps the token out of the address line and the history. Lax instead of Strict, because
            # links in web mail must work; the server is read-only.
            cookie = f"{server.cookie}; HttpOnly; SameSite=Lax; Path=/"
            return text(303, "go on", Location="/" if route is None else path, **{"Set-Cookie": cookie})
        if not server.may_read(headers.get("authorization", ""), headers.get("cookie", "")):
            words = "a token is needed: open this address with ?token=..., or send it as Authorization: Bearer ..."
            return text(401, words, **{"WWW-Authenticate": "Bearer"})
        return text(404, "there is nothing here") if route is None else route.answer()

    def send_error(self, code: int, *_: object, **__: object) -> None:
        """Answer a request that http.server refuses, without its message, which quotes the request."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._send(text(405, "only GET and HEAD: this server reads", Allow="GET, HEAD"))
        else:
            self._send(text(code, HTTPStatus(code).phrase))

    def _send(self, answer: HttpResponse) -> None:
        self.connection.settimeout(self.server.answer_s)
        self.request_version = self.protocol_version  # to one of HTTP/0.9, http.server sends no headers
        self.send_response_only(answer.status)
        length = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
        for name, value in {**_HEADERS, **length, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        """Suppress the log: no part of a request is logged."""
