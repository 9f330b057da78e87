"""What the benchmarks' stage needs of the world."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from migrator.domain.benchmark import Place
from migrator.domain.events import Event, EventKind, Severity
from migrator.ports.benchmarks import BenchmarkRecords, Workloads
from migrator.ports.clock import Clock
from migrator.ports.locks import Locks
from migrator.ports.progress import Progress

LOCK = "bench"
"""One call at a time measures: two would measure each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkWorld:
    """`not_expected` says why what is mounted at a place is not what was recorded of it: nothing is written there then.
    `not_there` says the same of a host, None where it is; it raises HostLost, ToolFailed, UsageError.
    """

    workloads: Workloads
    records: BenchmarkRecords
    locks: Locks
    progress: Progress
    clock: Clock
    not_expected: Callable[[Place], tuple[str, ...]]
    not_there: Callable[[str, Place], Awaitable[str | None]]
    tokens: Callable[[], str]

    def say(self, kind: EventKind, subject: str, message: str, severity: Severity = Severity.INFO) -> None:
        """Tell whoever watches."""
        self.progress.event(
            Event(at_s=self.clock.now_s(), kind=kind, severity=severity, subject=subject, message=message)
        )


def part_of(host: str) -> str:
    """The directory of one host in the work directory. Names of hosts may hold what names of files may not."""
    return "host-" + host.encode("utf-8", "surrogateescape").hex()
