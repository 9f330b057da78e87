"""The real program over a target whose storage server goes: writes hang, as on BeeGFS, and its tool says which target is lost.

No BeeGFS runs here. A frozen XFS makes writers hang in the kernel as a storage server that is down does; a fake `beegfs`
replays what the real one said then.
"""

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import MakeXfs
from tests.support.beegfs_like import beegfs_like, missing_for_fuse
from tests.support.beegfs_tool import FakeTool, fake_tool, targets
from tests.support.cut_site import OWNERS, cut_site
from tests.support.run_site import RealSite, fill_tree, unfreeze, wait_for
from tests.support.xfs import XfsMount
from tests.transfer.test_run_faults import SLOW, SLOWER, fill_up, given_back, has_no_streams, made_site

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]

STALL = 'stall_timeout = "12s"'
LOST = targets("", changes={"target_storage_201": {"last_contact": "61s ago"}})


def as_beegfs(site: RealSite, directory: Path, *, more: str = "") -> FakeTool:
    """From now on site.toml says that the target is a BeeGFS."""
    tool = fake_tool(directory / "bin")
    old = f'kind = "posix"\nmount = "{site.target.path}"\n'
    text = site.file.read_text()
    assert text.count(old) == 1
    new = f'kind = "beegfs"\nmount = "{site.target.path}"\nbeegfs = "{tool.program}"\n{more}'
    site.file.write_text(text.replace(old, new))
    return tool


def lists(tool: FakeTool) -> int:
    return sum(words[:2] == ["target", "list"] for words in tool.asked)


def test_streams_wait_for_a_storage_server_and_go_on_after_its_return(
    scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount
) -> None:
    for site in made_site(scratch, xfs_source, xfs_target, STALL):
        tool = as_beegfs(site, scratch, more='stripe_count = 2\nchunk_size = "1MiB"\n')
        try:
            with site.started(*SLOW) as process:
                wait_for(site.streams, "streams")
                subprocess.run(["fsfreeze", "--freeze", str(xfs_target.path)], check=True)
                tool.tell(LOST)
                wait_for(partial(is_told, site, process), "the outage")
                before = lists(tool)
                # Looks are made every 10 s: by then the stall timeout is over twice.
                wait_for(partial(has_looked, tool, process, before + 3), "three more looks")
                assert process.poll() is None
                unfreeze(xfs_target)
                tool.tell(targets(""))
                _, said = process.communicate(timeout=600)
                assert process.returncode == 0, said
        finally:
            unfreeze(xfs_target)
        assert "target_storage_201" in said
        assert "answer again" in said
        assert site.differences() == ""
        home = xfs_target.path / "home"
        assert tool.stripes == {str(home / user): (2, 1 << 20) for user in ("alice", "bob")}


def is_told(site: RealSite, process: "subprocess.Popen[str]") -> bool:
    """By what lies in the ledger's file and its journal."""
    content = b"".join(file.read_bytes() for file in site.ledger.parent.glob("ledger.db*"))
    return b"storage-lost" in content or process.poll() is not None


def has_looked(tool: FakeTool, process: "subprocess.Popen[str]", times: int) -> bool:
    return lists(tool) >= times or process.poll() is not None


def test_a_run_that_was_stopped_meanwhile_is_refused_by_name(
    scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount
) -> None:
    for site in made_site(scratch, xfs_source, xfs_target):
        tool = as_beegfs(site, scratch)
        for state, says in (("stopped-offline", "Offline"), ("stopped-100s", "Probably-offline")):
            tool.tell(targets(state))
            refused = site.run()
            assert refused.returncode == 4
            assert "target_storage_201" in refused.stderr
            assert says in refused.stderr
            assert site.run("-n").returncode == 4
        tool.tell(targets("restarted"))
        assert site.run().returncode == 0
        assert site.differences() == ""


def test_a_full_target_is_named(scratch: Path, xfs_source: XfsMount, make_xfs: MakeXfs) -> None:
    target = make_xfs(size_bytes=320 << 20)
    for site in made_site(scratch, xfs_source, target):
        tool = as_beegfs(site, scratch)
        with site.started(*SLOWER) as process:
            wait_for(site.streams, "streams")
            tool.tell(targets("cap-emergency"))
            fill_up(target.path / "ballast")
            _, said = process.communicate(timeout=600)
            assert process.returncode == 1, said
        assert "the target is full" in said
        assert "target_storage_201" in said
        assert "target_storage_101" not in said
        with given_back(target.path):
            (target.path / "ballast").unlink()
        tool.tell(targets(""))
        wait_for(partial(has_no_streams, site), "the end of the streams")
        assert site.run().returncode == 0
        assert site.differences() == ""


def test_a_target_of_another_kind_starts_no_tool(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> None:
    for site in made_site(scratch, xfs_source, xfs_target):
        tool = fake_tool(scratch / "bin")
        site.environment["PATH"] = f"{tool.directory}:{os.environ['PATH']}"
        assert site.run().returncode == 0
        site.migrator("doctor")
        assert not tool.asked


def test_nobody_is_frozen_while_a_storage_target_is_lost(
    scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount
) -> None:
    with cut_site(scratch, xfs_source, xfs_target, stages=("pre-freeze",)) as site:
        tool = as_beegfs(site.site, scratch)
        tool.tell(LOST)
        refused = site.cutover(code=4)
        assert refused["ending"] == "refused"
        (problem,) = refused["problems"]
        assert "target_storage_201" in problem
        assert site.calls() == []
        tool.tell(targets(""))
        # Nor one who could write nothing afterwards.
        uid = OWNERS["ann"]
        tool.limit(uid, used_bytes=1 << 30, limit_bytes=1 << 30)
        (problem,) = site.cutover(code=4)["problems"]
        assert f"uid {uid}" in problem
        assert "could write nothing on the target" in problem
        assert site.calls() == []
        tool.limit(uid, used_bytes=1, limit_bytes=1 << 30)
        before = site.snapshot()
        site.cutover()
        site.assert_works_on("target", before)


@pytest.mark.skipif(missing_for_fuse() is not None, reason=f"needs FUSE: {missing_for_fuse()}")
def test_a_target_whose_statfs_knows_no_inodes_is_filled_by_what_its_tool_says(
    scratch: Path, xfs_source: XfsMount
) -> None:
    """A FUSE file system that keeps and tells what BeeGFS does, in the place of the target."""
    fill_tree(xfs_source.path / "home" / "alice", files=20, size_bytes=2000)
    with beegfs_like(scratch) as mount_point:
        site = RealSite(scratch / "site", xfs_source, XfsMount(mount_point, "none"))
        site.write()
        for verb in ("init", "scan"):
            assert site.migrator(verb).returncode == 0
        refused = site.migrator("plan")
        assert refused.returncode == 4
        assert "not known how many files" in refused.stderr
        tool = as_beegfs(site, scratch)
        owner = next((xfs_source.path / "home" / "alice" / "d1").iterdir()).stat().st_uid
        tool.limit(owner, used_bytes=1 << 30, limit_bytes=1 << 30)
        planned = site.migrator("plan")
        assert planned.returncode == 0
        assert f"uid {owner} " in planned.stdout
        beyond = site.run()
        assert beyond.returncode == 4
        assert "hard limit" in beyond.stderr
        tool.limit(owner, used_bytes=1, limit_bytes=1 << 40)
        none_left = {f"target_meta_{number}": {"inodes_free": "3"} for number in (1, 2)}
        tool.tell(targets("", changes=none_left))
        short = site.run()
        assert short.returncode == 4
        assert "inodes" in short.stderr
        tool.tell(targets("cap-low"))
        doctor = site.migrator("doctor").stdout
        assert "target_storage_201" in doctor
        assert "capacity pool low" in doctor
        done = site.run()
        assert done.returncode == 0, done.stderr
        for file in (xfs_source.path / "home" / "alice" / "d1").iterdir():
            there = mount_point / "home" / "alice" / "d1" / file.name
            assert there.read_bytes() == file.read_bytes()
        assert all(str(mount_point) in words for words in tool.asked)
