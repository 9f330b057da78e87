"""Whether the processes of a stream still do something, by their counters in /proc."""

from collections.abc import Mapping, Sequence

from migrator.adapters.executors import proc


class ProcActivity:
    """Sums, over the processes that carry a token, the bytes they moved and the time they used.

    A process that came or went changes the sum as well: that is something done.
    """

    def of(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """By token; tokens without living processes are left out."""
        return {
            token: sum(proc.work_done(identity.pid) for identity in identities)
            for token, identities in proc.carriers(tokens).items()
        }
