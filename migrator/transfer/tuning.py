"""`tune`, `pause` and `resume`: the operators' settings. A run in another process follows within seconds."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.core.clock import Clock
from migrator.core.events import Event, EventKind, Severity
from migrator.core.units import format_rate, several
from migrator.core.windows import WindowStanding
from migrator.ledger.locks import Holders, directories, is_at_work
from migrator.ledger.model import Holder
from migrator.transfer.model_governor import GoverningFacts, Limits

if TYPE_CHECKING:
    from migrator.transfer.records import TransferLedger


def read_governing(
    ledger: "TransferLedger",
    *,
    at_work: Sequence[Holder],
    given: Limits | None = None,
    windows: Sequence[WindowStanding] | None = None,
) -> GoverningFacts:
    """The operators' settings, and the newest allowance by a governor, of the runs at work if there are any."""
    runs = [run.id for run in ledger.runs.newest(0, directories(at_work)) if is_at_work(run, at_work)]
    record = ledger.governor.newest(runs) if runs else None
    working = record is not None
    record = record or ledger.governor.newest()
    return GoverningFacts(
        controls=ledger.controls.now(),
        governor=record,
        at_work=working,
        given=given,
        windows=None if windows is None else tuple(windows),
        loads=tuple(ledger.governor.loads()) if working else (),
    )


_SUBJECT = "governor"
_PAUSE = "pause"


class Tuning(Struct, frozen=True, kw_only=True):
    """The ports, and the author of the command. `given` are the limits of site.toml; `windows` returns those of
    [transfer] at a time.
    """

    ledger: "TransferLedger"
    clock: Clock
    by: str
    given: Limits
    windows: Callable[[float], Sequence[WindowStanding]]
    holders: Holders

    def pause(self, reason: str) -> GoverningFacts:
        """Start no more chunks. If the migration is already paused, the existing author and reason stay."""
        before = self.ledger.controls.now().hold
        self.ledger.controls.hold(by=self.by, reason=reason, at_s=self.clock.now_s())
        if before is None:
            self._report(Severity.WARNING, _PAUSE, f"paused by {self.by}" + (f": {reason}" if reason else ""))
        return self.facts()

    def resume(self) -> GoverningFacts:
        """Resume the migration. May be called if nothing is paused."""
        before = self.ledger.controls.now().hold
        self.ledger.controls.resume(by=self.by, at_s=self.clock.now_s())
        if before is not None:
            self._report(Severity.INFO, _PAUSE, f"resumed by {self.by}")
        return self.facts()

    def tune(self, limits: Limits, *, reset: bool) -> GoverningFacts:
        """Set limits. Limits that are not given keep their tuned values, or (`reset`) return to those of site.toml."""
        before = self.ledger.controls.now().tuned
        was = before.limits if before is not None else Limits()
        now = _joined(limits, Limits() if reset else was)
        self.ledger.controls.tune(now, by=self.by, at_s=self.clock.now_s())
        if now != was:
            words = describe_limits(now) or "limits are as given at the start"
            self._report(Severity.INFO, _SUBJECT, f"tuned by {self.by}: {words}")
        return self.facts()

    def facts(self) -> GoverningFacts:
        """Controls, given limits, and the newest allowance of a governor."""
        now_s = self.clock.now_s()
        return read_governing(self.ledger, at_work=self.holders(), given=self.given, windows=self.windows(now_s))

    def _report(self, severity: Severity, subject: str, message: str) -> None:
        event = Event(
            at_s=self.clock.now_s(), kind=EventKind.LIMITS_SET, severity=severity, subject=subject, message=message
        )
        self.ledger.events.add(event)


def _joined(limits: Limits, kept: Limits) -> Limits:
    return Limits(
        jobs=limits.jobs or kept.jobs,
        bwlimit_bytes_per_s=limits.bwlimit_bytes_per_s or kept.bwlimit_bytes_per_s,
        max_latency_s=limits.max_latency_s or kept.max_latency_s,
        max_load=kept.max_load if limits.max_load is None else limits.max_load,
    )


def describe_limits(limits: Limits) -> str:
    """All given limits, as one phrase."""
    words = []
    if limits.jobs is not None:
        words.append(f"{several(limits.jobs, 'stream')} on each host")
    if limits.bwlimit_bytes_per_s is not None:
        words.append(f"{format_rate(limits.bwlimit_bytes_per_s)} for all streams together")
    if limits.max_latency_s is not None:
        words.append(f"latency up to {1000.0 * limits.max_latency_s:,.0f} ms")
    if limits.max_load is not None:
        words.append(f"load up to {limits.max_load:g}")
    return ", ".join(words)
