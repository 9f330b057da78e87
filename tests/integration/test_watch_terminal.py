"""`status --watch` beside a real run: in terminals of two sizes, and into a pipe."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.domain.units import MIB
from tests.run_site import DEADLINE_S, REPOSITORY, RealSite, fill_tree, wait_for
from tests.terminal import missing_for_terminals, terminal
from tests.xfs import XfsMount

pytestmark = pytest.mark.needs_root

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


@pytest.fixture
def run(site: RealSite) -> Iterator["subprocess.Popen[str]"]:
    with site.started() as process:
        wait_for(lambda: site.ledger.exists() and site.tokens(), "a stream")
        yield process


def test_a_terminal_shows_a_run_its_end_and_another_size(
    site: RealSite, run: "subprocess.Popen[str]", scratch: Path
) -> None:
    if reason := missing_for_terminals():
        pytest.skip(reason)
    with terminal(scratch, site.argv("status", "--watch", "--interval", "500ms"), width=80, height=24) as seen:
        small = seen.shows(f"run (process {run.pid})", "last sign of life", "streams 2", "localhost, mount", "KiB/s")
        assert small[0].startswith("Migration of faults, plan plan-0001")
        labels = [line[:11].strip() for line in small]
        for label in ("at work", "copied", "verified", "rate", "left", "streams 2", "batches", "users"):
            assert label in labels, small
        streams = [line for line in small if " chunk " in line]
        assert len(streams) == 2
        assert len(small) == 24
        assert any(SHOWN in line for line in small)
        assert small[-1].endswith("q ends")
        assert len(seen.joined()) == 24, "a line was wrapped"

        seen.resize(200, 50)
        wide = seen.shows("\N{BOX DRAWINGS LIGHT VERTICAL}", "batch 1 seed")
        assert len(wide) == 50
        assert max(map(len, wide)) <= 200
        assert wide[0].endswith("UTC")
        assert len(wide[0]) == 200
        assert any(SHOWN in line for line in wide)

        run.send_signal(signal.SIGKILL)
        seen.shows(f"run (process {run.pid}) was killed", "it is gone and did not say how it ended")
        seen.press("q")
        assert seen.exit_code() == 0
        assert seen.modes() == "0 1 1"


def test_a_pipe_gets_plain_lines_until_it_is_interrupted_or_nobody_reads(
    site: RealSite, run: "subprocess.Popen[str]"
) -> None:
    process = subprocess.Popen(
        site.argv("status", "--watch", "--interval", "500ms"),
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    said: list[str] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            said.append(line)
            if line.endswith("copying\n") and run.poll() is None:
                run.kill()
            if "was killed" in line and f"process {run.pid}" in line:
                break
        process.send_signal(signal.SIGINT)
        said += process.communicate(timeout=DEADLINE_S)[0].splitlines(keepends=True)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    whole = "".join(said)
    assert "at work since" in whole
    assert "user ann, home/ann: " in whole
    assert SHOWN in whole
    assert all(character == "\n" or character.isprintable() for character in whole)
    ends_when_nobody_reads(site)


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
