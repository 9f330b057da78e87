"""What the ledger keeps of hooks, on a real file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.errors import LedgerCorrupt
from migrator.hooks.model import Hook, HookEvent, HookOutcome, HookStage, HookStep
from migrator.ledger.ledger import Ledger, open_ledger

SUBJECT = "plan plan-0001: batch 1"
PRE = HookStage(step=HookStep.BATCH, event=HookEvent.PRE)
HOSTILE = b"10-new\nline \xff"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
        made.runs.start(verb="run", pid=1, at_s=1.0, directory="runs/1")
        yield made


def opened(ledger: Ledger, step: HookStep = HookStep.BATCH, at_s: float = 2.0) -> int:
    return ledger.hooks.open_step(run_id=1, step=step, subject=SUBJECT, at_s=at_s).id


def intended(ledger: Ledger, step_id: int) -> int:
    hook = Hook(stage=PRE, name=HOSTILE, path=b"/" + HOSTILE)
    return ledger.hooks.intend(step_id=step_id, hook=hook, token="t", at_s=3.0)


def test_a_step_is_open_until_it_is_closed_or_begins_anew(ledger: Ledger) -> None:
    assert ledger.hooks.open_since(HookStep.BATCH, SUBJECT) is None
    opened(ledger)
    step_id = opened(ledger, at_s=5.0)
    found = ledger.hooks.open_since(HookStep.BATCH, SUBJECT)
    assert found is not None
    assert (found.id, found.step, found.subject, found.opened_at_s) == (step_id, HookStep.BATCH, SUBJECT, 5.0)
    assert ledger.hooks.open_since(HookStep.PASS, SUBJECT) is None
    assert ledger.hooks.open_since(HookStep.BATCH, "plan plan-0001: batch 2") is None
    for _ in range(2):
        ledger.hooks.close_step(step_id, state="done", at_s=6.0)
    assert ledger.hooks.open_since(HookStep.BATCH, SUBJECT) is None
    with pytest.raises(LedgerCorrupt):
        ledger.hooks.close_step(99, state="done", at_s=6.0)


def test_a_call_is_there_before_its_result_with_every_byte_of_its_name(ledger: Ledger) -> None:
    step_id = opened(ledger)
    call_id = intended(ledger, step_id)
    (call,) = ledger.hooks.unfinished((HookStep.BATCH, HookStep.PASS))
    assert (call.id, call.name, call.stage, call.token, call.outcome) == (call_id, HOSTILE, "pre-batch", "t", None)
    assert ledger.hooks.unfinished((HookStep.PURGE,)) == []
    output = b"\xff\x00\xfe"
    ledger.hooks.finish(call_id, at_s=4.0, exit_code=62, outcome=HookOutcome.SKIP, output=output)
    ledger.hooks.finish(call_id, at_s=9.0, exit_code=None, outcome=HookOutcome.INTERRUPTED, output=b"")
    assert ledger.hooks.unfinished((HookStep.BATCH,)) == []
    (call,) = ledger.hooks.of_step(step_id)
    assert (call.finished_at_s, call.exit_code, call.outcome, call.output) == (4.0, 62, HookOutcome.SKIP, output)
    with pytest.raises(LedgerCorrupt):
        ledger.hooks.finish(99, at_s=4.0, exit_code=0, outcome=HookOutcome.GO_ON, output=b"")
