"""The rate of removals: slower while probes exceed the latency limit."""

from collections.abc import Callable
from dataclasses import dataclass, field

from migrator.core.clock import Clock
from migrator.core.events import Severity
from migrator.core.units import several
from migrator.purge.rules import Brakes, after_probe, names_per_s
from migrator.transfer.records_measures import ControlRecords, ProbeRecords

LOOK_EVERY_S = 2.0


@dataclass(slots=True, kw_only=True)
class RemovalRate:
    """Removes at most `most` names per second, and fewer while new probes, of any process, exceed the latency limit.

    `max_latency_s` is the limit of site.toml (None: no limit); a tuned limit replaces it. `report` receives changes of the
    rate.
    """

    probes: ProbeRecords
    controls: ControlRecords
    clock: Clock
    most: int
    max_latency_s: float | None
    report: Callable[[Severity, str], None]
    _brakes: Brakes = field(default_factory=dict)
    _probed: int = field(init=False)
    _looked_s: float = field(init=False)
    _read_s: float = field(init=False)
    _due_s: float = field(init=False)
    _taken: int = 0

    def __post_init__(self) -> None:
        """Ignore probes from before this purge."""
        self._probed = self.probes.last()
        self._looked_s = self._read_s = self._due_s = self.clock.monotonic_s()

    async def take(self, names: int) -> None:
        """Wait until so many names may be removed."""
        now_s = self.clock.monotonic_s()
        self._taken += names
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._read_probes(now_s)
        # Unused names are not saved up, so there is no burst after a pause.
        begin_s = max(self._due_s, now_s)
        self._due_s = begin_s + names / names_per_s(self._brakes, self.most)
        if begin_s > now_s:
            await self.clock.sleep(begin_s - now_s)

    def _read_probes(self, now_s: float) -> None:
        """Read the probes since the last call by number, because times would hide some after a clock was set back.
        Without a limit they are skipped: a limit that is tuned later does not apply to them.
        """
        tuned = self.controls.now().tuned
        limit_s = (None if tuned is None else tuned.limits.max_latency_s) or self.max_latency_s
        before = names_per_s(self._brakes, self.most)
        removing = self._taken / max(now_s - self._read_s, LOOK_EVERY_S)
        for number, probe in self.probes.after(self._probed):
            # Removals are counted from one probe to the next.
            self._probed, self._taken, self._read_s = number, 0, now_s
            if limit_s is not None and probe.latency_s is not None:
                self._brakes = after_probe(
                    self._brakes, probe.side, probe.latency_s, limit_s=limit_s, removing=removing, ceiling=self.most
                )
        if limit_s is None:
            self._brakes = {}
        now = names_per_s(self._brakes, self.most)
        if now < before:
            self.report(
                Severity.WARNING,
                f"at most {several(now, 'name')} are removed per second: small operations take long for users",
            )
        elif now > before:
            self.report(Severity.INFO, f"up to {several(now, 'name')} are removed per second again")
