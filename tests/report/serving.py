"""A site with the ledger of a migration in its fifth week, and the program that serves it."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.report_world import Weeks


def site_of_weeks(directory: Path, weeks: Weeks, *, share: float = 0.6, more: str = "") -> Path:
    """The site file of a migration, with `more` in it; nothing but its ledger is there."""
    for name in ("source", "target", "state"):
        (directory / name).mkdir()
    weeks.fill(directory / "state" / "ledger.db", share=share)
    file = directory / "site.toml"
    file.write_text(
        f'[site]\nname = "rehearsal"\nstate_dir = {json.dumps(str(directory / "state"))}\n'
        f'[source]\nkind = "posix"\nmount = {json.dumps(str(directory / "source"))}\n'
        f'[target]\nkind = "posix"\nmount = {json.dumps(str(directory / "target"))}\n'
        f'[users]\ntrees = ["home/*"]\n{more}'
    )
    return file


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


def reply(raw: bytes) -> Reply:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in rest)
    return Reply(status=int(first.split()[1]), headers=headers, body=body)


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the other end closes, or breaks off."""
    found = b""
    with suppress(ConnectionResetError):
        while block := connection.recv(2**20):
            found += block
    return found


@dataclass(frozen=True)
class Served:
    """A server that answers."""

    process: "subprocess.Popen[str]"
    listening: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.listening["url"])

    def connect(self) -> socket.socket:
        return socket.create_connection((self.listening["address"], self.listening["port"]), timeout=600)

    def raw(self, request: bytes) -> bytes:
        with self.connect() as connection:
            connection.sendall(request)
            return rest_of(connection)

    def get(self, path: str = "/", *headers: str, host: str = "localhost") -> Reply:
        """With the token that the server has made for itself, if it has."""
        token = self.listening["token"]
        opening = (f"Authorization: Bearer {token}",) if token else ()
        lines = (f"GET {path} HTTP/1.1", f"Host: {host}", *opening, *headers, "", "")
        return reply(self.raw("\r\n".join(lines).encode("latin-1")))


@contextmanager
def serving(site_file: Path, *words: str, user: int | None = None) -> Iterator[Served]:
    """The program at work, from its first word on, as another user if that is given; it ends with the block."""
    options = ["--site", str(site_file), *words, "--json"]
    # Loaded first: the user may not be able to enter this checkout.
    enter = f"import os, sys; os.setgroups([]); os.setgid({user}); os.setuid({user}); sys.argv[0] = 'migrator'"
    load = (
        "import migrator.cli.metrics, migrator.cli.main, migrator.report.serve; from migrator.__main__ import program"
    )
    program = ["-m", "migrator"] if user is None else ["-c", f"{load}; {enter}; program()"]
    argv: Sequence[str] = [sys.executable, *program, *options]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield Served(process, json.loads(line))
    finally:
        process.terminate()
        process.communicate(timeout=600)
