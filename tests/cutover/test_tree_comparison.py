"""Users' trees before and after their cutovers: the real commands, confined, bounded, and of no harm where they fail."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.bench import tree_timing
from migrator.bench.tree_timing import visit_tree
from migrator.cutover.rules_speed import TreeMeasurement, TreeTest, TreeVisited
from migrator.fs.model import Side
from migrator.hosts.process import LocalProcesses
from migrator.transfer.executors import LocalExecutor
from tests.conftest import MakeXfs
from tests.support.cut_site import CutSite, cut_site
from tests.support.native_builds import placing

pytestmark = pytest.mark.needs_root

TREE = b"home/\xff ann"
LETTER = b"x" * 5000


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    """A tree on both sides: files, names and links that lead astray, and a pipe."""
    for side in ("source", "target"):
        top = Path(os.fsdecode(os.fsencode(tmp_path / side) + b"/" + TREE))
        (top / "work").mkdir(parents=True)
        for number in range(5):
            (top / "work" / f"new\nline {number}").write_bytes(LETTER)
        (top / "away").symlink_to("/etc")
        (top / "passwd").symlink_to("/etc/passwd")
        os.mkfifo(top / "pipe")
    (top / "work" / "new\nline 4").write_bytes(b"another size")
    return tmp_path


def visit(trees: Path, side: Side, files: tuple[bytes, ...]) -> TreeVisited:
    executor = LocalExecutor(
        LocalProcesses(),
        source_root=os.fsencode(trees / "source"),
        target_root=os.fsencode(trees / "target"),
        compiled=placing(),
    )
    visited = visit_tree(
        executor,
        side=side,
        tree=TREE,
        directory=str(trees / "work" / "own"),
        files=files,
        limit_s=120.0,
        token="0123456789abcdef",
        now_s=time.time,
    )
    return asyncio.run(visited)


def of(found: TreeVisited, test: TreeTest) -> list[TreeMeasurement]:
    return [one for one in found.measurements if one.test is test]


def test_the_real_commands_are_timed_and_read_the_same_files_on_both_sides(trees: Path) -> None:
    names = tuple(b"work/new\nline %d" % number for number in range(5))
    before = visit(trees, Side.SOURCE, (b"passwd", b"away/passwd", b"pipe", b"gone", *names))
    assert before.problem == ""
    assert before.files == names[:4], "regular files that are there on both sides, and equally large"
    after = visit(trees, Side.TARGET, before.files)
    for found, side, top in ((before, Side.SOURCE, "source"), (after, Side.TARGET, "target")):
        assert {one.side for one in found.measurements} == {side}
        assert all(one.complete and one.seconds > 0 and not one.failure for one in found.measurements)
        for test in TreeTest:
            assert [one.run for one in of(found, test)] == [1, 2, 3, 4, 5, 6]
        assert {one.amount for one in of(found, TreeTest.READ)} == {4 * len(LETTER)}
        assert all(one.cold for one in of(found, TreeTest.READ))
        listed = subprocess.run(
            ["ls", "-lR", os.fsencode(trees / top) + b"/" + TREE], capture_output=True, check=True
        ).stdout
        assert {one.amount for one in of(found, TreeTest.LIST)} == {listed.count(b"\n")}
    assert list((trees / "work" / "own").iterdir()) == [], "nothing is written"


def test_a_missing_tree_is_a_problem_and_no_error(trees: Path) -> None:
    (trees / "target" / "home").rename(trees / "target" / "elsewhere")
    found = visit(trees, Side.SOURCE, ())
    assert found.measurements == ()
    assert "target-tree" in found.problem


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",), users=("ann", "ben")) as made:
        made.write(compare=True)
        yield made


def events(site: CutSite, kind: str) -> list[Any]:
    return [message for (message,) in site.rows(f"SELECT message FROM events WHERE kind = '{kind}'")]


def without_an_interpreter() -> None:
    tree_timing._python = lambda: "/bin/false"


@pytest.mark.exhaustive
def test_a_cutover_measures_on_either_side_of_the_freeze(site: CutSite) -> None:
    # What cannot be measured stops nobody.
    found = site.start("cutover", "--user", "ben", "--json", before=without_an_interpreter).end().outcome
    assert (found["ending"], found["cutover"]["state"], found["speed_ups"]) == ("moved", "retained", [])
    (message,) = events(site, "comparison-failed")
    assert "on the source: exit code 1" in message
    found = site.cutover()
    assert found["ending"] == "moved"
    assert {one["test"] for one in found["speed_ups"]} == {"list", "usage", "read"}
    assert all(one["runs"] >= 2 and one["factor"] > 0 for one in found["speed_ups"])
    # The last of the source lies before the freeze, the first of the target after the thaw, and both read the same files.
    frozen = (
        "SELECT facts ->> 'frozen_at_s', facts ->> 'thawed_at_s' FROM operations WHERE facts ->> '$.tree.user' = 'ann'"
    )
    ((frozen_s, thawed_s),) = site.rows(frozen)
    sides = "SELECT min(at_s), max(at_s), sum(amount) FILTER (WHERE test = 'read' AND run = 1) FROM tree_measurements"
    (source, target) = site.rows(f"{sides} GROUP BY side ORDER BY side")
    assert source[1] < frozen_s < thawed_s < target[0]
    assert source[2] == target[2] > 0
    measuring = [text for text in events(site, "cutover-step") if text.startswith("measuring ")]
    # Not silent meanwhile; the first is Ben's, which failed.
    assert [text.split(" on the ")[1].split(",")[0] for text in measuring] == ["source", "source", "target"]
    (said,) = events(site, "tree-compared")
    assert said.startswith("for ann the target is, beside the source: ls -lR ")
    report = site.call("report", "--json").json
    (user,) = report["speed_ups"]
    assert (user["tree"]["user"], user["speed_ups"]) == ("ann", found["speed_ups"])
    assert "Speed-ups of users" in site.call("report", "--details").out
    # Who goes back has none any more, and a site that does not want it measures nothing.
    site.rollback()
    assert site.call("report", "--json").json["speed_ups"] == []
    site.write(compare=False)
    (before,) = site.rows("SELECT count(*) FROM tree_measurements")
    again = site.cutover()
    assert (again["ending"], again["speed_ups"]) == ("moved", [])
    assert site.rows("SELECT count(*) FROM tree_measurements") == [before]
