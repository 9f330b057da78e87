"""Fixtures for all tests: what this machine can do, XFS on loop devices, and trees of odd files."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from migrator.domain.lab import OddFiles
from migrator.domain.units import MIB
from migrator.stages.lab.odd import odd_files
from tests.xfs import XfsMount, missing_for_root_tests, missing_for_xfs, xfs

MakeXfs = Callable[..., XfsMount]

# No test asserts on time. Where CI is set, Hypothesis tries the same examples every time, and new ones elsewhere.
settings.register_profile("exhaustive", parent=settings.default, deadline=None, max_examples=300)
settings.register_profile("migrator", parent=settings.default, deadline=None, max_examples=50)
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
    path = Path(tempfile.mkdtemp(prefix="migrator-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory for ledgers that no power failure will be tried on: thousands of short transactions need no disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="migrator-test-", dir=shared if shared.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture
def make_xfs(scratch: Path) -> Iterator[MakeXfs]:
    """Make a fresh, mounted XFS: `make_xfs(size_bytes=..., max_inodes=...)`; as many as a test needs."""
    if reason := missing_for_xfs():
        pytest.skip(f"needs XFS on a loop device: {reason}")
    with ExitStack() as stack:
        made = 0

        def make(*, size_bytes: int = 512 * MIB, max_inodes: int | None = None) -> XfsMount:
            nonlocal made
            made += 1
            directory = scratch / f"xfs-{made}"
            directory.mkdir()
            return stack.enter_context(xfs(directory, size_bytes=size_bytes, max_inodes=max_inodes))

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
def few_inodes_xfs(make_xfs: MakeXfs) -> XfsMount:
    """A fresh XFS with about 25 MiB of room and some 640 inodes, for ENOSPC with bytes left."""
    return make_xfs(size_bytes=32 * MIB, max_inodes=640)


@pytest.fixture
def odd_tree(xfs_source: XfsMount) -> tuple[Path, OddFiles]:
    """`home/odd` on a fresh XFS, holding every odd kind, beside `home/other` (a hard link leads there)."""
    tree, neighbour = xfs_source.path / "home" / "odd", xfs_source.path / "home" / "other"
    tree.mkdir(parents=True)
    neighbour.mkdir()
    made = odd_files(os.fsencode(tree), neighbour=os.fsencode(neighbour), source_mount=xfs_source.root)
    return tree, made
