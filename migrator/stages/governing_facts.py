"""What people have set, and what the governor of the newest run allows: for status, and for whoever sets it."""

from collections.abc import Callable, Sequence

from migrator.decide.progress_facts import run_life
from migrator.domain.governing import GoverningFacts, Limits
from migrator.domain.report import RunLife
from migrator.domain.windows import WindowStanding
from migrator.ports.ledger import Ledger

IsGone = Callable[[int, float], bool]
"""Whether a process, by its pid and by when it was at work, is known not to be on this machine any more."""


def read_governing(
    ledger: Ledger,
    *,
    now_s: float,
    is_gone: IsGone | None = None,
    given: Limits | None = None,
    windows: Sequence[WindowStanding] | None = None,
) -> GoverningFacts:
    """What is set, and what the newest run is allowed as long as it is at work."""
    record, run = ledger.governor.newest(), ledger.runs.latest("run")
    at_work = (
        record is not None
        and run is not None
        and run.id == record.run_id
        and run_life(
            silent_s=now_s - run.heartbeat_at_s,
            finished=run.finished_at_s is not None,
            process_gone=is_gone is not None and run.finished_at_s is None and is_gone(run.pid, run.heartbeat_at_s),
        )
        is RunLife.AT_WORK
    )
    return GoverningFacts(
        controls=ledger.controls.now(),
        governor=record,
        at_work=at_work,
        given=given,
        windows=None if windows is None else tuple(windows),
        loads=tuple(ledger.governor.loads()) if at_work else (),
    )
