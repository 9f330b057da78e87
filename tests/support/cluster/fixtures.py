"""A real Gluster cluster for tests: one for the session, or fresh ones."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.core.units import GIB, MIB
from migrator.lab.machine import why_no_cluster
from migrator.lab.model import LabSpec
from tests.support.cluster.handle import LabHandle, bring_up, take_down

MakeLab = Callable[..., LabHandle]

SMALL = LabSpec(
    directory=b"",
    users=4,
    files=300,
    data_bytes=16 * MIB,
    brick_size_bytes=GIB,
    target_size_bytes=GIB,
    reference_time_s=1_750_000_000,
)
"""What the labs of tests hold: three of the four users have every odd file."""


@pytest.fixture(scope="session")
def lab_parent() -> Iterator[Path]:
    """Where labs of this session lie."""
    if reason := why_no_cluster():
        pytest.skip(f"needs a Gluster cluster: {reason}")
    path = Path(tempfile.mkdtemp(prefix="migrator-labs-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def lab(lab_parent: Path) -> Iterator[LabHandle]:
    """A cluster of 3 hosts with 2 bricks each, for the whole session of a process: leave it as it was, the source above all."""
    directory = lab_parent / "session"
    try:
        yield bring_up(replace(SMALL, directory=os.fsencode(directory)))
    finally:
        take_down(directory)


@pytest.fixture
def make_lab(lab_parent: Path) -> Iterator[MakeLab]:
    """Make a cluster of one's own: `make_lab(hosts=1, files=0, odd=False)`; fields of LabSpec."""
    made: list[Path] = []

    def make(**fields: Any) -> LabHandle:
        directory = lab_parent / f"own-{len(made)}-{secrets.token_hex(4)}"
        made.append(directory)
        return bring_up(replace(SMALL, directory=os.fsencode(directory), **fields))

    yield make
    for directory in made:
        take_down(directory)
