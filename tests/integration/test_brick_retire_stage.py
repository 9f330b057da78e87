"""`brick retire` as a stage: a real ledger, with a volume that is told what to say, killed and disturbed at every place."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from migrator.adapters.clock import SystemClock
from migrator.adapters.executors.process import LocalProcesses
from migrator.adapters.executors.threads import DaemonThreads
from migrator.adapters.hooks.program import HookPrograms
from migrator.adapters.ledger.sqlite import SqliteLedger, open_ledger
from migrator.bootstrap import new_token
from migrator.domain.benchmark import BENCH_NAME
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.entry import Entry, EntryType
from migrator.domain.errors import LockHeld, Refused, ToolFailed
from migrator.domain.freezing import OpenFile, OpenKind, Writers
from migrator.domain.probe import PROBE_NAME
from migrator.domain.purge import PURGE_NAME
from migrator.domain.purge_proof import Proof
from migrator.domain.retirement import (
    CatalogedPath,
    ClientSeen,
    Endpoint,
    MovedTree,
    RetireEnding,
    RetirementState,
    RetirementSummary,
    RetireRequest,
    Uncovered,
    UncoveredKind,
)
from migrator.domain.scan import CatalogRecord, StrangeFiles
from migrator.domain.site import TargetCapabilities
from migrator.domain.trash import TRASH_NAME
from migrator.domain.volume_tasks import VolumeTask
from migrator.ports.clock import Clock
from migrator.ports.site import SiteRecord
from migrator.stages.bricks.retire import retire_volume
from migrator.stages.bricks.retire_context import RetirementWorld, WriteList
from tests.cli_site import Site as PosixSite
from tests.fake_filesystem import IDENTITY, FakeFileSystem
from tests.fakes import FakeLocks, FakeProgress, FakeRunFiles, VirtualClock, inline

OWN = "10.0.0.1:49151"
STATE = VolumeState(
    volume="vol1",
    volume_id="v",
    type="Distribute",
    started=True,
    bricks=(),
    options=(),
    tasks=(),
    heals=(),
    peers_down=(),
)


class Rooted(FakeFileSystem):
    """Its directories are root's alone."""

    def look(self, path: bytes) -> Entry | None:
        entry = super().look(path)
        return entry if entry is None or entry.type is not EntryType.DIRECTORY else replace(entry, mode=0o700)


class Killed(BaseException):
    """`kill -9` of the program, here."""


def found(path: bytes, *, proof: bool = True, ctime_ns: int = 1) -> tuple[CatalogedPath, Proof | None]:
    facts = {
        "size_bytes": 7,
        "mtime_ns": 1,
        "uid": 0,
        "gid": 0,
        "mode": 0,
        "symlink_target": None,
        "rdev": 0,
        "xattr_digest": None,
        "ino": 1,
    }
    kind = EntryType.FILE
    row = CatalogedPath(path=path, tree=None, type=kind, ctime_ns=ctime_ns, **facts)  # type: ignore[arg-type]
    if not proof:
        return row, None
    return row, Proof(path=path, type=kind, ctime_ns=1, digest=b"content", algorithm="x", **facts)  # type: ignore[arg-type]


@dataclass
class Volume:
    """A volume. `fault` is called before and after whatever it does, with the name of it."""

    fault: Callable[[str], None] = lambda _: None
    state: VolumeState = STATE
    addresses: tuple[str, ...] = (OWN,)
    stops: int = 0
    intents: list[RetirementState | None] = field(default_factory=list)
    ledger: SqliteLedger | None = None

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

    ledger: SqliteLedger
    volume: Volume
    looks: list[list[tuple[CatalogedPath, Proof | None]]]
    source: FakeFileSystem = field(default_factory=Rooted)
    opened: Writers = field(default_factory=Writers)
    whole: bool = True
    strange: tuple[StrangeFiles, ...] = ()
    scans: int = 0
    locks: FakeLocks = field(default_factory=FakeLocks)
    clock: Clock = field(default_factory=VirtualClock)
    hooks: HookPrograms | None = None
    listed: list[Uncovered] = field(default_factory=list)
    backups: list[str] = field(default_factory=list)

    async def endpoints(self) -> tuple[Mapping[str, Endpoint], tuple[str, ...]]:
        return {OWN: Endpoint.OWN_MOUNT}, ()

    async def find_writers(self, trees: Sequence[bytes]) -> Writers:
        return self.opened

    async def scan(self) -> CatalogRecord:
        self.volume.fault("scan")
        self.scans += 1
        record = CatalogRecord(
            name=f"c{self.scans}",
            scan_id=self.ledger.scans.start(catalog=f"c{self.scans}", via="bricks", at_s=self.clock.now_s()),
            site_id="s",
            via="bricks",
            trees=(),
            parts=(),
            started_at_s=self.clock.now_s(),
            finished_at_s=self.clock.now_s(),
            whole=self.whole,
            reasons=() if self.whole else ("a directory could not be read",),
            rows=0,
            files=0,
            directories=0,
            size_bytes=0,
            problems=0,
            strange=self.strange,
        )
        self.ledger.scans.finish(record)
        return record

    def paths(self, catalog: str, moved: Sequence[MovedTree]) -> Iterator[Sequence[tuple[CatalogedPath, Proof | None]]]:
        yield self.looks[min(int(catalog[1:]), len(self.looks)) - 1]

    @contextmanager
    def list_to(self, directory: str) -> Iterator[tuple[WriteList, str]]:
        def write(more: Iterable[Uncovered]) -> None:
            self.listed.extend(more)

        self.listed.clear()
        yield write, f"{directory}/list"

    def back_up(self, name: str) -> None:
        self.volume.fault("back up")
        self.backups.append(name)

    def world(self) -> RetirementWorld:
        return RetirementWorld(
            volume=self.volume,
            source=self.source,
            target_root=b"/mnt/beegfs",
            writers=self,
            endpoints=self.endpoints,
            scan=self.scan,
            cover=self,
            manifests=None,  # type: ignore[arg-type]  # no user was moved: none is asked
            list_to=self.list_to,
            back_up=self.back_up,
            hooks=self.hooks,
            ledger=self.ledger,
            locks=self.locks,
            files=FakeRunFiles(),
            progress=FakeProgress(),
            clock=self.clock,
            blocking=inline if self.hooks is None else DaemonThreads(),
            tokens=new_token,
        )

    def retire(self, *, confirm: str | None = "vol1", dry_run: bool = False) -> RetirementSummary:
        return asyncio.run(retire_volume(RetireRequest(pid=1, confirm=confirm, dry_run=dry_run), self.world()))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_ledger(tmp_path / "ledger.db", create=True) as ledger:
        ledger.site.create(
            SiteRecord(
                site_id="s",
                name="rehearsal",
                created_at_s=1.0,
                source=IDENTITY,
                target=IDENTITY,
                capabilities=TargetCapabilities(),
                capabilities_probed_at_s=1.0,
            )
        )
        made = Site(ledger, Volume(ledger=ledger), [[found(b"home/alice/x"), found(b"home/alice/y", ctime_ns=2)]])
        made.source.add(b"home/alice/y", b"content")
        yield made


def test_a_volume_that_is_covered_is_stopped_once_after_intent_and_backup(site: Site) -> None:
    done = site.retire()
    assert (done.ending, site.volume.stops, site.volume.intents) == (RetireEnding.DONE, 1, [RetirementState.STOPPING])
    assert done.cover is not None
    assert (done.cover.proven.paths, done.cover.read.paths, done.cover.uncovered) == (2, 1, {})
    assert done.retirement is not None
    assert done.retirement.state is RetirementState.RETIRED
    assert site.backups == [f"retirement-{done.retirement.id}"]
    assert site.scans == 2, "once before the intent, and once right before the stop"
    again = site.retire()
    assert (again.ending, again.exit_code.value, site.volume.stops) == (RetireEnding.DONE_BEFORE, 0, 1)


def test_it_is_stopped_only_by_its_name(site: Site) -> None:
    for confirm in (None, "vol", "vol2"):
        with pytest.raises(Refused, match="not confirmed"):
            site.retire(confirm=confirm)
    assert (site.volume.stops, site.scans) == (0, 0)


def test_what_nothing_covers_is_listed_whole_and_nothing_is_touched(site: Site) -> None:
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
    assert site.ledger.retirements.newest() is None


def test_content_that_is_another_one_is_seen_where_only_the_ctime_tells(site: Site) -> None:
    site.source.nodes[b"home/alice/y"] = replace(site.source.nodes[b"home/alice/y"], content=b"another")
    refused = site.retire()
    assert refused.cover is not None
    assert list(refused.cover.uncovered) == [UncoveredKind.CHANGED]
    assert site.volume.stops == 0


def test_what_comes_between_the_first_look_and_the_stop_stops_it(site: Site) -> None:
    site.looks.append([*site.looks[0], found(b"new", proof=False)])
    assert site.retire().exit_code.value == 4
    newest = site.ledger.retirements.newest()
    assert newest is not None
    assert (newest.state, site.volume.stops) == (RetirementState.GIVEN_UP, 0)
    assert [one.path for one in site.listed] == [b"new"]
    # It is taken away by hand, and the same command begins another attempt.
    site.looks = site.looks[:1]
    assert site.retire().ending is RetireEnding.DONE


def _client(site: Site) -> None:
    site.volume.addresses = (OWN, "10.0.0.9:49150")


def _open(site: Site) -> None:
    one = OpenFile(host="gl1", path=b"/home/x", kind=OpenKind.FILE, writable=False)
    site.opened = Writers(open_files=(one,))


def _not_whole(site: Site) -> None:
    site.whole = False


def _past_gluster(site: Site) -> None:
    site.strange = (StrangeFiles(brick="gl1:/b", files=1, paths=(b"home/placed",)),)


def _sick(site: Site) -> None:
    site.source.sick = ("brick gl1:/b is down",)


def _kept(site: Site) -> None:
    site.source.add(PURGE_NAME + b"/cutover-000001")


def _of_a_bench(site: Site) -> None:
    site.source.add(BENCH_NAME + b"/thesis", b"of a user, or of a bench that was killed")


def _among_probes(site: Site) -> None:
    site.source.add(PROBE_NAME)
    site.source.add(PROBE_NAME + b"/thesis", b"of a user")


def _a_trash_of_a_user(site: Site) -> None:
    site.source.add(TRASH_NAME, b"no directory at all")


def _a_brick_that_was_not_asked(site: Site) -> None:
    brick = Brick(name="gl2:/b", host="gl2", path=b"/b", online=True)
    site.volume.state = replace(site.volume.state, bricks=(brick,))


@pytest.mark.parametrize(
    "disturb",
    [
        *(_client, _open, _not_whole, _past_gluster, _sick, _kept),
        *(_of_a_bench, _among_probes, _a_trash_of_a_user, _a_brick_that_was_not_asked),
    ],
)
def test_a_guard_refuses_it(site: Site, disturb: Callable[[Site], None]) -> None:
    disturb(site)
    refused = site.retire()
    assert (refused.ending, site.volume.stops) == (RetireEnding.HALTED, 0)
    assert refused.reasons
    assert site.ledger.retirements.newest() is None


def test_a_trash_of_its_own_and_probes_speak_against_nothing(site: Site) -> None:
    site.source.add(TRASH_NAME + b"/back-000001/home/alice/old", b"old")
    for name in (b"entry-00", b"probe-15", b"complete"):
        site.source.add(PROBE_NAME + b"/" + name, b"")
    assert site.retire().ending is RetireEnding.DONE


def test_what_gluster_itself_has_open_is_nobodys(site: Site) -> None:
    own = OpenFile(host="gl1", path=b"/.glusterfs/00", kind=OpenKind.DIRECTORY, writable=False)
    site.opened = Writers(open_files=(own,))
    assert site.retire().ending is RetireEnding.DONE


@pytest.mark.parametrize("lock", ["run", "scan", "drain"])
def test_it_waits_for_nobody_and_disturbs_nobody(site: Site, lock: str) -> None:
    with site.locks.hold(lock, "something"), pytest.raises(LockHeld):
        site.retire()
    assert site.volume.stops == 0


def test_a_dry_run_takes_the_decision_by_a_newer_catalog_and_writes_nothing(site: Site) -> None:
    assert "migrator scan" in site.retire(confirm=None, dry_run=True).reasons[0]
    asyncio.run(site.scan())
    planned = site.retire(confirm=None, dry_run=True)
    assert (planned.ending, planned.cover and planned.cover.catalog) == (RetireEnding.PLANNED, "c1")
    assert (site.scans, site.volume.stops, site.listed) == (1, 0, [])
    assert site.ledger.retirements.newest() is None
    assert site.ledger.runs.latest() is None


@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize("place", ["state", "clients", "scan", "back up", "before stop", "after stop"])
def test_killed_anywhere_the_same_command_brings_it_to_its_end(site: Site, place: str, nth: int) -> None:
    seen = 0

    def kill(name: str) -> None:
        nonlocal seen
        seen += name == place
        if name == place and seen == nth + 1:
            raise Killed

    site.volume.fault = kill
    try:
        site.retire()
    except Killed:
        assert site.locks.held == set()
    site.volume.fault = lambda _: None
    ended = site.retire()
    assert ended.ending in (RetireEnding.DONE, RetireEnding.DONE_BEFORE)
    assert site.volume.stops == 1
    assert site.volume.intents == [RetirementState.STOPPING]
    newest = site.ledger.retirements.newest()
    assert newest is not None
    assert (newest.id, newest.state) == (1, RetirementState.RETIRED)


def test_an_answer_that_is_lost_is_no_refusal_and_a_refusal_gives_it_up(site: Site) -> None:
    def fail(place: str) -> Callable[[str], None]:
        def fault(name: str) -> None:
            if name == place:
                raise ToolFailed("gluster says: no")

        return fault

    site.volume.fault = fail("before stop")
    with pytest.raises(ToolFailed, match="says: no"):
        site.retire()
    newest = site.ledger.retirements.newest()
    assert newest is not None
    assert (newest.state, newest.failure) == (RetirementState.GIVEN_UP, "gluster says: no")
    site.volume.fault = fail("after stop")
    assert site.retire().ending is RetireEnding.DONE
    assert site.volume.stops == 1


def test_a_volume_that_somebody_else_has_stopped_is_not_called_retired(site: Site) -> None:
    site.volume.state = replace(STATE, started=False)
    refused = site.retire()
    assert refused.ending is RetireEnding.HALTED
    assert "gluster volume start vol1" in refused.hint
    assert site.ledger.retirements.newest() is None


def test_a_retired_volume_may_be_deleted_and_another_one_is_another(site: Site) -> None:
    assert site.retire().ending is RetireEnding.DONE

    def gone(name: str) -> None:
        raise ToolFailed("Volume vol1 does not exist")

    site.volume.fault = gone
    assert site.retire().ending is RetireEnding.DONE_BEFORE
    site.volume.fault = lambda _: None
    site.volume.state = replace(STATE, volume_id="w", started=False)
    assert site.retire().ending is RetireEnding.HALTED


def test_what_was_killed_before_the_stop_does_not_stand_for_a_stop_by_others_after_a_refusal(site: Site) -> None:
    def kill(name: str) -> None:
        if name == "before stop":
            raise Killed

    site.volume.fault = kill
    with pytest.raises(Killed):
        site.retire()
    site.volume.fault = lambda _: None
    site.looks = [[*site.looks[0], found(b"new", proof=False)]]
    assert site.retire().exit_code.value == 4
    site.volume.state = replace(STATE, started=False)
    assert site.retire().ending is RetireEnding.HALTED
    newest = site.ledger.retirements.newest()
    assert newest is not None
    assert newest.state is RetirementState.GIVEN_UP


@pytest.mark.parametrize("place", ["back up", "scan"])
def test_what_was_killed_before_its_last_look_does_not_stand_for_a_stop_by_others(site: Site, place: str) -> None:
    def kill(name: str) -> None:
        newest = site.ledger.retirements.newest()
        if name == place and newest is not None:
            raise Killed

    site.volume.fault = kill
    with pytest.raises(Killed):
        site.retire()
    site.volume.fault = lambda _: None
    site.volume.state = replace(STATE, started=False)
    assert site.retire().ending is RetireEnding.HALTED
    # Started again, the same attempt goes on.
    site.volume.state = STATE
    done = site.retire()
    assert (done.ending, done.retirement and done.retirement.id) == (RetireEnding.DONE, 1)


def test_a_source_without_a_volume_is_told_why_it_cannot_be_retired(tmp_path: Path) -> None:
    posix = PosixSite(directory=tmp_path, source=tmp_path / "source", target=tmp_path / "target")
    for path in (posix.source, posix.target):
        path.mkdir()
    posix.write()
    posix.fails(2, "brick", "retire", "--confirm", "vol1", says=("it is no Gluster volume",))


def hooked(site: Site, directory: Path, **texts: str) -> Path:
    """Real hooks that note their calls."""
    site.clock = SystemClock()
    site.hooks = HookPrograms(
        LocalProcesses(grace_s=0.5, one_output=True),
        directory=os.fsencode(directory / "hooks"),
        site_file=os.fsencode(directory / "site.toml"),
        timeout_s=60.0,
    )
    calls = directory / "calls"
    for event, text in texts.items():
        file = directory / "hooks" / f"{event}-retire.d" / "50-tell"
        file.parent.mkdir(parents=True, mode=0o755)
        file.write_text(f'#!/bin/sh\necho "$MIGRATOR_STAGE $MIGRATOR_STATE" >>{calls}\n{text}\n')
        file.chmod(0o755)
    return calls


def test_hooks_are_called_around_it_and_those_owed_after_a_kill_by_the_next_call(site: Site, tmp_path: Path) -> None:
    calls = hooked(site, tmp_path, pre="exit 0", post="exit 0")

    def kill(name: str) -> None:
        if name == "after stop":
            raise Killed

    site.volume.fault = kill
    with pytest.raises(Killed):
        site.retire()
    site.volume.fault = lambda _: None
    for _ in range(2):
        assert site.retire().ending is RetireEnding.DONE_BEFORE
    assert calls.read_text().splitlines() == ["pre-retire ", "post-retire done"]


def test_a_hook_that_refuses_it_leaves_the_volume_alone(site: Site, tmp_path: Path) -> None:
    hooked(site, tmp_path, pre="echo 'the backup is not done' >&2; exit 1")
    with pytest.raises(Refused, match="the backup is not done"):
        site.retire()
    newest = site.ledger.retirements.newest()
    assert newest is not None
    assert (newest.state, site.volume.stops) == (RetirementState.GIVEN_UP, 0)
