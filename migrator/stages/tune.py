"""`tune`, `pause` and `resume`: what people set while a migration goes on. A run in another process follows within seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.governing import GoverningFacts, Limits
from migrator.domain.units import format_rate, several
from migrator.domain.windows import WindowStanding
from migrator.ports.clock import Clock
from migrator.ports.ledger import Ledger
from migrator.stages.governing_facts import IsGone, read_governing

_SUBJECT = "governor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The ports, and who gives the command. `given` are the limits of site.toml, `windows` those of [transfer] at a time."""

    ledger: Ledger
    clock: Clock
    by: str
    given: Limits
    windows: Callable[[float], Sequence[WindowStanding]]
    is_gone: IsGone

    def pause(self, reason: str) -> GoverningFacts:
        """From now on nothing is begun. Of a migration that is paused already, who paused it and why stays."""
        before = self.ledger.controls.now().hold
        self.ledger.controls.hold(by=self.by, reason=reason, at_s=self.clock.now_s())
        if before is None:
            self._say(Severity.WARNING, f"paused by {self.by}" + (f": {reason}" if reason else ""))
        return self.facts()

    def resume(self) -> GoverningFacts:
        """Let it go on. May be called where nothing is paused."""
        before = self.ledger.controls.now().hold
        self.ledger.controls.resume(by=self.by, at_s=self.clock.now_s())
        if before is not None:
            self._say(Severity.INFO, f"resumed by {self.by}")
        return self.facts()

    def tune(self, limits: Limits, *, reset: bool) -> GoverningFacts:
        """Set limits; those that are not given stay as they were tuned, or (`reset`) are as in site.toml again."""
        while True:
            before = self.ledger.controls.now().tuned
            was = before.limits if before is not None else Limits()
            now = _joined(limits, Limits() if reset else was)
            # Whoever has tuned in the same moment is not undone: then what he has set is what is kept.
            if self.ledger.controls.tune(now, by=self.by, at_s=self.clock.now_s(), instead_of=was):
                break
        if now != was:
            self._say(
                Severity.INFO, f"tuned by {self.by}: {limits_in_words(now) or 'limits are as given at the start'}"
            )
        return self.facts()

    def facts(self) -> GoverningFacts:
        """What is set and given, and what the newest run is allowed."""
        now_s = self.clock.now_s()
        return read_governing(
            self.ledger, now_s=now_s, is_gone=self.is_gone, given=self.given, windows=self.windows(now_s)
        )

    def _say(self, severity: Severity, message: str) -> None:
        event = Event(
            at_s=self.clock.now_s(), kind=EventKind.LIMITS_SET, severity=severity, subject=_SUBJECT, message=message
        )
        self.ledger.events.add(event)


def _joined(limits: Limits, kept: Limits) -> Limits:
    return Limits(
        jobs=limits.jobs or kept.jobs,
        bwlimit_bytes_per_s=limits.bwlimit_bytes_per_s or kept.bwlimit_bytes_per_s,
        max_latency_s=limits.max_latency_s or kept.max_latency_s,
        max_load=kept.max_load if limits.max_load is None else limits.max_load,
    )


def limits_in_words(limits: Limits) -> str:
    """All that are given, as one phrase."""
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
