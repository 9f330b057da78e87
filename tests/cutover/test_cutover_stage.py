"""`cutover` and `rollback` on real file systems: what refuses them, what they leave alone, and what they say."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from migrator.app.ledger import MigrationLedger
from migrator.beegfs.model import OwnerLimit
from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.core.units import MIB, NS_PER_S
from migrator.cutover.model import CutoverStep
from tests.conftest import MakeXfs
from tests.cutover.test_cutover_killed import INTENDED, death_at
from tests.support.beegfs_like import beegfs_like, missing_for_fuse
from tests.support.beegfs_tool import fake_tool
from tests.support.cut_site import OWNERS, CutSite, change, cut_site, top_facts
from tests.support.delta_changes import let_settle
from tests.support.entries import acl
from tests.support.records import rows_of
from tests.support.run_site import fill_tree
from tests.support.snapshots import snapshot

pytestmark = pytest.mark.needs_root

BOTH = ("ann", "ben")


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",), users=BOTH) as made:
        yield made


def everything(site: CutSite) -> dict[str, object]:
    """Both sides with the tops of all trees, the links, and all that the ledger holds."""
    with closing(sqlite3.connect(f"file:{site.site.ledger}?mode=ro", uri=True, timeout=600)) as ledger:
        found: dict[str, object] = {"ledger": list(ledger.iterdump())}
    for side in (site.site.source.path, site.site.target.path):
        found[str(side)] = snapshot(os.fsencode(side))
        found.update({str(top): (top_facts(top), top.stat().st_ctime_ns) for top in sorted(side.glob("home/*"))})
    found.update({str(link): link.readlink() for link in sorted(site.link().parent.iterdir())})
    return found


def refused(site: CutSite, *words: str) -> list[str]:
    """Why nothing was begun: by a dry run, and by the command itself. Every one of these words is said."""
    before = everything(site)
    dry = site.call("cutover", "--user", "ann", "--dry-run", "--json", code=4).outcome
    assert everything(site) == before
    assert dry["ending"] == "refused"
    found = site.call("cutover", "--user", "ann", "--json", code=4).outcome
    assert (found["ending"], found["cutover"]) == ("refused", dry["cutover"])
    assert found["problems"] == dry["problems"]
    after = everything(site)
    assert {name: now for name, now in after.items() if name != "ledger"} == {
        name: then for name, then in before.items() if name != "ledger"
    }
    problems = "; ".join(found["problems"])
    for word in words:
        assert word in problems
    assert not site.rows("SELECT id FROM operations WHERE state != 'rolled-back'")
    assert site.rows("SELECT id FROM events WHERE kind = 'guard-refused'")
    return list(found["problems"])


def test_every_guard_refuses_before_the_freeze(site: CutSite) -> None:
    link, source, target = site.link(), site.source(), site.target()
    link.unlink()
    (only,) = refused(site, "missing")
    assert str(link) in only
    link.symlink_to(site.source("ben"))
    (only,) = refused(site, "leads")
    assert str(link) in only
    link.unlink()
    link.symlink_to(source)
    hooks = site.directory / "hooks" / "pre-freeze.d"
    hooks.rename(hooks.with_name("post-freeze.d"))
    (only,) = refused(site, "pre-freeze")
    hooks.with_name("post-freeze.d").rename(hooks)
    sentinel = site.site.target.path / ".migrator-sentinel"
    sentinel.rename(sentinel.with_name("aside"))
    refused(site, "sentinel")
    sentinel.with_name("aside").rename(sentinel)
    # All at once are all said.
    site.write(cutover='max_freeze = "1s"\nwait_for_backup = true')
    target.chmod(0o755)
    longer, opened = "longer than [cutover] max_freeze (1.0 s)", "is open, so it may have been changed"
    assert len(refused(site, longer, "--accept-freeze", opened, "no backup of the target")) == 3
    target.chmod(0o700)
    # Three days after today, in whatever zone.
    closed = f"{datetime.now(tz=UTC) + timedelta(days=3):%a} 00:00-24:00"
    site.write(cutover=f'windows = ["{closed}"]')
    assert len(refused(site, "no window")) == 1
    site.write()
    assert site.cutover()["ending"] == "moved"


@pytest.mark.exhaustive
def test_a_required_backup_of_the_target_is_awaited(site: CutSite) -> None:
    site.write(cutover="wait_for_backup = true")
    assert len(refused(site, "no backup of the target is recorded")) == 1
    # One that began before the last pass does not hold what that brought.
    site.call("backup", "--user", "ann", "--began", "2020-01-01 00:00", "--json")
    refused(site, "no backup of the target is recorded")
    let_settle()
    site.call("backup", "--user", "ann", "--began", f"{datetime.now(tz=UTC):%Y-%m-%d %H:%M:%S}", "--json")
    assert site.cutover()["ending"] == "moved"
    refused_of_ben = site.cutover("ben", code=4)
    assert "no backup" in refused_of_ben["words"], "that of one user is none of another"


def test_a_dry_run_makes_the_same_decisions_and_changes_nothing(site: CutSite) -> None:
    before = everything(site)
    document = site.call("cutover", "--all", "--dry-run", "--json").json
    assert set(document) == {"back", "dry_run", "exit_code", "outcomes", "plan"}
    assert (document["dry_run"], document["back"], document["plan"]) == (True, False, "plan-0001")
    assert {one["tree"]["user"]: one["ending"] for one in document["outcomes"]} == dict.fromkeys(BOTH, "planned")
    assert all(one["predicted_freeze_s"] > 0 for one in document["outcomes"])
    assert all(one["words"].endswith("would be moved, and could be moved back") for one in document["outcomes"])
    never = site.call("rollback", "--user", "ann", "--dry-run", "--json", code=4).outcome
    assert (never["ending"], never["problems"]) == (
        "refused",
        ["ann was never moved: there is nothing to go back from"],
    )
    assert everything(site) == before
    for step in (CutoverStep.FINAL_PASS, CutoverStep.RETAIN):
        site.start("cutover", "--user", "ann", before=death_at(step, INTENDED)).end()
        before = everything(site)
        resumed = site.call("cutover", "--user", "ann", "--dry-run", "--json").outcome
        assert (resumed["ending"], resumed["words"]) == (
            "planned",
            f"the cutover of ann would resume: the first step is `{step.value}`",
        )
        assert everything(site) == before
    site.link().unlink()
    halted = site.call("cutover", "--user", "ann", "--dry-run", "--json", code=1).outcome
    assert (halted["ending"], halted["cutover"]["state"]) == ("halted", "thawed")
    site.link().symlink_to(site.target())
    site.cutover()
    before = everything(site)
    back = site.call("rollback", "--user", "ann", "--dry-run", "--json").outcome
    assert (back["ending"], back["cutover"]["state"]) == ("planned", "retained")
    assert everything(site) == before
    site.rollback()
    again = site.call("rollback", "--user", "ann", "--json").outcome
    assert again["ending"] == "moved", "he is there already"


@pytest.mark.exhaustive
def test_users_of_a_batch_are_moved_one_by_one_and_moved_users_stay(site: CutSite) -> None:
    def endings(*words: str, code: int) -> dict[str, str]:
        return {one["tree"]["user"]: one["ending"] for one in site.call(*words, "--json", code=code).json["outcomes"]}

    tool = fake_tool(site.directory / "bin")
    tool.count_quotas(default="\u221e")
    text = site.site.file.read_text()
    before, after = text.split("[target]\n", 1)
    target = f'[target]\nbeegfs = "{tool.program}"\n{after.replace("posix", "beegfs", 1)}'
    site.site.file.write_text(before + target)
    with MigrationLedger.open(site.site.ledger) as ledger:
        limits = [OwnerLimit(uid=OWNERS[user], size_bytes=1 << 30, trees=(f"home/{user}".encode(),)) for user in BOTH]
        ledger.limits.confirm(limits, withdrawn=())
    site.link("ben").unlink()
    assert endings("cutover", "--all", code=3) == {"ann": "moved", "ben": "refused"}
    assert site.source("ben").stat().st_uid != 0
    (site.target() / "since").write_text("then")
    site.link("ben").symlink_to(site.source("ben"))
    assert endings("cutover", "--user-batch", "1", code=0) == dict.fromkeys(BOTH, "moved")
    assert (site.target() / "since").read_text() == "then"
    # Each was set once, and not before its user was moved.
    assert [call[4] for call in tool.asked if call[1] == "set-limits"] == [str(OWNERS[user]) for user in BOTH]
    assert len(site.rows("SELECT id FROM events WHERE kind = 'quota-limit' AND severity = 'info'")) == 2
    assert [state for state, _ in site.states()] == ["retained", "retained"]
    # What users have done on the target since is no difference.
    assert "not compared" in site.call("verify", "--all", "--json").err


@pytest.mark.exhaustive
def test_moved_users_stay_in_the_plan_of_their_cutover(site: CutSite) -> None:
    """A newer plan leaves out who has moved; a rollback goes by the older one all the same, and so does what was cut off."""
    began_ns = time.time_ns()
    site.cutover()
    with MigrationLedger.open(site.site.ledger, read_only=True) as ledger:
        (record,) = ledger.cutovers.all()
        # By the target's own clock, so a wrong one of this machine does not shorten `retain`.
        assert record.notes.target_thawed_ns is not None
        assert began_ns - NS_PER_S < record.notes.target_thawed_ns < time.time_ns() + NS_PER_S
    change(site.tree())
    expected = site.snapshot()
    let_settle()
    site.call("scan", "--json")
    site.call("plan", "--activate", "--json", "--accept-unknown-inodes")
    assert site.rows("SELECT count(*) FROM plans") == [(2,)]
    shown = site.call("rollback", "--all", "--dry-run", "--json", code=None).json
    assert {one["cutover"]["tree"]["user"] for one in shown["outcomes"] if one["cutover"]} >= {"ann"}
    document = site.call("rollback", "--user", "ann", "--json").json
    assert (document["plan"], document["outcomes"][0]["ending"]) == ("plan-0001", "moved")
    site.assert_works_on("source", expected)


@pytest.mark.exhaustive
def test_a_user_who_could_not_be_moved_back_is_not_moved(scratch: Path, make_xfs: MakeXfs) -> None:
    """The target is one that other machines may have mounted: what they have open is not seen."""
    if reason := missing_for_fuse():
        pytest.skip(f"needs FUSE: {reason}")

    def fill(tree: Path) -> None:
        fill_tree(tree, files=12, size_bytes=3000, uid=OWNERS["ann"])
        (tree / "shared" / "inner").mkdir(parents=True)
        for name in (ACL_ACCESS, ACL_DEFAULT):
            os.setxattr(tree / "shared", name, acl(7, 7, 5, 7, 0))
        os.mkfifo(tree / "shared" / "fifo", 0o666)
        (tree / "shared" / "link").symlink_to("inner")
        os.setxattr(
            tree / "shared", b"user." + b"n/" * 122, b"longer than the target takes, and past the filter of rsync"
        )

    def write(cutover: str = "", *, freeze: str = "top") -> None:
        site.write(freeze=freeze, cutover=cutover)
        place = f'mount = "{target}"\n'
        site.site.file.write_text(site.site.file.read_text().replace(place, f"{place}inodes_free = 1000000\n"))

    mounted: Any = Mounted
    with (
        beegfs_like(scratch, strict=True) as target,
        cut_site(scratch, make_xfs(), mounted(target), stages=(), prepared=False, fill=fill) as site,
    ):
        write()
        site.call("run", "--all", "--json")
        site.call("verify", "--all", "--json")
        doubt = "files that other machines have open there are unknown"
        accepted = ("[cutover] require_rollback = false", "[cutover] require_acl_inheritance = false")
        problems = refused(site, "ann could not be moved back", doubt, *accepted)
        told = {one["check"]: one for one in site.call("doctor", "--json").json}
        assert (told["rollback"]["status"], doubt in told["rollback"]["message"]) == ("warning", True)
        assert told["target writing"]["status"] == "ok", "with a client that refuses every removal of an ACL"
        write("require_rollback = false")
        found = site.call("cutover", "--user", "ann", "--dry-run", "--json", code=4).outcome
        assert found["problems"] == [one for one in problems if "moved back" not in one]
        write("require_rollback = false\nrequire_acl_inheritance = false")
        found = site.call("cutover", "--user", "ann", "--dry-run", "--json", code=None).outcome
        # Nothing else is against it, but for a machine on which not every process can be read.
        assert found["problems"] == [one for one in problems if not any(word in one for word in accepted)]
        assert "moved, and could not be moved back: " in found["words"] or found["problems"]
        for directory in (site.source(), site.source() / "shared"):
            os.removexattr(directory, ACL_DEFAULT)
        site.call("run", "--all", "--json")
        sets_acl = site.hook("pre-freeze.d/10-sets-acl", f"setfacl -d -m u:60009:r-x {site.source()}/shared")
        write(freeze="hook")
        assert site.cutover(code=4)["ending"] == "given-up", "the ACL was set after the preflight checks"
        assert (site.tree(), site.is_open(site.source())) == (site.source(), True)
        sets_acl.unlink()
        site.hook("pre-freeze.d/10-nobody")
        write("require_acl_inheritance = false", freeze="hook")
        os.removexattr(site.source() / "shared", ACL_ACCESS)
        assert [site.cutover()["ending"], site.rollback()["ending"]] == ["moved", "moved"]


@dataclass
class Mounted:
    """As far as a site needs it."""

    path: Path


@pytest.mark.exhaustive
def test_hooks_switch_the_path_and_switch_it_back(site: CutSite) -> None:
    place = site.directory / "autofs"
    place.write_text(f"{site.source()}\n")
    site.write(link="", cutover='switch = "hook"')
    site.site.file.write_text(site.site.file.read_text().replace('link = ""\n', ""))
    site.hook(
        "pre-switch.d/50-switches",
        f'[ "$(cat {place})" = "$MIGRATOR_OLD_PATH" ] || [ "$(cat {place})" = "$MIGRATOR_NEW_PATH" ] || exit 1\n'
        f'echo "$MIGRATOR_NEW_PATH" > {place}',
    )
    expected = snapshot(os.fsencode(site.source()))
    assert site.cutover()["ending"] == "moved"
    assert place.read_text() == f"{site.target()}\n"
    assert (site.is_open(site.target()), site.is_open(site.source())) == (True, False)
    assert snapshot(os.fsencode(site.target())) == expected
    change(site.target())
    expected = snapshot(os.fsencode(site.target()))
    assert site.rollback()["ending"] == "moved"
    assert place.read_text() == f"{site.source()}\n"
    assert (site.is_open(site.target()), site.is_open(site.source())) == (False, True)
    assert snapshot(os.fsencode(site.source())) == expected
    assert site.link().resolve() == site.source(), "nobody has touched the link"


def assert_whole_limit(site: CutSite, ledgers: str) -> None:
    """The lone stream of a final pass got the limit in force."""
    (ledger,) = site.site.ledger.parent.glob(ledgers)
    argv = "SELECT argv FROM attempts JOIN chunks ON chunks.id = chunk_id JOIN passes ON passes.id = pass_id"
    sent = rows_of(ledger, f"{argv} WHERE passes.kind = 'final' AND chunks.kind = 'files'")
    shares = [argv[argv.index("--bwlimit") + 1] for argv in (json.loads(row[0]) for row in sent)]
    assert set(shares) == {str(64 * MIB)}


def test_hooks_get_the_facts_of_their_user_and_a_lone_stream_gets_the_whole_limit(site: CutSite) -> None:
    site.call("tune", "--bwlimit", "64MiB")
    source, target, link = (str(path) for path in (site.source(), site.target(), site.link()))
    site.keep_told("pre-freeze", "pre-thaw", "post-thaw")
    refuse = site.hook("pre-switch.d/50-said", "exit 1")
    assert site.cutover(code=4)["ending"] == "given-up"
    stays = site.told("post-thaw")
    assert (stays["moved"], stays["state"], "pre-switch.d/50-said" in stays["reason"]) == (False, "done", True)
    assert stays["frozen_s"] > 0
    refuse.unlink()
    change(site.tree())
    assert site.cutover()["ending"] == "moved"
    assert_whole_limit(site, "ledger.db")
    before, thaw, after = (site.told(stage) for stage in ("pre-freeze", "pre-thaw", "post-thaw"))
    user = {"user": "ann", "old_path": source, "new_path": target, "link": link, "back": False, "reason": None}
    for told in (before, thaw, after):
        assert told.items() >= {**user, "files": before["files"]}.items()
        assert told["freeze_s"] > 0
    assert (before["moved"], before["frozen_s"], before["state"]) == (None, None, None)
    assert [told["moved"] for told in (thaw, after)] == [True, True]
    assert after["frozen_s"] >= thaw["frozen_s"] > 0
    change(site.tree())
    assert site.rollback()["ending"] == "moved"
    assert_whole_limit(site, "back/*/ledger.db")
    before, after = site.told("pre-freeze"), site.told("post-thaw")
    for told in (before, after):
        assert told.items() >= {"old_path": target, "new_path": source, "back": True, "freeze_s": None}.items()
        assert told["frozen_s"] is None
    assert (before["moved"], after["moved"]) == (None, True)


def test_the_ledger_is_copied_before_a_freeze(site: CutSite) -> None:
    """Copying a large ledger takes seconds, which no frozen user waits for."""
    site.call("cutover", "--user", "ann", "--json")
    site.call("rollback", "--user", "ann", "--json")
    copies = sorted((site.site.ledger.parent / "backups").glob("ledger-before-*-to-the-*"))
    states = []
    for copy in copies:
        with MigrationLedger.open(copy, read_only=True) as ledger:
            states += [record.state.value for record in ledger.cutovers.all()]
    assert sorted(states) == ["planned", "retained"]
