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

pytestmark = pytest.mark.needs_root

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


@pytest.mark.guarantee("confined")
def test_scripts_see_programs_and_one_tree_of_each_side_and_write_the_target_and_their_directory(place: Place) -> None:
    own = f"/tmp/{place.root.name}-x"
    script = "ls -A /; ls -A /etc; ls -A /source; cut -d' ' -f5-6 /proc/self/mountinfo; echo x | tee /target/x /work/x "
    lines = place.says(script + own).splitlines()
    mounts = dict(line.split(" ") for line in lines if line.startswith("/"))
    top = {*("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr"), *("etc", "dev", "proc", "tmp", "source")}
    seen = {*top, "target", "work", "alternatives", "perl", "ld.so.cache", "own", "x"}
    assert {line for line in lines if line[0] != "/"} <= seen
    assert {at for at, options in mounts.items() if options.startswith("rw")} == {"/target", "/work", "/tmp"}
    assert all("nosuid" in options for options in mounts.values())
    assert {at for at, options in mounts.items() if "nodev" not in options} == {"/dev/null", "/dev/urandom"}
    without_programs = {at for at, options in mounts.items() if "noexec" in options}
    assert {"/", "/source", "/target", "/work", "/tmp", "/proc"} <= without_programs
    assert (place.tree("target") / "x").read_text() == (place.work / "x").read_text() == "x\n"
    assert not Path(own).exists(), "its /tmp is one of its own"
    for path in ("/source/x", "/proc/sysrq-trigger"):
        code, _, err = asyncio.run(place.run(f"echo x > {path}"))
        assert code != 0, path
        assert "Read-only" in err or "nonexistent" in err or "cannot create" in err, err
