"""Hosts that do not tell how far a drain is, although all of the volume is up, and what gets them to tell again. Pure.

The pid of the process that moves files lies in /var/lib/glusterd, where it survives a reboot. When glusterd comes up and
finds any process at all under that pid, it takes it for its own, begins none, and answers every `remove-brick status` and
`stop` with `Brick ops failed`, for good (GlusterFS 10.3: gf_is_service_running asks whether the pid is in use, and nothing
else; #2995, #1469). Only without that file, and after a restart of its glusterd, does it move files again; the volume's own
commands do not help, nor does a restart of glusterd alone.
"""

from migrator.decide.drain_facts import hosts_of, hosts_telling, own_task, parts_missing
from migrator.domain.drain import DrainRecord
from migrator.domain.drain_seen import DrainSeen
from migrator.domain.units import format_duration


def silent_hosts(record: DrainRecord, seen: DrainSeen) -> tuple[str, ...]:
    """Hosts with leaving bricks that tell no counters of a drain that is listed, although every host and every brick of the
    volume is up. None where all tell, and where something is missing: then that comes first. The host that is asked tells
    its own counters without its name, so it can be among them although it does tell.
    """
    task = own_task(record, seen)
    if seen.state is None or task is None or parts_missing(seen.state):
        return ()
    hosts, told = hosts_of(record, seen.state), hosts_telling(task, seen)
    return () if len(told) >= len(hosts) else tuple(sorted(hosts - told))


def why_silent(hosts: tuple[str, ...], *, for_s: float | None = None) -> str:
    """A sentence on hosts that are silent, for so long."""
    since = "" if for_s is None else f" for {format_duration(for_s)}"
    return f"no counters of the drain are told by {', '.join(hosts)}{since}, although every host and brick is up"


def way_out(record: DrainRecord, hosts: tuple[str, ...]) -> str:
    """What an admin does then, as a command."""
    return (
        f"where that lasts, glusterd has lost the process that moves files: on {' and '.join(hosts)}, where "
        f"`pgrep -f [r]ebalance/{record.volume}` finds none, run `rm -f /var/lib/glusterd/vols/{record.volume}/rebalance/*.pid "
        "&& systemctl restart glusterd`, and the drain goes on (what that does to bricks: docs/bricks.md)"
    )
