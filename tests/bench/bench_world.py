"""Benchmarks on directories of this machine: real hosts, a real ledger, and what tests change on the way."""

import asyncio
import os
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from migrator.app.doctor import benchmark_script
from migrator.app.ledger import MigrationLedger
from migrator.bench.bench import BenchmarkPorts
from migrator.bench.hosts import ConsistencyResult, HostWorkloads, RootState, WorkDirectory
from migrator.bench.model import HostRun, MeasuredFileSystem, Step, mount_of
from migrator.core.clock import SystemClock
from migrator.fs.model import BENCH_NAME
from migrator.ledger.locks import Locks
from tests.support.cli_site import Site
from tests.support.fakes import FakeProgress
from tests.support.one_host import OneHost

TOKEN = secrets.token_hex(16)
"""Of this process alone: what carries it is ended."""


class TestedWorkloads(HostWorkloads):
    """The real ones. Caches are dropped only where a test is about that: it slows whatever else the machine does."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__(OneHost(), benchmark_script)
        self.really_drop = False
        self.dropped = True
        self.missing: frozenset[str] = frozenset()
        self.change: Callable[[RootState], RootState] = lambda seen: seen
        self.before: Callable[[WorkDirectory, Step], None] = lambda _directory, _step: None
        self.removing: Callable[[], object] = lambda: None
        self.after_check: Callable[[str, Path], None] = lambda _argv, _shared: None
        self.starts: list[tuple[str, str, float | None]] = []

    async def read_root(self, host: str, root: bytes, programs: Collection[str]) -> RootState:
        seen = await super().read_root(host, root, programs)
        return self.change(structs.replace(seen, programs=seen.programs - self.missing))

    async def drop_caches(self, directory: WorkDirectory, step: Step) -> bool:
        return await super().drop_caches(directory, step) if self.really_drop else self.dropped

    async def remove(self, directory: WorkDirectory) -> None:
        self.removing()
        # A cancellation comes at the next wait.
        await asyncio.sleep(0)
        await super().remove(directory)

    async def perform(
        self, directory: WorkDirectory, step: Step, *, seed: int, start_at_s: float | None, token: str
    ) -> HostRun:
        self.before(directory, step)
        self.starts.append((directory.host, step.name, start_at_s))
        return await super().perform(directory, step, seed=seed, start_at_s=start_at_s, token=token)

    async def check(
        self, directory: WorkDirectory, lanes: Sequence[Sequence[str]], *, start_at_s: float | None, token: str
    ) -> list[ConsistencyResult]:
        seen = await super().check(directory, lanes, start_at_s=start_at_s, token=token)
        root = mount_of(directory.host, directory.place.root)
        self.after_check(" ".join(lanes[0]), Path(os.fsdecode(root), os.fsdecode(BENCH_NAME), directory.name))
        return seen


@dataclass
class BenchSite:
    """Two file systems, or two directories of one."""

    ledger: MigrationLedger
    places: tuple[MeasuredFileSystem, ...]
    workloads: TestedWorkloads
    progress: FakeProgress
    locks: Locks
    absent: frozenset[str] = frozenset()

    @property
    def world(self) -> BenchmarkPorts:
        return BenchmarkPorts(
            workloads=self.workloads,
            records=self.ledger.benchmarks,
            locks=self.locks,
            progress=self.progress,
            clock=SystemClock(),
            not_expected=lambda _place: (),
            not_there=self._not_there,
            tokens=lambda: TOKEN,
        )

    async def _not_there(self, host: str, place: MeasuredFileSystem) -> str | None:
        return f"{place.label} is not mounted" if host in self.absent else None


def cli_site(directory: Path) -> Site:
    """A site for the command line: two directories, and a user with a file."""
    made = Site(directory, directory / "source", directory / "target")
    (made.source / "home/alice").mkdir(parents=True)
    (made.source / "home/alice/letter").write_text("content")
    made.target.mkdir()
    made.write()
    made.works("init")
    return made


def bench_site(ledger: MigrationLedger, directory: Path, *roots: bytes) -> BenchSite:
    labels = ("source", "target", "third")
    return BenchSite(
        ledger=ledger,
        places=tuple(MeasuredFileSystem(label=label, root=root) for label, root in zip(labels, roots, strict=False)),
        workloads=TestedWorkloads(),
        progress=FakeProgress(),
        locks=Locks(directory / "locks", SystemClock()),
    )
