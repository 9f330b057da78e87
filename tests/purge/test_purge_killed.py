"""A purge that is killed anywhere goes on by the same command, and frees what is proven and nothing else.

It is killed before a given call of what changes the source, and resumes from what that left.
"""

import asyncio
import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.cutover.model import CutoverState
from migrator.purge import removal
from migrator.purge.model import TreeOutcome
from migrator.purge.stage import purge
from tests.purge.purge_world import PurgeSite, purge_site
from tests.support.kills import Death, Killed, dying
from tests.support.run_site import fill_tree
from tests.support.snapshots import snapshot
from tests.support.xfs import XfsMount

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

FILES = 30


def fill(tree: Path) -> None:
    tree.rmdir()
    fill_tree(tree, files=FILES, size_bytes=500)
    deep = tree.joinpath("d" * 20, "d" * 20)
    deep.mkdir(parents=True)
    (deep / "f").write_text("deep")


@pytest.fixture
def site(
    scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PurgeSite]:
    monkeypatch.setattr(removal, "DEEP_BYTES", 77)
    other = xfs_source.path / "home" / "bob"
    other.mkdir(parents=True)
    (other / "own").write_text("bob's")
    with purge_site(scratch / "site", xfs_source.path, xfs_target.path, fill) as made:
        yield made


def killed_at(site: PurgeSite, confirm: str, number: int) -> bool:
    """Purge until the given change of the source, before which it is killed; whether it came so far."""
    places, death = site.places, Death(left=number)
    site.places = dying(places, death)
    try:
        asyncio.run(purge(site.request(confirm=confirm), site.ports()))
    except Killed:
        pass
    finally:
        site.places = places
    gc.collect()  # what the killed one held open on the source would keep it mounted
    return death.happened


def test_it_goes_on_after_a_kill_at_any_step(site: PurgeSite) -> None:
    """One after the other, until one comes to the end: each begins where the one before was killed."""
    confirm = site.dry_run().checksum
    bob, there = snapshot(os.fsencode(site.world.source_path / "home/bob")), snapshot(os.fsencode(site.target))
    order = random.Random(7)
    kills = 0
    # The early steps one by one, then wherever: a step that is undone by the kill is done again by the next one.
    while killed_at(site, confirm, number := (kills + 3 if kills < 6 else order.randint(5, 25))):
        kills += 1
        assert site.state in (CutoverState.PURGING, CutoverState.PURGED), number
        assert kills < 200
    assert kills > 10
    record = site.world.ledger.cutovers.read(site.record.id)
    assert (record.state, record.failure) == (CutoverState.PURGED, "")
    assert record.notes.purge is not None
    assert not site.source.exists()
    assert not site.closed.exists()
    assert snapshot(os.fsencode(site.world.source_path / "home/bob")) == bob
    assert snapshot(os.fsencode(site.target)) == there
    assert site.purge().outcome is TreeOutcome.DONE_BEFORE


def test_what_changed_between_two_kills_stays_where_only_root_gets_to(site: PurgeSite) -> None:
    confirm = site.dry_run().checksum
    assert killed_at(site, confirm, 6)
    closed = site.closed / "tree"
    assert not site.source.exists()
    left = sorted(path for path in closed.rglob("f*") if path.is_file() and path.stat().st_nlink == 1)
    left[0].write_text("written by somebody who had it open")
    (left[1].parent / "made-late").write_text("and this is new")
    done = site.purge()
    assert done.outcome is TreeOutcome.KEPT
    assert {finding.path for finding in done.findings} == {
        b"home/alice/" + os.fsencode(path.relative_to(closed)) for path in (left[0], left[1].parent / "made-late")
    }
    assert done.kept_in == os.fsencode(closed.relative_to(site.world.source_path))
    assert {path for path in closed.rglob("*") if path.is_file()} == {left[0], left[1].parent / "made-late"}
    assert left[0].read_text() == "written by somebody who had it open"
    assert [path.stat().st_mode & 0o777 for path in (site.closed, site.closed.parent)] == [0o700, 0o700]
    assert site.state is CutoverState.PURGING
    assert "kept in" in site.world.ledger.cutovers.read(site.record.id).failure
    # Somebody looks at them and takes them away; then the same command comes to the end.
    left[0].unlink()
    (left[1].parent / "made-late").unlink()
    assert site.purge().outcome is TreeOutcome.PURGED
    assert not site.closed.exists()
    assert site.world.ledger.cutovers.read(site.record.id).state is CutoverState.PURGED


def test_a_new_tree_at_the_old_path_is_not_touched(site: PurgeSite) -> None:
    confirm = site.dry_run().checksum
    assert killed_at(site, confirm, 6)
    site.source.mkdir()
    (site.source / "new").write_text("somebody's")
    before = snapshot(os.fsencode(site.world.source_path))
    done = site.purge()
    assert (done.outcome, len(done.reasons)) == (TreeOutcome.REFUSED, 1)
    assert "stands on the source again" in done.reasons[0]
    assert snapshot(os.fsencode(site.world.source_path)) == before
