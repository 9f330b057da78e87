"""parsyncfp2 as a driver: the real one where it is on PATH, and a stand-in with its options and faults everywhere."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from migrator.core.errors import ToolFailed
from migrator.core.states import AttemptState, ChunkState
from migrator.core.units import KIB
from migrator.transfer.engines.drivers import Parsyncfp2, locate_parsyncfp2
from tests.support.xfs import XfsMount
from tests.transfer.driver_world import DriverWorld
from tests.transfer.test_fpsync import equal_but, fill

pytestmark = pytest.mark.needs_root

STAND_IN = Path(__file__).resolve().parent.parent / "fixtures" / "parsyncfp2"


def stand_in() -> list[bytes]:
    for name in ("perl", "fpart", "rsync", "ps"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    return [os.fsencode(STAND_IN)]


@pytest.fixture(params=["stand-in", "real"])
def driver(request: pytest.FixtureRequest) -> Parsyncfp2:
    if request.param == "stand-in":
        return Parsyncfp2(stand_in(), privileged=True)
    try:
        return Parsyncfp2(locate_parsyncfp2(), privileged=True)
    except ToolFailed as error:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture
def world(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount, driver: Parsyncfp2) -> DriverWorld:
    fill(xfs_source.path / "home" / "alice", files=300, size_bytes=16 * KIB)
    return DriverWorld(scratch, xfs_source.path, xfs_target.path, driver, part_bytes=256 * KIB)


def test_a_tree_is_brought_although_it_ends_before_its_rsyncs(world: DriverWorld) -> None:
    asyncio.run(world.drive(bwlimit_bytes_per_s=8 * 1024 * KIB))
    assert world.under_way.stop_found is None, world.said
    assert world.chunk.state is ChunkState.DONE
    assert not world.living()
    assert [attempt.state for attempt in world.attempts] == [AttemptState.SUCCEEDED], world.said
    assert world.attempts[0].counters.files >= 300
    assert world.target_tree.stat().st_mode & 0o777 == 0o700, "the tree's root stays closed"
    rest = world.copy_rest()
    assert rest[1].outcome.counters.size_bytes == 0, "nothing has to be sent again"
    assert equal_but(world) == {}
