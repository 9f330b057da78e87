"""The web server's parts: what is a request, who may read, and how often is looked."""

import asyncio
import os
from pathlib import Path

import pytest

from migrator.adapters.web.access import Access
from migrator.adapters.web.listening import parse_address, read_token, require_token
from migrator.adapters.web.looks import Looks
from migrator.adapters.web.requests import BadRequest, Request, parse_head
from migrator.domain.errors import MigratorError, Refused, UsageError

TOKEN = "0123456789abcdef!"


def asked(*headers: str, target: str = "/", method: str = "GET") -> Request:
    return parse_head("\r\n".join((f"{method} {target} HTTP/1.1", *headers)).encode("latin-1"))


def access(token: str | None = None, *, loopback: bool = True) -> Access:
    return Access(names=("Host1.example.",), token=token, loopback=loopback, port=9466)


def test_a_request_is_read() -> None:
    request = asked("Host: a:1", "COOKIE: x=y", "Cookie: z=1", "X:  b c\t", target="/report.json?token=a%26b&c=")
    assert request == Request(
        method="GET",
        path="/report.json",
        query={"token": "a&b", "c": ""},
        headers={"host": "a:1", "cookie": "x=y,z=1", "x": "b c"},
    )


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 400),
        (b"GET /", 400),
        (b"GET / HTTP/2.0", 400),
        (b"get / HTTP/1.1", 400),
        (b"GET  / HTTP/1.1", 400),
        (b"GET /\x00 HTTP/1.1\r\nbad\nline: 1", 400),
        (b"GET http://elsewhere/ HTTP/1.1", 400),
        (b"GET //elsewhere/ HTTP/1.1", 400),
        (b"GET \xff HTTP/1.1", 400),
        (b"GET * HTTP/1.1", 400),
        (b"GET /?" + b"a&" * 30 + b" HTTP/1.1", 400),
        (b"POST / HTTP/1.1", 405),
        (b"OPTIONS * HTTP/1.1", 405),
        (b"GET / HTTP/1.1\r\nno colon", 400),
        (b"GET / HTTP/1.1\r\n folded: 1", 400),
        (b"GET / HTTP/1.1\r\nA : 1", 400),
        (b"GET / HTTP/1.1\r\nA: \xff", 400),
        (b"GET / HTTP/1.1\r\nA: 1\rB: 2", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked", 400),
        (b"GET / HTTP/1.1" + b"\r\nA: 1" * 101, 431),
    ],
)
def test_what_is_no_plain_request_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as bad:
        parse_head(head)
    assert bad.value.status == status


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
    for loopback, answered in ((True, here), (False, anywhere)):
        if answered:
            access(loopback=loopback).check_host(asked(f"Host: {host}"))
        else:
            with pytest.raises(BadRequest) as bad:
                access(loopback=loopback).check_host(asked(f"Host: {host}"))
            assert bad.value.status == 421
    with pytest.raises(BadRequest):
        access().check_host(asked())


def test_without_a_token_everybody_reads_and_nobody_gets_a_cookie() -> None:
    assert access().may_read(asked())
    assert access().cookie_for(asked(target="/?token=x")) is None
    assert access().cookie_for(asked(target="/?token=")) is None


def test_the_token_opens_by_header_or_once_by_address() -> None:
    guard = access(TOKEN)
    assert not guard.may_read(asked())
    assert not guard.may_read(asked("Authorization: Bearer " + TOKEN[:-1]))
    assert not guard.may_read(asked("Authorization: Bearer"))
    assert not guard.may_read(asked(f"Authorization: Basic {TOKEN}"))
    assert not guard.may_read(asked(target=f"/?token={TOKEN}"))
    assert guard.may_read(asked(f"Authorization: bearer {TOKEN}"))
    assert guard.cookie_for(asked(target="/?token=wrong")) is None
    cookie = guard.cookie_for(asked(target=f"/?token={TOKEN}"))
    assert cookie is not None
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    pair = cookie.split(";")[0]
    assert guard.may_read(asked(f"Cookie: other=1; {pair}"))
    assert not guard.may_read(asked(f"Cookie: {pair[:-1]}"))
    assert not guard.may_read(asked('Cookie: migrator_access_9466=""'))
    assert not guard.may_read(asked("Cookie: \\;=;;"))
    # It is worth nothing to another process, nor is it taken from one.
    assert not access(TOKEN).may_read(asked(f"Cookie: {pair}"))


def test_tokens_are_files_of_their_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="by others"):
        read_token(file)
    file.chmod(0o600)
    assert read_token(file) == TOKEN
    for content in (b"short\n", b"", b"two words of some length\n", b"0123456789abcdef\n\n", b"\xff" * 30):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="no token"):
            read_token(file)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UsageError, match="no token"):
        read_token(tmp_path / "pipe")
    with pytest.raises(UsageError, match="cannot be read"):
        read_token(tmp_path / "none")


def test_addresses_are_figures() -> None:
    assert parse_address("127.0.0.1:9466") == ("127.0.0.1", 9466)
    assert parse_address("localhost:0") == ("127.0.0.1", 0)
    assert parse_address("[::1]:80") == ("::1", 80)
    for words in ("", ":80", "9466", "example.org:80", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:²"):
        with pytest.raises(UsageError, match="no address"):
            parse_address(words)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.1.2.3", "fe80::1", "::ffff:10.0.0.1"])
def test_what_others_can_reach_needs_a_token(address: str) -> None:
    require_token(address, TOKEN)
    with pytest.raises(Refused, match="no token"):
        require_token(address, None)
    require_token("127.0.0.9", None)


class Ledger:
    """What is looked at, and how often it was."""

    def __init__(self) -> None:
        self.looks = 0
        self.now_s = 0.0
        self.broken = False

    def look(self) -> int:
        self.looks += 1
        self.now_s += 2.0
        if self.broken:
            raise MigratorError("no ledger")
        return self.looks


def test_all_who_ask_share_a_look_and_a_failed_one_is_not_repeated_at_once() -> None:
    ledger = Ledger()

    async def ask() -> None:
        looks = Looks(ledger.look, pause_s=lambda took_s: took_s * 3, clock=lambda: ledger.now_s)
        assert set(await asyncio.gather(*(looks.newest() for _ in range(10)))) == {1}
        ledger.now_s += 5.9
        assert await looks.newest() == 1
        ledger.now_s += 0.1
        assert await looks.newest() == 2
        ledger.broken = True
        ledger.now_s += 6.0
        for _ in range(5):
            with pytest.raises(MigratorError):
                await looks.newest()
        assert ledger.looks == 3
        ledger.broken = False
        ledger.now_s += 6.0
        assert await looks.newest() == 4

    asyncio.run(ask())
