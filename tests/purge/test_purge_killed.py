"""A purge that is killed anywhere goes on by the same command, and frees what is proven and nothing else.

A child process purges a tree while every call that changes something counts; the child kills itself at the given one.
"""

import asyncio
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator.core.entry import Entry
from migrator.cutover.model import CutoverState
from migrator.purge import removal
from migrator.purge.files import MountedPlaces
from migrator.purge.model import TreeOutcome
from migrator.purge.stage import purge
from tests.support.purge_world import PurgeSite, purge_site
from tests.support.run_site import fill_tree
from tests.support.snapshots import snapshot
from tests.support.xfs import XfsMount

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

FILES = 30


class DyingPlaces(MountedPlaces):
    """Counts what changes something, and kills its process before or after the given one."""

    def __init__(self, root: bytes, dies_at: int, *, after: bool) -> None:
        super().__init__(root)
        self._left = dies_at
        self._after = after

    def _step(self, work: Callable[[], object]) -> object:
        self._left -= 1
        dies = self._left == 0
        if dies and not self._after:
            os.kill(os.getpid(), signal.SIGKILL)
        done = work()
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def put(self, tree: bytes, place: bytes, *, ino: int) -> None:
        self._step(lambda: super(DyingPlaces, self).put(tree, place, ino=ino))

    def close_directory(self, path: bytes, expected: Entry) -> None:
        self._step(lambda: super(DyingPlaces, self).close_directory(path, expected))

    def raise_up(self, path: bytes, place: bytes, *, ino: int, known_as: bytes) -> bytes:
        raised = self._step(lambda: super(DyingPlaces, self).raise_up(path, place, ino=ino, known_as=known_as))
        assert isinstance(raised, bytes)
        return raised

    def remove(self, path: bytes, expected: Entry) -> bool:
        return bool(self._step(lambda: super(DyingPlaces, self).remove(path, expected)))

    def remove_directory(self, path: bytes) -> None:
        self._step(lambda: super(DyingPlaces, self).remove_directory(path))

    def flush(self) -> None:
        self._step(super().flush)


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


def killed_at(site: PurgeSite, confirm: str, number: int, *, after: bool) -> bool:
    """Purge in a child that kills itself; whether it came so far."""
    pid = os.fork()
    if pid == 0:
        try:
            # Connections are not to be shared by processes: the child has a ledger of its own.
            from migrator.ledger.ledger import open_ledger

            site.world.ledger = open_ledger(site.world.directory / "state" / "ledger.db")
            site.places = DyingPlaces(site.world.source_root, number, after=after)
            asyncio.run(purge(site.request(confirm=confirm), site.ports()))
            os._exit(0)
        except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on as the test
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_it_goes_on_after_a_kill_at_any_step(site: PurgeSite) -> None:
    """One after the other, until a child comes to the end: each begins where the one before was killed."""
    confirm = site.dry_run().checksum
    bob, there = snapshot(os.fsencode(site.world.source_path / "home/bob")), snapshot(os.fsencode(site.target))
    order = random.Random(7)
    kills = 0
    # The early steps one by one, then wherever: a step that is undone by the kill is done again by the next one.
    while killed_at(site, confirm, number := (1 if kills < 4 else order.randint(1, 6)), after=kills % 4 != 0):
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
    assert killed_at(site, confirm, 3, after=True)
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
    assert "stay in" in site.world.ledger.cutovers.read(site.record.id).failure
    # Somebody looks at them and takes them away; then the same command comes to the end.
    left[0].unlink()
    (left[1].parent / "made-late").unlink()
    assert site.purge().outcome is TreeOutcome.PURGED
    assert not site.closed.exists()
    assert site.world.ledger.cutovers.read(site.record.id).state is CutoverState.PURGED


def test_a_new_tree_at_the_old_path_is_not_touched(site: PurgeSite) -> None:
    confirm = site.dry_run().checksum
    assert killed_at(site, confirm, 3, after=True)
    site.source.mkdir()
    (site.source / "new").write_text("somebody's")
    before = snapshot(os.fsencode(site.world.source_path))
    done = site.purge()
    assert (done.outcome, len(done.reasons)) == (TreeOutcome.REFUSED, 1)
    assert "stands on the source again" in done.reasons[0]
    assert snapshot(os.fsencode(site.world.source_path)) == before
