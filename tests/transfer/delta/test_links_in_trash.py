"""Names of files with several names go to the trash; what is left of these files is equal on both sides."""

import json
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeXfs
from tests.support.delta_changes import let_settle, write
from tests.support.run_site import RealSite

pytestmark = pytest.mark.needs_root

KINDS = ("file", "symlink", "fifo", "socket", "device")
NAMES = ("one", "two", "backup/three", "backup/four")


def make(path: Path, kind: str) -> None:
    match kind:
        case "file":
            write(path, "content")
        case "symlink":
            path.symlink_to("nowhere")
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))
            path.chmod(0o600)
        case _:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


@pytest.fixture(params=["direct", pytest.param("rsync", marks=pytest.mark.exhaustive)])
def site(scratch: Path, make_xfs: MakeXfs, request: pytest.FixtureRequest) -> Iterator[RealSite]:
    made = RealSite(scratch / "site", make_xfs(), make_xfs())
    for kind in KINDS:
        home = made.source.path / "home" / "ann" / kind
        (home / "backup").mkdir(parents=True)
        for name in NAMES:
            if name == NAMES[0]:
                make(home / name, kind)
            else:
                os.link(home / NAMES[0], home / name, follow_symlinks=False)
    let_settle()
    made.prepare(transfer=f'engine = "{request.param}"')
    done = made.run("--deltas", "0")
    assert done.returncode == 0, done.stderr
    yield made
    made.kill_streams()


def linked_from_trash(site: RealSite) -> int:
    """The files that verify finds equal, but for names in the trash of the target."""
    done = site.run("--deltas", "2")
    assert done.returncode == 0, done.stderr
    done = site.migrator("verify", "--user-batch", "1", "--json")
    (found,) = json.loads(done.stdout)
    assert (found["differences"], done.returncode) == ({}, 0), found["examples"]
    assert site.differences() == ""
    return int(found["expected"].get("names-in-trash", 0))


@pytest.mark.guarantee("trash")
def test_names_in_the_trash_of_the_target_are_no_difference(site: RealSite) -> None:
    home = site.source.path / "home" / "ann"
    for kind in KINDS:
        (home / kind / "two").unlink()
    let_settle()
    nodes = len(KINDS) - 1
    assert linked_from_trash(site) == nodes, "regular files are sent again, under a new inode"
    # With a new plan between, rsync sends no regular file again that has its size and time; direct compares ctimes too.
    for kind in KINDS:
        shutil.rmtree(home / kind / "backup")
    let_settle()
    for words in (["scan"], ["plan", "--activate"]):
        done = site.migrator(*words)
        assert done.returncode == 0, done.stderr
    assert linked_from_trash(site) in (nodes, len(KINDS))
    # A name elsewhere is a difference, and the trash explains none but its own.
    outside = site.target.path / "of nobody"
    os.link(site.target.path / "home" / "ann" / "file" / "one", outside)
    done = site.migrator("verify", "--user-batch", "1", "--json")
    assert json.loads(done.stdout)[0]["differences"] == {"hard-links": 1}
    outside.unlink()
    shutil.rmtree(site.target.path / ".migrator-trash")
    assert linked_from_trash(site) == 0
