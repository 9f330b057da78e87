"""Old and tiny files from the rules in site.toml to the target, with the program itself."""

import csv
import json
import os
import time
from pathlib import Path

import pytest

from migrator.ledger.ledger import open_ledger
from tests.support.cli_site import Site

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
    scanned.fails(2, *release, says=("which files?",))
    scanned.fails(2, *release, "home/ann/old", says=("2 files", "--confirm-loss"))
    scanned.fails(4, *release, "old/big", "--confirm-loss", says=("has such a name",))
    scanned.fails(4, "reap", "release", "--user", "bob", "old", "--confirm-loss", says=("has such a name",))
    scanned.fails(2, *release, "/etc", "--confirm-loss", says=("cannot be a path",))
    done = json.loads(scanned.call(*release, "--glob", "t?ny", "--confirm-loss", "--json").stdout)
    assert (done["files"], done["size_bytes"]) == (1, 10)
    scanned.works(*release, "home/ann/old/", "--confirm-loss")
    with open_ledger(scanned.directory / "state" / "ledger.db", read_only=True) as ledger:
        kept = [(one.pattern, one.is_glob) for one in ledger.releases.of_trees([b"home/ann"])]
    assert kept == [(b"t?ny", True), (b"old", False)]


def test_rules_that_cannot_be_followed_are_refused(scanned: Site) -> None:
    scanned.write(more=REAP + '[reap.users."carol"]\naction = "list"\n')
    scanned.fails(2, "plan", says=('"carol"', "neither a user nor a user tree"))
    scanned.write(more=REAP.replace('"skip"', '"list"').replace('older_than = "1y"\n', "").replace("smaller_than", "#"))
    scanned.fails(2, "reap", "list", says=("no rule of [reap] matches anything",))
