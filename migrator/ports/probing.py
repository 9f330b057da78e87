"""What probing asks of a file system and of the ledger. Times in seconds since the epoch."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.probe import Probe, ProbeSide, ProbeTimes


class Prober(Protocol):
    """Small operations on one file system, through its mount. Blocking: any call may hang with the file system."""

    def probe(self, number: int) -> ProbeTimes:
        """One probe; `number` chooses the names, which repeat. What a killed process has left is taken over.

        Raises OSError, also where the root is not the file system that was set up, or something that is not the program's
        own stands in the place of its directory.
        """

    def clean(self) -> None:
        """Remove everything that probes make, also what a killed process has left. May be called again; raises OSError."""


class ProbeRecords(Protocol):
    """Probes over time; old ones are thinned out. Synchronous, short transactions."""

    def add(self, probe: Probe) -> None:
        """Keep one."""

    def since(self, side: ProbeSide, at_s: float) -> Sequence[Probe]:
        """Those of a side that were begun after that time, oldest first."""

    def after(self, number: int) -> Sequence[tuple[int, Probe]]:
        """Those of both sides that were kept after the one of that number, with their numbers, in the order in which they were
        kept: whoever reads on from there is not led astray by a clock that was set.
        """

    def last(self) -> int:
        """The number of the one that was kept last; 0 where there is none."""

    def newest(self) -> Sequence[Probe]:
        """The newest of each side that has any, in the order of `ProbeSide`."""
