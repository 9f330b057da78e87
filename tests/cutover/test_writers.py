"""Who has something of a tree open on this machine: real processes, found by what /proc says of them."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.core.errors import ToolFailed
from migrator.cutover import writers as asking
from migrator.cutover.rules_writers import OpenFile, OpenKind, Writers, can_write
from migrator.cutover.writers import SearchesAhead, brick_writers, client_writers, local_writers
from migrator.fs.model import MountIdentity, SourceHealth
from migrator.fs.reading import PosixSource
from migrator.gluster.model import VolumeHealth
from migrator.hosts.local import LocalHost
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, HostLost, OnStart
from migrator.hosts.process import LocalProcesses
from tests.support.holders import HOLD, holding
from tests.support.one_host import OneHost
from tests.support.volumes import volume
from tests.support.xfs import XfsMount, run_tool, unmount

pytestmark = pytest.mark.needs_root

ANN, BEN = b"home/ann", b"home/ben"


@pytest.fixture
def source(xfs_source: XfsMount) -> Path:
    """Two trees on a file system of their own."""
    for tree in (ANN, BEN):
        directory = xfs_source.path / os.fsdecode(tree)
        (directory / "deep").mkdir(parents=True)
        (directory / "data").write_bytes(bytes(8192))
    return xfs_source.path


def search(source: Path, trees: Sequence[bytes] = (ANN,)) -> Writers:
    filesystem = PosixSource(os.fsencode(source))
    try:
        return asyncio.run(local_writers(LocalProcesses(), filesystem, trees))
    finally:
        filesystem.close()


class Started(LocalProcesses):
    """Sets an event when a program has started."""

    def __init__(self) -> None:
        super().__init__()
        self.started = asyncio.Event()

    async def stream(self, command: Command, *, on_start: OnStart, **takers: Any) -> Completed:
        def began(identity: ProcessIdentity) -> None:
            on_start(identity)
            self.started.set()

        return await super().stream(command, on_start=began, **takers)


def test_a_search_that_was_started_ahead_finds_what_is_open_when_it_is_asked(source: Path) -> None:
    async def ahead(filesystem: PosixSource) -> None:
        processes = Started()
        searches = SearchesAhead(partial(local_writers, processes, filesystem))
        searches.begin([ANN], count=2)
        await processes.started.wait()
        with holding(HOLD, source / "home/ann/data", "os.O_RDWR") as pid:
            assert only(await searches([ANN]), pid).writable
        assert not found_of(await searches([ANN]), pid)
        searches.begin([ANN], count=1)
        await searches.end()
        with holding(HOLD, source / "home/ann/data", "os.O_RDWR") as pid:
            assert only(await searches([ANN]), pid).writable

    with closing(PosixSource(os.fsencode(source))) as filesystem:
        asyncio.run(ahead(filesystem))


def found_of(writers: Writers, pid: int) -> dict[tuple[bytes, OpenKind], OpenFile]:
    return {(one.path, one.kind): one for one in writers.open_files if one.pid == pid}


def only(writers: Writers, pid: int) -> OpenFile:
    (one,) = found_of(writers, pid).values()
    return one


_MAP = """
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
fd = os.open(top + "/data", os.{})
assert libc.mmap(None, 4096, {}, {}, fd, 0) not in (None, 2**64 - 1)
os.close(fd)
"""
_ONE_THREAD = """
ready = threading.Event()
def work():
    assert ctypes.CDLL(None).unshare(0x200) == 0  # CLONE_FS
    os.chdir(top + "/deep")
    ready.set()
    time.sleep(600)
threading.Thread(target=work, daemon=True).start()
ready.wait()
"""
_FIRST_THREAD_ENDED = """
held = os.open(top + "/data", os.O_RDWR)
def say():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=say).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit of this thread alone
"""
_DEEPER_THAN_PATH_MAX = """
os.chdir(top)
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
held = os.open("new", os.O_RDWR | os.O_CREAT)
os.chdir("/")
"""
_NEW = 'held = os.open(top + "/new", os.O_RDWR | os.O_CREAT)'
FILE, DIRECTORY, WORKING, MAP = OpenKind.FILE, OpenKind.DIRECTORY, OpenKind.WORKING_DIRECTORY, OpenKind.MAP


@pytest.mark.parametrize(
    ("code", "name", "kind", "writable", "unlinked"),
    [
        ('held = os.open(top + "/data", os.O_RDONLY)', b"/data", FILE, False, False),
        ('held = os.open(top + "/data", os.O_WRONLY)', b"/data", FILE, True, False),
        ('held = os.open(top + "/data", os.O_RDWR)', b"/data", FILE, True, False),
        ('held = os.open(top + "/data", os.O_PATH)', b"/data", FILE, False, False),
        ("held = os.open(top, os.O_RDONLY)", b"", DIRECTORY, False, False),
        ('os.chdir(top + "/deep")', b"/deep", WORKING, False, False),
        (_ONE_THREAD, b"/deep", WORKING, False, False),
        ('os.mkdir(top + "/new"); os.chdir(top + "/new"); os.rmdir(top + "/new")', b"/new", WORKING, False, True),
        (_MAP.format("O_RDWR", "mmap.PROT_READ | mmap.PROT_WRITE", "mmap.MAP_SHARED"), b"/data", MAP, True, False),
        # It may ask for the right to write later.
        (_MAP.format("O_RDWR", "mmap.PROT_READ", "mmap.MAP_SHARED"), b"/data", MAP, True, False),
        (_MAP.format("O_RDONLY", "mmap.PROT_READ", "mmap.MAP_SHARED"), b"/data", MAP, False, False),
        (_MAP.format("O_RDWR", "mmap.PROT_WRITE", "mmap.MAP_PRIVATE"), b"/data", MAP, False, False),
        (f'{_NEW}; os.unlink(top + "/new")', b"/new", FILE, True, True),
        (f'{_NEW}; os.rename(top + "/new", top + "/deep/now")', b"/deep/now", FILE, True, False),
        (_NEW.replace("new", r"odd\n\udcff \\012 name"), b"/odd\n\xff \\012 name", FILE, True, False),
        (_NEW.replace("new", "all (deleted)"), b"/all (deleted)", FILE, True, False),
        (_FIRST_THREAD_ENDED, b"/data", FILE, True, False),
        (_DEEPER_THAN_PATH_MAX, b"/" + b"/".join([b"d" * 250] * 20) + b"/new", FILE, True, False),
    ],
)
def test_files_held_by_a_process_are_found_with_their_access(
    source: Path, *, code: str, name: bytes, kind: OpenKind, writable: bool, unlinked: bool
) -> None:
    with holding(f"top = sys.argv[1]\n{code}", source / "home/ann") as pid:
        one = only(search(source), pid)
    assert (one.path, one.kind, one.writable, one.unlinked) == (ANN + name, kind, writable, unlinked)
    assert one.program.startswith(b"python")
    assert can_write(one) == ((writable or kind is WORKING) and not unlinked)
    assert found_of(search(source), pid) == {}


def test_files_outside_the_trees_are_not_found(source: Path) -> None:
    (source / "home/annex").write_bytes(b"")
    with (
        holding(HOLD, source / "home/ben/data", "os.O_RDWR") as ben,
        holding(HOLD, source / "home/annex", "os.O_RDWR") as annex,
        holding(HOLD, source / "home", "os.O_RDONLY", cwd=source / "home") as above,
    ):
        writers = search(source)
        assert not {one.pid for one in writers.open_files} & {ben, annex, above}
        assert set(found_of(search(source, (ANN, BEN)), ben)) == {(b"home/ben/data", OpenKind.FILE)}


def test_another_name_of_a_linked_file_is_found_too(source: Path) -> None:
    os.link(source / "home/ann/data", source / "home/ben/link")
    os.link(source / "home/ann/data", source / "outside")
    for opened in ("home/ben/link", "outside", "home/ann/data"):
        with holding(HOLD, source / opened, "os.O_WRONLY") as pid:
            assert set(found_of(search(source), pid)) == {(b"home/ann/data", OpenKind.FILE)}, opened
            both = {path for path, _ in found_of(search(source, (ANN, BEN)), pid)}
            assert both == {b"home/ann/data", b"home/ben/link"}, opened


@pytest.mark.parametrize("opened", ["home/ann/data", "outside"])
def test_the_name_that_it_was_opened_by_is_gone_and_another_is_left(source: Path, opened: str) -> None:
    os.link(source / "home/ann/data", source / "home/ann/deep/kept")
    os.link(source / "home/ann/data", source / "outside")
    code = f"{HOLD}\nfor name in sys.argv[3:]: os.unlink(name)"
    names = [source / opened, source / "home/ann/data", source / "outside"]
    with holding(code, names[0], "os.O_RDWR", *sorted(set(names))) as pid:
        one = only(search(source), pid)
    assert (one.path, one.unlinked, can_write(one)) == (b"home/ann/deep/kept", False, True)


@pytest.mark.parametrize("way", ["bound", "in a namespace", "taken away"])
def test_a_mount_elsewhere_hides_nothing(source: Path, scratch: Path, way: str) -> None:
    place = scratch / "bound"
    place.mkdir()
    code = """
import subprocess
subprocess.run(["mount", "--bind", sys.argv[1], sys.argv[2]], check=True)
os.chdir(sys.argv[2])
held = os.open("new", os.O_RDWR | os.O_CREAT)
"""
    if way == "taken away":
        code += 'subprocess.run(["umount", "-l", sys.argv[2]], check=True)'
    prefix = ("unshare", "-m") if way == "in a namespace" else ()
    try:
        with holding(code, source / "home/ann/deep", place, prefix=prefix) as pid:
            found = set(found_of(search(source), pid))
            assert (place / "new").exists() == (way == "bound")
    finally:
        unmount(place)
    assert (b"home/ann/deep/new", OpenKind.FILE) in found
    assert way == "taken away" or (b"home/ann/deep", OpenKind.WORKING_DIRECTORY) in found


def test_a_loop_device_over_a_file_of_the_tree(source: Path) -> None:
    image = source / "home/ann/image"
    image.write_bytes(bytes(1 << 20))
    device = run_tool("losetup", "--find", "--show", str(image)).strip()
    try:
        (one,) = [one for one in search(source).open_files if one.kind is OpenKind.LOOP_DEVICE]
        assert (one.path, one.writable, one.pid) == (b"home/ann/image", True, None)
        assert one.program == os.path.basename(device).encode()
    finally:
        run_tool("losetup", "-d", device)


def test_a_tree_that_was_swapped_for_a_symlink_is_not_followed(source: Path) -> None:
    shutil.rmtree(source / "home/ann")
    (source / "home/ann").symlink_to(source / "home/ben")
    with holding(HOLD, source / "home/ben/data", "os.O_RDWR") as pid:
        writers = search(source)
    assert found_of(writers, pid) == {}
    assert any(sentence.startswith("home/ann: Not a directory") for sentence in writers.unseen)
    (source / "home/ann").unlink()
    assert any(sentence.startswith("home/ann: No such file") for sentence in search(source).unseen)


def test_unreadable_processes_are_a_gap(source: Path) -> None:
    """Asked without the rights of root, about a process of root's."""
    completed = asyncio.run(
        LocalProcesses().run(
            Command(
                argv=(
                    b"setpriv", b"--reuid=65534", b"--regid=65534", b"--clear-groups",
                    b"/usr/bin/python3", b"-I", b"-S", b"-c", asking.script(),
                ),
                stdin=b'[{"way": "source", "root": "%s", "trees": ["home/ann"], "own": []}]' % os.fsencode(source),
            )
        )
    )  # fmt: skip
    (answer,) = json.loads(completed.stdout)
    assert " of the processes cannot be read: process " in answer["unseen"][-1], completed.stderr
    assert "Permission denied" in answer["unseen"][-1]
    assert "docs/cutover.md" in answer["unseen"][-1]


def test_a_missing_source_is_a_gap(source: Path) -> None:
    writers = search(source / "missing")
    assert writers == Writers(unseen=("the source's root cannot be read: No such file or directory",))


def test_a_failing_python_is_a_gap_with_its_output(source: Path) -> None:
    class Failing(LocalProcesses):
        async def run(self, command: Command) -> Completed:
            return await super().run(replace(command, stdin=b"no question"))

    filesystem = PosixSource(os.fsencode(source))
    writers = asyncio.run(local_writers(Failing(), filesystem, (ANN,)))
    filesystem.close()
    assert writers.open_files == ()
    assert "open files cannot be listed" in writers.unseen[0]
    assert "JSONDecodeError" in writers.unseen[0]


def test_bricks_of_a_host_are_searched_together_and_fail_alone(source: Path) -> None:
    """The second search of a host is made although the first fails, by the same process."""

    class Bricks(PosixSource):
        async def health(self) -> SourceHealth:
            options = (("performance.open-behind", "off"),)
            return VolumeHealth(problems=(), state=volume(f"gl1:{source}/gone", f"gl1:{source}", options=options))

    hosts, filesystem = OneHost(), Bricks(os.fsencode(source))
    try:
        found = asyncio.run(brick_writers(hosts, ["gl1"], filesystem, LocalProcesses(), (ANN,)))
    finally:
        filesystem.close()
    failed, not_served = found.unseen
    assert failed.startswith(f"brick gl1:{source}/gone: open files cannot be listed on gl1: No such file")
    assert not_served.startswith(f"brick gl1:{source}: no Gluster process")
    assert hosts.asked == ["gl1"]


def on_clients(source: Path, names: Sequence[str], trees: Sequence[bytes] = (ANN,), *, filesystem: str = "") -> Writers:
    """A search on clients that are all this machine; one that is called `gone` does not answer."""

    class Hosts(OneHost):
        async def reach(self, name: str) -> LocalHost:
            if name == "gone":
                raise HostLost("no route to it")
            return await super().reach(name)

    class Shared(PosixSource):
        def identity(self) -> MountIdentity:
            found = super().identity()
            return replace(found, filesystem=filesystem or found.filesystem)

    @asynccontextmanager
    async def connect(_: Sequence[str]) -> AsyncIterator[Hosts]:
        hosts = Hosts()
        try:
            yield hosts
        finally:
            await hosts.close()

    async def clients() -> Sequence[str]:
        if not names:
            raise ToolFailed("no answer")
        return names

    target = Shared(os.fsencode(source))
    try:
        return asyncio.run(client_writers(LocalProcesses(), target, clients, connect, trees))
    finally:
        target.close()


def unread(found: Writers) -> list[str]:
    """What was not seen, but for processes that root cannot read, as in some containers."""
    return [one for one in found.unseen if "processes cannot be read" not in one]


def test_every_client_of_a_target_is_searched_and_failures_are_gaps(source: Path) -> None:
    with holding(HOLD, source / "home/ann/data", "os.O_RDWR") as pid:
        found = on_clients(source, [os.uname().nodename, "node1"])
        assert [one.host for one in found.open_files if one.pid == pid] == [os.uname().nodename, "node1"]
        assert not unread(found)
    assert not unread(on_clients(source, ["node1"], ()))
    assert unread(on_clients(source, ["gone"])) == ["client gone: no route to it"]
    assert on_clients(source, []).unseen == ("the clients of the target are unknown: no answer",)
    # An empty directory where the target is not mounted proves nothing.
    (unseen,) = unread(on_clients(source, ["node1"], (), filesystem="beegfs"))
    assert unseen == f"client node1: {source} is not mounted there as beegfs"
