"""Slowing a purge down where users feel it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from migrator.decide.removal_rate import RemovalRate, after_probe, names_per_s
from migrator.domain.units import several
from migrator.ports.clock import Clock
from migrator.ports.governing import ControlRecords
from migrator.ports.probing import ProbeRecords

LOOK_EVERY_S = 2.0


@dataclass(slots=True, kw_only=True)
class RemovalBrake:
    """Reads new probes, whichever process has made them, and says how many names per second may go: never more than `most`.

    `max_latency_s` is what site.toml says (None: no limit); what was tuned since comes in its place. `say` tells people
    (whether it is a warning, and what).
    """

    probes: ProbeRecords
    controls: ControlRecords
    clock: Clock
    most: int
    max_latency_s: float | None
    say: Callable[[bool, str], None]
    _rate: RemovalRate = field(default_factory=RemovalRate)
    _probed: int = field(init=False)
    _looked_s: float = field(init=False)
    _read_s: float = field(init=False)
    _taken: int = 0

    def __post_init__(self) -> None:
        """Probes from before it say nothing about this purge."""
        self._probed = self.probes.last()
        self._looked_s = self._read_s = self.clock.monotonic_s()

    def names_per_s(self, names: int) -> int:
        """How many names per second may go now; so many are about to."""
        self._taken += names
        now_s = self.clock.monotonic_s()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._look(now_s)
        return names_per_s(self._rate, self.most)

    def _look(self, now_s: float) -> None:
        limit_s = self._limit_s()
        before = names_per_s(self._rate, self.most)
        self._read(now_s, limit_s)
        if limit_s is None:
            self._rate = RemovalRate()
        now = names_per_s(self._rate, self.most)
        if now < before:
            self.say(True, f"no more than {several(now, 'name')} go per second: small operations take long for users")
        elif now > before:
            self.say(False, f"up to {several(now, 'name')} go per second again")

    def _limit_s(self) -> float | None:
        tuned = self.controls.now().tuned
        given = None if tuned is None else tuned.limits.max_latency_s
        return given or self.max_latency_s

    def _read(self, now_s: float, limit_s: float | None) -> None:
        """Those that were kept since the last look, by their numbers: a clock that was set back must not hide them. Without a
        limit they are passed over: one that is tuned later is not held against what was then.
        """
        removing = self._taken / max(now_s - self._read_s, LOOK_EVERY_S)
        for number, probe in self.probes.after(self._probed):
            # What goes is counted from one probe to the next.
            self._probed, self._taken, self._read_s = number, 0, now_s
            if limit_s is not None and probe.latency_s is not None:
                self._rate = after_probe(
                    self._rate, probe.side, probe.latency_s, limit_s=limit_s, removing=removing, ceiling=self.most
                )
