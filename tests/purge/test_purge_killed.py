"""A purge that is killed anywhere goes on by the same command, and frees what is proven and nothing else."""

import asyncio
import dataclasses
import gc
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.cutover.model import CutoverState
from migrator.purge import removal
from migrator.purge.call import PurgePorts
from migrator.purge.model import PurgeOutcome, PurgeRequest
from migrator.purge.purge import purge
from tests.purge.purge_site import PurgeSite, purge_site
from tests.support.kills import Death, Killed, dying, killed_everywhere, ticking
from tests.support.run_site import fill_tree
from tests.support.snapshots import snapshot
from tests.support.xfs import XfsMount

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

S = CutoverState


def fill(tree: Path) -> None:
    tree.rmdir()
    fill_tree(tree, files=9, size_bytes=500)
    deep = tree.joinpath("d" * 20, "d" * 20)
    deep.mkdir(parents=True)
    (deep / "f").write_text("deep")


@dataclass
class Dying(PurgeSite):
    """A site whose places and ledger may be killed; `confirm` is the checksum that its purge needs."""

    death: Death = field(default_factory=lambda: Death(left=1 << 30))
    confirm: str = ""

    def ports(self) -> PurgePorts:
        world = super().ports()
        return replace(
            world,
            places=dying(world.places, self.death),
            ledger=dying(world.ledger, self.death),
            back_up=ticking(world.back_up, self.death),
        )

    def request(self, *, dry_run: bool = False, confirm: str | None = None, reread: bool = True) -> PurgeRequest:
        # With one thread its calls come in one order.
        return replace(super().request(dry_run=dry_run, confirm=confirm, reread=reread), workers=1)

    def killed(self, death: Death) -> None:
        self.death = death
        try:
            asyncio.run(purge(self.request(confirm=self.confirm), self.ports()))
        finally:
            self.death = Death(left=1 << 30)

    def has_left(self) -> tuple[object, ...]:
        gc.collect()  # what the killed one held open on the source would keep it mounted
        return (sorted(snapshot(self.world.source_root)),)

    def begun(self) -> Path:
        """Killed when it has moved the tree, and has removed some of it: the tree in its place."""
        places, self.places = self.places, dying(self.places, Death(left=6))
        with suppress(Killed):
            self.killed(self.death)
        self.places = places
        gc.collect()
        assert not self.source.exists()
        return self.closed / "tree"


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dying]:
    monkeypatch.setattr(removal, "DEEP_BYTES", 77)
    other = xfs_source.path / "home" / "bob"
    other.mkdir(parents=True)
    (other / "own").write_text("bob's")
    with purge_site(scratch / "site", xfs_source.path, xfs_target.path, fill) as made:
        confirm = made.dry_run().checksum
        yield Dying(made.world, made.proof, made.record, made.places, made.clock, confirm=confirm)


def test_it_resumes_after_a_kill_at_any_step(site: Dying, scratch: Path) -> None:
    prepared, tree = scratch / "prepared.db", scratch / "tree"
    with closing(sqlite3.connect(site.world.directory / "state/ledger.db")) as ledger:
        ledger.execute("VACUUM INTO ?", (str(prepared),))
    subprocess.run(["cp", "-a", site.source, tree], check=True)
    bob, there = snapshot(os.fsencode(site.world.source_path / "home/bob")), snapshot(os.fsencode(site.target))
    died_in: set[S] = set()

    def again(ledger: MigrationLedger) -> Dying:
        """The same beginning: the tree as it was verified."""
        for left in (site.source, site.closed.parent):
            shutil.rmtree(left, ignore_errors=True)
        subprocess.run(["cp", "-a", tree, site.source], check=True)
        return dataclasses.replace(site, world=dataclasses.replace(site.world, ledger=ledger), backups=[])

    for one, _ in killed_everywhere(prepared, again, Dying.killed, died_in):
        done = one.purge()
        assert done.outcome in (PurgeOutcome.PURGED, PurgeOutcome.DONE_BEFORE), done
        record = one.world.ledger.cutovers.read(one.record.id)
        assert (record.state, record.failure) == (S.PURGED, "")
        assert record.notes.purge is not None
        assert one.backups
        assert not one.source.exists()
        assert not one.closed.parent.exists()
        assert snapshot(os.fsencode(one.world.source_path / "home/bob")) == bob
        assert snapshot(os.fsencode(one.target)) == there
    assert died_in == {S.RETAINED, S.PURGING, S.PURGED}


def test_a_path_changed_between_two_kills_stays_closed_to_users(site: Dying) -> None:
    closed = site.begun()
    left = sorted(path for path in closed.rglob("f*") if path.is_file() and path.stat().st_nlink == 1)
    late = left[1].parent / "made-late"
    left[0].write_text("written by somebody who had it open")
    late.write_text("and this is new")
    done = site.purge()
    assert done.outcome is PurgeOutcome.KEPT
    assert {finding.path for finding in done.findings} == {
        b"home/alice/" + os.fsencode(path.relative_to(closed)) for path in (left[0], late)
    }
    assert done.kept_in == os.fsencode(closed.relative_to(site.world.source_path))
    assert {path for path in closed.rglob("*") if path.is_file()} == {left[0], late}
    assert left[0].read_text() == "written by somebody who had it open"
    assert [path.stat().st_mode & 0o777 for path in (site.closed, site.closed.parent)] == [0o700, 0o700]
    record = site.world.ledger.cutovers.read(site.record.id)
    assert (record.state, "kept in" in record.failure) == (S.PURGING, True)
    # Somebody looks at them and takes them away; then the same command comes to the end.
    left[0].unlink()
    late.unlink()
    assert site.purge().outcome is PurgeOutcome.PURGED
    assert not site.closed.exists()
    assert site.state is S.PURGED


def test_a_new_tree_at_the_old_path_is_not_touched(site: Dying) -> None:
    site.begun()
    site.source.mkdir()
    (site.source / "new").write_text("somebody's")
    before = snapshot(os.fsencode(site.world.source_path))
    done = site.purge()
    assert (done.outcome, len(done.reasons)) == (PurgeOutcome.REFUSED, 1)
    assert snapshot(os.fsencode(site.world.source_path)) == before
