"""`serve`: what it answers, whom, and how it ends. Real sockets to the real program."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.ledger.ledger import open_ledger
from tests.report.serving import Served, serving, site_of_weeks
from tests.support.report_world import Weeks

TOKEN = "a-token-of-at-least-16-characters"
HOSTILE = (b"<script>alert(1)</script>", b"invalid \xff\xfe", b"new\nline")


@pytest.fixture(scope="module")
def site_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site_of_weeks(tmp_path_factory.mktemp("serve"), Weeks(names=HOSTILE))


@pytest.fixture(scope="module")
def server(site_file: Path) -> Iterator[Served]:
    with serving(site_file, "serve", "--listen", "127.0.0.1:0") as made:
        yield made


@pytest.fixture(scope="module")
def guarded(site_file: Path) -> Iterator[Served]:
    token = site_file.with_name("token")
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    words = ("serve", "--listen", "127.0.0.1:0", "--token-file", str(token), "--name", "gl1.example.org")
    with serving(site_file, *words) as made:
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
    found = server.get("/report.json")
    assert (found.status, found.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(found.body)["status"]["plan"]["name"] == "week1"
    assert found.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_the_token_and_the_name_of_the_command_line_open_it(guarded: Served) -> None:
    assert guarded.get("/", f"Authorization: Bearer {TOKEN}", host="gl1.example.org").status == 200


@pytest.mark.exhaustive
def test_a_ledger_that_is_gone_is_said_and_a_killed_run_too(tmp_path: Path) -> None:
    weeks = Weeks(users=3, chunks=30)
    site_file = site_of_weeks(tmp_path, weeks)
    ledger_file = tmp_path / "state" / "ledger.db"
    with open_ledger(ledger_file) as ledger:
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
