"""Whether the processes of a stream still do something."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Activity(Protocol):
    """Looks at processes from outside, so that a stream which says nothing for long is not taken for a stuck one."""

    def of(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """For every token with living processes, a number that changes whenever they move bytes or use the processor.

        A process that hangs in a system call does not change it.
        """
