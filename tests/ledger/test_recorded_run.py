"""How calls of verbs stand in the ledger: while they are at work, and after every way to end."""

import asyncio
import logging

import pytest

from migrator.core.errors import ExitCode, Interrupted, Refused
from migrator.ledger.ledger import Ledger
from tests.support.fakes import FakeRunFiles, VirtualClock

LOG = logging.getLogger("test")


async def call(ledger: Ledger, ends: BaseException | ExitCode) -> None:
    async with FakeRunFiles().recorded(ledger, VirtualClock(), verb="drain", pid=7, log=LOG) as run:
        found = ledger.runs.latest("drain")
        assert found is not None
        assert (found.id, found.pid, found.directory, found.finished_at_s) == (run.id, 7, "runs/fake", None)
        if isinstance(ends, BaseException):
            raise ends
        run.exit_code = ends


@pytest.mark.parametrize(
    ("ends", "code", "logged"),
    [
        (ExitCode.DONE, 0, []),
        (ExitCode.ATTENTION, 3, []),
        (Refused("no"), 4, ["no"]),
        (Interrupted("stopped"), 130, []),
        (asyncio.CancelledError(), 130, []),
        (OSError("a defect"), 1, []),
    ],
    ids=repr,
)
def test_however_it_ends_the_ledger_has_the_exit_code(
    ledger: Ledger,
    ends: BaseException | ExitCode,
    code: int,
    logged: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    if isinstance(ends, BaseException):
        with pytest.raises(type(ends)):
            asyncio.run(call(ledger, ends))
    else:
        asyncio.run(call(ledger, ends))
    found = ledger.runs.latest()
    assert found is not None
    assert found.finished_at_s is not None
    assert found.exit_code == code
    assert [record.getMessage() for record in caplog.records if record.name == "test"] == logged
