"""Where the server listens, and what it is to be kept from."""

import asyncio
import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from migrator.adapters.web.access import Access
from migrator.adapters.web.server import STREAM_LIMIT, Route, WebServer
from migrator.domain.errors import MigratorError, Refused, UsageError
from migrator.domain.serving import Listening

_LEAST_TOKEN = 16
_MOST_TOKEN_BYTES = 4096
_MAKE_TOKEN = "(umask 077; openssl rand -hex 32 > token)"


def read_token(file: Path) -> str:
    """The token in a file, which is its owner's alone. Raises UsageError."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            content = os.read(fd, _MOST_TOKEN_BYTES) if stat.S_ISREG(found.st_mode) else b""
        finally:
            os.close(fd)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=f"make one: {_MAKE_TOKEN}") from error
    if found.st_mode & 0o077:
        raise UsageError(f"{file} can be read by others than its owner", hint=f"chmod 600 {file}")
    token = content.removesuffix(b"\n").decode("ascii", "replace")
    if len(token) < _LEAST_TOKEN or not all("!" <= letter <= "~" for letter in token):
        raise UsageError(
            f"{file} holds no token: one line of at least {_LEAST_TOKEN} printable characters without spaces",
            hint=f"make one: {_MAKE_TOKEN}",
        )
    return token


def parse_address(words: str) -> tuple[str, int]:
    """`ADDRESS:PORT`, the address in figures or `localhost`; of IPv6 in brackets. Raises UsageError."""
    host, _, port = words.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(host)
        number = int(port) if port.isascii() and port.isdigit() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise UsageError(
            f"{words} is no address to listen on", hint="give figures: 127.0.0.1:9466, [::1]:9466 or 10.0.0.5:9466"
        )
    return str(address), number


def require_token(address: str, token: str | None) -> None:
    """Raises Refused where others than this machine could read, and nothing keeps them from it."""
    if token is None and not ipaddress.ip_address(address).is_loopback:
        raise Refused(
            f"{address} can be reached from other machines, and there is no token",
            cause="what is served names users, hosts and paths",
            hint=f"--token-file FILE; {_MAKE_TOKEN}; or listen on 127.0.0.1, behind ssh -L",
        )


class Listener:
    """A socket that is bound, so that its port is known, and not served yet."""

    def __init__(self, address: str, port: int, *, token: str | None, names: Sequence[str]) -> None:
        """Raises Refused, and MigratorError where it cannot be bound."""
        require_token(address, token)
        self._socket = _bound(address, port)
        self._token = token
        self._names = names
        self._loopback = ipaddress.ip_address(address).is_loopback
        bound = self._socket.getsockname()[1]
        shown = f"[{address}]" if ":" in address else address
        self.listening = Listening(url=f"http://{shown}:{bound}/", address=address, port=bound, token=token is not None)

    async def serve(self, routes: Mapping[str, Route]) -> None:
        """Answer until it is cancelled; open connections are ended then."""
        access = Access(
            names=(*self._names, *_own_names()), token=self._token, loopback=self._loopback, port=self.listening.port
        )
        server = await asyncio.start_server(
            WebServer(routes, access).converse, sock=self._socket, limit=STREAM_LIMIT, backlog=64
        )
        async with server:
            await server.serve_forever()

    def close(self) -> None:
        """Release the port. May be called again."""
        self._socket.close()


def _own_names() -> tuple[str, ...]:
    name = socket.gethostname()
    return (name, name.partition(".")[0])


def _bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(64)
    except OSError as error:
        with closing(made):
            raise _cannot(address, port, error) from error
    return made


def _cannot(address: str, port: int, error: OSError) -> MigratorError:
    hints = {
        errno.EADDRINUSE: "another program listens there already: name another port, 0 for any that is free",
        errno.EACCES: "ports below 1024 are root's: name one above",
        errno.EADDRNOTAVAIL: "this machine has no such address: see `ip address`",
    }
    return MigratorError(
        f"cannot listen on {address} port {port}: {error.strerror}", hint=hints.get(error.errno or 0, "")
    )
