"""The whole job to a file system of the field, and from there back to a plain one, on the real thing."""

import json
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeXfs
from tests.support.cli_site import Site
from tests.support.waiting import wait_for
from tests.support.xfs import run_tool, unmount
from tools.tree_contents import everything


@dataclass(frozen=True, slots=True)
class Mounted:
    """`lose` makes it doubtful whether everything is shown, with the sentence that says so; `restore` ends that."""

    mount: Path
    lose: Callable[[], None]
    restore: Callable[[], None]
    said: str


def missing(*programs: str) -> str | None:
    """Why a system cannot run here; None where it can."""
    absent = [
        one
        for one in (*programs, "fusermount3", "ip")
        if shutil.which(one, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]
    return f"not installed: {', '.join(absent)}" if absent else None


def _free_port(address: str) -> int:
    with socket.socket() as listening:
        listening.bind((address, 0))
        return int(listening.getsockname()[1])


@contextmanager
def moosefs(directory: Path) -> Iterator[Mounted]:
    """Two chunkservers, and every chunk on both. They refuse loopback addresses: one more address of that device serves."""
    address = f"10.213.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"
    mount, servers = directory / "mnt", [directory / "chunks1", directory / "chunks2"]
    for made in (mount, directory / "master", *(one / "disk" for one in servers)):
        made.mkdir(parents=True)
    run_tool("ip", "address", "add", f"{address}/32", "dev", "lo")
    with ExitStack() as stack:
        stack.callback(run_tool, "ip", "address", "del", f"{address}/32", "dev", "lo")
        ports = {name: _free_port(address) for name in ("MATOML", "MATOCS", "MATOCL")}
        run_as = "WORKING_USER = root\nWORKING_GROUP = root\n"
        (directory / "exports").write_text("* / rw,alldirs,admin,maproot=0:0\n")
        shutil.copy("/var/lib/mfs/metadata.mfs.empty", directory / "master" / "metadata.mfs")
        master = directory / "master.cfg"
        listens = [f"{name}_LISTEN_HOST = {address}\n{name}_LISTEN_PORT = {port}\n" for name, port in ports.items()]
        master.write_text(
            f"{run_as}DATA_PATH = {directory}/master\nEXPORTS_FILENAME = {directory}/exports\n{''.join(listens)}"
        )
        for one in servers:
            (one / "disks").write_text(f"{one}/disk\n")
            (one / "cfg").write_text(
                f"{run_as}DATA_PATH = {one}\nHDD_CONF_FILENAME = {one}/disks\nMASTER_HOST = {address}\n"
                f"MASTER_PORT = {ports['MATOCS']}\nHDD_LEAVE_SPACE_DEFAULT = 64MiB\nCSSERV_LISTEN_HOST = {address}\n"
                f"CSSERV_LISTEN_PORT = {_free_port(address)}\n"
            )

        def serve(program: str, settings: Path, verb: str) -> None:
            run_tool(f"/usr/sbin/{program}", "-c", str(settings), verb)

        serve("mfsmaster", master, "start")
        stack.callback(serve, "mfsmaster", master, "stop")
        for one in servers:
            serve("mfschunkserver", one / "cfg", "start")
            stack.callback(serve, "mfschunkserver", one / "cfg", "stop")
        run_tool("mfsmount", str(mount), "-H", address, "-P", str(ports["MATOCL"]))
        stack.callback(unmount, mount)
        wait_for(lambda: os.statvfs(mount).f_bavail, "the room of the chunkserver")
        yield Mounted(
            mount=mount,
            lose=lambda: serve("mfschunkserver", servers[1] / "cfg", "stop"),
            restore=lambda: serve("mfschunkserver", servers[1] / "cfg", "start"),
            said="is disconnected",
        )


_CEPH = """[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{port}
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 1073741824
mon allow pool size one = true
mon data avail crit = 1
mon data = {place}/mon
mgr data = {place}/mgr
osd data = {place}/osd
mds data = {place}/mds
run dir = {place}
log file = {place}/$name.log
admin socket = {place}/$name.$pid.asok
public addr = 127.0.0.1
cluster addr = 127.0.0.1
"""


@contextmanager
def cephfs(directory: Path) -> Iterator[Mounted]:
    """Its OSD keeps everything in memory. `CEPH_CONF` of this process names it as long as it is there."""
    mount, settings = directory / "mnt", directory / "ceph.conf"
    for made in (mount, *(directory / name for name in ("mon", "mgr", "osd", "mds"))):
        made.mkdir(parents=True)
    fsid, port = str(uuid.uuid4()), _free_port("127.0.0.1")
    settings.write_text(_CEPH.format(fsid=fsid, port=port, place=directory))
    with ExitStack() as stack:
        os.environ["CEPH_CONF"] = str(settings)
        stack.callback(os.environ.pop, "CEPH_CONF")

        def daemon(*argv: str) -> None:
            process = subprocess.Popen([*argv, "-f"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)  # in memory: nothing is to be saved

        monitors = str(directory / "monitors")
        run_tool("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{port}]", monitors)
        run_tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors)
        daemon("ceph-mon", "-i", "a")
        daemon("ceph-mgr", "-i", "x")
        osd = str(uuid.uuid4())
        run_tool("ceph", "osd", "new", osd)
        run_tool("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        daemon("ceph-osd", "-i", "0")
        for pool in ("metadata", "data"):
            run_tool("ceph", "osd", "pool", "create", pool, "8")
        daemon("ceph-mds", "-i", "a")
        run_tool("ceph", "fs", "new", "field", "metadata", "data")
        wait_for(lambda: "active" in run_tool("ceph", "mds", "stat"), "an active MDS")
        daemon("ceph-fuse", str(mount))
        stack.callback(unmount, mount)
        wait_for(lambda: os.path.ismount(mount), "the mount")
        starting = ("FS_DEGRADED", "PG_AVAILABILITY")
        wait_for(lambda: not any(one in run_tool("ceph", "health", "detail") for one in starting), "its health")
        wait_for(lambda: '"max_avail":0' not in run_tool("ceph", "df", "--format", "json"), "its room")
        wait_for(lambda: os.statvfs(mount).f_bavail, "its room at the mount")
        yield Mounted(
            mount=mount,
            lose=lambda: os.environ.update(CEPH_CONF="/dev/null"),
            restore=lambda: os.environ.update(CEPH_CONF=str(settings)),
            said="CephFS may not show all files",
        )


pytestmark = [pytest.mark.cluster, pytest.mark.exhaustive]

MOOSEFS = ("mfsmaster", "mfschunkserver", "mfsmount", "mfscli")
CEPHFS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "ceph")


def grow(home: Path) -> None:
    """Two users with names, links, holes and owners. Times are whole seconds, as all file systems keep them."""
    for number, user in enumerate(("anna", "bert")):
        top = home / user
        (top / "deep" / "er").mkdir(parents=True)
        for index in range(40):
            (top / "deep" / f"f{index}").write_bytes(bytes([index]) * (index * 997))
        Path(os.fsdecode(os.fsencode(top) + b"/\xff name")).write_text("bytes")
        (top / "linked").hardlink_to(top / "deep" / "f7")
        (top / "points").symlink_to("deep/f7")
        with (top / "holes").open("wb") as file:
            file.truncate(5_000_000)
        for path in (top, *top.rglob("*")):
            os.chown(path, 1000 + number, 2000, follow_symlinks=False)
            os.utime(path, (1_600_000_000 + number, 1_500_000_000 + number), follow_symlinks=False)


def site_of(directory: Path, source: Path, target: Path) -> Site:
    """A site whose kinds are what is mounted, and whose hook vouches for a freeze."""
    directory.mkdir()
    hook, links = directory / "hooks" / "pre-freeze.d" / "10-vouches", directory / "home"
    hook.parent.mkdir(parents=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    links.mkdir()
    for top in (source / "home").iterdir():
        (links / top.name).symlink_to(top)
    site = Site(directory=directory, source=source, target=target)
    site.file.write_text(
        f'[site]\nname = "field"\nstate_dir = "state"\n[source]\nmount = "{source}"\n'
        f'[target]\nmount = "{target.parent}"\npath = "{target.name}"\n[users]\ntrees = ["home/*"]\n'
        f'[transfer]\nreserve = "1MiB"\n[cutover]\nlink = "{links}/{{user}}"\nretain = "0s"\nsettle = "0s"\nfreeze = "hook"\n'
        "require_rollback = false\n"
    )
    return site


def answer(site: Site, *arguments: str, code: int = 0) -> Any:
    done = site.call(*arguments, "--json")
    assert done.returncode == code, done.stderr or done.stdout
    return json.loads(done.stdout)


def move(site: Site, kinds: dict[str, str], first: int) -> None:
    """Everything from `init` to the purge of the source, with users who work in between."""
    site.works("init")
    findings = json.loads(site.call("doctor", "--json").stdout)
    told = {one["check"]: one["message"] for one in findings if one["check"].endswith(" kind")}
    assert {check: message.split(":")[0] for check, message in told.items()} == kinds
    assert not [one for one in findings if one["status"] == "failure" and "rsync" not in one["check"]]
    assert answer(site, "scan")["whole"]
    site.works("plan")
    site.works("run", "--all", "--deltas", "0")
    top = site.source / "home" / "anna"
    renamed, removed, changed = (top / "deep" / f"f{first + number}" for number in range(3))
    renamed.rename(top / renamed.name)
    removed.unlink()
    changed.write_text("changed")
    os.utime(changed, (1_600_000_000, 1_600_000_000))
    before = everything(site.source / "home")
    site.works("run", "--all", "--deltas", "1")
    (verified,) = answer(site, "verify", "--all")
    assert verified["whole"], verified
    assert verified["differences"] == {}
    ended = answer(site, "cutover", "--all")["outcomes"]
    assert {one["ending"] for one in ended} == {"moved"}, ended
    assert everything(site.target / "home") == before
    word = answer(site, "purge", "--all", "--dry-run")["checksum"]
    site.works("purge", "--all", "--confirm", word[:12])
    assert everything(site.source / "home") == {}


@pytest.mark.parametrize(
    ("system", "title", "programs"),
    [(moosefs, "MooseFS", MOOSEFS), (cephfs, "CephFS", CEPHFS)],
    ids=["moosefs", "cephfs"],
)
def test_the_whole_job_there_and_back(
    scratch: Path,
    make_xfs: MakeXfs,
    system: Callable[[Path], AbstractContextManager[Mounted]],
    title: str,
    programs: tuple[str, ...],
) -> None:
    if reason := missing(*programs):
        pytest.skip(reason)
    plain = make_xfs().path
    with system(scratch / "system") as there:
        (plain / "home").mkdir()
        grow(plain / "home")
        moved = site_of(scratch / "to", plain, there.mount / "new")
        move(moved, {"target kind": title}, 10)
        (there.mount / "new" / ".migrator-sentinel").unlink()
        back = site_of(scratch / "from", there.mount / "new", make_xfs().path / "back")
        back.works("init")
        there.lose()
        wait_for(lambda: there.said in back.call("doctor", "--json").stdout, "a doubt")
        in_doubt = answer(back, "scan", code=3)
        assert not in_doubt["whole"]
        assert there.said in " ".join(in_doubt["reasons"])
        there.restore()
        wait_for(lambda: there.said not in back.call("doctor", "--json").stdout, "its end")
        move(back, {"source kind": title}, 20)
