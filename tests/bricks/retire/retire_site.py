"""Everything that a retirement works with: a real ledger over a simulated volume."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from migrator.bricks.retire import model as retire_model
from migrator.bricks.retire.stage import RetirementWorld, WriteList, retire_volume
from migrator.catalog.model import CatalogRecord, StrangeFiles
from migrator.core.clock import Clock
from migrator.core.entry import Entry, EntryType
from migrator.cutover.model import Writers
from migrator.gluster.model import ClientSeen, VolumeState, VolumeTask
from migrator.ledger.ledger import Ledger
from migrator.purge.model import Proof
from tests.bricks.brick_worlds import world_of
from tests.support.catalogs import whole_catalog
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.fakes import FakeLocks, VirtualClock
from tests.support.kills import Death, DoingHooks
from tests.support.making import made
from tests.support.volumes import volume

OWN = "10.0.0.1:49151"
STATE = volume(volume_id="v", heals=(), peers_down=())


class Rooted(FakeFileSystem):
    """Its directories are root's alone."""

    def look(self, path: bytes) -> Entry | None:
        entry = super().look(path)
        return entry if entry is None or entry.type is not EntryType.DIRECTORY else replace(entry, mode=0o700)


def found(path: bytes, *, proof: bool = True, ctime_ns: int = 1) -> tuple[retire_model.CatalogedPath, Proof | None]:
    facts = {"path": path, "type": EntryType.FILE, "size_bytes": 7, "mtime_ns": 1, "ino": 1}
    proven = made(Proof, **facts, ctime_ns=1, digest=b"content", algorithm="x")
    return made(retire_model.CatalogedPath, **facts, ctime_ns=ctime_ns), proven if proof else None


@dataclass
class Volume:
    """A volume. `fault` is called before and after whatever it does, with the name of it."""

    fault: Callable[[str], None] = lambda _: None
    state: VolumeState = STATE
    addresses: tuple[str, ...] = (OWN,)
    stops: int = 0
    intents: list[retire_model.RetirementState | None] = field(default_factory=list)
    ledger: Ledger | None = None

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        self.fault("state")
        return self.state, ()

    async def clients(self) -> tuple[ClientSeen, ...]:
        self.fault("clients")
        return tuple(ClientSeen(brick="gl1:/b", address=address) for address in self.addresses)

    async def stop(self) -> None:
        self.fault("before stop")
        newest = None if self.ledger is None else self.ledger.retirements.newest()
        self.intents.append(None if newest is None else newest.state)
        self.stops += 1
        self.state = replace(self.state, started=False)
        self.fault("after stop")


@dataclass
class Site:
    """What is asked and what is there; `looks` are the paths that one scan after the other finds (the last one again)."""

    ledger: Ledger
    volume: Volume
    looks: list[list[tuple[retire_model.CatalogedPath, Proof | None]]]
    source: FakeFileSystem = field(default_factory=Rooted)
    opened: Writers = field(default_factory=Writers)
    whole: bool = True
    strange: tuple[StrangeFiles, ...] = ()
    scans: int = 0
    locks: FakeLocks = field(default_factory=FakeLocks)
    clock: Clock = field(default_factory=VirtualClock)
    hooks: DoingHooks = field(default_factory=DoingHooks)
    listed: list[retire_model.Uncovered] = field(default_factory=list)
    backups: list[str] = field(default_factory=list)
    death: Death | None = None

    async def endpoints(self) -> tuple[frozenset[str], tuple[str, ...]]:
        return frozenset({OWN}), ()

    async def find_writers(self, trees: Sequence[bytes]) -> Writers:
        return self.opened

    async def scan(self) -> CatalogRecord:
        self.volume.fault("scan")
        self.scans += 1
        record = whole_catalog(
            name=f"c{self.scans}",
            scan_id=self.ledger.scans.start(catalog=f"c{self.scans}", via="bricks", at_s=self.clock.now_s()),
            started_at_s=self.clock.now_s(),
            finished_at_s=self.clock.now_s(),
            whole=self.whole,
            reasons=() if self.whole else ("a directory could not be read",),
            strange=self.strange,
        )
        self.ledger.scans.finish(record)
        return record

    def paths(
        self, catalog: str, moved: Mapping[bytes, str]
    ) -> Iterator[Sequence[tuple[retire_model.CatalogedPath, Proof | None]]]:
        yield self.looks[min(int(catalog[1:]), len(self.looks)) - 1]

    @contextmanager
    def list_to(self, directory: str) -> Iterator[tuple[WriteList, str]]:
        def write(more: Iterable[retire_model.Uncovered]) -> None:
            self.listed.extend(more)

        self.listed.clear()
        yield write, f"{directory}/list"

    def back_up(self, name: str) -> None:
        self.volume.fault("back up")
        self.backups.append(name)

    def world(self) -> RetirementWorld:
        return world_of(
            RetirementWorld,
            self.ledger,
            self.death,
            volume=self.volume,
            source=self.source,
            writers=self.find_writers,
            endpoints=self.endpoints,
            scan=self.scan,
            cover=self.paths,
            manifests=None,  # no user was moved: none is asked
            list_to=self.list_to,
            back_up=self.back_up,
            hooks=self.hooks,
            locks=self.locks,
            clock=self.clock,
        )

    @property
    def state(self) -> retire_model.RetirementState | None:
        """Of the newest attempt."""
        newest = self.ledger.retirements.newest()
        return newest.state if newest else None

    def has_left(self) -> tuple[object, ...]:
        """What is simulated, as it lies there."""
        return (self.volume.stops, self.hooks)

    def killed(self, death: Death) -> None:
        """Retire; the program is killed there."""
        self.death = death
        self.retire()

    def retire(self, *, confirm: str | None = "vol1", dry_run: bool = False) -> retire_model.RetirementSummary:
        return asyncio.run(
            retire_volume(retire_model.RetireRequest(pid=1, confirm=confirm, dry_run=dry_run), self.world())
        )
