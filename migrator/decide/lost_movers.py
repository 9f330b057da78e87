"""Hosts whose process that moves files has ended without a word. Pure.

A process that comes to its end while its glusterd is away or comes up, and one that is killed, leave their host `in progress` for
good, at the counters that were told last, or at none. What tells them from one that works is the run time: that of a process that
lives goes on every second, whatever it moves, and theirs stands still (GlusterFS 10.3).
"""

from collections.abc import Mapping, Sequence

from migrator.domain.drain import DrainSample
from migrator.domain.units import format_duration
from migrator.domain.volume_tasks import TaskStatus

_LOST_S = 60.0
"""A process that has just been begun, and a glusterd that has just come up, are heard of within seconds."""

_LOOKS = 4


def lost_after_s(poll_s: float) -> float:
    """How long a run time may stand still, in seconds, where it is asked for every `poll_s`."""
    return max(_LOST_S, _LOOKS * poll_s)


def rebalance_way_out(volume: str) -> str:
    """What an admin does where a fix-layout or a rebalance has lost it."""
    return f"`gluster volume rebalance {volume} stop` ends it, and the same command begins another one"


def lost_movers(
    samples: Sequence[DrainSample],
    *,
    task_id: str,
    since_s: float,
    now_s: float,
    limit_s: float,
    names: Mapping[str, str],
) -> str:
    """Why it is said that nothing moves files any more on a host that is in progress, as a sentence: its run time has stood
    still for longer than the limit, by looks that were never further apart than that. Empty where there is no such host. What
    nobody looked at proves nothing: a host that was begun anew meanwhile may be as far as it was before. Nor does a look up to
    `since_s`, when a part of the volume was missing: what moves files may have been waiting for it. `names` are those of
    hosts by what their samples have for them.
    """
    lost = []
    told = [one for one in samples if one.task_id == task_id and one.at_s > since_s]
    for host in sorted({one.host for one in told}):
        own = sorted((one for one in told if one.host == host), key=lambda one: one.at_s)
        runtime_s, still_s = own[-1].runtime_s, now_s
        for one in reversed(own):
            same = one.status is TaskStatus.IN_PROGRESS and one.runtime_s == runtime_s
            if not same or still_s - one.at_s > limit_s:
                break
            still_s = one.at_s
        if now_s - still_s > limit_s:
            still = format_duration(now_s - still_s)
            lost.append(
                f"on {names.get(host, host)} no process moves files any more: its run time has stood still for {still}"
            )
    return "; ".join(lost)
