"""Scans of a real volume: what the mount shows, and what it hides without an error."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator.core.clock import SystemClock
from migrator.core.errors import Refused
from migrator.fs.ports import Block
from migrator.gluster.model import SourceHealth
from migrator.gluster.volume import GlusterCommands, GlusterSource
from migrator.hosts.process import LocalProcesses
from tests.support.cluster.handle import LabHandle
from tests.support.scan_site import ScanSite

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]


class Watched(GlusterSource):
    """The real source, with something that happens in the middle of a scan."""

    def __init__(self, lab: LabHandle) -> None:
        volume = lab.state.spec.volume
        commands = GlusterCommands(
            LocalProcesses(), SystemClock(), volume=volume, gluster=os.fsdecode(lab.state.gluster)
        )
        super().__init__(lab.state.source, commands)
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
