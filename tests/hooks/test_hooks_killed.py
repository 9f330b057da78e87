"""The program is killed, or interrupted, in the middle of a hook; then the same command again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from migrator.hosts.proc import carriers
from tests.support.cli_site import Site
from tests.support.hook_site import IN_ORDER, HookSite
from tests.support.run_site import DEADLINE_S, wait_for

pytestmark = pytest.mark.exhaustive

HANG = 'if [ -e "{go}" ]; then exit 0; fi\nsetsid sleep 1000 &\necho begun > "{begun}"\nsleep 1000'


@pytest.fixture
def hooked(scratch: Path) -> Iterator[HookSite]:
    made = HookSite(Site(scratch, scratch / "source", scratch / "target"))
    made.prepare()
    made.all_hooks()
    try:
        yield made
    finally:
        for token in tokens(made):
            for process in carriers([token]).get(token, ()):
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)


def tokens(hooked: HookSite) -> list[str]:
    return [str(token) for (token,) in hooked.rows("SELECT token FROM hook_calls")]


def hang_at(hooked: HookSite, where: str) -> None:
    """The hook hangs until the file `go` is there."""
    directory = hooked.site.directory
    hooked.hook(where, HANG.format(go=directory / "go", begun=directory / "begun"))


@contextmanager
def in_the_middle(hooked: HookSite, deltas: int = 0) -> Iterator["subprocess.Popen[bytes]"]:
    """`run`, while the hook that hangs is at work."""
    argv = [sys.executable, "-m", "migrator", "--site", str(hooked.site.file)]
    argv += ["run", "--user-batch", "1", "--deltas", str(deltas)]
    begun = hooked.site.directory / "begun"
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        try:
            wait_for(lambda: begun.exists() or program.poll() is not None, "the hook")
            assert program.poll() is None
            yield program
            program.wait(DEADLINE_S)
        finally:
            program.kill()
    (hooked.site.directory / "go").touch()


@pytest.mark.guarantee("hooks")
@pytest.mark.parametrize("place", range(len(IN_ORDER)), ids=IN_ORDER)
def test_killed_in_the_middle_of_any_hook_the_same_command_goes_on(hooked: HookSite, place: int) -> None:
    hang_at(hooked, IN_ORDER[place])
    with in_the_middle(hooked) as program:
        (token,) = hooked.rows("SELECT token FROM hook_calls WHERE finished_at_s IS NULL")[0]
        program.kill()
    assert carriers([str(token)])
    assert [call.split()[0] for call in hooked.calls()] == IN_ORDER[: place + 1]

    code, said = hooked.run()
    assert code == 0, said
    assert f"the hook {IN_ORDER[place]} of an earlier run was interrupted" in said
    assert not carriers([str(token)])
    # Before the pass is done the step begins anew; afterwards only those are called that had not come to their end.
    again = IN_ORDER if place < 4 else IN_ORDER[place:]
    assert [call.split()[0] for call in hooked.calls()] == again
    assert hooked.copied() == ["alice"]
    assert hooked.rows("SELECT count(*) FROM hook_calls WHERE finished_at_s IS NULL") == [(0,)]
    assert hooked.rows("SELECT count(*) FROM hook_calls WHERE outcome = 'interrupted'") == [(1,)]
    assert hooked.rows("SELECT count(*) FROM hook_steps WHERE closed_at_s IS NULL") == [(0,)]

    assert hooked.run()[0] == 0
    assert hooked.calls() == []
