"""A drain over a simulated volume."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bricks.drain.drain_site import Site, drain_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with drain_site(tmp_path) as made:
        yield made
