"""`brick retire` as a stage: a real ledger, with a volume that is told what to say, killed and disturbed at every place."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.bricks.model import CallEnding
from migrator.bricks.retire import model as retire_model
from migrator.bricks.retire.cover import WriteList
from migrator.bricks.retire.model import RetirementState, UncoveredKind
from migrator.bricks.retire.retire import RetirementPorts, retire_volume
from migrator.bricks.retire.view import retirement_document
from migrator.catalog.model import CatalogRecord, StrangeFiles
from migrator.core.clock import Clock
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import LockHeld, Refused, ToolFailed
from migrator.core.probe import PROBE_NAME
from migrator.cutover.rules_writers import OpenFile, OpenKind, Writers
from migrator.cutover.writers import OwnClients
from migrator.fs.model import BENCH_NAME, PURGE_NAME, TRASH_NAME, TargetCapabilities
from migrator.gluster.model import ClientSeen, VolumeState, VolumeTask
from migrator.hooks.model import HookStep
from migrator.ledger.locks import VOLUME
from migrator.purge.model import Proof
from migrator.render.text import to_markdown
from tests.bricks.verb_ports import ports_of
from tests.support.catalogs import whole_catalog
from tests.support.cli_site import Site as PosixSite
from tests.support.fake_filesystem import IDENTITY, FakeFileSystem
from tests.support.fakes import FakeLocks, VirtualClock
from tests.support.kills import Death, DoingHooks, Killed, killed_everywhere, new_ledger
from tests.support.making import made
from tests.support.records import site_record
from tests.support.volumes import brick, volume

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
    ledger: MigrationLedger | None = None

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        self.fault("state")
        return self.state, ()

    async def clients(self) -> tuple[ClientSeen, ...]:
        self.fault("clients")
        return tuple(ClientSeen(brick="gl1:/b", address=address) for address in self.addresses)

    async def stop_volume(self) -> None:
        self.fault("before stop")
        newest = None if self.ledger is None else self.ledger.retirements.newest()
        self.intents.append(None if newest is None else newest.state)
        self.stops += 1
        self.state = replace(self.state, started=False)
        self.fault("after stop")


@dataclass
class Site:
    """What is asked and what is there; `looks` are the paths that one scan after the other finds (the last one again)."""

    ledger: MigrationLedger
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

    async def endpoints(self) -> OwnClients:
        return OwnClients(ends=frozenset({OWN}))

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

    def world(self) -> RetirementPorts:
        return ports_of(
            RetirementPorts,
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


S = RetirementState


def covered(ledger: MigrationLedger) -> Site:
    """Everything in the volume is in a manifest; one path was touched since, and has to be read."""
    site = Site(ledger, Volume(ledger=ledger), [[found(b"home/alice/x"), found(b"home/alice/y", ctime_ns=2)]])
    site.source.add(b"home/alice/y", b"content")
    return site


@pytest.fixture
def site(memory: Path) -> Iterator[Site]:
    """Nothing was scanned yet."""
    with MigrationLedger.open(memory / "ledger.db", create=True) as ledger:
        ledger.site.create(
            site_record(IDENTITY, site_id="s", capabilities=TargetCapabilities(), capabilities_probed_at_s=1.0)
        )
        yield covered(ledger)


def test_a_volume_that_is_covered_is_stopped_once_after_intent_and_backup(site: Site) -> None:
    done = site.retire()
    assert (done.ending, site.volume.stops, site.volume.intents) == (CallEnding.DONE, 1, [S.STOPPING])
    assert done.cover is not None
    assert (done.cover.proven.paths, done.cover.read.paths, done.cover.uncovered) == (2, 1, {})
    assert done.retirement is not None
    assert done.retirement.state is S.RETIRED
    assert site.backups == [f"retirement-{done.retirement.id}"]
    assert site.scans == 2, "once before the intent, and once right before the stop"
    assert "gluster volume delete" in to_markdown(retirement_document(done))
    again = site.retire()
    assert (again.ending, again.exit_code.value, site.volume.stops) == (CallEnding.DONE_BEFORE, 0, 1)


def test_it_is_stopped_only_by_its_name(site: Site) -> None:
    for confirm in (None, "vol", "vol2"):
        with pytest.raises(Refused):
            site.retire(confirm=confirm)
    assert (site.volume.stops, site.scans) == (0, 0)


@pytest.mark.guarantee("retire")
def test_uncovered_paths_are_listed_and_nothing_is_touched(site: Site) -> None:
    strays = [found(b"stray/%03d\n" % number, proof=False) for number in range(50)]
    site.looks = [[*site.looks[0], *reversed(strays)]]
    refused = site.retire()
    assert (refused.exit_code.value, site.volume.stops) == (4, 0)
    assert refused.cover is not None
    assert {kind: (one.paths, one.size_bytes) for kind, one in refused.cover.uncovered.items()} == {
        UncoveredKind.OUTSIDE: (50, 350)
    }
    assert [one.path for one in refused.cover.examples] == [row.path for row, _ in strays[:20]]
    assert {one.path for one in site.listed} == {row.path for row, _ in strays}
    shown = to_markdown(retirement_document(refused))
    assert all(words in shown for words in ("50 paths (350 B) are not", "in no user tree", "000\\\\x0a", "/list"))
    assert site.state is None


def test_changed_content_is_found_by_the_ctime_alone(site: Site) -> None:
    site.source.nodes[b"home/alice/y"] = dataclasses.replace(site.source.nodes[b"home/alice/y"], content=b"another")
    refused = site.retire()
    assert refused.cover is not None
    assert list(refused.cover.uncovered) == [UncoveredKind.CHANGED]
    assert site.volume.stops == 0


@pytest.mark.guarantee("retire")
def test_a_change_between_the_first_check_and_the_stop_refuses_it(site: Site) -> None:
    site.looks.append([*site.looks[0], found(b"new", proof=False)])
    assert site.retire().exit_code.value == 4
    assert (site.state, site.volume.stops) == (S.GIVEN_UP, 0)
    assert [one.path for one in site.listed] == [b"new"]
    # It is taken away by hand, and the same command begins another attempt.
    site.looks = site.looks[:1]
    assert site.retire().ending is CallEnding.DONE


def opened(path: bytes) -> Writers:
    return Writers(open_files=(OpenFile(host="gl1", path=path, kind=OpenKind.FILE, writable=False),))


def with_fact(name: str, value: object) -> Callable[[Site], None]:
    return lambda site: setattr(site, name, value)


def with_file(path: bytes) -> Callable[[Site], None]:
    return lambda site: site.source.add(path, b"of a user")


@pytest.mark.parametrize(
    "disturb",
    [
        lambda site: setattr(site.volume, "addresses", (OWN, "10.0.0.9:49150")),
        # A brick that was not asked.
        lambda site: setattr(site.volume, "state", replace(STATE, bricks=(brick("gl2:/b"),))),
        with_fact("opened", opened(b"/home/x")),
        with_fact("whole", value=False),
        with_fact("strange", (StrangeFiles(brick="gl1:/b", files=1, paths=(b"home/placed",)),)),
        lambda site: setattr(site.source, "sick", ("brick gl1:/b is down",)),
        with_file(PURGE_NAME + b"/cutover-000001"),
        with_file(BENCH_NAME + b"/thesis"),
        with_file(PROBE_NAME + b"/thesis"),
        with_file(TRASH_NAME),
    ],
)
def test_a_guard_refuses_it(site: Site, disturb: Callable[[Site], None]) -> None:
    disturb(site)
    refused = site.retire()
    assert (refused.ending, site.volume.stops) == (CallEnding.HALTED, 0)
    assert refused.reasons
    assert site.state is None


def test_a_trash_of_its_own_probes_and_what_gluster_has_open_are_no_reason_against_it(site: Site) -> None:
    site.source.add(TRASH_NAME + b"/back-000001/home/alice/old", b"old")
    for name in (b"entry-00", b"probe-15", b"complete"):
        site.source.add(PROBE_NAME + b"/" + name, b"")
    site.opened = opened(b"/.glusterfs/00")
    assert site.retire().ending is CallEnding.DONE


@pytest.mark.parametrize(("names", "shared"), [(("scan",), ()), (("drain",), ()), (("tree a",), (VOLUME,))])
def test_it_neither_waits_for_others_nor_disturbs_them(
    site: Site, names: tuple[str, ...], shared: tuple[str, ...]
) -> None:
    with site.locks.hold("something", *names, shared=shared), pytest.raises(LockHeld):
        site.retire()
    assert site.volume.stops == 0


def test_a_dry_run_takes_the_decision_by_a_newer_catalog_and_writes_nothing(site: Site) -> None:
    assert "migrator scan" in site.retire(confirm=None, dry_run=True).reasons[0]
    asyncio.run(site.scan())
    planned = site.retire(confirm=None, dry_run=True)
    assert (planned.ending, planned.cover and planned.cover.catalog) == (CallEnding.PLANNED, "c1")
    assert (site.scans, site.volume.stops, site.listed) == (1, 0, [])
    assert site.state is None
    assert site.ledger.runs.latest() is None


def test_an_answer_that_is_lost_is_no_refusal_and_a_refusal_gives_it_up(site: Site) -> None:
    def fail(place: str) -> Callable[[str], None]:
        def fault(name: str) -> None:
            if name == place:
                raise ToolFailed("gluster says: no")

        return fault

    site.volume.fault = fail("before stop")
    with pytest.raises(ToolFailed):
        site.retire()
    newest = site.ledger.retirements.newest()
    assert newest is not None
    assert (newest.state, newest.failure) == (S.GIVEN_UP, "gluster says: no")
    site.volume.fault = fail("after stop")
    assert site.retire().ending is CallEnding.DONE
    assert site.volume.stops == 1


def test_a_retired_volume_may_be_deleted_and_another_one_is_another(site: Site) -> None:
    assert site.retire().ending is CallEnding.DONE

    def gone(name: str) -> None:
        raise ToolFailed("Volume vol1 does not exist")

    site.volume.fault = gone
    assert site.retire().ending is CallEnding.DONE_BEFORE
    site.volume.fault = lambda _: None
    site.volume.state = replace(STATE, volume_id="w", started=False)
    assert site.retire().ending is CallEnding.HALTED


@contextmanager
def killed_at(site: Site, place: str, *, begun: bool = False) -> Iterator[None]:
    """The program is killed there; `begun`: not before the intent is written."""

    def kill(name: str) -> None:
        if name == place and not (begun and site.ledger.retirements.newest() is None):
            raise Killed

    site.volume.fault = kill
    with pytest.raises(Killed):
        yield
    site.volume.fault = lambda _: None


def test_after_a_refusal_a_stop_by_others_is_not_taken_for_a_killed_attempt(site: Site) -> None:
    with killed_at(site, "before stop"):
        site.retire()
    site.looks = [[*site.looks[0], found(b"new", proof=False)]]
    assert site.retire().exit_code.value == 4
    site.volume.state = replace(STATE, started=False)
    assert site.retire().ending is CallEnding.HALTED
    assert site.state is S.GIVEN_UP


@pytest.mark.parametrize("place", ["back up", "scan"])
def test_a_stop_by_others_is_not_taken_for_an_attempt_killed_before_its_last_check(site: Site, place: str) -> None:
    with killed_at(site, place, begun=True):
        site.retire()
    site.volume.state = replace(STATE, started=False)
    refused = site.retire()
    assert (refused.ending, "gluster volume start vol1" in refused.hint) == (CallEnding.HALTED, True)
    # Started again, the same attempt goes on.
    site.volume.state = STATE
    done = site.retire()
    assert (done.ending, done.retirement and done.retirement.id) == (CallEnding.DONE, 1)


def test_a_source_without_a_volume_cannot_be_retired(tmp_path: Path) -> None:
    posix = PosixSite(directory=tmp_path, source=tmp_path / "source", target=tmp_path / "target")
    for path in (posix.source, posix.target):
        path.mkdir()
    posix.write()
    posix.fails(2, "brick", "retire", "--confirm", "vol1", says=("it is no Gluster volume",))


def test_hooks_are_called_around_it_and_those_owed_after_a_kill_by_the_next_call(site: Site) -> None:
    site.hooks = hooks = DoingHooks({HookStep.RETIRE: lambda: None})
    with killed_at(site, "after stop"):
        site.retire()
    for _ in range(2):
        assert site.retire().ending is CallEnding.DONE_BEFORE
    assert hooks.calls == [("pre-retire", ""), ("post-retire", "done")]


def test_a_hook_that_refuses_it_leaves_the_volume_alone(site: Site) -> None:
    site.hooks = DoingHooks({HookStep.RETIRE: lambda: None}, exit_codes={"pre-retire": 1})
    with pytest.raises(Refused, match=r"pre-retire.d/50-do"):
        site.retire()
    assert (site.state, site.volume.stops) == (S.GIVEN_UP, 0)


@pytest.mark.exhaustive
def test_killed_before_any_call_the_volume_is_stopped_once_by_the_same_command(memory: Path) -> None:
    died_in: set[RetirementState | None] = set()

    def make(ledger: MigrationLedger) -> Site:
        site = covered(ledger)
        site.hooks = DoingHooks({HookStep.RETIRE: lambda: None})
        return site

    for site, _ in killed_everywhere(new_ledger(memory / "prepared.db"), make, Site.killed, died_in):
        ledger = site.ledger
        site.death = None
        done = site.retire()
        assert done.ending in (CallEnding.DONE, CallEnding.DONE_BEFORE), done
        assert (site.volume.stops, site.volume.intents) == (1, [S.STOPPING])
        newest = ledger.retirements.newest()
        assert newest is not None
        assert (newest.id, newest.state) == (1, S.RETIRED)
        assert site.backups
        assert site.locks.held == []
        assert site.hooks.told() == ["post-retire"]
        assert not ledger.hooks.unfinished((HookStep.RETIRE,))
    assert died_in >= {None, S.STOPPING, S.RETIRED}
