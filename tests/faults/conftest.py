"""Fixtures of the fault tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sshd import Sshd, missing_for_sshd, running_sshd


@pytest.fixture
def sshd(scratch: Path) -> Iterator[Sshd]:
    """A host that a test may spoil."""
    if reason := missing_for_sshd():
        pytest.skip(f"needs a real sshd: {reason}")
    directory = scratch / "sshd"
    directory.mkdir()
    with running_sshd(directory) as made:
        yield made
