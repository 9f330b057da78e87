"""What one invocation of `run` leaves in its directory: a log, and the argv and output of every attempt."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from migrator.ports.processes import Command


class AttemptFiles(Protocol):
    """The files of one attempt. Methods raise OSError where the state directory cannot take them."""

    def stdout(self, piece: bytes) -> None:
        """Append a piece of standard output."""

    def stderr(self, piece: bytes) -> None:
        """Append a piece of standard error."""

    def digests(self, algorithm: str, found: Mapping[bytes, bytes]) -> None:
        """Write digests down that a stream made on the way, by path. May be called again, for the whole of them."""

    def close(self, *, keep_list: bool) -> None:
        """Close the files. The list that the stream was given stays only where it helps to find out what went wrong.
        May be called again.
        """


class RunDirectory(Protocol):
    """The directory of one invocation."""

    @property
    def path(self) -> str:
        """Where it lies, as the ledger keeps it."""

    def attempt(self, chunk: int, number: int, command: Command) -> AttemptFiles:
        """Open the files of an attempt, and write its argv (ready to be pasted) and its list down."""


class RunFiles(Protocol):
    """Makes run directories."""

    def open(self, verb: str, at_s: float) -> AbstractContextManager[RunDirectory]:
        """A new directory; until the end of the block, what the program logs goes there as JSON lines."""
