"""Trees are purged of proven files, and of nothing else: over a real ledger, and by the program itself."""

import asyncio
import errno
import gc
import json
import os
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.core.entry import UserTree
from migrator.core.errors import Refused
from migrator.cutover.model import CutoverState
from migrator.cutover.model_snapshot import LinkState
from migrator.fs.model import SourceHealth
from migrator.fs.ports import Digest
from migrator.fs.reading import ReadingFileSystem
from migrator.gluster.model import VolumeHealth
from migrator.lab.odd import odd_files
from migrator.ledger.locks import Locks
from migrator.purge.files import MountedPlaces
from migrator.purge.model import PurgeOutcome
from migrator.purge.purge import purge
from migrator.scan.marks import TreeMarks
from tests.purge.purge_site import DAY_S, PurgeSite, freeze, purge_site, retain, thaw
from tests.support.delta_changes import rewrite
from tests.support.holders import HOLD, holding
from tests.support.kills import Death, Killed, dying
from tests.support.run_site import RealSite, fill_tree
from tests.support.snapshots import snapshot
from tests.support.volumes import volume
from tests.support.waiting import wait_for
from tests.support.xfs import XfsMount, run_tool, unmount

pytestmark = pytest.mark.needs_root

FILES = 60


def fill(tree: Path) -> None:
    tree.rmdir()
    fill_tree(tree, files=FILES, size_bytes=2000)


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[PurgeSite]:
    other = xfs_source.path / "home" / "bob"
    other.mkdir(parents=True)
    (other / "own").write_text("bob's")
    with purge_site(scratch / "site", xfs_source.path, xfs_target.path, fill) as made:
        yield made


def contents(path: Path) -> dict[bytes, Any]:
    return dict(snapshot(os.fsencode(path)))


def names(path: Path) -> set[str]:
    return {os.path.join(above, name) for above, inner, files in os.walk(path) for name in (*inner, *files)}


def test_only_proven_paths_are_removed(site: PurgeSite) -> None:
    before, there = contents(site.world.source_path / "home" / "bob"), contents(site.target)
    count, source = len(names(site.source)) + 1, contents(site.world.source_path)
    (shown,) = site.dry_run().trees
    assert (shown.outcome, site.state) == (PurgeOutcome.WOULD_PURGE, CutoverState.RETAINED)
    assert contents(site.world.source_path) == source
    done = site.purge()
    assert (done.sum, done.changed, done.gone) == (shown.sum, shown.changed, shown.gone)
    assert (done.outcome, done.open_paths, done.reasons) == (PurgeOutcome.PURGED, 0, ())
    assert not site.source.exists()
    assert not site.closed.exists()
    assert contents(site.world.source_path / "home" / "bob") == before
    assert contents(site.target) == there
    assert done.removed == count
    assert done.sum is not None
    assert done.sum.names == count
    record = site.world.ledger.cutovers.read(site.record.id)
    assert (record.state, record.notes.purge, record.failure) == (CutoverState.PURGED, done.sum, "")
    assert site.backups == [f"purge-{record.own_name}"]


@pytest.mark.exhaustive
def test_everything_odd_is_removed(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> None:
    neighbour = xfs_source.path / "home" / "neighbour"
    neighbour.mkdir(parents=True)

    def odd(tree: Path) -> None:
        odd_files(os.fsencode(tree), neighbour=os.fsencode(neighbour), source_mount=xfs_source.root)

    with purge_site(scratch / "site", xfs_source.path, xfs_target.path, odd) as site:
        kept = contents(neighbour)
        done = site.purge()
        assert (done.outcome, done.findings, done.reasons) == (PurgeOutcome.PURGED, (), ())
        assert not site.source.exists()
        assert done.outside > 0
        after = contents(neighbour)
        assert set(after) == set(kept)


def test_without_the_checksum_nothing_is_removed(site: PurgeSite) -> None:
    checksum = site.dry_run().checksum
    before = contents(site.world.source_path)
    for confirm in (None, "0123456789ab", checksum[:11]):
        with pytest.raises(Refused) as refused:
            asyncio.run(purge(site.request(confirm=confirm), site.ports()))
        assert checksum in refused.value.message
    assert contents(site.world.source_path) == before
    assert site.state is CutoverState.RETAINED


def test_a_tree_that_becomes_due_meanwhile_is_left_for_later(site: PurgeSite) -> None:
    bob, let_in_s = UserTree(path=b"home/bob", user="bob"), site.clock.now_s() - 29.5 * DAY_S
    retain(site.world.ledger, site.record.plan, bob, site.proof.id + 1, let_in_s=let_in_s)
    trees = (site.tree, bob)
    shown = asyncio.run(purge(replace(site.request(dry_run=True), trees=trees), site.ports()))

    class Waiting(Locks):
        @contextmanager
        def hold(self, purpose: str, *names: str, shared: Collection[str] = (), noted: bool = True) -> Iterator[None]:
            site.clock.later_s += DAY_S
            with super().hold(purpose, *names, shared=shared, noted=noted):
                yield

    ports = replace(site.ports(), locks=Waiting(site.world.directory / "locks", site.clock))
    done = asyncio.run(purge(replace(site.request(confirm=shown.checksum), trees=trees), ports))
    assert [one.outcome for one in done.trees] == [PurgeOutcome.PURGED, PurgeOutcome.LATER]
    assert (site.world.source_path / "home/bob/own").read_text() == "bob's"


@pytest.mark.guarantee("bricks-and-mount")
def test_marked_files_are_read_again_before_they_are_freed(site: PurgeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(path for path in site.source.rglob("*") if path.is_file() and not path.is_symlink())
    rotten = next(path for path in files if path.stat().st_nlink == 1)
    marked = os.fsencode(rotten.relative_to(site.world.source_path))
    source, read = site.world.source, site.world.source.digest

    def digest(path: bytes, algorithm: str) -> Digest:
        # The mount shows another copy than the one that was copied, with the same times.
        found = read(path, algorithm)
        return replace(found, value=b"another one") if path.endswith(os.fsencode(rotten.name)) else found

    async def marks(trees: Sequence[bytes]) -> TreeMarks:
        assert trees == (site.tree.path,)
        return TreeMarks(paths=frozenset({marked}))

    monkeypatch.setattr(source, "digest", digest)
    site.marks = marks
    shown = site.dry_run()
    assert shown.trees[0].outcome is PurgeOutcome.REFUSED
    assert rotten.exists()

    async def unknown(trees: Sequence[bytes]) -> TreeMarks:
        return TreeMarks(reasons=(f"a brick with {len(trees)} tree cannot be read",))

    site.marks = unknown
    assert site.dry_run().trees[0].outcome is PurgeOutcome.REFUSED

    async def kept(trees: Sequence[bytes]) -> TreeMarks:
        assert trees == (site.tree.path,)
        return TreeMarks(paths=frozenset({marked}), kept=("the client may show the marked copy",))

    monkeypatch.undo()  # all content is equal now: what the client keeps is the only reason
    site.marks = kept
    assert site.dry_run().trees[0].outcome is PurgeOutcome.REFUSED
    site.marks = marks
    assert site.purge().outcome is PurgeOutcome.PURGED


def refused(site: PurgeSite, *words: str) -> None:
    """A dry run and a purge refuse alike, and nothing is touched."""
    before = contents(site.world.source_path)
    (shown,) = site.dry_run().trees
    done = site.purge()
    assert (shown.outcome, done.outcome) == (PurgeOutcome.REFUSED, PurgeOutcome.REFUSED)
    assert shown.reasons == done.reasons
    assert shown.findings == done.findings
    said = [*done.reasons, *(f"{os.fsdecode(finding.path)}: {finding.words}" for finding in done.findings)]
    for word in words:
        assert any(word in one for one in said), said
    assert contents(site.world.source_path) == before
    assert site.state is CutoverState.RETAINED


def test_writes_after_the_switch_refuse_the_purge_and_are_listed(site: PurgeSite) -> None:
    (site.source / "d0/late").write_text("new")
    (site.source / "d1/f0001").write_text("rewritten")
    (site.source / "d2/f0002").chmod(0o666)
    os.setxattr(site.source / "d3/f0003", "user.late", b"x")
    (site.source / "symlink").unlink()
    (site.source / "symlink").symlink_to("d1/f0001")
    (site.source / "late").mkdir()
    refused(
        site,
        "home/alice/d0/late: is not in the manifest",
        "home/alice/d1/f0001: was modified",
        "home/alice/d2/f0002: had mode",
        "home/alice/d3/f0003: has other extended attributes",
        "home/alice/symlink: ",
        "home/alice/late: is not in the manifest",
    )


def test_a_write_that_hides_is_found_by_its_content(site: PurgeSite) -> None:
    path = site.source / "d1/f0001"
    rewrite(path, b"x" * path.stat().st_size)
    refused(site, "d1/f0001: has another content on the source")


def test_a_sample_is_no_proof(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> None:
    with purge_site(scratch / "site", xfs_source.path, xfs_target.path, fill, share=0.5) as site:
        refused(site, "a sample is no proof")


def test_paths_lost_on_the_target_stay_on_the_source(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> None:
    """It happened before the user was let in, so it was not they who did it."""
    with purge_site(scratch / "site", xfs_source.path, xfs_target.path, fill, let_in_later_s=3600.0) as site:
        (site.target / "d1/f0001").unlink()
        (site.target / "d2/f0002").write_text("other")
        refused(site, "d1/f0001: is not on the target", "d2/f0002: is another one on the target")


@pytest.mark.exhaustive
def test_changes_by_the_user_on_the_target_are_no_loss(site: PurgeSite) -> None:
    (site.target / "d1/f0001").unlink()
    (site.target / "d2/f0002").write_text("other")
    (site.target / "d3").rename(site.target / "renamed")
    (site.target / "d4/f0004").rename(site.target / "d4/elsewhere")
    (shown,) = site.dry_run().trees
    done = site.purge()
    assert done.outcome is PurgeOutcome.PURGED
    assert (done.changed, done.gone) == (1, 1 + 1 + 1 + len([n for n in range(FILES) if n % 7 == 3]))
    assert (shown.changed, shown.gone) == (done.changed, done.gone)


def test_half_of_a_tree_missing_on_the_target_is_asked_about(site: PurgeSite) -> None:
    for number in range(6):
        (site.target / f"d{number}").rename(site.world.target_path / f"away{number}")
    refused(site, "are not on the target any more")


def test_a_mount_in_the_tree_on_the_target_removes_nothing(site: PurgeSite) -> None:
    hidden = site.target / "d1"
    # The user's own work makes the directory newer than the thaw.
    (hidden / "new").write_text("of the user")
    run_tool("mount", "-t", "tmpfs", "none", str(hidden))
    try:
        os.utime(site.target)
        refused(site, "home/alice/d1/f0001: ", "home/alice/d1: ")
        # A file of the same size and time is not that of the target either.
        like = (site.source / "d1/f0001").stat()
        (hidden / "f0001").write_bytes(b"x" * like.st_size)
        os.utime(hidden / "f0001", ns=(like.st_atime_ns, like.st_mtime_ns))
        refused(site, "home/alice/d1/f0001: ")
    finally:
        unmount(hidden)
    assert site.purge().outcome is PurgeOutcome.PURGED


def test_a_volume_that_keeps_removed_files_is_refused(site: PurgeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, str] = {}
    health = site.world.source.health

    async def with_options() -> SourceHealth:
        state = volume("gl1:/srv/b1", options=tuple(options.items()))
        return VolumeHealth(problems=(await health()).problems, state=state)

    monkeypatch.setattr(site.world.source, "health", with_options)
    for value in ("on", "enable", "a value of a later version"):
        options["features.trash"] = value
        refused(site, "`gluster volume set vol1 features.trash off`")
    options["features.trash"] = "off"
    closed = killed(site, calls=6)
    left = names(closed)
    options["features.trash"] = "on"
    assert site.purge().outcome is PurgeOutcome.REFUSED
    assert names(closed) == left
    del options["features.trash"]
    assert site.purge().outcome is PurgeOutcome.PURGED


def killed(site: PurgeSite, *, calls: int) -> Path:
    """Kill a purge after so many calls that change the source; return the tree in its place."""
    confirm, places = site.dry_run().checksum, site.places
    site.places = dying(places, Death(left=calls))
    with suppress(Killed):
        asyncio.run(purge(replace(site.request(confirm=confirm), workers=1), site.ports()))
    site.places = places
    gc.collect()  # directories that the killed purge holds open
    assert (site.source.exists(), site.state) == (False, CutoverState.PURGING)
    return site.closed / "tree"


@pytest.mark.parametrize("calls", [6, 50])
def test_a_resumed_purge_refuses_a_loss_on_the_target(site: PurgeSite, calls: int) -> None:
    closed = killed(site, calls=calls)
    left = names(closed)
    assert left
    for path in site.target.iterdir():
        if path.name != "symlink":
            subprocess.run(["rm", "-rf", path], check=True)
    (shown,), done = site.dry_run().trees, site.purge()
    assert (shown.outcome, done.outcome) == (PurgeOutcome.REFUSED, PurgeOutcome.REFUSED)
    assert (shown.gone, len(done.reasons)) == (done.gone, 1)
    assert names(closed) == left


def test_a_resumed_purge_counts_only_losses_on_the_target(site: PurgeSite) -> None:
    """Removals by an earlier call are none, and the share is that of the whole tree."""
    planned = site.dry_run().trees[0].sum
    closed = killed(site, calls=50)
    left = {path.relative_to(closed) for path in closed.rglob("f*") if path.is_file()}
    assert 10 < len(left) < FILES / 2
    for path in left:
        (site.target / path).unlink()
    done = site.purge()
    assert (done.outcome, done.gone, done.sum) == (PurgeOutcome.PURGED, len(left), planned)


@pytest.mark.exhaustive
def test_content_that_is_broken_on_the_target_is_found_when_it_is_read_again(site: PurgeSite) -> None:
    path = site.target / "d1/f0001"
    rewrite(path, b"x" * path.stat().st_size)
    before = contents(site.world.source_path)
    done = site.purge(reread=True)
    assert done.outcome is PurgeOutcome.REFUSED
    assert [finding.words for finding in done.findings] == ["has another content on the target than was verified"]
    assert contents(site.world.source_path) == before


def test_content_is_read_again_where_ctimes_are_not_trusted(site: PurgeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    path = site.target / "d1/f0001"
    rewrite(path, b"x" * path.stat().st_size)
    monkeypatch.setattr(ReadingFileSystem, "trusted_ctimes", False)
    assert site.purge().outcome is PurgeOutcome.REFUSED


def test_a_writer_stops_it(site: PurgeSite) -> None:
    with (site.source / "d0/f0000").open("ab"):
        (shown,) = site.dry_run().trees
    # This process is the one that purges; another one is seen, and named.
    assert shown.outcome is PurgeOutcome.WOULD_PURGE
    with holding(HOLD, site.source / "d0/f0000", "os.O_WRONLY"):
        refused(site, "can still write", "d0/f0000")


@pytest.mark.exhaustive
def test_the_other_guards_stop_it(site: PurgeSite) -> None:
    site.leads_to = OSError(5, "no answer")
    refused(site, "the destination of")
    site.leads_to = LinkState.TARGET
    site.storage = ("a target of BeeGFS is not well: 3 Offline Good",)
    refused(site, "3 Offline Good")
    site.storage = ()
    site.source.chmod(0o755)
    refused(site, "not as the freeze left it")
    site.source.chmod(0o500)
    away = site.target.rename(site.world.target_path / "away")
    site.target.mkdir()
    refused(site, "is empty: the moved files are gone")
    site.target.rmdir()
    away.rename(site.target)
    assert site.proof.manifest is not None
    manifest = Path(site.proof.manifest)
    content = manifest.read_bytes()
    manifest.write_bytes(content[:-1] + b"x")
    refused(site, "the manifest")
    manifest.unlink()
    refused(site, "the manifest cannot be read")
    manifest.write_bytes(content)
    assert site.purge().outcome is PurgeOutcome.PURGED


CUTOVER = '[cutover]\nswitch = "hook"\nfreeze = "hook"\nretain = "1s"\npurge_rate = {rate}\n'


@pytest.fixture
def cli_site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> RealSite:
    """alice's source may be freed, bob has not been moved."""
    made = RealSite(scratch / "cli_site", xfs_source, xfs_target)
    for name in ("alice", "bob"):
        fill_tree(xfs_source.path / "home" / name, files=60, size_bytes=300)
    made.prepare(transfer=CUTOVER.format(rate=40))
    freeze(xfs_source.path / "home/alice")
    for words in (("run", "--all", "--deltas", "0"), ("verify", "--all")):
        done = made.migrator(*words)
        assert done.returncode == 0, done.stderr
    with MigrationLedger.open(made.ledger) as ledger:
        plan = ledger.plans.active()
        assert plan is not None
        (proof,) = ledger.verifications.of_plan(plan.name)
        alice = UserTree(path=b"home/alice", user="alice")
        retain(ledger, plan.name, alice, proof.id, let_in_s=time.time() - 2)
    thaw(xfs_target.path / "home/alice", 60001)
    return made


def asked(cli_site: RealSite, *words: str, code: int = 0) -> Any:
    done = cli_site.migrator("purge", *words, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def left(cli_site: RealSite) -> int:
    return sum(len(files) for _, _, files in os.walk(cli_site.source.path / ".migrator-purge"))


def test_it_is_reviewed_confirmed_killed_and_resumed(cli_site: RealSite) -> None:
    source, bob = cli_site.source.path / "home/alice", cli_site.source.path / "home/bob"
    shown = asked(cli_site, "--user-batch", "1", "--dry-run")
    assert {one["tree"]["user"]: one["outcome"] for one in shown["trees"]} == {"alice": "would-purge", "bob": "later"}
    (sum_,) = [one["sum"] for one in shown["trees"] if one["sum"]]
    assert cli_site.migrator("purge", "--user-batch", "1").returncode == 4
    assert cli_site.migrator("purge", "--user", "bob", "--dry-run").returncode == 4
    assert cli_site.migrator("purge", "--user", "nobody", "--dry-run").returncode == 2
    assert source.is_dir()
    words = ("purge", "--user-batch", "1", "--confirm", shown["checksum"][:12])
    cli_site.write(transfer=CUTOVER.format(rate=2))  # it is not through before it is killed, however late that is
    process = subprocess.Popen(
        cli_site.argv(*words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: 0 < left(cli_site) < 60, "some of it is removed")
    finally:
        process.kill()
        process.wait()
    assert not source.exists()
    assert left(cli_site)
    status = json.loads(cli_site.migrator("status", "--json").stdout)
    assert any("purge" in one["subject"] for one in status["blocked"])
    cli_site.write(transfer=CUTOVER.format(rate=1000))
    done = cli_site.migrator(*words)
    assert done.returncode == 0, done.stderr
    assert "freed" in done.stdout
    assert not (cli_site.source.path / ".migrator-purge").exists()
    assert len(list(bob.rglob("f*"))) == 60
    assert len(list((cli_site.target.path / "home/alice").rglob("f*"))) == 60
    with MigrationLedger.open(cli_site.ledger, read_only=True) as ledger:
        record = ledger.cutovers.latest(b"home/alice")
        assert record is not None
        assert (record.state, record.notes.purge is not None) == (CutoverState.PURGED, True)
    for verb in ("status", "report"):
        assert "were freed there" in " ".join(cli_site.migrator(verb, "--details").stdout.split())
    (facts,) = json.loads(cli_site.migrator("status", "--json").stdout)["cutovers"]
    assert facts["purge"] == sum_
    assert list((cli_site.directory / "state/backups").iterdir())


def test_all_covers_users_whom_an_earlier_plan_has_moved(cli_site: RealSite) -> None:
    for words in (("scan",), ("plan", "--activate")):
        done = cli_site.migrator(*words)
        assert done.returncode == 0, done.stderr
    shown = asked(cli_site, "--all", "--dry-run")
    assert {one["tree"]["user"]: one["outcome"] for one in shown["trees"]} == {"alice": "would-purge", "bob": "later"}
    asked(cli_site, "--all", "--confirm", shown["checksum"])
    assert not (cli_site.source.path / "home/alice").exists()


def test_a_clock_that_was_behind_does_not_shorten_the_retention(
    scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount
) -> None:
    """The machine's clock was 41 days behind at the cutover, and is right now: the target has its own."""
    with purge_site(
        scratch / "site", xfs_source.path, xfs_target.path, fill, let_in_later_s=-41 * DAY_S, target_clock=True
    ) as site:
        site.clock.later_s = 60
        before = contents(site.world.source_path)
        with pytest.raises(Refused):
            site.dry_run()
        assert contents(site.world.source_path) == before
        site.clock.later_s = 31 * DAY_S
        (shown,) = site.dry_run().trees
        assert shown.outcome is PurgeOutcome.WOULD_PURGE


class FullPlaces(MountedPlaces):
    """A file system without room for a directory."""

    def put(self, tree: bytes, place: bytes, *, ino: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def roomy(site: PurgeSite) -> MountedPlaces:
    return site.places


@pytest.fixture
def full(site: PurgeSite, roomy: MountedPlaces) -> Iterator[PurgeSite]:
    assert site.places is roomy
    site.places = places = FullPlaces(site.world.source_root)
    try:
        yield site
    finally:
        places.close()


def test_a_full_source_is_freed_in_place(full: PurgeSite) -> None:
    count = len(names(full.source)) + 1
    before = contents(full.world.source_path / "home" / "bob")
    done = full.purge()
    assert (done.outcome, done.removed, full.source.exists()) == (PurgeOutcome.PURGED, count, False)
    assert contents(full.world.source_path / "home" / "bob") == before


@pytest.mark.parametrize("room", [False, True])
def test_a_purge_in_place_resumes_in_place_or_where_there_is_room_now(
    full: PurgeSite, roomy: MountedPlaces, room: bool
) -> None:
    shown, places = full.dry_run(), full.places
    planned, confirm = shown.trees[0].sum, shown.checksum
    full.places = dying(places, Death(left=30))
    with suppress(Killed):
        asyncio.run(purge(replace(full.request(confirm=confirm), workers=1), full.ports()))
    gc.collect()
    full.places = roomy if room else places
    assert (full.source.exists(), full.state) == (True, CutoverState.PURGING)
    assert full.source.stat().st_uid == 0
    left = [path for path in full.source.rglob("f*") if path.is_file() and path.stat().st_nlink == 1]
    assert 0 < len(left) < FILES
    # A file that somebody adds is not proven, and stops it.
    (full.source / "new").write_text("new")
    assert full.purge().outcome is PurgeOutcome.REFUSED
    (full.source / "new").unlink()
    done = full.purge()
    assert (done.outcome, done.sum, done.gone) == (PurgeOutcome.PURGED, planned, 0)
    assert not full.source.exists()
    assert not full.closed.parent.exists()


def test_a_purge_in_place_counts_losses_over_the_whole_tree(full: PurgeSite) -> None:
    confirm, places = full.dry_run().checksum, full.places
    full.places = dying(places, Death(left=30))
    with suppress(Killed):
        asyncio.run(purge(replace(full.request(confirm=confirm), workers=1), full.ports()))
    gc.collect()
    full.places = places
    left = names(full.source)
    for path in full.target.iterdir():
        if path.name != "symlink":
            subprocess.run(["rm", "-rf", path], check=True)
    assert full.purge().outcome is PurgeOutcome.REFUSED
    assert names(full.source) == left
