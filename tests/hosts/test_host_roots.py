"""Looking at the roots of a host, with a real Python there."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from migrator.core.errors import ToolFailed
from migrator.fs.model import SENTINEL_NAME
from migrator.hosts.model import HostRoots
from migrator.hosts.process import LocalProcesses
from migrator.hosts.site import look_at_roots
from tests.support.xfs import XfsMount

PYTHON = os.fsencode(sys.executable)


def look(target: Path | None, brick: Path | None, python: bytes = PYTHON) -> HostRoots:
    roots = [os.fsencode(path) if path else b"" for path in (target, brick)]
    return asyncio.run(look_at_roots(LocalProcesses(), python=python, target=roots[0], brick=roots[1]))


@pytest.mark.needs_root
def test_sentinel_and_volume(xfs_source: XfsMount) -> None:
    root = xfs_source.path
    (root / os.fsdecode(SENTINEL_NAME)).write_text("site one\n")
    os.setxattr(root, "trusted.glusterfs.volume-id", bytes(range(16)))
    found = look(root, root)
    assert found.sentinel == "site one"
    assert found.volume_id == bytes(range(16)).hex()


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    found = look(tmp_path / "gone", tmp_path)
    assert found.sentinel is None
    assert found.target_error == "No such file or directory"
    assert found.volume_id is None
    assert found.brick_error


def test_a_python_that_fails_is_an_error_for_people(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="cannot be looked at"):
        look(tmp_path, None, b"/bin/false")
