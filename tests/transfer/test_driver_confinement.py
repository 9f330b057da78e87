"""Drivers are scripts that need a shell and other programs: what they can reach of the machine, and what ends them."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.hosts.ports import Command
from migrator.hosts.process import LocalProcesses
from migrator.transfer.executors import LocalExecutor
from tests.support.native_builds import placing

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

TREE = b"home/alice"


@dataclass
class Place:
    """A tree on both sides, the driver's directory, and things beside them that are none of its business."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    def tree(self, side: str) -> Path:
        return self.root / side / "home" / "alice"

    def executor(self) -> LocalExecutor:
        return LocalExecutor(
            LocalProcesses(grace_s=2.0),
            source_root=os.fsencode(self.root / "source"),
            target_root=os.fsencode(self.root / "target"),
            compiled=placing(),
        )

    async def run(self, script: str) -> tuple[int, str, str]:
        out, err = bytearray(), bytearray()
        completed = await self.executor().drive(
            Command(argv=(b"/bin/sh", b"-c", script.encode()), timeout_s=120),
            files=(),
            tree=TREE,
            directory=self.work,
            on_start=lambda _: None,
            on_stdout=out.extend,
            on_stderr=err.extend,
        )
        return completed.exit_code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def says(self, script: str) -> str:
        code, out, err = asyncio.run(self.run(script))
        assert code == 0, (code, out, err)
        return out


@pytest.fixture
def place(scratch: Path) -> Place:
    made = Place(scratch)
    for side in ("source", "target"):
        made.tree(side).mkdir(parents=True)
        (made.root / side / "home" / "bob").mkdir()
        (made.root / side / "home" / "bob" / "secret").write_text("bob's")
    (made.tree("source") / "own").write_text("alice's")
    made.work.mkdir()
    return made


def test_only_programs_and_one_tree_of_each_side_can_be_seen(place: Place) -> None:
    top = set(place.says("ls -A /").split())
    assert top <= {
        *("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "dev", "proc", "tmp"),
        *("source", "target", "work"),
    }
    assert set(place.says("ls -A /etc").split()) <= {"alternatives", "perl", "ld.so.cache"}
    assert set(place.says("ls -A /dev").split()) == {"null", "urandom"}
    assert place.says("ls -A /source; cat /source/own").split() == ["own", "alice's"]
    for path in (
        place.root,
        Path("/etc/passwd"),
        Path("/root"),
        Path("/home"),
        Path("/var"),
        Path("/sys"),
        Path("/run"),
    ):
        assert place.says(f"test -e '{path}' && echo there || echo gone").strip() == "gone", path


def test_nothing_but_the_target_the_work_directory_and_tmp_can_be_written(place: Place) -> None:
    for path in (
        "/usr/x",
        "/source/x",
        "/x",
        "/etc/x",
        "/dev/x",
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
    ):
        code, out, err = asyncio.run(place.run(f"echo x > {path}"))
        assert code != 0, (path, out)
        assert "Read-only" in err or "nonexistent" in err or "cannot create" in err, err
    name = f"{place.root.name}-x"
    place.says(f"echo x > /target/x; echo x > /work/x; echo x > /tmp/{name}")
    assert (place.tree("target") / "x").exists()
    assert (place.work / "x").exists()
    assert not Path("/tmp", name).exists(), "its /tmp is one of its own"
