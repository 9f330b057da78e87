"""A site in miniature, and a place to restore to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reap.archive_world import World, archive_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with archive_world(tmp_path) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "elsewhere"
    made.mkdir()
    return made
