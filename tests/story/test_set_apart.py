"""One user tree that a scan cannot read everywhere is set apart and named; the others are planned, copied and moved."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeXfs
from tests.support.cut_site import CutSite, change, cut_site
from tests.support.delta_changes import let_settle, standing
from tests.support.xfs import run_tool, unmount

pytestmark = pytest.mark.needs_root

USERS = ("ann", "ben", "cay")
UNREADABLE = "home/cay/d1"


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",), users=USERS) as made:
        yield made
        hidden = made.site.source.path / UNREADABLE
        if hidden.is_mount():
            unmount(hidden)


def hide(site: CutSite) -> None:
    """Something else is mounted within the tree: what was there seems to be gone."""
    run_tool("mount", "-t", "tmpfs", "none", str(site.site.source.path / UNREADABLE))


def blocked(site: CutSite) -> str:
    return "; ".join(f"{one['subject']}: {one['on']}" for one in site.call("status", "--json").json["blocked"])


@pytest.mark.guarantee("unreadable-directory")
def test_the_others_are_copied_and_moved_and_nothing_of_it_is_removed(site: CutSite) -> None:
    there = standing(site.target("cay"))
    hide(site)
    change(site.source("ann"))
    change(site.source("ben"))
    let_settle()
    # A run over the batch.
    done = site.call("run", "--all", "--json", code=3).json["batches"][0]
    assert ([one["tree"] for one in done["set_apart"]], done["refused"]) == (["home/cay"], False)
    assert UNREADABLE in done["set_apart"][0]["reason"]
    (done,) = site.call("run", "--all", "--json", code=3).json["batches"]
    assert len(done["deltas"]) == 1, "nothing changed, and no pass waits for what is set apart"
    assert standing(site.target("cay")) == there
    # Cutovers.
    expected = site.snapshot("ann")
    assert site.cutover("ann")["ending"] == "moved"
    site.assert_works_on("target", expected)
    failed = site.call("cutover", "--user", "cay", "--json", code=None)
    assert failed.code != 0
    assert UNREADABLE in failed.out
    assert site.is_open(site.source("cay"))
    assert standing(site.target("cay")) == there
    # A new scan and plan: it names what could not be read, and plans the others.
    scan = site.call("scan", "--json", code=3).json
    assert (scan["whole"], scan["set_apart"]) == (False, ["home/cay"])
    assert UNREADABLE in scan["reasons"][0]
    plan = site.call("plan", "--activate", "--json", "--accept-unknown-inodes").json["plan"]
    assert [tree["path"] for batch in plan["batches"] for tree in batch["trees"]] == ["home/ben"]
    assert [tree["path"] for tree in plan["set_apart"]] == ["home/cay"]
    assert any("home/cay" in words and "migrator scan" in words for words in plan["problems"])
    assert "migrator scan" in site.call("run", "--user", "cay", code=2).err
    assert "set apart: home/cay" in blocked(site)
    states = {tree["tree"]["path"]: tree["state"] for tree in site.call("status", "--json").json["trees"]}
    assert states["home/cay"] != "excluded"
    site.call("run", "--all", "--json")
    assert site.cutover("ben")["ending"] == "moved"
    assert standing(site.target("cay")) == there
    # The remedy.
    unmount(site.site.source.path / UNREADABLE)
    (site.source("cay") / "later").write_text("later")
    sorted(path for path in (site.source("cay") / "d1").iterdir() if path.is_file())[0].unlink()
    let_settle()
    site.call("scan", "--json")
    site.call("plan", "--activate", "--json", "--accept-unknown-inodes")
    assert "set apart" not in blocked(site)
    site.call("run", "--all", "--json")
    expected = site.snapshot("cay")
    assert site.cutover("cay")["ending"] == "moved"
    assert (site.tree("cay"), site.snapshot("cay")) == (site.target("cay"), expected)
    assert blocked(site) == ""
    done = site.call("doctor", code=None)
    assert done.code == 0, done.out
