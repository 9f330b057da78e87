"""Fixtures of the contract suites."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.adapters.ledger.sqlite import SqliteLedger, open_ledger
from tests.sshd import Sshd, missing_for_sshd, running_sshd


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One host for all of them."""
    if reason := missing_for_sshd():
        pytest.skip(f"needs a real sshd: {reason}")
    directory: Path = tmp_path_factory.mktemp("sshd")
    with running_sshd(directory) as made:
        yield made


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """An empty one."""
    with open_ledger(tmp_path / "ledger.db", create=True) as opened:
        yield opened
