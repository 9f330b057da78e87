"""Sites for tests that go through the command line."""

import os
from pathlib import Path

import pytest

from tests.cli_site import Site
from tests.conftest import MakeXfs


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
    for verb in ("init", "doctor", "scan", "plan"):
        site.works(verb)
    return site
