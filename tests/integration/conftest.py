"""Sites for tests that go through the command line, and a small world for those of the run stage."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_site import Site
from tests.conftest import MakeXfs
from tests.run_world import World, small_world


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
    made.ledger.close()  # type: ignore[attr-defined]
