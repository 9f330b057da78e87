"""Asking a file system by its own command: what it cannot tell is a doubt, and stops what deletes."""

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.errors import ToolFailed
from migrator.fs.kinds.hdfs import HDFS
from migrator.fs.kinds.lustre import LUSTRE
from migrator.fs.kinds.model import FileSystemKind, FileSystemReport, MountedDirectory, Question
from migrator.fs.model import Capacity, Mount
from migrator.fs.reading import PosixSource
from migrator.fs.writing import MountedTarget
from migrator.hosts.process import LocalProcesses
from migrator.site import load
from migrator.site.filesystem import FileSystemCommand
from migrator.site.load import load_site, of_mounts, parse_site
from migrator.site.rules_guards import health_problems
from tests.fs.test_kinds import FIXTURES
from tests.support.scan_site import ScanSite

Tool = Callable[..., FileSystemCommand]
ANYWHERE = replace(LUSTRE, types=())
"""Lustre, on whatever holds the test's directory."""


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """A tool whose `lfs` is a script, and what it is asked."""

    def make(script: str, kind: FileSystemKind = ANYWHERE, *, timeout_s: float = 20.0) -> FileSystemCommand:
        program = tmp_path / "bin" / "lfs"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        path = f"{program.parent}:/usr/bin:/bin"
        root = os.fsencode(tmp_path / "source")
        return FileSystemCommand(kind, root, LocalProcesses(), path=path, timeout_s=timeout_s)

    (tmp_path / "source").mkdir()
    return make


def room(directory: Path, asked: FileSystemCommand | None) -> Capacity:
    with closing(MountedTarget(os.fsencode(directory / "source"), tool=asked)) as target:
        return target.capacity()


HEALTHY = f'case "$2" in -i) cat {FIXTURES}/lustre-df-i.txt;; *) cat {FIXTURES}/lustre-df.txt;; esac'


def test_room_and_state_are_the_commands(tool: Tool, tmp_path: Path) -> None:
    asked = tool(HEALTHY)
    assert asyncio.run(asked.state()) == FileSystemReport()
    told, shown = room(tmp_path, asked), room(tmp_path, None)
    assert told.total_bytes == 2 * 529449792 * 1024
    assert told.free_inodes == min(1310189, shown.free_inodes or 0)
    full = Capacity(total_bytes=9, free_bytes=7, total_inodes=None, free_inodes=None, read_only=True)
    assert (asked.room(full).free_bytes, asked.room(full).read_only) == (7, True)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'error: no such file system' >&2; exit 2", "ended with code 2: error: no such file system"),
        ("echo surprise", "cannot parse its output"),
        ("exec sleep 1000", "it gave no answer in time"),
    ],
)
def test_unknown_output_is_a_doubt_and_statfs_is_used(tool: Tool, tmp_path: Path, script: str, said: str) -> None:
    asked = tool(script, timeout_s=1.0)
    answer = asyncio.run(asked.state())
    assert not answer.problems
    assert len(answer.doubts) == 1
    assert said in answer.doubts[0]
    assert "`lfs df " in answer.doubts[0]
    assert room(tmp_path, asked).total_bytes == room(tmp_path, None).total_bytes


def test_a_command_that_is_missing_or_of_another_file_system(tool: Tool, tmp_path: Path) -> None:
    assert "no Lustre file system is mounted" in asyncio.run(tool(HEALTHY, LUSTRE).state()).doubts[0]
    missing = Question(
        commands=(lambda _: ("no-such-command", b"\xff"),), parse=lambda _outputs, _place: FileSystemReport()
    )
    with pytest.raises(ToolFailed, match=r"`no-such-command \\xff`: this command is not installed"):
        asyncio.run(tool(HEALTHY).ask(missing))
    asked: list[MountedDirectory] = []

    def parse(outputs: object, place: MountedDirectory) -> FileSystemReport:
        asked.append(place)
        return FileSystemReport(notes=(str(outputs),))

    failing = Question(commands=(lambda _: ("lfs", "df"), lambda _: ("false",)), parse=parse, last_may_fail=True)
    assert asyncio.run(tool("printf x").ask(failing)).notes == ("[b'x', b'']",)
    assert asked[0].root == os.fsencode(tmp_path / "source")


@pytest.mark.parametrize("script", ["exit 1", f"{HEALTHY}; echo 'OST0002_UUID : inactive device'"])
def test_a_scan_in_doubt_is_not_whole(tool: Tool, tmp_path: Path, script: str) -> None:
    site = ScanSite(tmp_path)
    site.grow(["anna"])
    source = PosixSource(site.source.root, tool(script))
    record = site.scan(source=source)
    site.close()
    source.close()
    assert not record.whole
    assert record.rows > 0
    health = asyncio.run(source.health())
    assert health_problems(health, health)
    # What only copies stops for what is missing, not for a doubt.
    assert bool(health_problems(health, health, tasks_count=False)) == ("inactive" in script)


def test_inode_numbers_that_do_not_last_identify_nothing(tool: Tool, tmp_path: Path) -> None:
    root = tmp_path / "source"
    (root / "a").write_text("x")
    (root / "b").hardlink_to(root / "a")
    asked = tool("", replace(HDFS, types=(), health=None, room=None))
    source = PosixSource(os.fsencode(root), asked)
    # As two scans of one call see it.
    first, second = (source.look(b"a") for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.dev != second.dev
    assert (first.link_group, first.nlink) == (None, 1)


def test_a_scan_keeps_no_inode_numbers_that_do_not_last(tool: Tool, tmp_path: Path) -> None:
    site = ScanSite(tmp_path)
    site.grow(["anna"])
    (site.root / "home" / "anna" / "other").hardlink_to(site.root / "home" / "anna" / "d0" / "f0")
    source = PosixSource(site.source.root, tool("", replace(HDFS, types=(), health=None, room=None)))
    record = site.scan(source=source)
    rows = site.rows(record)
    site.close()
    source.close()
    assert record.whole, record.reasons
    assert len({row["dev"] for row in rows}) == len(rows)
    files = [row for row in rows if row["type"] == "file"]
    assert {(row["link_group"], row["nlink"]) for row in files} == {(None, 1)}
    assert record.size_bytes == sum(row["size"] for row in files)
    assert not source.trusted_ctimes
    (block,) = source.read_directory(b"")
    assert {entry.link_group for entry in block.entries} == {None}
    source.close()


def test_auto_is_what_is_mounted() -> None:
    text = '[site]\nname = "x"\n[source]\nmount = "/mnt/gl/"\n[target]\nmount = "/mnt/lu/new"\n[users]\ntrees = ["home/*"]\n'
    mounts = (
        Mount(point=b"/", filesystem="ext4", source=b"/dev/sda"),
        Mount(point=b"/mnt/gl", filesystem="fuse.glusterfs", source=b"gl1:/vol1"),
        Mount(point=b"/mnt/lu", filesystem="lustre", source=b"mgs@tcp:/lu"),
    )
    site = of_mounts(parse_site(text, Path("/etc/site.toml")), mounts)
    assert (site.source.kind, site.source.volume, site.target.kind) == ("gluster", "vol1", "lustre")
    site = of_mounts(parse_site(text, Path("/etc/site.toml")), mounts[:1])
    assert (site.source.kind, site.target.kind) == ("posix", "posix")


def test_auto_follows_symlinks_and_wakes_the_automounter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "eos").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "eos")
    here = os.fsencode(tmp_path / "eos")
    mounts = [
        (Mount(point=b"/", filesystem="ext4", source=b"/dev/sda"), Mount(point=here, filesystem=kind, source=source))
        for kind, source in (("autofs", b"auto.eos"), ("fuse.eosxd", b"eoshome"))
    ]
    for name in ("link", "eos"):
        file = tmp_path / "site.toml"
        file.write_text(
            f'[site]\nname = "x"\n[source]\nmount = "{tmp_path}/{name}"\n[target]\nkind = "posix"\n'
            'mount = "/mnt/new"\n[users]\ntrees = ["home/*"]\n'
        )
        answers = iter(mounts)
        monkeypatch.setattr(load, "read_mounts", lambda answers=answers: next(answers))
        assert load_site(file).source.kind == "eos"
