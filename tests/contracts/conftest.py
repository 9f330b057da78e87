"""Fixtures of the contract suites."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from migrator.adapters.ledger.sqlite import SqliteLedger, open_ledger
from migrator.domain.site import TargetCapabilities
from tests.beegfs_like import BEEGFS_CAPABILITIES, beegfs_like, missing_for_fuse
from tests.conftest import MakeXfs
from tests.hand_brick import HandBrick
from tests.native_builds import RELEASE, SANITIZED, built, missing_for_native
from tests.sshd import Sshd, missing_for_sshd, running_sshd
from tests.target_sides import Sides
from tests.walks import Walk, run_walk


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One host for all of them."""
    if reason := missing_for_sshd():
        pytest.skip(f"needs a real sshd: {reason}")
    directory: Path = tmp_path_factory.mktemp("sshd")
    with running_sshd(directory) as made:
        yield made


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """An empty one."""
    with open_ledger(tmp_path / "ledger.db", create=True) as opened:
        yield opened


@pytest.fixture(params=["native", "sanitized"])
def walker_argv(request: pytest.FixtureRequest) -> list[str]:
    """What starts a walker of bricks."""
    flags = RELEASE if request.param == "native" else SANITIZED
    if reason := missing_for_native(*flags):
        pytest.skip(reason)
    return [str(built(*flags))]


@pytest.fixture
def walk(walker_argv: list[str]) -> Walk:
    """Runs it."""
    return partial(run_walk, walker_argv)


@pytest.fixture
def brick(make_xfs: MakeXfs) -> HandBrick:
    """An empty brick on a fresh XFS."""
    made = HandBrick(root=make_xfs().path / "brick")
    made.make_root()
    return made


@pytest.fixture(params=["xfs", "beegfs"])
def sides(request: pytest.FixtureRequest, make_xfs: MakeXfs, scratch: Path) -> Iterator[Sides]:
    """On XFS, and on a file system with BeeGFS's limits."""
    source = make_xfs().path
    if request.param == "xfs":
        made = Sides(source, make_xfs().path, TargetCapabilities())
        yield made
        made.source.close()
        made.target.close()
        return
    if reason := missing_for_fuse():
        pytest.skip(f"needs FUSE: {reason}")
    with beegfs_like(scratch) as mounted:
        made = Sides(source, mounted, BEEGFS_CAPABILITIES)
        yield made
        made.source.close()
        made.target.close()
