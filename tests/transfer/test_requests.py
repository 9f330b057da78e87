"""Requests to a network file system for each small file, counted on the likeness of BeeGFS: a real one answers each over a network."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.beegfs_like import beegfs_like, metadata_requests, missing_for_fuse, requests_of
from tests.support.native_builds import built
from tests.transfer.native_copy import listed, run_copy

pytestmark = [pytest.mark.needs_root, pytest.mark.skipif(bool(missing_for_fuse()), reason=str(missing_for_fuse()))]

FILES = 64
NAMES = listed(*(b"file%d" % number for number in range(FILES)))
CACHED_S = 600.0
"""Attributes are cached as by BeeGFS's client, and do not expire on a slow machine; names are not cached."""


@pytest.fixture
def target(scratch: Path) -> Iterator[Path]:
    with beegfs_like(scratch, cached_s=CACHED_S) as mounted:
        yield mounted


@pytest.fixture
def source(scratch: Path) -> Path:
    made = scratch / "source"
    made.mkdir()
    for number in range(FILES):
        (made / f"file{number}").write_bytes(b"content %d" % number)
    return made


def test_a_new_small_file_takes_few_metadata_requests(source: Path, target: Path) -> None:
    before = requests_of(target)
    run_copy(source, target, NAMES, "--own-names", "--fsync").check_returncode()
    found = requests_of(target) - before
    assert found["create"] == FILES
    assert metadata_requests(found) <= 7 * FILES, found


def test_the_verification_of_a_small_file_takes_few_metadata_requests(source: Path, target: Path) -> None:
    """Its content is read, and its facts and attributes; a few more are for the directory."""
    run_copy(source, target, NAMES, "--own-names", "--fsync").check_returncode()
    before = requests_of(target)
    for argv in (["digest", "--tree", str(target), "--target"], ["walk", "--mount", str(target)]):
        done = subprocess.run(
            [str(built()), *argv], input=NAMES if argv[0] == "digest" else b"", capture_output=True, check=True
        )
        assert len(done.stdout) > FILES
    found = requests_of(target) - before
    assert found["open"] == FILES
    assert metadata_requests(found) <= 4 * FILES + 8, found
