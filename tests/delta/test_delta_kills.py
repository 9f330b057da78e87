"""`kill -9` of the whole program in every phase of a delta pass: the same command brings the target to what the source is."""

import contextlib
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import MakeXfs
from tests.delta.delta_child import PHASES, deltas
from tests.support.delta_changes import build, change, let_settle, write
from tests.support.run_site import DEADLINE_S, RealSite

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

RENAMED = 1500
SENT = 400
OLD_S, OLD_PLACE = 1577836800.0, "20200101T000000Z-batch-0001-delta-0001"
SLOW = ("--deltas", "1", "--bwlimit", "2MiB")
"""What is sent takes some seconds."""


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[RealSite]:
    """A site whose user has been copied, and has changed everything since, with much to rename and some to send."""
    made = RealSite(scratch / "site", make_xfs(), make_xfs())
    tree = made.source.path / "home" / "ann"
    build(tree)
    for number in range(RENAMED):
        write(tree / "old names" / f"{number}", f"renamed {number}")
    let_settle()
    made.prepare()
    seeded = made.run()
    assert seeded.returncode == 0, seeded.stderr
    change(tree)
    (tree / "new names").mkdir()
    for number in range(RENAMED):
        (tree / "old names" / f"{number}").rename(tree / "new names" / f"{number:05d}")
    for number in range(SENT):
        write(tree / "sent" / f"{number}", f"{number:04d}" * 4000)
    let_settle()
    yield made
    made.kill_streams()


_STILL_TO_MOVE = {"taking-out", "putting-in"}
_STILL_TO_SEND = {"pass-recorded", *_STILL_TO_MOVE, "moves-done", "sending", "half-sent"}


@contextlib.contextmanager
def started(site: RealSite, phase: str) -> Iterator["subprocess.Popen[str]"]:
    """A run that stands still in this phase."""
    with site.started(*SLOW, program=("tests.delta.delta_child", phase, str(site.target.path))) as process:
        yield process


def kill_in(site: RealSite, phase: str, process: "subprocess.Popen[str]") -> None:
    """As soon as the phase is seen."""
    deadline = time.monotonic() + DEADLINE_S
    while not PHASES[phase](site):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the phase was not seen"
        time.sleep(0.001)
    process.kill()
    process.wait()


def assert_finished(site: RealSite) -> None:
    done = site.run("--deltas", "1")
    assert done.returncode == 0, done.stderr
    assert site.differences() == ""
    verified = site.migrator("verify", "--user-batch", "1")
    assert verified.returncode == 0, verified.stdout
    (place,) = (site.target.path / ".migrator-trash").iterdir()
    assert (place / "home/ann/vanishes/inner/deep").read_text() == "goes with it"
    assert not list(site.target.path.rglob(".migrator-copy-*"))
    assert [state for state, _ in deltas(site)] == ["done"]


@pytest.mark.guarantee("moves-killed")
@pytest.mark.parametrize(
    ("phase", "streams_too"),
    [*((phase, False) for phase in PHASES), ("sending", True), ("half-sent", True)],
)
def test_killed_in_a_phase_the_same_command_finishes(site: RealSite, phase: str, streams_too: bool) -> None:
    with started(site, phase) as process:
        kill_in(site, phase, process)
        if streams_too:
            site.kill_streams()
        now = deltas(site)
        if phase in _STILL_TO_MOVE:
            assert now == [("running", None)], "killed in the midst of the moves"
        if phase in _STILL_TO_SEND:
            assert [state for state, _ in now] == ["running"]
    assert_finished(site)


def test_the_place_of_a_pass_that_was_killed_long_ago_is_kept(site: RealSite) -> None:
    """Renamed files lie in it and nowhere else, however old it is."""
    with started(site, "taking-out") as process:
        kill_in(site, "taking-out", process)
    assert deltas(site) == [("running", None)]
    with closing(sqlite3.connect(site.ledger, timeout=600)) as ledger:
        ledger.execute("UPDATE passes SET started_at_s = ? WHERE kind = 'delta'", (OLD_S,))
        ledger.commit()
    (place,) = (site.target.path / ".migrator-trash").iterdir()
    place.rename(place.with_name(OLD_PLACE))
    (place.parent / OLD_PLACE.replace("0001-delta", "0002-delta")).mkdir()
    assert_finished(site)
    assert [path.name for path in place.parent.iterdir()] == [OLD_PLACE], "the other one had been kept for long enough"
