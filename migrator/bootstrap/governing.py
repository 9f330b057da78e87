"""What governing the streams of a run is made of."""

from typing import TYPE_CHECKING

from migrator.adapters.executors.loads import HostLoads
from migrator.adapters.executors.site_hosts import SiteHosts
from migrator.bootstrap import Wiring
from migrator.bootstrap.hosts import host_specs
from migrator.bootstrap.local_time import in_words, local_time
from migrator.bootstrap.streams import OWN_HOST
from migrator.domain.governing import Limits, StreamsBy
from migrator.stages.run.governor import Governing

if TYPE_CHECKING:
    from migrator.adapters.ledger.sqlite import SqliteLedger


def governing_of(wiring: Wiring, ledger: "SqliteLedger", hosts: SiteHosts) -> Governing:
    """The ports, and the limits of site.toml."""
    governor, transfer = wiring.site.governor, wiring.site.transfer
    return Governing(
        controls=ledger.controls,
        records=ledger.governor,
        probes=ledger.probes,
        loads=HostLoads(hosts, names=host_specs(wiring.site), own=(OWN_HOST,)),
        limits=Limits(
            bwlimit_bytes_per_s=transfer.bwlimit_bytes_per_s,
            max_latency_s=governor.max_latency_s,
            max_load=governor.max_load,
        ),
        windows=transfer.windows,
        local_time=local_time,
        in_words=in_words,
        measured_cost=ledger.samples.measured_cost,
        cost=ledger.samples.measured_cost(),
        by=StreamsBy(governor.streams),
    )
