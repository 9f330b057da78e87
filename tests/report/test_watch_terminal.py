"""`status --watch` beside a real run: in terminals of two sizes, and into a pipe."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from migrator.core.units import MIB
from tests.report.terminal import Terminal, missing_for_terminals, terminal
from tests.support.run_site import DEADLINE_S, REPOSITORY, RealSite, fill_tree, wait_for
from tests.support.xfs import XfsMount

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

HOSTILE = b"e\x1b[31m\xff"
SHOWN = r"home/e\x1b[31m\xff"


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> RealSite:
    """Two users, one with a hostile name; a run that takes longer than any test needs."""
    fill_tree(xfs_source.path / "home" / "ann", files=40, size_bytes=MIB)
    fill_tree(xfs_source.path / "home" / "evil", files=40, size_bytes=MIB)
    (xfs_source.path / "home" / "evil").rename(xfs_source.path / "home" / os.fsdecode(HOSTILE))
    made = RealSite(scratch / "site", xfs_source, xfs_target)
    made.prepare(transfer='bwlimit = "500KiB/s"\nsample_interval = "1s"\nengine = "rsync"\n')
    return made


@contextmanager
def written(site: RealSite, file: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The same without a terminal: into a file."""
    with file.open("wb") as output:
        process = subprocess.Popen(
            site.argv("status", "--watch", "--interval", "500ms"),
            stdout=output,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_run_is_watched_to_its_end_in_a_terminal_of_two_sizes_and_in_plain_lines(
    site: RealSite, scratch: Path
) -> None:
    """One run for all: to prepare it takes longer than to watch it."""
    if reason := missing_for_terminals():
        pytest.skip(reason)
    argv = site.argv("status", "--watch", "--interval", "500ms")
    file = scratch / "lines"
    with site.started() as run, written(site, file) as plain, terminal(scratch, argv, width=80, height=24) as seen:
        shows_in_a_small_terminal(seen, run.pid)
        shows_in_a_wide_terminal(seen)
        wait_for(lambda: b"copied: " in file.read_bytes(), "a first look")
        run.send_signal(signal.SIGKILL)
        seen.shows(f"run (process {run.pid})", "was killed", "it is gone and recorded no end")
        seen.press("\x03")
        assert seen.exit_code() == 0
        assert seen.modes() == "0 1 1"

        wait_for(lambda: b"was killed" in file.read_bytes(), "the end in plain lines")
        plain.send_signal(signal.SIGINT)
        assert plain.wait(timeout=DEADLINE_S) == 0
        is_plain(file.read_text(encoding="utf-8"), run.pid)
    ends_when_nobody_reads(site)


def shows_in_a_small_terminal(seen: Terminal, pid: int) -> None:
    labels = ("at work", "copied", "verified", "rate", "left", "streams 2", "batches", "users")
    first = "Migration of faults, plan plan-0001"
    words = (f"run (process {pid})", "last heartbeat", "localhost, mount", "KiB/s", SHOWN)
    small = seen.shows(first, *words, *labels)
    assert small[0].startswith(first)
    begun = [line[:11].strip() for line in small]
    for label in labels:
        assert label in begun, small
    assert sum(" chunk " in line for line in small) == 2
    assert any(SHOWN in line for line in small)
    assert len(small) == 24
    assert len(seen.joined()) == 24, "a line was wrapped"


def shows_in_a_wide_terminal(seen: Terminal) -> None:
    seen.resize(200, 50)
    wide = seen.shows("UTC", SHOWN)
    assert max(map(len, wide)) <= 200
    assert any(SHOWN in line for line in wide)


def is_plain(whole: str, pid: int) -> None:
    assert f"process {pid}): for " in whole
    assert f"process {pid}): was killed" in whole
    assert all(character == "\n" or character.isprintable() for character in whole)


def ends_when_nobody_reads(site: RealSite) -> None:
    process = subprocess.Popen(
        site.argv("status", "--watch", "--interval", "10min"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=DEADLINE_S) == 0
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
