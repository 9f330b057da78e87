"""Scans of a real volume: what the mount shows, and what it hides without an error."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator.core.errors import Refused
from migrator.fs.ports import Block
from migrator.gluster.model import SourceHealth
from migrator.gluster.volume import GlusterCommands, GlusterSource
from migrator.hosts.process import LocalProcesses
from tests.support.cluster.fixtures import MakeLab
from tests.support.cluster.handle import DEADLINE_S, LabHandle, wait_until
from tests.support.scan_site import ScanSite, WallClock

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]


class Watched(GlusterSource):
    """The real source, with something that happens in the middle of a scan."""

    def __init__(self, lab: LabHandle) -> None:
        volume = lab.state.spec.volume
        commands = GlusterCommands(LocalProcesses(), WallClock(), volume=volume, gluster=os.fsdecode(lab.state.gluster))
        super().__init__(lab.state.source, commands, volume=volume)
        self.before_reading: Callable[[bytes], None] = lambda _: None

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        self.before_reading(path)
        yield from super().read_directory(path, block_entries=block_entries)

    def look_at_health(self) -> SourceHealth:
        return asyncio.run(self.health())


def trees_of(lab: LabHandle) -> list[str]:
    return sorted({os.fsdecode(tree.rpartition(b"/")[0]) + "/*" for tree in lab.state.trees})


@pytest.fixture
def source(lab: LabHandle) -> Iterator[Watched]:
    made = Watched(lab)
    yield made
    made.close()


@pytest.fixture
def site(lab: LabHandle, tmp_path: Path) -> Iterator[ScanSite]:
    made = ScanSite(tmp_path, root=lab.source)
    yield made
    made.close()


def paths_on(root: bytes) -> set[bytes]:
    return {
        os.path.relpath(os.path.join(directory, name), root)
        for directory, directories, files in os.walk(root)
        for name in directories + files
    }


@pytest.mark.exhaustive
def test_a_scan_of_a_healthy_volume_is_whole_and_has_every_path(
    lab: LabHandle, source: Watched, site: ScanSite
) -> None:
    record = site.scan(source=source, trees=trees_of(lab))
    assert record.whole, record.reasons
    assert site.problems(record) == []
    rows = {row["path"]: row for row in site.rows(record)}
    on_mount = paths_on(lab.state.source)
    assert {path for path in on_mount if len(path) < 3000} <= set(rows)
    assert len(rows) == record.rows
    assert {tree.path for tree in record.trees} == set(lab.state.trees)


@pytest.mark.exhaustive
def test_inode_numbers_are_those_of_the_gfids_and_unsigned(lab: LabHandle, source: Watched, site: ScanSite) -> None:
    record = site.scan(source=source, trees=trees_of(lab))
    rows = {row["path"]: row for row in site.rows(record) if row["type"] == "file"}
    compared = 0
    for brick in lab.bricks:
        base = os.fsencode(lab.brick_directory(brick))
        for directory, _, files in os.walk(base + b"/home"):
            for name in files:
                path = os.path.join(directory, name)
                row = rows.get(os.path.relpath(path, base))
                if row is not None and len(path) < 3000:
                    gfid = os.getxattr(path, "trusted.gfid", follow_symlinks=False)
                    assert row["ino"] == int.from_bytes(gfid[8:], "big")
                    compared += 1
    assert compared > 100
    assert any(row["ino"] >= 2**63 for row in rows.values())


@pytest.mark.exhaustive
def test_with_a_brick_down_fewer_files_are_seen_and_the_scan_says_so(
    lab: LabHandle, source: Watched, site: ScanSite
) -> None:
    brick = lab.bricks[2]
    everything = site.scan(source=source, trees=trees_of(lab))
    with lab.brick_down(brick):
        less = site.scan(source=source, trees=trees_of(lab))
    assert less.files < everything.files, "this is why the bricks are asked"
    assert not less.whole
    assert any(brick.name in reason and "down" in reason for reason in less.reasons)
    again = site.scan(source=source, trees=trees_of(lab))
    assert again.whole, again.reasons
    assert again.rows == everything.rows


@pytest.mark.guarantee("brick-down")
def test_a_brick_that_goes_down_in_the_middle_of_a_scan_is_noticed(
    lab: LabHandle, source: Watched, site: ScanSite
) -> None:
    brick = lab.bricks[0]
    first = lab.state.trees[0]

    def stop(path: bytes) -> None:
        if path == first:
            source.before_reading = lambda _: None
            lab.stop_brick(brick)

    source.before_reading = stop
    try:
        record = site.scan(source=source, trees=trees_of(lab), workers=1)
    finally:
        lab.start_bricks()
    assert not record.whole
    assert any(brick.name in reason for reason in record.reasons)


@pytest.mark.exhaustive
def test_bricks_of_a_host_that_does_not_answer_are_not_taken_for_up(
    lab: LabHandle, source: Watched, site: ScanSite
) -> None:
    host = lab.state.hosts[2]
    bricks = [brick.name for brick in lab.bricks if lab.host_of(brick) == host]

    def noticed() -> bool:
        problems = source.look_at_health().problems
        return all(any(name in problem for problem in problems) for name in bricks)

    with lab.glusterd_down(host):
        wait_until(noticed, "the pool has noticed")
        record = site.scan(source=source, trees=trees_of(lab))
    assert not record.whole
    for name in bricks:
        assert any(name in reason for reason in record.reasons)


@pytest.mark.exhaustive
def test_without_an_answer_from_gluster_the_scan_is_not_whole(lab: LabHandle, source: Watched, site: ScanSite) -> None:
    with lab.glusterd_down(lab.state.hosts[0]):
        record = site.scan(source=source, trees=trees_of(lab))
    assert not record.whole
    assert any("not known" in reason for reason in record.reasons)


@pytest.mark.guarantee("empty-mount")
def test_an_unmounted_volume_is_refused_and_not_taken_for_an_empty_one(
    lab: LabHandle, source: Watched, site: ScanSite
) -> None:
    with lab.source_unmounted():
        with pytest.raises(Refused, match="source"):
            site.scan(source=source, trees=trees_of(lab))
        assert source.look_at_health().problems
    source.close()
    assert site.scan(source=source, trees=trees_of(lab)).whole


@pytest.mark.exhaustive
def test_quotas_are_read(lab: LabHandle, source: Watched) -> None:
    assert list(asyncio.run(source.quotas())) == []


@pytest.mark.exhaustive
def test_a_brick_that_is_drained_and_not_committed_makes_the_scan_not_whole(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab(files=40, users=2, odd=False)
    source, site = Watched(lab), ScanSite(tmp_path, root=lab.source)
    volume, brick = lab.state.spec.volume, lab.bricks[-1].name
    try:
        assert site.scan(source=source, trees=trees_of(lab)).whole
        lab.gluster("volume", "remove-brick", volume, brick, "start")
        wait_until(
            lambda: b"<status>3</status>" in lab.gluster("--xml", "volume", "status", volume, "tasks"),
            "the brick is drained",
            deadline_s=3 * DEADLINE_S,
        )
        # The client has a new graph, whose connections may not be there yet.
        wait_until(lambda: source.look_at_health().problems == (), "copies may go on while a task is not over")
        record = site.scan(source=source, trees=trees_of(lab))
        assert not record.whole
        assert any("Remove brick (completed)" in reason for reason in record.reasons)
    finally:
        source.close()
        site.close()
