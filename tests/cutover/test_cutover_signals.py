"""A terminal that is closed in a freeze, and its signals: the user is thawed, or moved."""

import fcntl
import os
import signal
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeXfs
from tests.support.cut_site import CutSite, cut_site, top_facts
from tests.support.waiting import wait_for

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), stages=()) as made:
        made.hook("pre-freeze.d/50-vouches")
        yield made


def in_a_terminal(theirs: int) -> Callable[[], None]:
    """The process becomes the leader of a session with this terminal, which has its output too."""

    def enter() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        for fd in (0, 1, 2):
            os.dup2(theirs, fd)

    return enter


@pytest.mark.guarantee("frozen-users")
@pytest.mark.parametrize("hangup", [True, False])
def test_a_hangup_in_a_freeze_reverts_the_cutover(site: CutSite, hangup: bool) -> None:
    """Its signal ends the freeze as SIGTERM does; without that (nohup) the move ends well, though all output fails."""
    here, gate = site.directory / "here", site.directory / "gate"
    os.mkfifo(gate)
    site.hook("pre-switch.d/60-waits", f"touch {here}; read _ < {gate}")
    before, top = site.snapshot(), top_facts(site.source())
    ours, theirs = os.openpty()

    def enter() -> None:
        in_a_terminal(theirs)()
        os.close(ours)
        os.close(theirs)
        signal.signal(signal.SIGHUP, signal.SIG_DFL if hangup else signal.SIG_IGN)

    call = site.start("cutover", "--user", "ann", before=enter)
    os.close(theirs)
    wait_for(lambda: here.exists() or call.poll(), "the freeze")
    assert not site.is_open(site.source())
    os.close(ours)
    # Open until the end: the hook may not have opened it yet, and would lose the line.
    opened = os.open(gate, os.O_RDWR)
    if not hangup:
        os.write(opened, b"\n")

    code = call.end().code
    os.close(opened)
    assert code == (130 if hangup else 0)

    site.assert_works_on("source" if hangup else "target", before, hooks_ended=not hangup)
    assert site.states()[-1][0] == ("reverted" if hangup else "retained")
    if hangup:
        assert top_facts(site.source()) == top
