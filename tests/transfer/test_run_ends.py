"""What `run` prints when it stops, and when."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

from migrator.cli import call, run
from migrator.cli.invocation import Invocation
from migrator.transfer.model import BatchSummary, RunStopped, RunSummary, Stopped, StopReason

SUMMARY = RunSummary(run_id=1, directory="runs/1", dry_run=False, batches=(BatchSummary(batch=1),))
STOPPED = Stopped(reason=StopReason.TARGET_FULL, message="the target is full", cause="c", hint="h")


@pytest.mark.parametrize("stops", [True, False])
def test_a_run_is_presented_after_its_live_view(monkeypatch: pytest.MonkeyPatch, *, stops: bool) -> None:
    happened: list[str] = []

    @contextmanager
    def open_progress(*_: object) -> Iterator[MagicMock]:
        happened.append("view begins")
        try:
            yield MagicMock()
        finally:
            happened.append("view ends")

    def run_to_end(work: Coroutine[Any, Any, RunSummary], **_: object) -> RunSummary:
        work.close()
        happened.append("work")
        if stops:
            raise RunStopped(STOPPED, SUMMARY)
        return SUMMARY

    plan = MagicMock(batches=[MagicMock(number=1)])
    wiring = MagicMock()
    wiring.plans.return_value.read.return_value = (plan, "checksum")
    monkeypatch.setattr("migrator.app.Wiring", lambda _: wiring)
    monkeypatch.setattr(call, "open_site", lambda _: MagicMock())
    monkeypatch.setattr(run, "choose_plan", lambda *_: "plan-0001")
    monkeypatch.setattr(call, "open_progress", open_progress)
    monkeypatch.setattr(call, "run_to_end", run_to_end)
    monkeypatch.setattr(call, "present", lambda *_: happened.append("presented"))
    result = CliRunner().invoke(run.run_command, ["--user-batch", "1"], obj=Invocation(site_file=Path("site.toml")))
    assert happened == ["view begins", "work", "view ends", "presented"], result.output
    assert ("the target is full" in result.output) is stops
