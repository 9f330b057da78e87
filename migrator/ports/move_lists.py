"""The move lists of delta passes: what is to be renamed and taken away on the target."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.changes import Gone, Rename


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMoves:
    """A move list that is on disk. `gone` counts the outermost paths that vanished."""

    move_list: str
    digest: str
    renames: int
    gone: int


class MoveLists(Protocol):
    """The move lists of a site, one for each delta pass. Out of core: nothing is held but some thousand rows.

    Reading raises Refused where a list is missing or damaged.
    """

    def write(self, name: str, renames: Iterable[Rename], gone: Iterable[Gone]) -> WrittenMoves:
        """Write a list durably, in the order that is given. Replaces what an interrupted pass left under the name."""

    def renames(self, move_list: str) -> Iterator[Rename]:
        """The renames of a list, in order."""

    def gone(self, move_list: str) -> Iterator[Gone]:
        """What vanished, in order."""

    def digest(self, move_list: str) -> str:
        """The digest of a list's content."""
