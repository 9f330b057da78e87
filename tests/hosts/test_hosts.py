"""What everybody who works on another machine relies on; run against every adapter of the port."""

import asyncio
import os
import secrets
import stat
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from migrator.core.errors import ToolFailed, UsageError
from migrator.fs.model import SENTINEL_NAME, MountIdentity
from migrator.hosts.local import LocalHost, load_of
from migrator.hosts.model import HostRoots, brick_problem, target_problem
from migrator.hosts.ports import Command, Host, HostLost
from migrator.hosts.proc import boot_id, carriers
from migrator.hosts.process import LocalProcesses
from migrator.hosts.remote import RemoteHost
from migrator.hosts.site import HostSpec, SiteHosts, assign_writers, expand
from tests.hosts.local_pipe import LocalPipe
from tests.support.one_host import OneHost
from tests.support.pythons import python39
from tests.support.run_world import in_loop
from tests.support.sshd import Sshd
from tests.support.waiting import until
from tests.support.xfs import XfsMount

Result = TypeVar("Result")


class Reached:
    """A host and the event loop it belongs to."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._runner = asyncio.Runner()

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(work)

    def close(self) -> None:
        self.do(self.host.close())
        self._runner.close()


@pytest.fixture(params=["local", "python3", "python3.9", "ssh"])
def reached(request: pytest.FixtureRequest) -> Iterator[Reached]:
    host: Host
    kind = request.param
    if kind == "local":
        host = LocalHost(LocalProcesses(grace_s=0.3))
    elif kind.startswith("python"):
        host = RemoteHost(LocalPipe(python=python39() if kind == "python3.9" else kind), grace_s=0.3)
    else:
        host = RemoteHost(request.getfixturevalue("sshd").transport(), grace_s=0.3)
    made = Reached(host)
    yield made
    made.close()


def test_facts_and_programs(reached: Reached) -> None:
    facts = reached.do(reached.host.facts())
    assert facts.name == reached.host.name
    assert facts.node_name == os.uname().nodename
    assert facts.architecture == os.uname().machine
    assert facts.python_version >= (3, 9, 0)
    assert facts.effective_uid == os.geteuid()
    assert facts.boot_id == boot_id()
    assert abs(facts.clock_offset_s) <= facts.round_trip_s / 2 + 0.001
    assert Path(os.fsdecode(facts.python)).is_absolute()
    again = reached.do(reached.host.identity())
    assert (again.boot_id, again.process_id) == (facts.boot_id, facts.process_id)
    parent = reached.do(reached.host.processes.run(Command(argv=(b"sh", b"-c", b"echo $PPID"))))
    assert int(parent.stdout) == facts.process_id
    assert reached.do(reached.host.find("sh")) in (b"/usr/bin/sh", b"/bin/sh")
    assert reached.do(reached.host.find("no-such-program")) is None


def test_a_placed_file_runs_is_private_and_goes_with_the_host(reached: Reached) -> None:
    script = b'#!/bin/sh\necho placed "$1"\n'
    path = reached.do(reached.host.place("tool", script))
    assert reached.do(reached.host.processes.run(Command(argv=(path, b"x")))).stdout == b"placed x\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert reached.do(reached.host.place("tool", script)) == path
    assert reached.do(reached.host.place("tool", script.replace(b"placed", b"anew"))) == path
    assert reached.do(reached.host.processes.run(Command(argv=(path, b"x")))).stdout == b"anew x\n"
    big = os.urandom(3_000_000)
    assert Path(os.fsdecode(reached.do(reached.host.place("big", big)))).read_bytes() == big
    reached.do(reached.host.close())
    assert not os.path.exists(os.path.dirname(path))


@pytest.mark.parametrize("names", [1, 24], ids=["one file", "a file each"])
def test_files_that_several_place_at_once_can_be_started_by_each(reached: Reached, names: int) -> None:
    # While a file is open to write nobody can start it, and a child has it open from fork to execve.
    program = Path("/bin/true").read_bytes()

    async def place_and_start(number: int) -> int | None:
        path = await reached.host.place(f"tool-{number % names}", program)
        return (await reached.host.processes.run(Command(argv=(path,)))).exit_code

    async def all_at_once() -> list[int | None]:
        return await asyncio.gather(*(place_and_start(number) for number in range(48)))

    assert reached.do(all_at_once()) == [0] * 48


@in_loop
async def test_a_file_that_several_place_at_once_is_sent_once() -> None:
    host = RemoteHost(LocalPipe(), grace_s=0.3)
    try:
        connection, sent = await host.connected(), list[str]()
        call = connection.call

        async def counted(operation: str, content: bytes = b"", **arguments: object) -> tuple[dict[str, Any], bytes]:
            sent.append(operation)
            return await call(operation, content, **arguments)

        connection.call = counted  # type: ignore[method-assign]
        assert len({await one for one in [asyncio.ensure_future(host.place("tool", b"x")) for _ in range(9)]}) == 1
        assert sent == ["place"]
    finally:
        await host.close()


@pytest.mark.parametrize("name", ["../tool", "/tool", "..", ""])
def test_a_placed_file_has_a_plain_name(reached: Reached, name: str) -> None:
    with pytest.raises((OSError, ValueError), match="plain file name"):
        reached.do(reached.host.place(name, b""))


def test_the_files_of_a_program(reached: Reached) -> None:
    program = os.path.realpath(b"/bin/bash")
    files = reached.do(reached.host.files_of(program))
    assert files[0] == program
    assert any(b"libc.so" in path for path in files)
    assert all(os.path.exists(path) for path in files)
    for path, reason in ((b"/no-such-program", "cannot be read"), (os.fsencode(__file__), "cannot be confined")):
        with pytest.raises(ToolFailed, match=reason):
            reached.do(reached.host.files_of(path))


def test_activity_changes_while_something_works_and_not_while_it_waits(reached: Reached) -> None:
    async def look() -> None:
        token = secrets.token_hex(16)

        async def activity() -> Mapping[str, int]:
            await asyncio.sleep(0.01)
            return await reached.host.activity([token, "unknown"])

        for script in (b"while :; do :; done", b"exec sleep 1000"):
            command = Command(argv=(b"sh", b"-c", script), token=token, timeout_s=None)
            task = asyncio.create_task(reached.host.processes.run(command))
            while not (before := await activity()):
                pass
            if script.startswith(b"exec"):
                while before != (before := await activity()):
                    pass
                assert [await activity() for _ in range(20)] == [before] * 20
            else:
                while await activity() == before:
                    pass
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await activity() == {}

    reached.do(look())


def test_sync(reached: Reached, tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    reached.do(reached.host.watch_sync(root))
    reached.do(reached.host.sync(root))
    with pytest.raises(FileNotFoundError):
        reached.do(reached.host.sync(root + b"/nothing"))


@in_loop
async def test_closing_ends_what_runs_and_may_be_done_again(sshd: Sshd) -> None:
    host = RemoteHost(sshd.transport(), grace_s=0.3)
    token = secrets.token_hex(16)
    script = b"trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 1000; done"
    up = asyncio.Event()
    command = Command(argv=(b"sh", b"-c", script), token=token, timeout_s=None)
    task = asyncio.create_task(
        host.processes.stream(command, on_start=lambda _: None, on_stdout=lambda _: up.set(), on_stderr=lambda _: None)
    )
    await asyncio.wait_for(up.wait(), 120)
    await host.close()
    await host.close()
    with pytest.raises(HostLost):
        await task
    assert not carriers([token])


def wrapper(directory: Path, text: str) -> str:
    """An interpreter that is not quite the usual one."""
    path = directory / "python-here"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


@in_loop
async def test_a_clock_that_is_apart_is_seen(sshd: Sshd, scratch: Path) -> None:
    code = "import sys, time; real = time.time_ns; time.time_ns = lambda: real() + 90_500_000_000; sys.argv = sys.argv[4:]; exec(sys.argv[0])"
    python = wrapper(scratch, f"exec python3 -c '{code}' \"$@\"\n")
    host = RemoteHost(sshd.transport(python=python))
    try:
        facts = await host.facts()
        assert abs(facts.clock_offset_s - 90.5) <= facts.round_trip_s / 2 + 0.001
    finally:
        await host.close()


@in_loop
async def test_the_hosts_of_a_site(sshd: Sshd) -> None:
    sections = {"far[1-2]": HostSpec(ssh=f"root@{sshd.address}", options=sshd.options()), "here": HostSpec()}
    hosts = SiteHosts(expand(sections))
    try:
        first, second, again = await asyncio.gather(*(hosts.reach(name) for name in ("far1", "far2", "far1")))
        assert first is again
        # Several callers connect once.
        facts = await asyncio.gather(*(first.facts() for _ in range(5)))
        assert len({each.process_id for each in facts}) == 1
        assert (first.name, second.name) == ("far1", "far2")
        assert (await first.facts()).process_id != (await second.facts()).process_id
        assert (await (await hosts.reach("here")).facts()).process_id == os.getpid()
        with pytest.raises(UsageError, match="far3"):
            await hosts.reach("far3")
    finally:
        await hosts.close()


@in_loop
async def test_hosts_that_are_begun_are_connected_once(sshd: Sshd) -> None:
    """What is done ahead on each fails for nobody but the call that needs it."""
    far, gone = (HostSpec(ssh=f"root@{sshd.address}", options=options) for options in (sshd.options(), ("-p", "1")))
    hosts = SiteHosts({"far": far, "gone": gone})
    done: dict[str, int] = {}

    async def ahead(host: Host) -> None:
        done[host.name] = (await host.identity()).process_id
        raise ToolFailed("not here")

    try:
        hosts.begin(("far", "gone"), ahead)
        hosts.begin(("far",), ahead)
        reached = await hosts.reach("far")
        await until(lambda: bool(done))
        assert done == {"far": (await reached.facts()).process_id}
        with pytest.raises(HostLost):
            await hosts.reach("gone")
    finally:
        await hosts.close()


@pytest.mark.parametrize(
    ("sections", "names"),
    [
        ({"gl[1-3]": HostSpec(ssh="root@%h.example", options=("-p", "22", "-i", "/keys/{host}"))}, "gl1 gl2 gl3"),
        ({"a,b": HostSpec(), "c": HostSpec()}, "a b c"),
    ],
)
def test_a_section_stands_for_several_hosts(sections: dict[str, HostSpec], names: str) -> None:
    hosts = expand(sections)
    assert sorted(hosts) == names.split()
    if "gl2" in hosts:
        assert hosts["gl2"] == HostSpec(ssh="root@gl2.example", options=("-p", "22", "-i", "/keys/gl2"))


@pytest.mark.parametrize("sections", [["gl[1-"], ["@no-such-group-here"], ["gl[1-2]", "gl2"], [""]])
def test_sections_that_name_no_host_or_one_twice(sections: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        expand({section: HostSpec() for section in sections})
    assert caught.value.hint


def test_hosts_of_the_target_write_by_turns_and_read_no_bricks() -> None:
    assert assign_writers(["gl1", "gl2", "gl3"], ["bg1", "bg2"]) == {"gl1": "bg1", "gl2": "bg2", "gl3": "bg1"}
    assert assign_writers(["gl1"], []) == {}
    hosts = SiteHosts(expand({"gl1": HostSpec()}), writers=expand({"bg[1-2]": HostSpec()}, of="target.hosts"))
    assert list(hosts.names) == ["gl1"]
    assert hosts.host("bg2").name == "bg2"


@in_loop
async def test_a_host_that_is_reached_tells_its_load_and_one_that_is_not_tells_nothing() -> None:
    hosts, asked = OneHost("gl1"), ("localhost", "gl1", "gl2", "slurm-1")
    loads = [await load_of(name, hosts=hosts, names=("gl1", "gl2"), own=("localhost",)) for name in asked]
    own, there, lost, unknown = loads
    assert own is not None
    assert there == pytest.approx(os.getloadavg()[0], abs=5.0)
    assert (lost, unknown) == (None, None)
    assert hosts.asked == ["gl1", "gl2"]


RECORDED = MountIdentity(filesystem="xfs", mounted_from="/dev/sdb", device=1, fsid=1, root_ino=128, sentinel="site one")
VOLUME = "0a1b2c3d-0000-1111-2222-333344445555"


@pytest.mark.needs_root
def test_sentinel_and_volume(reached: Reached, xfs_source: XfsMount) -> None:
    root = xfs_source.path
    found = reached.do(reached.host.roots(os.fsencode(root / "gone"), os.fsencode(root)))
    assert (found.sentinel, found.target_error) == (None, "No such file or directory")
    assert found.volume_id is None
    assert found.brick_error
    (root / os.fsdecode(SENTINEL_NAME)).write_text("site one\n")
    os.setxattr(root, "trusted.glusterfs.volume-id", bytes(range(16)))
    found = reached.do(reached.host.roots(os.fsencode(root), os.fsencode(root)))
    assert found == HostRoots(sentinel="site one", volume_id=bytes(range(16)).hex())
    assert reached.do(reached.host.roots(b"", b"")) == HostRoots()


@pytest.mark.parametrize(
    ("recorded", "found", "problem"),
    [
        (RECORDED, HostRoots(sentinel="site one"), None),
        (RECORDED, HostRoots(target_error="No such file or directory"), "not mounted at /mnt/t"),
        (RECORDED, HostRoots(sentinel="site two"), "site two"),
        (None, HostRoots(sentinel="site one"), ""),
    ],
)
def test_only_the_recorded_sentinel_is_the_target(
    recorded: MountIdentity | None, found: HostRoots, problem: str | None
) -> None:
    told = target_problem(recorded, found, "/mnt/t")
    assert told is None if problem is None else told is not None and problem in told


def test_a_brick_carries_its_volumes_id() -> None:
    assert brick_problem(VOLUME, HostRoots(volume_id=VOLUME.replace("-", "")), "gl1:/b") is None
    assert "another volume" in (brick_problem(VOLUME, HostRoots(volume_id="00" * 16), "gl1:/b") or "")
    assert "no brick" in (brick_problem(VOLUME, HostRoots(brick_error="No data available"), "gl1:/b") or "")
    assert brick_problem(None, HostRoots(volume_id="00" * 16), "gl1:/b") is not None
