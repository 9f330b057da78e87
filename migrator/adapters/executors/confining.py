"""What a confined stream begins with on its host: the compiled twin of `jail` where that runs, the script elsewhere."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from migrator.adapters.executors import jail
from migrator.domain.errors import ToolFailed
from migrator.ports.hosts import Host, HostFacts
from migrator.ports.processes import Command

_PROBE_TIMEOUT_S = 30.0
_USAGE = b"migrator-jail: usage: "

PlaceCompiled = Callable[[], Awaitable[bytes]]
"""Gives the path of the compiled program on a host, placed anew where it is gone with a connection. Raises OSError and
HostLost."""


class Confiner:
    """Chooses between the two for one host. They say and do the same; an interpreter takes longer to start than a stream
    of small files lasts.
    """

    def __init__(self, host: Host, *, script_path: bytes | None, compiled: PlaceCompiled | None) -> None:
        """`script_path` None: the script is placed there. `compiled` None: there is no program for that machine."""
        self._host = host
        self._script_path = script_path
        self._script = b""
        self._compiled = compiled
        self._works: dict[bytes, bool] = {}

    async def prefix(self, facts: HostFacts) -> tuple[bytes, ...]:
        """The words before the options. Raises HostLost, and OSError where nothing can be placed there."""
        compiled = await self._compiled_there()
        if compiled is not None:
            return (compiled, b"confine")
        path = self._script_path or await self._host.place("jail.py", self._source())
        return (facts.python, b"-I", b"-S", path)

    async def _compiled_there(self) -> bytes | None:
        if self._compiled is None:
            return None
        try:
            path = await self._compiled()
        except OSError:
            return None  # no room, perhaps: the script is smaller
        if path not in self._works:
            self._works[path] = await self._confines(path)
        return path if self._works[path] else None

    async def _confines(self, path: bytes) -> bool:
        """Whether it can be started there, and is not left over from a build that could not confine."""
        try:
            answer = await self._host.processes.run(Command(argv=(path, b"confine"), timeout_s=_PROBE_TIMEOUT_S))
        except ToolFailed:
            return False
        return answer.exit_code == jail.SET_UP_FAILED and answer.stderr.startswith(_USAGE)

    def _source(self) -> bytes:
        if not self._script:
            self._script = Path(jail.__file__).read_bytes()
        return self._script
