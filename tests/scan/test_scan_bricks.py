"""Scans of a real volume: of the bricks against the mount, and what the mount hides without an error."""

import asyncio
import errno
import os
import shutil
import threading
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from migrator.catalog.model import CatalogRecord
from migrator.core.clock import SystemClock
from migrator.core.entry import content_bytes
from migrator.core.errors import Refused
from migrator.core.progress import ScanProgress
from migrator.fs.model import SENTINEL_NAME, SourceHealth
from migrator.gluster.model import Brick
from migrator.gluster.volume import GlusterCommands, GlusterSource
from migrator.gluster.walks import BrickListener, BrickTotals, HostBrickWalks
from migrator.hosts.ports import Host
from migrator.hosts.process import LocalProcesses
from migrator.lab.model import LabHost, VolumeType
from migrator.native.program import native_program
from tests.support.cluster.fixtures import MakeLab, lab_of
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.hosts import LabHosts
from tests.support.scan_site import ScanSite, WatchedWalk
from tests.support.waiting import wait_for

NOT_COMPARED = ("brick", "gfid", "dev", "blocks", "atime_ns")
"""Columns that only one of the two ways fills, or that a Gluster mount invents."""

NOT_COMPARED_OF_DIRECTORIES = (*NOT_COMPARED, "size", "nlink")
"""A mount over one subvolume shows the size that the directory has on a brick; over several it is 4096."""

Happening = Callable[[Brick], Awaitable[None]]
Place = Callable[[Host], Awaitable[bytes]]


class _Listener:
    """Hands everything on; before the first rows of a brick something happens."""

    def __init__(self, brick: Brick, listener: BrickListener, happening: Happening) -> None:
        self._brick = brick
        self._listener = listener
        self._happening = happening
        self._happened = False
        self.hello, self.problems, self.listings = listener.hello, listener.problems, listener.listings

    async def rows(self, payload: memoryview) -> None:
        await self._happen()
        await self._listener.rows(payload)

    async def directories(self, payload: memoryview) -> None:
        await self._happen()
        await self._listener.directories(payload)

    async def _happen(self) -> None:
        if not self._happened:
            self._happened = True
            await self._happening(self._brick)


class WatchedWalks(HostBrickWalks):
    """The real walks, with something that happens in the middle of each."""

    happening: Happening

    async def walk(self, brick: Brick, *, listener: BrickListener, **how: Any) -> BrickTotals:
        return await super().walk(brick, listener=_Listener(brick, listener, self.happening), **how)


def commands_of(lab: LabHandle) -> GlusterCommands:
    gluster = os.fsdecode(lab.state.gluster)
    return GlusterCommands(LocalProcesses(), SystemClock(), volume=lab.state.spec.volume, gluster=gluster)


async def _nothing(_: Brick) -> None:
    """What happens mostly."""


class BrickScans:
    """One site on a lab, scanned by either way."""

    def __init__(self, lab: LabHandle, directory: Path) -> None:
        self.lab = lab
        self.source = GlusterSource(lab.state.source, commands_of(lab))
        self.site = ScanSite(directory, root=lab.source)
        self.trees = trees_of(lab)
        self.absent: set[str] = set()
        self.inside: dict[str, int] = {}

    def close(self) -> None:
        self.site.close()
        self.source.close()

    def scan(
        self, via: str, *, happening: Happening = _nothing, place: Place | None = None, **changes: Any
    ) -> CatalogRecord:
        return asyncio.run(self.scanned(via, happening=happening, place=place, **changes))

    async def scanned(
        self, via: str, *, happening: Happening = _nothing, place: Place | None = None, **changes: Any
    ) -> CatalogRecord:
        hosts = LabHosts(self.lab)
        hosts.absent, hosts.inside = self.absent, self.inside
        # So small blocks that even the smallest brick sends several.
        walks = WatchedWalks(hosts, place or native_program().place, names=hosts.names)
        walks.happening = happening
        try:
            return await self.site.scanned(
                source=self.source,
                trees=self.trees,
                via=via,
                walks=walks,
                max_part_rows=100_000,
                **changes,
            )
        finally:
            await hosts.close()

    def rows(self, record: CatalogRecord) -> dict[bytes, dict[str, Any]]:
        """The rows by path; none is there twice."""
        rows = self.site.rows(record)
        by_path = {row["path"]: row for row in rows}
        assert len(by_path) == len(rows)
        return by_path

    def compare(self, one: CatalogRecord, other: CatalogRecord, *, but_of_directories: Collection[str] = ()) -> None:
        """Both catalogs hold the same, attribute by attribute, `but_of_directories` these."""
        left, right = self.rows(one), self.rows(other)
        assert sorted(left.keys() ^ right.keys()) == []
        different = [
            (path, column, row[column], right[path][column])
            for path, row in left.items()
            for column in row
            if column
            not in ((*NOT_COMPARED_OF_DIRECTORIES, *but_of_directories) if row["type"] == "directory" else NOT_COMPARED)
            and row[column] != right[path][column]
        ]
        assert not different, different[:20]
        assert (one.rows, one.files, one.directories) == (other.rows, other.files, other.directories)
        # Copies of a file may differ in the blocks that they have.
        files = [(row, right[path]) for path, row in left.items() if row["type"] == "file"]
        more_bytes = sum(
            content_bytes(a["size"], a["blocks"]) - content_bytes(b["size"], b["blocks"]) for a, b in files
        )
        assert one.size_bytes - other.size_bytes == more_bytes

    def said(self) -> str:
        return "\n".join(event.message for event in self.site.shown.events)


@contextmanager
def brick_scans(lab: LabHandle, directory: Path) -> Iterator[BrickScans]:
    """A site of its own on a lab."""
    directory.mkdir(exist_ok=True)
    scans = BrickScans(lab, directory)
    try:
        yield scans
    finally:
        scans.close()


pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]


@pytest.fixture
def scans(lab: LabHandle, tmp_path: Path) -> Iterator[BrickScans]:
    """A site on the lab of the session, which stays as it is."""
    with brick_scans(lab, tmp_path / "site") as made:
        yield made


@pytest.fixture(scope="module")
def own_lab(lab_parent: Path) -> Iterator[LabHandle]:
    """A distributed volume that the tests of this module may change, each leaving it up, healed and quiet."""
    with lab_of(lab_parent / "bricks", hosts=2, users=2, files=400) as made:
        yield made


@pytest.fixture
def own(own_lab: LabHandle, tmp_path: Path) -> Iterator[BrickScans]:
    """A site on the lab of this module."""
    # Whatever moved files between the bricks before has given directories a time of its own on each.
    for directory, _, _ in os.walk(os.fsencode(own_lab.source)):
        times = os.stat(directory)
        os.utime(directory, ns=(times.st_atime_ns, times.st_mtime_ns))
    with brick_scans(own_lab, tmp_path / "site") as made:
        yield made


def write_plainly(lab: LabHandle) -> None:
    """Files as programs write them, without setting times: the bricks' own times differ from the volume's."""
    directory = lab.source / os.fsdecode(lab.state.trees[0]) / "plain"

    def made() -> bool:
        # Shortly after a test that stops a brick or a remove-brick a client may answer EIO (seen once).
        try:
            directory.mkdir(exist_ok=True)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        return True

    wait_for(made, "the client knows where names belong")
    for number in range(40):
        (directory / f"file-{number}").write_bytes(b"x" * number)
        (directory / f"link-{number}").symlink_to("file-0")
    os.link(directory / "file-1", directory / "file-1-again")
    # A link-to file is left where the new name belongs.
    for number in range(20):
        (directory / f"file-{number + 10}").rename(directory / f"renamed-{number}")


@pytest.mark.guarantee("bricks-and-mount")
def test_both_ways_give_the_same_catalog_of_a_distributed_volume(scans: BrickScans) -> None:
    mount = scans.scan("mount")
    compiled = scans.scan("auto")
    assert (compiled.via, compiled.whole, compiled.reasons, compiled.findings) == ("bricks", True, (), ())
    scans.compare(compiled, mount)
    assert scans.site.ledger.scans.all()[-1].via == "bricks"
    assert {walk.brick for walk in compiled.bricks} == {brick.name for brick in scans.lab.bricks}
    assert sum(walk.rows for walk in compiled.bricks) == compiled.files
    assert all(walk.whole and walk.elapsed_s > 0 for walk in compiled.bricks)
    assert min(compiled.times.checks_s, compiled.times.walk_s, compiled.times.finish_s) > 0
    names = {brick.name for brick in scans.lab.bricks}
    for row in scans.rows(compiled).values():
        assert int.from_bytes(row["gfid"][8:], "big") == row["ino"]
        assert row["brick"] in names if row["type"] != "directory" else row["brick"] is None
    last = scans.site.shown.snapshots[-1]
    assert isinstance(last, ScanProgress)
    assert len(last.bricks) == len(names)
    assert all(brick.ended for brick in last.bricks)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "volume_type", [VolumeType.REPLICA3, VolumeType.ARBITER, VolumeType.DISTRIBUTED_REPLICATE], ids=str
)
def test_both_ways_give_the_same_catalog_of_copied_volumes(
    make_lab: MakeLab, tmp_path: Path, volume_type: VolumeType
) -> None:
    lab = make_lab(volume_type=volume_type, users=2, files=60)
    write_plainly(lab)
    with brick_scans(lab, tmp_path / "site") as scans:
        wait_for(lambda: not heals(lab), "nothing waits to be healed")
        mount, bricks = scans.scan("mount"), scans.scan("bricks")
        assert bricks.whole, bricks.reasons
        scans.compare(bricks, mount)
        sets = len(lab.bricks) // 3
        assert len(bricks.bricks) == sets
        assert len({walk.host for walk in bricks.bricks}) == sets, "the load is shared"
        if volume_type is not VolumeType.REPLICA3:
            return
        # The marks on all copies decide, so each of their hosts has to be reached.
        scans.absent = {bricks.bricks[0].host}
        with pytest.raises(Refused, match="cannot be reached"):
            scans.scan("bricks")
        scans.absent = set()
        lab.gluster("volume", "set", lab.state.spec.volume, "cluster.self-heal-daemon", "off")
        missed = lab.source / os.fsdecode(lab.state.trees[0]) / "missed-by-one-copy"
        with lab.brick_down(lab.bricks[0]):
            with pytest.raises(Refused, match="is down"):
                scans.scan("bricks")
            missed.write_text("data")
        assert heals(lab)
        pending = scans.scan("bricks", restart=True)
        assert pending.whole, pending.reasons
        rows = scans.rows(pending)
        assert rows[os.fsencode(missed.relative_to(lab.source))]["brick"] is None
        scans.compare(pending, scans.scan("mount", restart=True))


def heals(lab: LabHandle) -> bool:
    # A daemon that looked a moment too early looks again in ten minutes, unless it is asked to.
    lab.on_host(lab.state.hosts[0], "gluster", "--mode=script", "volume", "heal", lab.state.spec.volume)
    summary = lab.gluster("--xml", "volume", "heal", lab.state.spec.volume, "info", "summary")
    return summary.count(b"<totalNumberOfEntries>0<") < len(lab.bricks)


@pytest.mark.exhaustive
def test_leftovers_of_failed_moves_and_renames(own: BrickScans) -> None:
    lab = own.lab
    users = [os.fsdecode(tree) for tree in lab.state.trees]
    directory = f"{users[0]}/left"
    (lab.source / directory).mkdir()
    for name in ("moved", "linked", "sound"):
        (lab.source / directory / name).write_text(f"content of {name}")
    (lab.source / users[1] / "old").mkdir()
    (lab.source / users[1] / "old" / "file").write_text("in one of two directories")
    os.sync()

    def copies(path: str) -> list[Path]:
        return [file for brick in lab.bricks if os.path.lexists(file := lab.brick_directory(brick) / path)]

    (moved,) = copies(f"{directory}/moved")
    os.setxattr(moved, "trusted.glusterfs.dht.linkto", b"vol1-client-0\0")
    moved.chmod(0o3644)
    (linked,) = copies(f"{directory}/linked")
    away = next(copy for copy in copies(directory) if copy != linked.parent) / "linked"
    away.write_bytes(b"half")
    away.chmod(0o1000)
    for name, value in (("gfid", os.getxattr(linked, "trusted.gfid")), ("glusterfs.dht.linkto", b"vol1-client-0\0")):
        os.setxattr(away, f"trusted.{name}", value)
    try:
        bricks = own.scan("bricks")
        assert bricks.whole, bricks.reasons
        rows = own.rows(bricks)
        taken = {name: rows[os.fsencode(f"{directory}/{name}")] for name in ("moved", "linked", "sound")}
        assert {name: (row["mode"], row["size"]) for name, row in taken.items()} == {
            name: (0o644, len(f"content of {name}")) for name in taken
        }
        assert [name for name, row in taken.items() if row["brick"] is None] == ["moved", "linked"]
        # A rename that failed on half of the bricks: one gfid under two paths.
        for copy in copies(f"{users[1]}/old")[::2]:
            gfid = os.getxattr(copy, "trusted.gfid").hex()
            copy.rename(copy.with_name("new"))
            root = next(lab.brick_directory(b) for b in lab.bricks if copy.is_relative_to(lab.brick_directory(b)))
            handle = root / ".glusterfs" / gfid[:2] / gfid[2:4] / str(uuid.UUID(gfid))
            target = str(handle.readlink())
            handle.unlink()
            handle.symlink_to(target.removesuffix("old") + "new")
        drop_client_cache(own)
        with pin_settled():
            apart = own.scan("bricks", restart=True)
        assert not apart.whole
        assert apart.set_apart == (os.fsencode(users[1]),)
        named = {problem["path"] for problem in own.site.problems(apart)}
        assert {os.fsencode(f"{users[1]}/old"), os.fsencode(f"{users[1]}/new")} <= named
    finally:
        away.unlink()
        for tree in (directory, f"{users[1]}/old", f"{users[1]}/new"):
            for copy in copies(tree):
                shutil.rmtree(copy)
        drop_client_cache(own)


@contextmanager
def pin_settled() -> Iterator[None]:
    """What was made just now counts as made long before the scan."""
    with mock.patch("migrator.scan.bricks._UNSETTLED_S", -3600.0):
        yield


@pytest.mark.exhaustive
def test_times_are_the_volumes_whether_it_keeps_them_itself_or_not(own: BrickScans) -> None:
    write_plainly(own.lab)
    own.compare(own.scan("bricks"), own.scan("mount"))
    own.lab.gluster("volume", "set", "vol1", "features.ctime", "off")
    try:
        drop_client_cache(own)
        changed = own.lab.source / os.fsdecode(own.lab.state.trees[0]) / "plain" / "file-2"
        changed.write_text("written while the volume keeps no times")
        bricks, mount = own.scan("bricks"), own.scan("mount")
        assert bricks.whole, bricks.reasons
        # Without that feature every brick has a ctime of its own for a directory, from when the directory came to it; a mount
        # shows the one or the other: what it listed comes from one brick, what it looked up from all.
        own.compare(bricks, mount, but_of_directories=("ctime_ns",))
    finally:
        own.lab.gluster("volume", "reset", "vol1", "features.ctime")
        drop_client_cache(own)


def drop_client_cache(scans: BrickScans) -> None:
    """Mount with a new client, which knows the volume's options."""
    scans.source.close()
    scans.site.source.close()
    scans.lab.drop_client_cache()


def walkers_on(*hosts: LabHost, path: str = "") -> list[int]:
    """The processes of walks inside these hosts, of all their bricks or of the one at that path."""
    inside = {Path(f"/proc/{host.holder_pid}/ns/mnt").readlink() for host in hosts}
    found: list[int] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                argv = (process / "cmdline").read_bytes().split(b"\0")
                if b"--brick" not in argv or (path and os.fsencode(path) not in argv):
                    continue
                if (process / "ns" / "mnt").readlink() in inside:
                    found.append(int(process.name))
            except OSError:
                continue
    return found


@pytest.mark.exhaustive
def test_a_killed_scan_of_bricks_starts_over_and_one_of_the_mount_waits_for_the_mount(own: BrickScans) -> None:
    async def stopped_at_first_rows() -> None:
        reached = asyncio.Event()

        async def wait(_: Brick) -> None:
            reached.set()
            await asyncio.sleep(60)

        scanning = asyncio.ensure_future(own.scanned("bricks", happening=wait))
        await reached.wait()
        scanning.cancel()
        await asyncio.gather(scanning, return_exceptions=True)
        assert "starts over" in str(scanning.exception().hint)  # type: ignore[union-attr]

    asyncio.run(stopped_at_first_rows())
    assert not walkers_on(*own.lab.state.hosts)
    left = own.site.ledger.scans.unfinished()
    assert left is not None
    assert left.via == "bricks"
    assert not (own.site.catalogs_dir / left.name).exists()
    record = own.scan("bricks")
    assert record.whole, record.reasons
    assert record.name != left.name
    assert "starts over" in own.said()


@pytest.mark.exhaustive
def test_files_that_are_renamed_all_the_while_are_in_one_of_two_scans(own: BrickScans) -> None:
    stop, wandering = threading.Event(), own.lab.source / os.fsdecode(own.lab.state.trees[0]) / "wandering"
    wandering.mkdir()
    inodes = set()
    for number in range(30):
        (wandering / f"{number}-a").write_bytes(b"w")
        inodes.add((wandering / f"{number}-a").stat().st_ino)

    def rename_to_and_fro() -> None:
        names = ("a", "b")
        while not stop.is_set():
            for number in range(30):
                (wandering / f"{number}-{names[0]}").rename(wandering / f"{number}-{names[1]}")
            names = names[::-1]

    renaming = threading.Thread(target=rename_to_and_fro)
    renaming.start()
    try:
        catalogs = [own.rows(own.scan("bricks")) for _ in range(2)]
    finally:
        stop.set()
        renaming.join()
    seen = {row["ino"] for rows in catalogs for row in rows.values()}
    assert inodes - seen == set()


def files_of(root: Path) -> set[bytes]:
    """The paths of all that is no directory, without the sentinel."""
    walk = os.walk(os.fsencode(root))
    found = {os.path.join(directory, name) for directory, _, files in walk for name in files}
    return {os.path.relpath(path, os.fsencode(root)) for path in found} - {SENTINEL_NAME}


@pytest.mark.exhaustive
@pytest.mark.guarantee("bricks-and-mount")
def test_nothing_is_trusted_while_files_move_between_bricks(own: BrickScans) -> None:
    lab = own.lab
    leaving = lab.bricks[-1].name
    before = files_of(lab.source)
    started = False

    async def start(_: Brick) -> None:
        nonlocal started
        if not started:
            started = True
            await asyncio.to_thread(lab.gluster, "volume", "remove-brick", "vol1", leaving, "start")

    try:
        begun_meanwhile = own.scan("bricks", happening=start)
        assert not begun_meanwhile.whole
        assert any("task" in reason for reason in begun_meanwhile.reasons)
        with pytest.raises(Refused, match="task"):
            own.scan("bricks")
        while_moving = own.scan("auto")
        assert while_moving.via == "mount"
        assert any("task" in reason for reason in while_moving.way_reasons)
        assert not while_moving.whole
        assert before - set(own.rows(begun_meanwhile)) - set(own.rows(while_moving)) == set()
    finally:
        lab.gluster("volume", "remove-brick", "vol1", leaving, "stop")
        # It is not waited for: a file that is being moved comes to its end first.
        wait_for(lambda: not any(lab.movers(host) for host in lab.state.hosts), "nobody moves files any more")
        lab.let_client_know()
    # The volume is quiet again; what was moved lies elsewhere, with its link-to files and left-overs.
    bricks = own.scan("bricks")
    assert bricks.whole, bricks.reasons
    assert before <= set(own.rows(bricks))
    # A directory that files were moved out of has another mtime on that brick than on the others, and a mount shows the
    # one or the other: what it listed comes from one brick, what it looked up from all.
    mount = own.scan("mount")
    own.compare(bricks, mount, but_of_directories=("mtime_ns",))
    shown = own.rows(mount)
    assert all(row["mtime_ns"] >= shown[path]["mtime_ns"] for path, row in own.rows(bricks).items())


class Watched(GlusterSource):
    """The real source."""

    def __init__(self, lab: LabHandle) -> None:
        super().__init__(lab.state.source, commands_of(lab))

    def look_at_health(self) -> SourceHealth:
        return asyncio.run(self.health())


def trees_of(lab: LabHandle) -> list[str]:
    return sorted({os.fsdecode(tree.rpartition(b"/")[0]) + "/*" for tree in lab.state.trees})


@pytest.fixture
def source(lab: LabHandle) -> Iterator[Watched]:
    made = Watched(lab)
    yield made
    made.close()


@pytest.fixture
def site(lab: LabHandle, tmp_path: Path) -> Iterator[ScanSite]:
    made = ScanSite(tmp_path, root=lab.source)
    yield made
    made.close()


@pytest.mark.guarantee("brick-down")
def test_a_brick_that_goes_down_in_the_middle_of_a_scan_is_noticed(
    lab: LabHandle, source: Watched, site: ScanSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    brick = lab.bricks[0]
    # The scan has begun, with all bricks up; its walk waits until the brick is down.
    WatchedWalk(monkeypatch).before = lambda: lab.stop_brick(brick)
    try:
        record = site.scan(source=source, trees=trees_of(lab))
    finally:
        lab.start_bricks()
    assert not record.whole
    assert any(brick.name in reason for reason in record.reasons)


@pytest.mark.guarantee("empty-mount")
def test_an_unmounted_volume_is_refused_and_not_taken_for_an_empty_one(
    lab: LabHandle, source: Watched, site: ScanSite
) -> None:
    with lab.source_unmounted():
        with pytest.raises(Refused, match="source"):
            site.scan(source=source, trees=trees_of(lab))
        assert source.look_at_health().problems
    source.close()
    assert site.scan(source=source, trees=trees_of(lab)).whole
