"""A transport without a network."""

from collections.abc import Mapping
from dataclasses import dataclass

from migrator.core.paths import show
from migrator.hosts.ports import HostLost


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPipe:
    """This machine as if it were another one: the far end as a child."""

    host: str = "pipe"
    python: str = "python3"

    @property
    def environment(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def argv(self, arguments: tuple[str, ...]) -> tuple[bytes, ...]:
        """The interpreter itself."""
        return tuple(word.encode() for word in (self.python, *arguments))

    def explain(self, stderr: bytes, exit_code: int | None, *, connected: bool) -> HostLost:
        """What it said."""
        what = "was lost" if connected else "could not be started"
        return HostLost(f"the far end on {self.host} {what} (exit code {exit_code}): {show(stderr.strip()[-500:])}")
