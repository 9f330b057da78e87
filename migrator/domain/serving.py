"""Where pages and metrics are served."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A server that takes connections: `url` is what to open. `token` says whether it asks for one."""

    url: str
    address: str
    port: int
    token: bool
