"""One writer: what two processes of one site must not do at once."""

from contextlib import AbstractContextManager
from typing import Protocol


class Locks(Protocol):
    """Named locks of a site that end with the process that holds them, also when it is killed."""

    def hold(self, name: str, purpose: str) -> AbstractContextManager[None]:
        """Hold `scan` or `run` until the end of the block. Raises LockHeld at once, naming holder and purpose."""
