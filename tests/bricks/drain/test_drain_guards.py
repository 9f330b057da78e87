"""What is asked before a drain begins, over a simulated volume: guards, sources that are purged first, a dry run."""

import pytest

from migrator.bricks.drain.model import BrickMarks, DrainEnding, TreeOnBricks
from migrator.core.entry import UserTree
from migrator.core.errors import Refused, UsageError
from migrator.core.units import GIB
from tests.bricks.drain.drain_site import Site
from tests.bricks.drain.drain_world import LEAVING
from tests.support.operations import THERE, do, plan_cutover

ALICE, BOB = (UserTree(path=f"home/{user}".encode(), user=user) for user in ("alice", "bob"))


def test_sources_of_users_on_the_target_are_purged_first_or_accepted(site: Site) -> None:
    site.trees = tuple(TreeOnBricks(tree=tree.path, files=2, size_bytes=GIB) for tree in (ALICE, BOB))
    # Nobody works on the target yet: whatever lies there is moved because it has to be.
    assert site.drain(dry_run=True).ending is DrainEnding.PLANNED
    do(site.ledger.cutovers, plan_cutover(site.ledger, name="plan", tree=ALICE), *THERE)
    (reason,) = (refused := site.drain()).reasons
    assert (refused.ending, site.state) == (DrainEnding.HALTED, None)
    for words in ("2 files (1.0 GiB) of 1 user", "`migrator purge --plan plan --user alice --dry-run`"):
        assert words in reason
    assert refused.check is not None
    assert [one.user for one in refused.check.retained or ()] == ["alice"]
    assert site.drain(accept_retained=True).ending is DrainEnding.DONE


def test_marks_are_asked_for_before_a_drain_and_not_once_it_has_set_some_itself(site: Site) -> None:
    site.marks = (BrickMarks(brick=LEAVING, files=1, examples=(b"home/a",)),)
    refused = site.drain()
    assert refused.ending is DrainEnding.HALTED
    assert "the mark of an earlier drain" in refused.reasons[0]
    assert site.volume.task is None
    site.marks = ()
    site.volume.unmovable = {5}
    assert site.drain().ending is not DrainEnding.DONE
    site.marks, site.volume.unmovable = (BrickMarks(brick=LEAVING, files=1, examples=(b"home/a",)),), set()
    assert site.drain().ending is DrainEnding.DONE


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("version", "11.0", "11.0"),
        ("version", None, "not known"),
        ("open_files", 3, "3 files are open"),
        ("open_files", None, "how many files are open"),
    ],
)
def test_a_guard_stops_it_before_anything_is_written_down(site: Site, name: str, value: object, words: str) -> None:
    setattr(site, name, value)
    done = site.drain()
    assert (done.ending, int(done.exit_code), site.state) == (DrainEnding.HALTED, 4, None)
    assert any(words in reason for reason in done.reasons), done.reasons
    assert (site.volume.task, site.volume.options) == (None, {})
    if name == "open_files":
        assert site.drain(accept_open_files=True).ending is DrainEnding.DONE


def test_a_dry_run_changes_nothing_and_says_the_word(site: Site) -> None:
    done = site.drain(dry_run=True)
    assert (done.ending, site.state, site.volume.task) == (DrainEnding.PLANNED, None, None)
    assert done.check is not None
    assert (done.check.problems, done.check.linked_symlinks, done.check.catalog) == ((), (), "c1")
    assert done.confirm is not None
    with pytest.raises(Refused, match="word to confirm"):
        site.drain(confirm="other")
    assert site.drain(confirm=done.confirm).ending is DrainEnding.DONE


@pytest.mark.guarantee("wipe")
def test_a_disk_with_anything_else_on_it_is_not_wiped(site: Site) -> None:
    word = site.drain(dry_run=True).confirm
    site.on_disk = ("/srv/b/IMPORTANT",)
    shown = site.drain(dry_run=True)
    assert (shown.ending, shown.confirm) == (DrainEnding.PLANNED, None)
    assert "/srv/b/IMPORTANT" in shown.wipe_problems[0]
    with pytest.raises(Refused, match="IMPORTANT"):
        site.drain(confirm=word)
    site.on_disk, site.disk = (), "serial-2"
    with pytest.raises(Refused, match="word to confirm"):
        site.drain(confirm=word)


def test_unknown_bricks_and_drains_are_told(site: Site) -> None:
    with pytest.raises(UsageError, match="has no brick gl9:/x"):
        site.drain(bricks=("gl9:/x",))
    with pytest.raises(UsageError, match="no drain of"):
        site.stop()
