"""`reap archive` and `reap restore` on the command line, beside the verbs that they belong to."""

import json
import os
import time

import pytest

from tests.support.cli_site import Site
from tests.support.snapshots import snapshot

pytestmark = pytest.mark.needs_root

REAP = '[reap]\naction = "archive"\nsmaller_than = "4KiB"\narchive_files = 10\n'


@pytest.fixture
def tiny(site: Site) -> Site:
    """A site with some large and many tiny files, planned with rules that archive the tiny ones."""
    for user in ("ann", "bob"):
        for number in range(25):
            file = site.source / "home" / user / "notes" / f"tiny-{number}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"%d" % number)
            os.utime(file, ns=(1_300_000_000_000_000_001, 1_200_000_000_000_000_000 + number))
    # What changed less than 2 s before it is scanned is not reaped, and a ctime cannot be set.
    time.sleep(2.1)
    site.write(more=REAP)
    for verb in ("init", "scan", "plan"):
        site.works(verb)
    return site


def answer(site: Site, *arguments: str, code: int = 0) -> list[dict[str, object]]:
    done = site.call(*arguments, "--json")
    assert done.returncode == code, done.stderr or done.stdout
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_tiny_files_are_archived_and_come_back(tiny: Site) -> None:
    before = snapshot(os.fsencode(tiny.source / "home" / "ann" / "notes"))
    done = answer(tiny, "reap", "archive", "--all")
    assert [(tree["user"], tree["archives"], tree["members"]) for tree in done] == [("ann", 3, 25), ("bob", 3, 25)]
    again = answer(tiny, "reap", "archive", "--user", "ann")
    assert [(tree["user"], tree["archives"], tree["already"]) for tree in again] == [("ann", 0, 25)]
    tiny.works("run", "--all", "--deltas", "0")
    there = snapshot(os.fsencode(tiny.target / "home" / "ann"), directories=False)
    assert sum(not name.startswith(b".migrator-archive/") for name in there) == 20
    restored = answer(tiny, "reap", "restore", "--user", "ann", "notes", "--to", str(tiny.directory))
    assert [(tree["restored"], tree["not_restored"]) for tree in restored] == [(25, 0)]
    assert snapshot(os.fsencode(tiny.directory / "home" / "ann" / "notes")) == before
    tiny.works("reap", "restore", "--user", "ann", "home/ann/notes/tiny-1*")
    in_place = snapshot(os.fsencode(tiny.target / "home" / "ann" / "notes"))
    assert in_place == {name: facts for name, facts in before.items() if name.startswith(b"tiny-1")}


def test_errors_say_what_to_do(tiny: Site) -> None:
    tiny.fails(2, "reap", "restore", "--user", "ann", "x", says=("nothing that is archived is called x",))
    tiny.fails(2, "reap", "restore", "--user", "ann", "x", "--to", "/nowhere", says=("is no directory",))
    tiny.fails(2, "reap", "archive", says=("which batches",))
