"""`serve` and its web server, through the socket: what is a request, who may read, that no slow client is waited for."""

import base64
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from threading import Thread, active_count

import pytest

from migrator.app.ledger import MigrationLedger
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.report.serve import MOST_CONNECTIONS, HttpResponse, Route, Server, Shared, listen, text
from tests.report.serving import Reply, Served, reply, rest_of, serving, site_of_weeks
from tests.support.report_world import Weeks

TOKEN = "0123456789abcdef!"
LARGE = b"x" * 50_000_000
AUTHORIZED = f"Authorization: Bearer {TOKEN}"
ASK = f"GET / HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZED}\r\n\r\n".encode()
ROUTES = {"/": Route(answer=lambda: text(200, "small")), "/large": Route(answer=lambda: HttpResponse(body=LARGE))}


@contextmanager
def served(
    *,
    routes: Mapping[str, Route] = ROUTES,
    address: str = "127.0.0.1",
    token: str = TOKEN,
    names: Sequence[str] = (),
    head_s: float = 60.0,
    answer_s: float = 60.0,
) -> Iterator[Server]:
    server = Server(address, 0, routes, token=token, names=names, head_s=head_s, answer_s=answer_s)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.listening.port), timeout=60)


def raw(server: Server, request: bytes) -> bytes:
    with connected(server) as connection:
        connection.sendall(request)
        return rest_of(connection)


def ask(server: Server, *headers: str, target: str = "/", host: str = "localhost") -> Reply:
    """With the token, unless other headers are given."""
    headers = headers or (AUTHORIZED,)
    lines = (f"GET {target} HTTP/1.1", f"Host: {host}", *headers, "", "")
    return reply(raw(server, "\r\n".join(lines).encode("latin-1")))


def test_slow_clients_are_not_waited_for_and_others_get_all() -> None:
    with served(head_s=0.1) as server:
        assert raw(server, ASK[:-2]) == b""
    large = ASK.replace(b"/ ", b"/large ")
    with served() as server:
        assert raw(server, large).endswith(b"\r\n\r\n" + LARGE)
    before = active_count()
    with served(answer_s=0.1) as server, connected(server) as idle:
        idle.sendall(large)
        assert idle.recv(10)
        while active_count() > before + 1:
            time.sleep(0.01)
        assert len(rest_of(idle)) < len(LARGE)


def test_all_clients_together_have_so_many_connections() -> None:
    with served() as server, ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            stack.enter_context(connected(server))
        assert reply(raw(server, b"")).status == 503


def test_an_answer_that_fails_ends_one_connection_and_nothing_of_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> HttpResponse:
        raise ValueError(TOKEN)

    with served(routes={**ROUTES, "/fails": Route(answer=fail)}) as server:
        assert raw(server, ASK.replace(b"/ ", b"/fails?hostile ")) == b""
        assert ask(server).status == 200
    assert "ValueError" in caplog.text
    assert TOKEN not in caplog.text
    assert "hostile" not in caplog.text


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (b"GET", {400}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", {400}),
        (b"GET / HTTP/1.0", {421}),
        (b"GET / HTTP/2.0", {505}),
        (b"GET / HTTP/x", {400}),
        (b"GET / a HTTP/1.1", {400}),
        (b"GET http://elsewhere/ HTTP/1.1\r\nHost: localhost", {400}),
        (b"GET * HTTP/1.1\r\nHost: localhost", {400}),
        (b"GET //elsewhere/ HTTP/1.1\r\nHost: localhost", {401}),
        (b"GET /\xff\x00 HTTP/1.1\r\nHost: localhost", {401}),
        *(
            (method + b" / HTTP/1.1", {405})
            for method in (b"POST", b"PUT", b"DELETE", b"TRACE", b"CONNECT", b"PATCH", b"get")
        ),
        (b"OPTIONS * HTTP/1.1", {405}),
        (b"GET /\r\nHost: localhost", {401}),
        (b"GET / HTTP/0.9\r\nHost: localhost", {401}),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5", {400}),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked", {400}),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\nHost: localhost", {421}),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example", {421}),
        (b"GET / HTTP/1.1\r\nHost : localhost", {400, 421}),
        (b"GET / HTTP/1.1" + b"\r\nA: 1" * 101, {431}),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 65_540, {431}),
    ],
)
def test_malformed_requests_are_refused(head: bytes, statuses: set[int]) -> None:
    with served() as server:
        found = reply(raw(server, head + b"\r\n\r\n"))
    assert found.status in statuses
    assert found.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert b"elsewhere" not in found.body
    assert found.status != 405 or found.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("host", "here", "anywhere"),
    [
        ("127.0.0.1:9466", True, True),
        ("localhost", True, True),
        ("LOCALHOST.:1", True, True),
        ("[::1]:9466", True, True),
        ("host1.example:80", True, True),
        ("10.0.0.5:9466", False, True),
        ("[fd00::1]", False, True),
        ("evil.example", False, False),
        ("127.0.0.1.evil.example", False, False),
        ("127.0.0.1@evil.example", False, False),
        ("localhost,evil.example", False, False),
        ("[::1", True, True),
        ("", False, False),
        (":9466", False, False),
    ],
)
def test_only_this_servers_names_are_answered(host: str, here: bool, anywhere: bool) -> None:
    for address, answered in (("127.0.0.1", here), ("0.0.0.0", anywhere)):
        with served(address=address, names=("Host1.example.",)) as server:
            assert ask(server, host=host).status == (200 if answered else 421)


def test_the_token_opens_by_header_or_once_by_address() -> None:
    with served(token=TOKEN) as server, served(token=TOKEN) as other:

        def status(*headers: str, target: str = "/") -> int:
            return ask(server, *(headers or ("A: b",)), target=target).status

        assert status() == 401
        assert status("Authorization: Bearer " + TOKEN[:-1]) == 401
        assert status("Authorization: Bearer") == 401
        assert status(f"Authorization: Basic {TOKEN}") == 401
        assert status(f"Authorization: bearer  {TOKEN} ") == 200
        assert status(target="/?token=wrong") == 401
        led = ask(server, "A: b", target=f"/?a=b&token={TOKEN}")
        assert (led.status, led.headers["Location"]) == (303, "/")
        for target, location in (("/large", "/large"), ("//evil.example/", "/"), ("/%0d%0aX:y", "/")):
            assert ask(server, "A: b", target=f"{target}?token={TOKEN}").headers["Location"] == location
        cookie = led.headers["Set-Cookie"]
        assert TOKEN not in cookie
        pair, *attributes = cookie.split("; ")
        assert set(attributes) == {"HttpOnly", "SameSite=Lax", "Path=/"}
        assert status(f"Cookie: other=1; {pair}") == 200
        assert status(f"Cookie: {pair[:-1]}") == 401
        assert status(f'Cookie: {pair.partition("=")[0]}=""') == 401
        assert status("Cookie: \\;=;;\xff") == 401
        # It is worth nothing to another process, nor is it taken from one.
        value = pair.partition("=")[2]
        assert ask(other, f"Cookie: migrator_access_{other.listening.port}={value}").status == 401


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (f"{TOKEN}\n".encode(), 0o600, ""),
        (f"{TOKEN}\n".encode(), 0o644, "by others"),
        *(
            (content, 0o600, "no token")
            for content in (b"short\n", b"", b"two words of some length\n", b"0123456789abcdef\n\n", b"\xff" * 30, None)
        ),
    ],
)
def test_tokens_are_files_of_their_owner_alone(tmp_path: Path, content: bytes | None, mode: int, problem: str) -> None:
    file = tmp_path / "token"
    if content is None:
        os.mkfifo(file, mode)
    else:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(UsageError, match=problem) if problem else nullcontext():
        listen("127.0.0.1:0", ROUTES, token_file=file).server_close()
    with pytest.raises(UsageError, match="cannot be read"):
        listen("127.0.0.1:0", ROUTES, token_file=tmp_path / "none")


def test_addresses_are_figures_and_what_others_can_reach_needs_a_token() -> None:
    for words in ("127.0.0.1:0", "localhost:0"):
        server = listen(words, ROUTES)
        server.server_close()
        assert server.listening.url == f"http://127.0.0.1:{server.listening.port}/"
        assert len(server.listening.token or "") > 30
    for words in ("", ":80", "9466", "example.org:80", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:²"):
        with pytest.raises(UsageError, match="address to listen on"):
            listen(words, ROUTES)
    for reached_by_others in ("0.0.0.0:0", "[::]:0", "10.1.2.3:0", "[fe80::1]:0", "[::ffff:10.0.0.1]:0"):
        with pytest.raises(Refused, match="no token"):
            listen(reached_by_others, ROUTES)


class Ledger:
    """What is read, and how often it was."""

    def __init__(self) -> None:
        self.reads = 0
        self.now_s = 0.0
        self.broken = False

    def read(self) -> int:
        self.reads += 1
        self.now_s += 2.0
        if self.broken:
            raise MigratorError("no ledger")
        return self.reads


def test_all_who_ask_share_a_read_and_a_failed_one_is_not_repeated_at_once() -> None:
    ledger = Ledger()
    shared = Shared(ledger.read, interval_s=1.0, clock=lambda: ledger.now_s)
    routes = {"/": Route(answer=lambda: text(200, str(shared.newest())))}
    with served(routes=routes) as server:
        # A read took 2 s, so it is good for nine times as long.
        assert {ask(server).body for _ in range(10)} == {b"1\n"}
        ledger.now_s += 17.9
        assert ask(server).body == b"1\n"
        ledger.now_s += 0.1
        assert ask(server).body == b"2\n"
    ledger.broken = True
    ledger.now_s += 18.0
    for _ in range(5):
        with pytest.raises(MigratorError):
            shared.newest()
    assert ledger.reads == 3
    ledger.broken = False
    ledger.now_s += 18.0
    assert shared.newest() == 4


HOSTILE = (b"<script>alert(1)</script>", b"invalid \xff\xfe", b"new\nline")


@pytest.fixture(scope="module")
def site_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site_of_weeks(tmp_path_factory.mktemp("serve"), Weeks(names=HOSTILE))


@pytest.fixture(scope="module")
def server(site_file: Path) -> Iterator[Served]:
    with serving(site_file, "serve", "--listen", "127.0.0.1:0", "--name", "gl1.example.org") as made:
        yield made


def test_it_says_where_it_is(server: Served) -> None:
    assert server.listening == {
        "url": f"http://127.0.0.1:{server.listening['port']}/",
        "address": "127.0.0.1",
        "port": server.listening["port"],
        "token": server.listening["token"],
    }
    assert len(server.listening["token"]) > 30
    assert b"401" in server.raw(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").splitlines()[0]
    assert b"\nmigrator_ledger_read_timestamp_seconds " in server.get("/metrics").body


def test_the_page_may_do_nothing_but_ask_for_itself(server: Served) -> None:
    first = server.get()
    policy = first.headers["Content-Security-Policy"]
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    page = first.body.decode()
    [script] = re.findall(r"<script data-every=\"10\">(.*?)</script>", page, re.DOTALL)
    assert parts == {
        "default-src": "'none'",
        "style-src": parts["style-src"],
        "script-src": f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert page.count("<script") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert first.headers["Cache-Control"] == "no-store"
    assert first.headers["X-Content-Type-Options"] == "nosniff"
    assert int(first.headers["Content-Length"]) == len(first.body)


def test_the_same_facts_for_programs(server: Served) -> None:
    found = server.get("/report.json", host="gl1.example.org")
    assert (found.status, found.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(found.body)["status"]["plan"]["name"] == "week1"
    assert found.headers["Content-Security-Policy"].startswith("default-src 'none'")


@pytest.mark.exhaustive
def test_a_ledger_that_is_gone_is_said_and_a_killed_run_too(tmp_path: Path) -> None:
    weeks = Weeks(users=3, chunks=30)
    site_file = site_of_weeks(tmp_path, weeks)
    ledger_file = tmp_path / "state" / "ledger.db"
    with MigrationLedger.open(ledger_file) as ledger:
        ledger.runs.start(verb="run", pid=1, at_s=weeks.now_s, directory="runs/1")
    with serving(site_file, "serve", "--listen", "127.0.0.1:0", "--interval", "1s") as made:
        assert json.loads(made.get("/healthz").body)["status"] == "silent"
        assert b"process 1 was killed" in made.get().body
        ledger_file.rename(tmp_path / "elsewhere")
        while (found := made.get()).status == 200:
            pass
        assert (found.status, b"no ledger" in found.body) == (503, True)
        assert (made.get("/healthz").status, made.get("/report.json").status) == (503, 503)
        (tmp_path / "elsewhere").rename(ledger_file)
        while (found := made.get()).status == 503:
            pass
        assert found.status == 200
