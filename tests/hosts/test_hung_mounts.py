"""A mount that does not answer: what waits for it can be interrupted, and the program ends."""

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from migrator.core.errors import ToolFailed
from migrator.hosts import local, remote
from migrator.hosts.local import LocalHost
from migrator.hosts.ports import Host
from migrator.hosts.remote import RemoteHost
from tests.hosts.local_pipe import LocalPipe
from tests.support.run_site import DEADLINE_S, RealSite
from tests.support.waiting import wait_for
from tests.support.xfs import XfsMount

pytestmark = pytest.mark.needs_root

FUSE = Path("/dev/fuse")
_MNT_DETACH = 2


@contextmanager
def hung(place: Path) -> Iterator[None]:
    """A FUSE mount whose server never answers. Closing its descriptor sets free whoever waits for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    server = os.open(FUSE, os.O_RDWR | os.O_CLOEXEC)
    try:
        options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % server
        if libc.mount(b"hung", os.fsencode(place), b"fuse", 0, options) != 0:
            code = ctypes.get_errno()
            pytest.skip(f"needs FUSE: {os.strerror(code)}")
        try:
            yield
        finally:
            libc.umount2(os.fsencode(place), _MNT_DETACH)
    finally:
        os.close(server)


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> RealSite:
    if not FUSE.exists():
        pytest.skip("needs /dev/fuse")
    (xfs_source.path / "home" / "alice").mkdir(parents=True)
    made = RealSite(scratch / "site", xfs_source, xfs_target)
    made.prepare()
    return made


@pytest.mark.guarantee("hung-mount")
@pytest.mark.parametrize("verb", [("scan",), ("verify", "--user-batch", "1")], ids=["scan", "verify"])
def test_a_verb_that_waits_for_a_hung_mount_can_be_interrupted(site: RealSite, verb: tuple[str, ...]) -> None:
    assert site.run().returncode == 0
    with hung(site.source.path):
        process = subprocess.Popen(
            site.argv(*verb), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            wait_for(lambda: _takes_signals(process.pid), "the verb at work")
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 130
        finally:
            process.kill()
            process.communicate(timeout=DEADLINE_S)


@pytest.mark.guarantee("hung-mount")
def test_status_does_not_wait_for_a_mount(site: RealSite) -> None:
    with hung(site.source.path):
        assert site.migrator("status").returncode == 0


@pytest.mark.parametrize("host", [LocalHost(), RemoteHost(LocalPipe(), grace_s=0.3)], ids=["local", "remote"])
def test_roots_that_do_not_answer_are_a_failure_of_that_host(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "ROOTS_TIMEOUT_S", 0.1)
    monkeypatch.setattr(remote, "ROOTS_TIMEOUT_S", 0.1)

    async def looked() -> None:
        await host.identity()
        with hung(tmp_path), pytest.raises(ToolFailed, match="cannot be looked at"):
            await host.roots(os.fsencode(tmp_path), b"")
        await host.close()

    asyncio.run(looked())


def _takes_signals(pid: int) -> bool:
    """Whether the process has a handler for SIGTERM, as it has while a verb is at work."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)
