"""A second plan over the same target: what it goes on with, what it needs, and how damage is mended."""

import json
import os

import pytest

from migrator.core.states import PassKind, PassState
from migrator.ledger.ledger import open_ledger
from tests.support.cli_site import Site

pytestmark = pytest.mark.needs_root


def test_damage_on_the_target_is_found_and_mended(planned: Site) -> None:
    planned.works("run", "--user-batch", "1")
    damaged, removed = (planned.target / "home" / "ann" / name for name in ("file-3", "file-4"))
    facts = damaged.stat()
    damaged.write_bytes(bytes(facts.st_size))
    os.utime(damaged, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    removed.unlink()
    found = planned.call("verify", "--user-batch", "1", "--json")
    assert found.returncode == 3
    assert json.loads(found.stdout)[0]["differences"] == {"content": 1, "missing": 1}
    assert "`migrator run --user-batch 1` sends again what differs" in planned.call("status").stdout
    planned.works("run", "--user-batch", "1")
    planned.works("verify", "--user-batch", "1")


@pytest.mark.exhaustive
def test_a_plan_that_is_half_copied_is_not_dropped_for_a_newer_one_in_silence(planned: Site) -> None:
    with open_ledger(planned.directory / "state" / "ledger.db") as ledger:
        record = ledger.passes.start(
            plan="plan-0001", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=[], at_s=1.0
        )
        ledger.passes.set_state(record.id, PassState.STOPPED, 2.0)
    planned.works("plan", "--activate")
    planned.fails(2, "run", "--user-batch", "1", says=("plan-0001", "--plan plan-0001", "--plan plan-0002"))
    planned.works("run", "--user-batch", "1", "--plan", "plan-0002")


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
