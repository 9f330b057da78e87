"""What governing asks of the ledger and of hosts. Times in seconds since the epoch."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.governing import Controls, GovernorRecord, HostLoad, Limits


class ControlRecords(Protocol):
    """What people have set while the migration goes on. Synchronous, short transactions; what was set before stays known."""

    def now(self) -> Controls:
        """What is set."""

    def hold(self, *, by: str, reason: str, at_s: float) -> None:
        """Pause. One that is paused already stays paused since then, and by whom it was."""

    def resume(self, *, by: str, at_s: float) -> None:
        """Pause no more. May be called where nothing is paused."""

    def tune(self, limits: Limits, *, by: str, at_s: float, instead_of: Limits | None = None) -> bool:
        """From now on these limits are set, and no others; `Limits()` sets none. False where others are set than `instead_of`
        (None: whatever is set): then nothing is changed.
        """


class GovernorRecords(Protocol):
    """What runs were allowed over time; old ones are removed. Synchronous, short transactions."""

    def add(self, record: GovernorRecord) -> None:
        """Keep one."""

    def newest(self) -> GovernorRecord | None:
        """The newest of any run."""

    def of_run(self, run_id: int) -> Sequence[GovernorRecord]:
        """Those of a run, oldest first."""

    def keep_loads(self, loads: Sequence[HostLoad]) -> None:
        """What hosts have to do now, in the place of all that was kept before."""

    def loads(self) -> Sequence[HostLoad]:
        """What was kept last, in order of host."""


class Loads(Protocol):
    """How much hosts have to do."""

    async def of(self, host: str) -> float | None:
        """The load average of one minute; None where it is not known, which changes nothing. Raises nothing."""
