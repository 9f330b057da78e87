"""Fixtures for all tests: what this machine can do, XFS on loop devices, and trees of odd files."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

from migrator.app.ledger import MigrationLedger
from migrator.core.units import MIB
from migrator.fs.model import TargetCapabilities
from migrator.lab.model import OddFiles
from migrator.lab.odd import odd_files
from tests.fs.target_sides import Sides
from tests.gluster.walks import Walk, run_walk
from tests.support.beegfs_like import BEEGFS_CAPABILITIES, beegfs_like, missing_for_fuse
from tests.support.cli_site import Site
from tests.support.cluster.fixtures import lab, lab_parent, make_lab
from tests.support.hand_brick import HandBrick
from tests.support.leftovers import remove_when_killed
from tests.support.native_builds import RELEASE, SANITIZED, built, missing_for_native
from tests.support.run_world import World, small_world
from tests.support.slurm import Slurm, missing_for_slurm, running_slurm
from tests.support.sshd import Sshd, missing_for_sshd, running_sshd
from tests.support.xfs import XfsMount, missing_for_root_tests, missing_for_xfs, xfs

__all__ = ["lab", "lab_parent", "make_lab"]  # fixtures of real clusters

# Times are shown in the zone of the machine. Tests of other zones set and restore it.
os.environ["TZ"] = "UTC"
time.tzset()

MakeXfs = Callable[..., XfsMount]

# No test asserts on time. Where CI is set, Hypothesis tries the same examples every time, and new ones elsewhere.
settings.register_profile("exhaustive", parent=settings.default, deadline=None, max_examples=300)
settings.register_profile("migrator", parent=settings.default, deadline=None, max_examples=25)
settings.load_profile("migrator")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need root are skipped without it, and say so."""
    reason = missing_for_root_tests()
    if reason:
        for item in items:
            if item.get_closest_marker("needs_root") or item.get_closest_marker("cluster"):
                item.add_marker(pytest.mark.skip(reason=f"needs root: {reason}"))


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory of this test alone that is removed whatever it holds (pytest keeps those of `tmp_path`)."""
    path = remove_when_killed(Path(tempfile.mkdtemp(prefix="migrator-test-")))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """One Slurm cluster for all tests of a module."""
    if reason := missing_for_slurm():
        pytest.skip(f"needs a real Slurm: {reason}")
    with running_slurm() as made:
        yield made


@pytest.fixture
def slurm(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """The Slurm cluster, with nothing running and all nodes idle afterwards."""
    monkeypatch.setenv("SLURM_CONF", str(cluster.config))
    yield cluster
    cluster.calm()
    assert not cluster.far_ends()


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory for ledgers that no power failure will be tried on: thousands of short transactions need no disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="migrator-test-", dir=shared if shared.is_dir() else None) as name:
        yield remove_when_killed(Path(name))


@pytest.fixture
def make_xfs(scratch: Path) -> Iterator[MakeXfs]:
    """Make a fresh, mounted XFS: `make_xfs(size_bytes=..., max_inodes=...)`; as many as a test needs."""
    if reason := missing_for_xfs():
        pytest.skip(f"needs XFS on a loop device: {reason}")
    with ExitStack() as stack:
        made = 0

        def make(*, size_bytes: int = 512 * MIB, max_inodes: int | None = None, until_2038: bool = False) -> XfsMount:
            nonlocal made
            made += 1
            directory = scratch / f"xfs-{made}"
            directory.mkdir()
            return stack.enter_context(
                xfs(directory, size_bytes=size_bytes, max_inodes=max_inodes, until_2038=until_2038)
            )

        yield make


@pytest.fixture
def xfs_source(make_xfs: MakeXfs) -> XfsMount:
    """A fresh XFS of 512 MiB to copy from."""
    return make_xfs()


@pytest.fixture
def xfs_target(make_xfs: MakeXfs) -> XfsMount:
    """A fresh XFS of 512 MiB to copy to."""
    return make_xfs()


@pytest.fixture
def tiny_xfs(make_xfs: MakeXfs) -> XfsMount:
    """A fresh XFS with about 25 MiB of room, for ENOSPC."""
    return make_xfs(size_bytes=32 * MIB)


@pytest.fixture
def odd_tree(xfs_source: XfsMount) -> tuple[Path, OddFiles]:
    """`home/odd` on a fresh XFS, holding every odd kind, beside `home/other` (a hard link leads there)."""
    tree, neighbour = xfs_source.path / "home" / "odd", xfs_source.path / "home" / "other"
    tree.mkdir(parents=True)
    neighbour.mkdir()
    made = odd_files(os.fsencode(tree), neighbour=os.fsencode(neighbour), source_mount=xfs_source.root)
    return tree, made


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One host for all of them."""
    if reason := missing_for_sshd():
        pytest.skip(f"needs a real sshd: {reason}")
    directory: Path = tmp_path_factory.mktemp("sshd")
    with running_sshd(directory) as made:
        yield made


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[MigrationLedger]:
    """An empty one."""
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as opened:
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
    made = HandBrick(root=make_xfs().path / "a brick")
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


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Site:
    source, target = make_xfs(), make_xfs()
    for user in ("ann", "bob"):
        tree = source.path / "home" / user
        tree.mkdir(parents=True)
        for number in range(20):
            (tree / f"file-{number}").write_bytes(os.urandom(64 << 10))
    directory = scratch / "site"
    directory.mkdir()
    made = Site(directory=directory, source=source.path, target=target.path)
    made.write()
    return made


@pytest.fixture
def planned(site: Site) -> Site:
    for verb in ("init", "scan", "plan"):
        site.works(verb)
    return site


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = small_world(tmp_path)
    yield made
    made.ledger.close()
