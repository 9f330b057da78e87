"""Freezing user trees of a real volume: the top through the mount, and writers in the brick processes of every host."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.clock import SystemClock
from migrator.cutover.rules_writers import OpenFile, OpenKind, Writers, can_write, writing_problems
from migrator.cutover.tops import MountedTops
from migrator.cutover.writers import brick_writers, own_clients, unseen_writers
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.volume import GlusterCommands, GlusterSource
from migrator.hosts.process import LocalProcesses
from migrator.lab.model import LabBrick
from tests.support.cluster.clients import another_client
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.hosts import LabHosts
from tests.support.cluster.opening import OPEN_BEHIND, copies, open_behind
from tests.support.holders import HOLD, holding
from tests.support.waiting import wait_for
from tests.support.xfs import run_tool

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]

TREE = b"frozen/ann"
UID = 20_001


@pytest.fixture
def tree(lab: LabHandle) -> Iterator[Path]:
    """A tree of its own, beside those of the lab."""
    top = lab.source / os.fsdecode(TREE)
    (top / "deep/er").mkdir(parents=True)
    (lab.source / "frozen/ben").mkdir()
    os.chown(top, UID, UID)
    try:
        yield top
    finally:
        shutil.rmtree(lab.source / "frozen")


@pytest.fixture(scope="module", autouse=True)
def opened_at_once(lab: LabHandle) -> Iterator[None]:
    """Clients open on the bricks what is opened, as a site has it that freezes its users."""
    open_behind(lab, "off")
    yield
    open_behind(lab, "on")
    lab.gluster("volume", "reset", lab.state.spec.volume, OPEN_BEHIND)
    lab.let_client_know()


@pytest.fixture
def hosts(lab: LabHandle) -> LabHosts:
    return LabHosts(lab)


@pytest.fixture
def public(lab: LabHandle, scratch: Path) -> Iterator[Path]:
    """The mount where users who are not root get to it; nothing but the top keeps them out."""
    place = scratch / "public"
    place.mkdir()
    run_tool("mount", "--bind", str(lab.source), str(place))
    try:
        yield place
    finally:
        run_tool("umount", str(place))


def gluster(lab: LabHandle) -> GlusterSource:
    volume = lab.state.spec.volume
    commands = GlusterCommands(LocalProcesses(), SystemClock(), volume=volume, gluster=os.fsdecode(lab.state.gluster))
    return GlusterSource(os.fsencode(lab.source), commands)


def search(lab: LabHandle, hosts: LabHosts, trees: tuple[bytes, ...] = (TREE,)) -> Writers:
    async def look() -> Writers:
        source = gluster(lab)
        try:
            return await brick_writers(hosts, hosts.names, source, LocalProcesses(), trees)
        finally:
            source.close()
            await hosts.close()

    return asyncio.run(look())


def on_bricks(writers: Writers) -> set[tuple[str, bytes, bool]]:
    """Brick, path and whether it is writable, of files; what this machine's own processes show is left out."""
    return {
        (one.brick, one.path, one.writable)
        for one in writers.open_files
        if one.brick and one.kind is OpenKind.FILE and not one.unlinked
    }


def brick_of(lab: LabHandle, path: Path) -> LabBrick:
    ((brick, _),) = copies(lab, path)
    return brick


def test_a_writer_is_named_on_its_brick_until_it_closes(lab: LabHandle, hosts: LabHosts, tree: Path) -> None:
    path = tree / "deep/data"
    code = f"{HOLD}\nos.write(held, b'written')"
    with holding(code, path, "os.O_WRONLY | os.O_CREAT") as pid:
        writers = search(lab, hosts)
        brick = brick_of(lab, path)
        assert on_bricks(writers) == {(brick.name, b"frozen/ann/deep/data", True)}
        (found,) = [one for one in writers.open_files if one.brick]
        assert (found.host, found.pid, found.program) == (lab.host_of(brick).address, None, b"")
        # This machine is a client too, and shows whose it is.
        (own,) = [one for one in writers.open_files if not one.brick]
        assert (own.path, own.pid, own.writable) == (b"frozen/ann/deep/data", pid, True)
        assert "frozen/ann/deep/data: open for writing" in writing_problems(writers, vouched=True)[0]
        assert search(lab, hosts, (b"frozen/ben",)) == Writers()
    wait_for(lambda: search(lab, hosts) == Writers(), "the writer is gone")


@pytest.mark.exhaustive
def test_open_files_have_their_present_names(lab: LabHandle, hosts: LabHosts, tree: Path) -> None:
    """Gluster gives a file its new name by a link: the name that a brick opened it by is gone."""
    outside, moves = lab.source / "frozen/ben", f"{HOLD}\nos.rename(sys.argv[1], sys.argv[3])"
    (tree / "deep/er/data").write_bytes(b"x")
    os.link(tree / "deep/er/data", outside / "link")
    with (
        holding(moves, outside / "one", "os.O_WRONLY | os.O_CREAT", tree / "deep/two"),
        holding(moves, tree / "three", "os.O_WRONLY | os.O_CREAT", outside / "four"),
        holding(HOLD, outside / "link", "os.O_RDWR | os.O_APPEND"),
        holding(f"{HOLD}\nos.unlink(sys.argv[1])", tree / "scratch", "os.O_RDWR | os.O_CREAT"),
        holding(f"{HOLD}\nos.listdir(held)", tree, "os.O_RDONLY"),
    ):
        writers, beside = search(lab, hosts), search(lab, hosts, (b"frozen/ben",))
    inside = {b"frozen/ann/deep/two", b"frozen/ann/deep/er/data"}
    assert {path for _, path, writable in on_bricks(writers) if writable} == inside
    assert {path for _, path, _ in on_bricks(beside)} == {b"frozen/ben/four", b"frozen/ben/link"}
    assert {one.path for one in writers.open_files if can_write(one)} == inside
    assert TREE in {one.path for one in writers.open_files if one.brick and one.kind is OpenKind.DIRECTORY}


@pytest.mark.exhaustive
def test_without_the_names_that_gluster_keeps_the_brick_is_walked(lab: LabHandle, hosts: LabHosts, tree: Path) -> None:
    path = tree / "deep/er/old"
    path.write_bytes(b"x")
    brick = brick_of(lab, path)
    copy = lab.brick_directory(brick) / path.relative_to(lab.source)
    for name in os.listxattr(copy):
        if name.startswith("trusted.gfid2path."):
            os.removexattr(copy, name)
    with holding(HOLD, path, "os.O_RDWR"):
        writers = search(lab, hosts)
    assert on_bricks(writers) == {(brick.name, b"frozen/ann/deep/er/old", True)}


@pytest.mark.exhaustive
def test_a_brick_that_is_down_is_unseen(lab: LabHandle, hosts: LabHosts, tree: Path) -> None:
    brick = lab.bricks[1]
    with lab.brick_down(brick):
        writers = search(lab, hosts)
    (sentence,) = writers.unseen
    assert sentence.startswith(f"brick {brick.name}: no Gluster process has it open")
    assert writing_problems(writers, vouched=False)


@pytest.mark.guarantee("open-files")
def test_a_working_directory_below_a_closed_top_is_found(
    lab: LabHandle, hosts: LabHosts, tree: Path, public: Path
) -> None:
    tops = MountedTops(os.fsencode(lab.source))
    kept = tops.read_top(TREE)
    user = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
    code = f"{HOLD}\nos.write(held, b'before')"
    with holding(code, public / TREE.decode() / "data", "os.O_WRONLY | os.O_CREAT", prefix=user):
        tops.freeze(TREE, kept)
        found: list[OpenFile] = list(search(lab, hosts).open_files)
    assert {one.path for one in found if one.brick and can_write(one)} == {b"frozen/ann/data"}
    tops.thaw(TREE, kept)


@pytest.mark.guarantee("open-files")
def test_other_clients_are_unseen_writers(lab: LabHandle, hosts: LabHosts, scratch: Path) -> None:
    async def look(mount: bytes = b"") -> tuple[str, ...]:
        source = gluster(lab)
        try:
            return await unseen_writers(
                source,
                GlusterVolumeCommands(source.commands).clients,
                lambda: own_clients(
                    hosts, hosts.names, LocalProcesses(), volume=lab.state.spec.volume, mount=mount or source.root
                ),
                SystemClock(),
            )
        finally:
            source.close()
            await hosts.close()

    assert asyncio.run(look()) == ()
    with another_client(lab, scratch / "elsewhere"):
        (sentence,) = asyncio.run(look())
        with_names = asyncio.run(look(os.fsencode(scratch / "elsewhere")))
    assert "other clients have the volume mounted: 10." in sentence
    assert "mount on this machine" in with_names[-1]
    assert "entry-timeout=0" in with_names[-1]
