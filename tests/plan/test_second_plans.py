"""A second plan over the same target: what it goes on with, what it needs, and how damage is mended."""

import json
import os

import pytest

from migrator.app.ledger import MigrationLedger
from migrator.core.states import PassKind, PassState
from migrator.core.units import MIB
from tests.support.cli_site import Site

pytestmark = pytest.mark.needs_root


def test_a_later_plan_is_a_draft_until_it_is_activated(planned: Site) -> None:
    planned.works("run", "--user-batch", "1")
    before = json.loads(planned.call("status", "--json").stdout)
    (planned.source / "home" / "zoe").mkdir()
    (planned.source / "home" / "zoe" / "new").write_bytes(b"new")
    planned.works("scan")
    draft = json.loads(planned.call("plan", "--order", "most-files", "--json").stdout)
    difference = draft["difference"]
    assert (draft["active"], difference["active"], difference["new"]) == (False, "plan-0001", ["home/zoe"])
    status = json.loads(planned.call("status", "--json").stdout)
    for name in ("overall", "verified", "moved", "trees"):
        assert status[name] == before[name]
    done = planned.call("plan", "--activate", "plan-0002")
    assert done.returncode == 0, done.stderr
    assert "plan-0002 is the active plan: all verbs work by it." in done.stdout
    assert "Against plan-0001: 1 user tree (home/zoe) more" in done.stdout
    for words in (("run", "--dry-run"), ("verify",), ("cutover", "--dry-run")):
        said = planned.call(*words, "--user-batch", "1", "--plan", "plan-0001").stderr
        assert said.count("plan: plan-0001, not the active one") == 1, words
    status = json.loads(planned.call("status", "--json").stdout)
    assert status["plan"]["name"] == "plan-0002"
    assert status["overall"]["done_bytes"] == before["overall"]["done_bytes"], "what is copied stays copied"
    assert status["overall"]["left_bytes"] == before["overall"]["left_bytes"] + 3
    assert {tree["plan"] for tree in status["trees"]} == {"plan-0001", "plan-0002"}
    planned.fails(2, "plan", "--activate", "plan-0009", says=("plan-0009",))


def test_plans_are_for_root_and_the_group_of_their_directory(planned: Site) -> None:
    plans = planned.directory / "plans"
    os.chown(plans, 0, 60010)
    plans.chmod(0o2750)
    planned.works("plan")
    planned.works("report", "--output", str(planned.directory / "weekly"))
    made = [path for path in plans.rglob("*") if "plan-0002" in str(path)]
    assert {(path.stat().st_gid, path.stat().st_mode & 0o7) for path in made} == {(60010, 0)} != set()
    assert all(path.stat().st_mode & 0o40 for path in made)
    assert not any(path.stat().st_mode & 0o7 for path in (planned.directory / "weekly").rglob("*"))


@pytest.mark.exhaustive
def test_a_plan_that_is_half_copied_is_not_dropped_for_a_newer_one_in_silence(planned: Site) -> None:
    with MigrationLedger.open(planned.directory / "state" / "ledger.db") as ledger:
        record = ledger.passes.start(
            plan="plan-0001", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=[], at_s=1.0
        )
        ledger.passes.set_state(record.id, PassState.STOPPED, 2.0)
    planned.works("plan", "--activate")
    planned.fails(2, "run", "--user-batch", "1", says=("plan-0001", "--plan plan-0001", "--plan plan-0002"))
    done = planned.call("run", "--user-batch", "1", "--plan", "plan-0002")
    assert (done.returncode, done.stderr.count("plan: plan-0002, the active one")) == (0, 1), done.stderr


@pytest.mark.exhaustive
def test_links_across_trees_that_an_earlier_plan_made_are_no_difference_for_a_later_one(planned: Site) -> None:
    os.link(planned.source / "home" / "ann" / "file-1", planned.source / "home" / "bob" / "of-ann")
    text = planned.file.read_text()
    planned.file.write_text(text.replace("max_users = 1", "max_users = 2"))
    for words in (["scan"], ["plan", "--activate"]):
        planned.works(*words)
    planned.works("run", "--user-batch", "1")
    planned.works("verify", "--user-batch", "1")
    ann, bob = planned.target / "home" / "ann" / "file-1", planned.target / "home" / "bob" / "of-ann"
    assert ann.stat().st_ino == bob.stat().st_ino
    planned.file.write_text(text)
    for words in (["scan"], ["plan", "--activate"]):
        planned.works(*words)
    for number in ("1", "2"):
        planned.works("run", "--user-batch", number)
        planned.works("verify", "--user-batch", number)


def test_a_file_of_holes_counts_by_its_blocks_and_is_named_where_there_is_no_room(planned: Site) -> None:
    before_bytes = json.loads(planned.call("status", "--json").stdout)["overall"]["total_bytes"]
    with (planned.source / "home" / "ann" / "huge").open("wb") as sparse:
        sparse.truncate(16 << 30)
        sparse.write(bytes(range(256)) * 16 * 256)
        os.fsync(sparse.fileno())
    planned.works("scan")
    planned.works("plan", "--activate")
    text = planned.file.read_text()
    planned.file.write_text(text.replace('reserve = "1MiB"', 'reserve = "1TiB"'))
    planned.fails(4, "run", "--user-batch", "1", says=("largest file is home/ann/huge with 1.0 MiB",))
    planned.file.write_text(text)
    planned.works("run", "--all", "--deltas", "0")
    overall = json.loads(planned.call("status", "--json").stdout)["overall"]
    assert (MIB <= overall["total_bytes"] - before_bytes < 2 * MIB, overall["left_bytes"]) == (True, 0)
    for number in ("1", "2"):
        planned.works("verify", "--user-batch", number)
    assert (planned.target / "home" / "ann" / "huge").stat().st_size == 16 << 30
