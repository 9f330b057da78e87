"""What probing both file systems is made of."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from migrator.adapters.filesystems.probing import DirectoryProber
from migrator.bootstrap import Wiring
from migrator.domain.probe import ProbeSide
from migrator.ports.ledger import Ledger
from migrator.stages.probing import ProbeWorld, probing

Result = TypeVar("Result")


def probe_world(wiring: Wiring, ledger: Ledger) -> ProbeWorld:
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


async def beside_probes(wiring: Wiring, ledger: Ledger, work: Coroutine[Any, Any, Result]) -> Result:
    """Do some work with both file systems probed beside it, as `run` does, unless another process of the site probes.

    For verbs that load the users' file systems without a part of their own for it.
    """
    async with probing(probe_world(wiring, ledger)):
        return await work
