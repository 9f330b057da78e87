"""Old and tiny files with the program itself: lists, releases, archives, cutovers and purges."""

import csv
import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from migrator.app.ledger import MigrationLedger
from migrator.core.clock import SystemClock
from migrator.core.states import PassKind
from migrator.ledger.locks import Locks, of_tree
from migrator.reap.files import MountedArchiveFolders
from tests.support.cli_site import Site
from tests.support.cut_site import OWNERS, CutSite, cut_site
from tests.support.delta_changes import let_settle, rewrite
from tests.support.operations import cut_over
from tests.support.snapshots import snapshot
from tests.support.xfs import XfsMount

pytestmark = pytest.mark.needs_root

YEARS_AGO_NS = 10**18
REAP = """
[reap]
action = "skip"
older_than = "1y"
smaller_than = "1KiB"
[reap.users."bob"]
action = "list"
"""
HOSTILE = b"=1\n\xff"


@pytest.fixture
def reaping(site: Site) -> Site:
    """Ann's old and tiny files are skipped, bob's are listed."""
    for user in ("ann", "bob"):
        home = site.source / "home" / user
        (home / "old").mkdir(parents=True, exist_ok=True)
        (home / "kept").mkdir()
        (home / "kept" / ".migrator-keep").touch()
        for path, size_bytes in (
            (b"old/tiny", 10),
            (b"old/" + HOSTILE, 11),
            (b"old/big", 5000),
            (b"old/.hidden", 10),
            (b"kept/tiny", 10),
        ):
            with open(os.fsencode(home) + b"/" + path, "wb") as file:
                file.write(b"x" * size_bytes)
            os.utime(os.fsencode(home) + b"/" + path, ns=(YEARS_AGO_NS, YEARS_AGO_NS))
    site.write(more=REAP)
    site.works("init")
    return site


@pytest.fixture
def scanned(reaping: Site) -> Site:
    # Nothing is reaped that changed while it was scanned, and these files were made right now.
    time.sleep(2.1)
    reaping.works("scan")
    return reaping


def names(directory: Path) -> set[bytes]:
    return set(os.listdir(os.fsencode(directory)))


def test_a_list_for_every_user_goes_out_beforehand(scanned: Site) -> None:
    done = scanned.call("reap", "list", "--json", "--csv", str(scanned.directory / "all.csv"))
    report = json.loads(done.stdout)
    found = {user["user"]: user for user in report["users"]}
    assert set(found) == {"ann", "bob"}
    for user, action in (("ann", "skip"), ("bob", "list")):
        (tree,) = found[user]["trees"]
        assert (tree["files"], tree["size_bytes"], tree["action"]) == (2, 21, action)
        assert found[user]["saves"]["inodes"] == 2
        assert [one["path"] for one in found[user]["directories"]] == [f"home/{user}/old"]
    with (scanned.directory / "all.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert sorted(line["path"] for line in lines) == [
        f"home/{user}/old/{name}" for user in ("ann", "bob") for name in (r"=1\x0a\xff", "tiny")
    ]
    out = scanned.directory / "out"
    scanned.works("reap", "list", "--out", str(out))
    assert names(out) == {b"ann.txt", b"bob.txt"}
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in out.iterdir())
    text = (out / "ann.txt").read_text()
    assert "NOT moved" in text
    assert ".migrator-keep" in text
    assert "home/ann/old" in text
    shown = scanned.call("reap", "list", "--user", "ann").stdout
    assert "not changed for 365 d and smaller than 1.0 KiB" in shown
    assert "bob" not in shown
    scanned.fails(2, "reap", "list", "--user", "anne", says=("no tree of 'anne'",))


@pytest.mark.exhaustive
def test_releasing_needs_a_confirmation_and_a_name_that_is_skipped(scanned: Site) -> None:
    scanned.works("plan")
    release = ("reap", "release", "--user", "ann")
    scanned.fails(2, "reap", "archive", says=())
    scanned.fails(2, "reap", "restore", "--user", "ann", "old", "--to", "/nowhere", says=("is no directory",))
    scanned.fails(2, *release, says=())
    scanned.fails(2, *release, "home/ann/old", says=("2 files", "--confirm-loss"))
    scanned.fails(4, *release, "old/big", "--confirm-loss", says=("has such a name",))
    scanned.fails(4, "reap", "release", "--user", "bob", "old", "--confirm-loss", says=("has such a name",))
    scanned.fails(2, *release, "/etc", "--confirm-loss", says=("cannot be a path",))
    done = json.loads(scanned.call(*release, "--glob", "t?ny", "--confirm-loss", "--json").stdout)
    assert (done["files"], done["size_bytes"]) == (1, 10)
    scanned.works(*release, "home/ann/old/", "--confirm-loss")
    with MigrationLedger.open(scanned.directory / "state" / "ledger.db", read_only=True) as ledger:
        kept = [(one.pattern, one.is_glob) for one in ledger.releases.of_trees([b"home/ann"])]
    assert kept == [(b"t?ny", True), (b"old", False)]


def test_moved_users_are_found_although_later_plans_omit_them(scanned: Site) -> None:
    ledger_file = scanned.directory / "state" / "ledger.db"
    scanned.works("plan")
    cut_over(ledger_file, "ann")
    scanned.works("plan", "--activate")
    done = scanned.call("reap", "release", "--user", "ann", "home/ann/old", "--confirm-loss", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plan"] == "plan-0001"
    assert "plan: plan-0001, not the active one" in done.stderr
    with MigrationLedger.open(ledger_file) as ledger:
        ledger.passes.start(
            plan="plan-0001", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=[], at_s=1.0
        )
    # A batch of an older plan that is half copied has nothing to do with archives.
    scanned.fails(2, "reap", "restore", "--user", "ann", "old", says=("nothing that is archived is called old",))


def test_rules_that_cannot_be_followed_are_refused(scanned: Site) -> None:
    scanned.write(more=REAP + '[reap.users."carol"]\naction = "list"\n')
    scanned.fails(2, "plan", says=('"carol"', "neither a user nor a user tree"))
    scanned.write(more=REAP.replace('"skip"', '"list"').replace('older_than = "1y"\n', "").replace("smaller_than", "#"))
    scanned.fails(2, "reap", "list", says=("no rule of [reap] matches anything",))


PREFIX = ".migrator-archive-"
TINY = 25
BOTH_RULES = """
[reap]
action = "archive"
smaller_than = "1KiB"
archive_files = 10
exclude = ["new*"]

[reap.users."ben"]
action = "skip"
"""


def make_tiny(tree: Path) -> None:
    """Tiny files, one with what is easily lost; the last is a name of its own only to this program."""
    owner = OWNERS[tree.name]
    notes = tree / "notes"
    notes.mkdir()
    for number in range(TINY):
        file = notes / f"tiny {number}"
        file.write_bytes(b"%d of %s" % (number, os.fsencode(tree.name)))
        os.chown(file, owner, owner)
        os.utime(file, ns=(1_300_000_000_000_000_001, 1_200_000_000_000_000_000 + number))
    os.setxattr(notes / "tiny 7", b"user.note", b"\0\xff")
    (notes / "tiny 7").chmod(0o4640)
    os.chown(notes, owner, owner)


def archives_in(tree: Path) -> Path:
    """The only archive directory of a tree."""
    (found,) = tree.glob(f"{PREFIX}*")
    return found


def content(tree: Path) -> dict[bytes, tuple[object, ...]]:
    """All files of a tree, without its archives."""
    found = snapshot(os.fsencode(tree), directories=False)
    return {name: facts for name, facts in found.items() if not name.startswith(os.fsencode(PREFIX))}


@pytest.fixture
def cut(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[CutSite]:
    """ann's tiny files are to be archived, ben's are skipped; both are copied, nothing is archived or verified yet."""
    with cut_site(
        scratch, xfs_source, xfs_target, users=("ann", "ben"), stages=("pre-freeze",), prepared=False
    ) as made:
        for user in ("ann", "ben"):
            make_tiny(made.source(user))
        made.write(cutover='retain = "0s"', more=BOTH_RULES)
        let_settle()
        made.call("scan", "--json")
        made.call("plan", "--activate", "--json", "--accept-unknown-inodes")
        made.call("run", "--all", "--json")
        yield made


def verified(cut: CutSite, user: str, *, code: int = 0) -> Any:
    (record,) = cut.call("verify", "--user", user, "--json", code=code).json
    return record


def purge(cut: CutSite, user: str, *, code: int = 0) -> Any:
    """A purge that is confirmed unless its dry run is refused."""
    looked = cut.call("purge", "--user", user, "--dry-run", "--json", code=code).json
    if code:
        (tree,) = looked["trees"]
        return tree
    (tree,) = cut.call("purge", "--user", user, "--confirm", looked["checksum"], "--json").json["trees"]
    return tree


def restore_in_place(cut: CutSite, path: str) -> None:
    words = ("reap", "restore", "--user", "ann", path)
    with Locks(cut.directory / "state" / "locks", SystemClock()).hold("cutover", of_tree(b"home/ann")):
        cut.call(*words, code=5)
    cut.call(*words)


def test_archives_go_with_the_user_and_stand_for_his_files(cut: CutSite) -> None:
    source, target = cut.source(), cut.target()
    had = content(source)
    # What no archive holds is missing, and that is said before anybody is frozen.
    before = verified(cut, "ann", code=3)
    assert before["differences"] == {"missing": TINY}
    refused = cut.call("cutover", "--user", "ann", "--json", code=4)
    assert f"{TINY} files of ann that the plan archives are in no archive" in refused.out + refused.err
    assert "migrator reap archive --user ann" in refused.out + refused.err
    for archives, already in ((3, 0), (0, TINY)):
        (told,) = cut.call("reap", "archive", "--user", "ann", "--json").json
        assert (told["archives"], told["already"]) == (archives, already)
    after = verified(cut, "ann")
    assert (after["whole"], after["differences"], after["expected"]["archived"]) == (True, {}, TINY)
    rows = {row["path"]: row for row in pq.read_table(after["manifest"]).to_pylist()}
    archived = [row for path, row in rows.items() if path.startswith(b"home/ann/notes/")]
    assert {row["archive"] for row in archived} == {1, 2, 3}
    assert all(row["digest"] and row["target_ino"] is None for row in archived)
    assert not any(os.fsencode(PREFIX) in path for path in rows)

    assert cut.cutover()["ending"] == "moved"
    archive = archives_in(target) / "000001.tar.zst"
    facts = archives_in(target).stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (OWNERS["ann"], 0o500)
    owner = OWNERS["ann"]
    read = subprocess.run(["cat", archive], user=owner, group=owner, extra_groups=[], capture_output=True, check=True)
    assert read.stdout == archive.read_bytes()
    restore_in_place(cut, "notes/tiny 7")
    assert content(target)[b"notes/tiny 7"] == had[b"notes/tiny 7"]
    elsewhere = cut.site.directory / "elsewhere"
    elsewhere.mkdir()
    cut.call("reap", "restore", "--user", "ann", "home/ann/notes/tiny 1*", "--to", str(elsewhere))
    assert names(elsewhere / "home/ann/notes") == {os.path.basename(name) for name in had if b"notes/tiny 1" in name}

    assert cut.rollback()["ending"] == "moved"
    assert content(source) == had
    assert not list(source.glob(f"{PREFIX}*"))
    facts = archives_in(target).stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode), archive.is_file()) == (0, 0o700, True)

    assert cut.cutover()["ending"] == "moved"
    assert archives_in(target).stat().st_uid == OWNERS["ann"]
    whole = archive.read_bytes()
    with archive.open("r+b") as file:
        file.seek(len(whole) // 2)
        file.write(bytes([whole[len(whole) // 2] ^ 1]))
    (reason,) = purge(cut, "ann", code=4)["reasons"]
    assert "archive 1 of home/ann" in reason
    assert content(source) == had
    archive.write_bytes(whole)
    freed = purge(cut, "ann")
    assert freed["outcome"] == "purged"
    assert not source.exists()
    cut.call("reap", "restore", "--user", "ann", "notes", "--overwrite")
    assert content(target) == had


@pytest.mark.guarantee("archives")
def test_skipped_files_keep_the_source_until_released(cut: CutSite) -> None:
    source = cut.source("ben")
    record = verified(cut, "ben")
    assert (record["differences"], record["expected"]["skipped"]) == ({}, TINY)
    assert cut.cutover("ben")["ending"] == "moved"
    cut.call("reap", "release", "--user", "ben", "notes/tiny 1", "--confirm-loss")
    refused = purge(cut, "ben", code=4)
    assert f"{TINY - 1} files that the plan skipped" in refused["reasons"][0]
    assert "migrator reap release --user ben PATH --confirm-loss" in refused["reasons"][0]
    assert {one["path"] for one in refused["findings"]} == {
        f"home/ben/notes/tiny {number}" for number in range(TINY) if number != 1
    }
    cut.call("reap", "release", "--user", "ben", "notes", code=2)
    purge(cut, "ben", code=4)
    cut.call("reap", "release", "--user", "ben", "notes", "--confirm-loss")
    freed = purge(cut, "ben")
    assert freed["outcome"] == "purged"
    assert f"with {TINY} files that the plan skipped and that were released" in freed["words"]
    assert not source.exists()
    assert not any(name.startswith(b"notes/") for name in content(cut.target("ben")))


@pytest.mark.exhaustive
def test_a_skipped_file_that_changed_after_its_release_is_kept(cut: CutSite) -> None:
    cut.call("reap", "release", "--user", "ben", "notes", "--confirm-loss")
    assert cut.cutover("ben")["ending"] == "moved"
    late = cut.source("ben") / "notes" / "tiny 3"
    rewrite(late, b"!" * late.stat().st_size)
    refused = purge(cut, "ben", code=4)
    assert [one["path"] for one in refused["findings"]] == ["home/ben/notes/tiny 3"]
    assert "that the plan skipped" not in refused["reasons"][0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["hand_over", "take_back"])
def test_killed_between_the_top_and_the_archives(cut: CutSite, way: str) -> None:
    cut.call("reap", "archive", "--user", "ann")
    if way == "take_back":
        cut.cutover()

    def kill(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    verb, facts = ("cutover", (OWNERS["ann"], 0o500)) if way == "hand_over" else ("rollback", (0, 0o700))
    killed = cut.start(verb, "--user", "ann", before=lambda: setattr(MountedArchiveFolders, way, kill)).end()
    assert killed.code == -signal.SIGKILL
    (outcome,) = cut.call(verb, "--user", "ann", "--json").json["outcomes"]
    assert outcome["ending"] == "moved"
    there = archives_in(cut.target()).stat()
    assert (there.st_uid, stat.S_IMODE(there.st_mode)) == facts
