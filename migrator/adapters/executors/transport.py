"""How a host is reached: the command that connects, and what its failure means."""

from collections.abc import Mapping
from typing import Protocol

from migrator.ports.hosts import HostLost


class Transport(Protocol):
    """Makes the command that runs a Python on a host, its standard streams connected to ours."""

    @property
    def host(self) -> str:
        """The host's name, as in site.toml."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What the command needs of this program's environment."""

    def argv(self, arguments: tuple[str, ...]) -> tuple[bytes, ...]:
        """The command, the interpreter being given these arguments."""

    def explain(self, stderr: bytes, exit_code: int | None, *, connected: bool) -> HostLost:
        """What a failure means, in words that help. `exit_code` None: it has not ended. `connected`: it had worked."""
