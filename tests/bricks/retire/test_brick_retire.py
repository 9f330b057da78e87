"""The last way of a real volume with an arbiter: all but one set are drained, what that leaves is brought back, and the volume is
retired: refused with anything in it that is nowhere else, then stopped, killed in the middle.
"""

import os
import sqlite3
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.bricks.recover.model import WORK_DIRECTORY
from migrator.core.paths import percent_escape
from migrator.core.units import MIB
from migrator.lab.model import VolumeType
from tests.support.cluster.brick_runs import brick_runs
from tests.support.cluster.fixtures import MakeLab
from tests.support.cluster.handle import LabHandle, wait_until
from tests.support.cluster.leftovers import GFID, left_file, linked_symlink
from tests.support.cluster.opening import open_behind
from tests.support.cluster.site import LabSite
from tests.support.delta_changes import let_settle

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

TIME_NS = 1_577_934_245_678_901_234
STRAY = b"caf\xe9\nof nobody"


@contextmanager
def another_client(lab: LabHandle, directory: Path) -> Iterator[None]:
    """The volume is mounted a second time, elsewhere, by somebody."""
    directory.mkdir()
    before = connected(lab)
    place = f"{lab.state.hosts[0].address}:/{lab.state.spec.volume}"
    words = ("mount", "-t", "glusterfs", place, str(directory))
    subprocess.run(["nsenter", f"--net=/run/netns/{lab.state.client_namespace}", "--", *words], check=True)
    own: set[tuple[str, str]] = set()

    def is_seen() -> bool:
        own.update(connected(lab) - before)
        return {brick for brick, _ in own} == {brick for brick, _ in before}

    try:
        wait_until(is_seen, "every brick sees the other client")
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)
    # Its process ends by itself, and bricks hear of that when it has.
    wait_until(lambda: not connected(lab) & own, "the other client has gone")


def connected(lab: LabHandle) -> set[tuple[str, str]]:
    """The clients of every brick, by brick and by address with port."""
    said = ET.fromstring(lab.gluster("--xml", "volume", "status", lab.state.spec.volume, "clients"))
    return {
        (f"{node.findtext('hostname')}:{node.findtext('path')}", client.findtext("hostname") or "")
        for node in said.iter("node")
        for client in node.iter("client")
    }


def kill_at_the_stop(site: LabSite, real: bytes) -> None:
    """The program is killed when Gluster has stopped the volume, before it hears of it."""
    wrapper = site.directory / "gluster"
    wrapper.write_text(
        f"""#!/bin/sh
case "$*" in
*" volume stop "*) {os.fsdecode(real)} "$@" >/dev/null; kill -KILL $PPID ;;
*) exec {os.fsdecode(real)} "$@" ;;
esac
"""
    )
    wrapper.chmod(0o755)
    site.file.write_text(site.file.read_text().replace(f'"{os.fsdecode(real)}"', f'"{wrapper}"'))


def status_of(lab: LabHandle) -> str:
    info = os.fsdecode(lab.gluster("volume", "info", lab.state.spec.volume))
    return next(line for line in info.splitlines() if line.startswith("Status:"))


def retire(site: LabSite, *, code: int = 0) -> Any:
    return site.json("brick", "retire", "--confirm", "vol1", code=code)


@contextmanager
def copied(lab: LabHandle, scratch: Path) -> Iterator[LabSite]:
    """A site whose users have been copied, verified, and have links that lead to their trees."""
    open_behind(lab, "off")
    links = scratch / "links"
    links.mkdir()
    for tree in trees_of(lab):
        (links / tree.name).symlink_to(tree)
    with brick_runs(lab, scratch / "site", trees="home/*", via="bricks") as runs:
        site = runs.site
        text = f'[drain]\nthrottle = "aggressive"\npoll = "0.2s"\n\n[cutover]\nfreeze = "hook"\nsettle = "0s"\nretain = "0s"\nlink = "{links}/{{user}}"\n'
        site.file.write_text(site.file.read_text() + text)
        hook = site.directory / "hooks" / "pre-freeze.d" / "10-vouches"
        hook.parent.mkdir(parents=True)
        hook.write_text("#!/bin/sh\n")
        hook.chmod(0o755)
        let_settle()
        for words in (["scan"], ["plan"], ["run", "--all"], ["verify", "--all"]):
            site.json(*words)
        yield site


def trees_of(lab: LabHandle) -> list[Path]:
    return sorted(tree for tree in (lab.source / "home").iterdir() if tree.is_dir())


def files_in(tree: Path) -> int:
    return sum(path.is_symlink() or not path.is_dir() for path in tree.rglob("*"))


def refuse_what_was_put_past_gluster(lab: LabHandle, site: LabSite, drain: Sequence[str]) -> None:
    """A file without a gfid on a brick that stays is told by the scan, and nobody asks the volume for it."""
    stays = lab.bricks[0]
    placed = lab.brick_directory(stays) / "home/placed past Gluster"
    placed.write_bytes(b"nobody can open it")
    scanned = site.json("scan", "--via", "bricks")
    assert scanned["whole"], scanned["reasons"]
    assert [(one["brick"], one["files"]) for one in scanned["strange"]] == [(stays.name, 1)]
    assert not [one for one in os.listxattr(placed) if one == GFID]
    (refused,) = site.json(*drain, "--dry-run", code=4)["reasons"]
    assert f"1 file without a gfid was put on {stays.name} past Gluster (home/placed past Gluster)" in refused
    assert any(stays.name in one["subject"] for one in site.json("status")["blocked"])
    # The drain looks for it again, and needs no other scan.
    placed.unlink()


def messages(site: LabSite, words: str) -> list[str]:
    """Those of events that have these words in them."""
    with closing(sqlite3.connect(f"file:{site.directory / 'state/ledger.db'}?mode=ro", uri=True)) as database:
        return [message for (message,) in database.execute("select message from events") if words in message]


def drain_the_second_set(lab: LabHandle, site: LabSite, home: Path) -> None:
    """What a drain leaves on three bricks is one; what waits to be healed is left alone; the arbiter is never read."""
    leaving = lab.bricks[3:]
    drain = ("brick", "drain", *(brick.name for brick in leaving), "--accept-open-files")
    refuse_what_was_put_past_gluster(lab, site, drain)
    # After the scan, so that no guard knows them.
    good, blamed = (linked_symlink(lab, leaving[0], home, name) for name in ("good", "blamed"))
    blamed_there = [lab.brick_directory(brick) / blamed.relative_to(lab.source) for brick in leaving]
    # The arbiter says that the first copy has missed a change.
    os.setxattr(blamed_there[2], "trusted.afr.vol1-client-3", bytes(11) + b"\1", follow_symlinks=False)
    refused = site.json(*drain, "--recover", code=4)
    assert set(refused["left_behind"]) == {str(one.relative_to(lab.source)) for one in (blamed, home / "blamed-again")}
    (told,) = messages(site, "waits to be healed")
    assert str(min(blamed.name, "blamed-again")) in told
    assert not any(os.path.lexists(lab.brick_directory(brick) / good.relative_to(lab.source)) for brick in leaving)
    assert good.lstat().st_ino == (home / "good-again").lstat().st_ino

    os.removexattr(blamed_there[2], "trusted.afr.vol1-client-3", follow_symlinks=False)
    left_file(lab, leaving, home / "hidden", b"only here", mtime_ns=TIME_NS)
    os.utime(home, ns=(TIME_NS, TIME_NS + 5))
    done = site.json(*drain, "--recover")
    assert (done["ending"], done["standing"]["failures"]) == ("done", 0), done
    facts = (home / "hidden").stat()
    assert (home / "hidden").read_bytes() == b"only here"
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o7777, facts.st_mtime_ns) == (20001, 20002, 0o640, TIME_NS)
    assert home.stat().st_mtime_ns == TIME_NS + 5
    assert blamed.lstat().st_ino == (home / "blamed-again").lstat().st_ino
    assert not os.path.lexists(os.fsencode(lab.source) + b"/" + WORK_DIRECTORY)


@pytest.mark.guarantee("retire")
def test_a_volume_is_retired_when_everything_in_it_is_proven_and_not_before(make_lab: MakeLab, scratch: Path) -> None:
    lab = make_lab(
        hosts=3,
        bricks_per_host=2,
        volume_type=VolumeType.DISTRIBUTED_ARBITER,
        users=2,
        files=60,
        data_bytes=MIB,
        odd=False,
    )
    if not lab.state.ssh_config:
        pytest.skip("needs sshd: who is connected to the bricks is asked on their hosts")
    with copied(lab, scratch) as site:
        first, second = trees_of(lab)
        second.joinpath("left").mkdir()
        drain_the_second_set(lab, site, second / "left")
        site.json("cutover", "--user", first.name)
        refused = retire(site, code=4)["cover"]["uncovered"]
        assert refused["not-moved"]["paths"] == files_in(second)
        site.json("cutover", "--user", second.name)
        checksum = site.json("purge", "--user", first.name, "--dry-run")["checksum"]
        site.json("purge", "--user", first.name, "--confirm", checksum)

        for path in [path for path in lab.source.rglob("*") if path.is_file() and not path.is_relative_to(second)]:
            if path.name != ".migrator-sentinel":
                path.unlink()
        stray = lab.source / os.fsdecode(STRAY)
        stray.write_bytes(b"nowhere else")
        cover = retire(site, code=4)["cover"]
        assert cover["uncovered"] == {"outside": {"paths": 1, "size_bytes": 12}}
        assert Path(cover["list_file"]).read_text() == f"outside\t12\t{percent_escape(STRAY)}\n"
        assert cover["proven"]["paths"] == files_in(second)
        stray.unlink()

        with another_client(lab, scratch / "elsewhere"):
            (reason,) = retire(site, code=4)["reasons"]
            assert "clients beside this site's own" in reason
        assert status_of(lab) == "Status: Started"

        kill_at_the_stop(site, lab.state.gluster)
        assert site.call("brick", "retire", "--confirm", "vol1").returncode == -9
        assert status_of(lab) == "Status: Stopped"
        assert site.json("status")["retirement"]["state"] == "stopping"
        assert retire(site)["ending"] == "done-before"
        assert site.json("status")["retirement"]["state"] == "retired"
        assert (lab.brick_directory(lab.bricks[0]) / "home" / second.name).is_dir(), "nothing is deleted"
        # So that the sentinel can be taken away.
        lab.gluster("volume", "start", "vol1")
        wait_until(lambda: os.access(lab.source / "home", os.R_OK), "the mount is back")
