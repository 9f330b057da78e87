"""Users whose old and tiny files are archived or skipped: verified, moved, rolled back, moved again, and purged."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from migrator.reap.files import MountedArchiveFolders
from migrator.reap.model import ARCHIVE_DIRECTORY
from tests.support.cut_site import OWNERS, CutSite, cut_site
from tests.support.delta_changes import let_settle
from tests.support.snapshots import snapshot
from tests.support.xfs import XfsMount

pytestmark = pytest.mark.needs_root

FOLDER = os.fsdecode(ARCHIVE_DIRECTORY)
TINY = 25
REAP = """
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


def content(tree: Path) -> dict[bytes, tuple[object, ...]]:
    """All files of a tree, without its archives."""
    found = snapshot(os.fsencode(tree), directories=False)
    return {name: facts for name, facts in found.items() if not name.startswith(ARCHIVE_DIRECTORY + b"/")}


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[CutSite]:
    """ann's tiny files are to be archived, ben's are skipped; both are copied, nothing is archived or verified yet."""
    with cut_site(
        scratch, xfs_source, xfs_target, users=("ann", "ben"), stages=("pre-freeze",), prepared=False
    ) as made:
        for user in ("ann", "ben"):
            make_tiny(made.source(user))
        made.write(cutover='retain = "0s"', more=REAP)
        let_settle()
        made.call("scan", "--json")
        made.call("plan", "--activate", "--json", "--accept-unknown-inodes")
        made.call("run", "--all", "--json")
        yield made


def verified(site: CutSite, user: str, *, code: int = 0) -> Any:
    (record,) = site.call("verify", "--user", user, "--json", code=code).json
    return record


def purge(site: CutSite, user: str, *, code: int = 0) -> Any:
    """Looked at, and confirmed where nothing speaks against it."""
    looked = site.call("purge", "--user", user, "--dry-run", "--json", code=code).json
    if code:
        (tree,) = looked["trees"]
        return tree
    (tree,) = site.call("purge", "--user", user, "--confirm", looked["checksum"], "--json").json["trees"]
    return tree


def test_archives_go_with_the_user_and_stand_for_his_files(site: CutSite) -> None:
    source, target = site.source(), site.target()
    had = content(source)
    # What no archive holds is missing, and that is said before anybody is frozen.
    before = verified(site, "ann", code=3)
    assert before["differences"] == {"missing": TINY}
    refused = site.call("cutover", "--user", "ann", "--json", code=4)
    assert f"{TINY} files of ann that the plan archives are in no archive" in refused.out + refused.err
    assert "migrator reap archive --user ann" in refused.out + refused.err
    site.call("reap", "archive", "--user", "ann")
    after = verified(site, "ann")
    assert (after["whole"], after["differences"], after["expected"]["archived"]) == (True, {}, TINY)
    rows = {row["path"]: row for row in pq.read_table(after["manifest"]).to_pylist()}
    archived = [row for path, row in rows.items() if path.startswith(b"home/ann/notes/")]
    assert {row["archive"] for row in archived} == {1, 2, 3}
    assert all(row["digest"] and row["target_ino"] is None for row in archived)
    assert not any(ARCHIVE_DIRECTORY in path for path in rows)

    assert site.cutover()["ending"] == "moved"
    archive = target / FOLDER / "000001.tar.zst"
    facts = (target / FOLDER).stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (OWNERS["ann"], 0o500)
    owner = OWNERS["ann"]
    read = subprocess.run(["cat", archive], user=owner, group=owner, extra_groups=[], capture_output=True, check=True)
    assert read.stdout == archive.read_bytes()
    site.call("reap", "restore", "--user", "ann", "notes/tiny 7")
    assert content(target)[b"notes/tiny 7"] == had[b"notes/tiny 7"]

    assert site.rollback()["ending"] == "moved"
    assert content(source) == had
    assert not (source / FOLDER).exists()
    facts = (target / FOLDER).stat()
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode), archive.is_file()) == (0, 0o700, True)

    assert site.cutover()["ending"] == "moved"
    assert (target / FOLDER).stat().st_uid == OWNERS["ann"]
    whole = archive.read_bytes()
    with archive.open("r+b") as file:
        file.seek(len(whole) // 2)
        file.write(bytes([whole[len(whole) // 2] ^ 1]))
    (reason,) = purge(site, "ann", code=4)["reasons"]
    assert "archive 1 of home/ann" in reason
    assert content(source) == had
    archive.write_bytes(whole)
    freed = purge(site, "ann")
    assert freed["outcome"] == "purged"
    assert not source.exists()
    site.call("reap", "restore", "--user", "ann", "notes", "--overwrite")
    assert content(target) == had


@pytest.mark.guarantee("archives")
def test_what_is_skipped_keeps_the_source_until_it_is_released(site: CutSite) -> None:
    source = site.source("ben")
    record = verified(site, "ben")
    assert (record["differences"], record["expected"]["skipped"]) == ({}, TINY)
    assert site.cutover("ben")["ending"] == "moved"
    site.call("reap", "release", "--user", "ben", "notes/tiny 1", "--confirm-loss")
    refused = purge(site, "ben", code=4)
    assert f"{TINY - 1} files that the plan skipped" in refused["reasons"][0]
    assert "migrator reap release --user ben PATH --confirm-loss" in refused["reasons"][0]
    assert {one["path"] for one in refused["findings"]} == {
        f"home/ben/notes/tiny {number}" for number in range(TINY) if number != 1
    }
    site.call("reap", "release", "--user", "ben", "notes", code=2)
    purge(site, "ben", code=4)
    site.call("reap", "release", "--user", "ben", "notes", "--confirm-loss")
    freed = purge(site, "ben")
    assert freed["outcome"] == "purged"
    assert f"with {TINY} files that the plan skipped and that were released" in freed["words"]
    assert not source.exists()
    assert not any(name.startswith(b"notes/") for name in content(site.target("ben")))


@pytest.mark.exhaustive
def test_a_skipped_file_that_changed_after_its_release_is_kept(site: CutSite) -> None:
    site.call("reap", "release", "--user", "ben", "notes", "--confirm-loss")
    assert site.cutover("ben")["ending"] == "moved"
    late = site.source("ben") / "notes" / "tiny 3"
    facts = late.stat()
    late.write_bytes(b"!" * facts.st_size)
    os.utime(late, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    refused = purge(site, "ben", code=4)
    assert [one["path"] for one in refused["findings"]] == ["home/ben/notes/tiny 3"]
    assert "that the plan skipped" not in refused["reasons"][0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["hand_over", "take_back"])
def test_killed_between_the_top_and_the_archives(site: CutSite, way: str) -> None:
    site.call("reap", "archive", "--user", "ann")
    if way == "take_back":
        site.cutover()

    def kill(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    verb, facts = ("cutover", (OWNERS["ann"], 0o500)) if way == "hand_over" else ("rollback", (0, 0o700))
    killed = site.start(verb, "--user", "ann", before=lambda: setattr(MountedArchiveFolders, way, kill)).end()
    assert killed.code == -signal.SIGKILL
    (outcome,) = site.call(verb, "--user", "ann", "--json").json["outcomes"]
    assert outcome["ending"] == "moved"
    there = (site.target() / FOLDER).stat()
    assert (there.st_uid, stat.S_IMODE(there.st_mode)) == facts
