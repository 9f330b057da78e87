"""A real Gluster cluster for tests: one for the session, or fresh ones."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.core.units import GIB, MIB
from migrator.lab.machine import why_no_cluster
from migrator.lab.model import LabSpec
from tests.support.cluster.handle import LabHandle, bring_up, take_down
from tests.support.leftovers import remove_when_killed

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
    path = remove_when_killed(Path(tempfile.mkdtemp(prefix="migrator-labs-", dir="/var/tmp")))
    yield path
    shutil.rmtree(path)


@contextmanager
def lab_of(directory: Path, **fields: Any) -> Iterator[LabHandle]:
    """A cluster for the length of the block, with some fields of LabSpec changed: `hosts=1, files=0, odd=False`."""
    try:
        yield bring_up(replace(SMALL, directory=os.fsencode(directory), **fields))
    finally:
        take_down(directory)


def with_ssh(lab: LabHandle) -> LabHandle:
    """The lab; the test is skipped where its hosts run no sshd."""
    if not lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(lab.state.notes))
    return lab


@pytest.fixture(scope="session")
def lab(lab_parent: Path) -> Iterator[LabHandle]:
    """A cluster of 3 hosts with 2 bricks each, for the whole session of a process: leave it as it was, the source above all."""
    with lab_of(lab_parent / "session") as made:
        yield made


@pytest.fixture
def make_lab(lab_parent: Path) -> Iterator[MakeLab]:
    """Make a cluster of one's own by `lab_of`."""
    with ExitStack() as stack:

        def make(**fields: Any) -> LabHandle:
            return stack.enter_context(lab_of(lab_parent / f"own-{secrets.token_hex(4)}", **fields))

        yield make
