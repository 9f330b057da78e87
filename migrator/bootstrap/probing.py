"""What probing both file systems is made of."""

from typing import TYPE_CHECKING

from migrator.adapters.filesystems.probing import DirectoryProber
from migrator.bootstrap import Wiring
from migrator.domain.probe import ProbeSide
from migrator.stages.probing import ProbeWorld

if TYPE_CHECKING:
    from migrator.adapters.ledger.sqlite import SqliteLedger


def probe_world(wiring: Wiring, ledger: "SqliteLedger") -> ProbeWorld:
    """The ports of probing."""
    monotonic_s = wiring.clock.monotonic_s
    return ProbeWorld(
        probers={
            ProbeSide.SOURCE: DirectoryProber(wiring.source_root, monotonic_s),
            ProbeSide.TARGET: DirectoryProber(wiring.target_root, monotonic_s),
        },
        keep=ledger.probes.add,
        locks=wiring.locks(),
        clock=wiring.clock,
        blocking=wiring.blocking(),
        interval_s=wiring.site.governor.probe_interval_s,
    )
