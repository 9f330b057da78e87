"""`run` with the real fpsync and parsyncfp2 (or a stand-in with its options and faults) as drivers, over XFS."""

import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migrator.core.units import KIB
from tests.support.records import rows_of
from tests.support.run_site import RealSite
from tests.support.waiting import wait_for
from tests.support.xfs import XfsMount

pytestmark = pytest.mark.needs_root

SLOW = "24KiB"
"""Per second, of a driver that is ended in the middle: it must be at work for some seconds."""


def fill(tree: Path, *, files: int, size_bytes: int = 100) -> None:
    """Files in a few directories; every tenth has a second name in a directory that is read at another time."""
    (tree / "linked").mkdir(parents=True)
    for number in range(files):
        above = tree / f"d{number % 5}"
        above.mkdir(exist_ok=True)
        file = above / f"f{number:04d}"
        file.write_bytes(os.urandom(8) + b"x" * size_bytes)
        if number % 10 == 0:
            (tree / "linked" / f"l{number:04d}").hardlink_to(file)


@pytest.fixture
def empty(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Iterator[RealSite]:
    """A site that is not planned yet."""
    if shutil.which("fpsync") is None or shutil.which("fpart") is None:
        pytest.skip("fpsync is not installed")
    made = RealSite(scratch / "site", xfs_source, xfs_target)
    yield made
    made.kill_streams()


@pytest.fixture
def site(empty: RealSite) -> RealSite:
    fill(empty.source.path / "home" / "alice", files=400)
    empty.prepare()
    return empty


def drive(site: RealSite, driver: str, *options: str) -> None:
    done = site.run("--engine", driver, *options)
    assert done.returncode == 0, done.stderr


def driven(site: RealSite, driver: str) -> list[tuple[str, int]]:
    """How its attempts ended, and how many files they brought."""
    return rows_of(site.ledger, "SELECT state, files FROM attempts WHERE engine = ? ORDER BY id", driver)


def sent_again(site: RealSite) -> int:
    """Bytes that the look at all files after the driver has sent."""
    look = "SELECT sum(attempts.size_bytes) FROM attempts JOIN chunks ON chunks.id = chunk_id WHERE kind = 'files'"
    return int(rows_of(site.ledger, look)[0][0])


def assert_brought(site: RealSite) -> None:
    assert site.differences() == ""
    assert (site.target.path / "home/alice").stat().st_mode & 0o777 == 0o700, "the tree's root stays closed"
    assert not list((site.directory / "state" / "drivers").rglob("part.*")), "its lists are not kept"
    assert not list((site.target.path / "home/alice").rglob(".*.??????"))


def test_a_tree_is_brought_and_what_was_split_is_linked_by_the_look_that_follows(site: RealSite) -> None:
    drive(site, "fpsync")
    [(state, files)] = driven(site, "fpsync")
    assert state == "succeeded"
    assert 400 < files <= 440, "hard links over parts are what it cannot do"
    assert sent_again(site) == 0
    assert_brought(site)


def streams_work(site: RealSite) -> bool:
    """The crawl has ended, files have arrived, and rsyncs are at work."""
    crawled = any((site.directory / "state" / "drivers").rglob("fp_done"))
    arrived = any((site.target.path / "home" / "alice").rglob("f0*"))
    return crawled and arrived and any(name_of(pid) == "rsync" for pid in site.streams())


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("rebooted", [False, True])
def test_ended_in_the_middle_it_is_begun_again(site: RealSite, *, rebooted: bool) -> None:
    with site.started("--engine", "fpsync", "--bwlimit", SLOW) as process:
        wait_for(lambda: streams_work(site) or process.poll() is not None, "rsyncs of fpsync")
        tokens = site.tokens()
        process.send_signal(signal.SIGTERM if rebooted else signal.SIGINT)
        _, said = process.communicate(timeout=600)
        assert process.returncode == 130, said
        assert tokens
        assert not site.streams()
    assert [state for state, _ in driven(site, "fpsync")] == ["interrupted"]
    if rebooted:
        with closing(sqlite3.connect(site.ledger)) as ledger, ledger:
            ledger.execute("UPDATE attempts SET boot_id = 'another'")
    drive(site, "fpsync")
    _, (state, files) = driven(site, "fpsync")
    assert state == "succeeded"
    assert (files >= 400) is rebooted, "what had arrived is sent again after another boot alone"
    argv = json.loads(rows_of(site.ledger, "SELECT argv FROM attempts WHERE engine = 'fpsync' ORDER BY id DESC")[0][0])
    assert (" -I " in argv[argv.index("-o") + 1]) is rebooted
    assert_brought(site)


def test_a_missing_program_stops_it(site: RealSite) -> None:
    site.environment["PATH"] = "/nowhere"
    done = site.run("--engine", "fpsync")
    assert done.returncode == 1
    assert "fpsync was not found" in done.stderr


def test_a_tree_whose_driver_is_killed_is_left_to_the_chunks(site: RealSite, scratch: Path) -> None:
    killed = scratch / "bin" / "fpsync"
    killed.parent.mkdir()
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    site.environment["PATH"] = f"{killed.parent}:{os.environ['PATH']}"
    drive(site, "fpsync")
    assert [state for state, _ in driven(site, "fpsync")] == ["interrupted"], "it is not tried again in this run"
    assert sent_again(site) > 0
    assert site.differences() == ""


@pytest.mark.parametrize("kind", ["stand-in", "real"])
def test_a_tree_is_brought_by_one_that_ends_before_its_rsyncs(empty: RealSite, scratch: Path, kind: str) -> None:
    if kind == "real" and shutil.which("parsyncfp2") is None:
        pytest.skip("parsyncfp2 is not installed")
    fill(empty.source.path / "home" / "alice", files=300, size_bytes=16 * KIB)
    empty.prepare()
    empty.file.write_text(empty.file.read_text().replace('"4MiB"', '"256KiB"'))
    if kind == "stand-in":
        empty.with_stand_in(scratch / "bin")
    drive(empty, "parsyncfp2", "--bwlimit", "8MiB")
    [(state, files)] = driven(empty, "parsyncfp2")
    assert (state, files >= 300) == ("succeeded", True)
    assert sent_again(empty) == 0
    assert_brought(empty)
