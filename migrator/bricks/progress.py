"""The progress of Gluster's tasks that move files, from its counters over time. Pure.

Gluster's own estimate is not used: it is wrong (#1507), and the counters of a host whose rebalance process was killed stay
`in progress` for good.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct

from migrator.bricks.model import BrickOperation
from migrator.bricks.volume import parts_missing
from migrator.core.units import MINUTE_S, format_duration
from migrator.gluster.model import MOVING, TaskProgress, TaskStatus, VolumeState

# Counters over time, and the rate.


class TaskSample(Struct, frozen=True, kw_only=True):
    """Gluster's counters of one host at one time. They restart at zero with every task."""

    task_id: str
    at_s: float
    host: str
    files: int
    size_bytes: int
    lookups: int
    failures: int
    skipped: int
    status: TaskStatus
    runtime_s: float


def samples_of(progress: TaskProgress, at_s: float) -> tuple[TaskSample, ...]:
    """Convert Gluster's counters to samples. `localhost` is the queried host: the id of its glusterd is the same from
    every host.
    """
    return tuple(
        TaskSample(
            task_id=progress.task_id,
            at_s=at_s,
            host=one.host_id or one.host,
            files=one.files,
            size_bytes=one.size_bytes,
            lookups=one.lookups,
            failures=one.failures,
            skipped=one.skipped,
            status=one.status,
            runtime_s=one.runtime_s,
        )
        for one in progress.counters
    )


def last_counts(samples: Sequence[TaskSample]) -> tuple[TaskSample, ...]:
    """Return, for each task and host, the last sample, and the last one before each restart of its counters. After a
    reboot of the host Gluster continues the same task and counts from zero (observed on GlusterFS 10.3). Their sum is
    the amount moved. The samples must be in order of time.
    """
    newest: dict[tuple[str, str], TaskSample] = {}
    dropped: dict[tuple[str, str], TaskSample] = {}
    ended: list[TaskSample] = []
    for one in samples:
        key = one.task_id, one.host
        before = newest.get(key)
        if before is not None and (one.files, one.size_bytes) < (before.files, before.size_bytes):
            dropped.setdefault(key, before)
        if one.files and (lost := dropped.pop(key, None)) is not None and one.runtime_s < lost.runtime_s:
            # Counters that restart belong to another process. If the same process still runs, it only reported nothing
            # for a moment.
            ended.append(lost)
        newest[key] = one
    return (*ended, *dropped.values(), *newest.values())


class TaskRate(Struct, frozen=True, kw_only=True):
    """The rate over the last `span_s` of a drain: files and bytes moved, and files examined, per second,
    over all hosts.
    """

    span_s: float
    files_per_s: float
    bytes_per_s: float
    lookups_per_s: float = 0.0


def task_rate(samples: Sequence[TaskSample], *, task_id: str, window_s: float) -> TaskRate | None:
    """Return the rate over the last `window_s` with samples; None before the task was polled twice."""
    times = sorted({sample.at_s for sample in samples if sample.task_id == task_id})
    if len(times) < 2:
        return None
    end_s = times[-1]
    begin_s = min(next(at_s for at_s in times if at_s >= end_s - window_s), times[-2])
    span_s = end_s - begin_s
    files = size_bytes = lookups = 0
    for _, own in _by_host(samples, task_id):
        # If a host is missing from one of the two polls, its earlier counters are used.
        last, first = own[0], next((one for one in own if one.at_s <= begin_s), None)
        files += max(last.files - (first.files if first else 0), 0)
        size_bytes += max(last.size_bytes - (first.size_bytes if first else 0), 0)
        lookups += max(last.lookups - (first.lookups if first else 0), 0)
    return TaskRate(
        span_s=span_s,
        files_per_s=files / span_s,
        bytes_per_s=size_bytes / span_s,
        lookups_per_s=lookups / span_s,
    )


def _by_host(samples: Iterable[TaskSample], task_id: str) -> Iterator[tuple[str, Sequence[TaskSample]]]:
    """Return the samples of a task by host, newest first."""
    found: dict[str, list[TaskSample]] = {}
    for one in sorted(samples, key=lambda one: one.at_s, reverse=True):
        if one.task_id == task_id:
            found.setdefault(one.host, []).append(one)
    yield from sorted(found.items())


# Stalled tasks.


def stalled_hosts(
    samples: Sequence[TaskSample], *, task_id: str, now_s: float, limit_s: float, names: Mapping[str, str]
) -> str:
    """Return why a task counts as stalled, as a sentence; empty if it does not. It is stalled if a host that moves
    files has reported the same counters for longer than the limit. The limit must exceed the time for the largest file,
    which counts only at its end. `names` maps host ids in samples to host names.
    """
    still = []
    for host, own in _by_host(samples, task_id):
        counters, since_s = _counters(own[0]), own[0].at_s
        for one in own:
            if _counters(one) != counters:
                break
            since_s = one.at_s
        if own[0].status in MOVING and now_s - since_s > limit_s:
            still.append(
                f"{names.get(host, host)} has reported the same counters for {format_duration(now_s - since_s)}"
            )
    return "; ".join(still)


def _counters(sample: TaskSample) -> tuple[int, ...]:
    return sample.files, sample.size_bytes, sample.lookups, sample.failures, sample.skipped


# Hosts whose rebalance process has died.
#
# A rebalance process can end while its glusterd is down or starting, or be killed. Its host then stays `in progress`
# for good, with the last counters it reported, or with none. Only the run time shows it: a live process increases it
# every second, whatever it moves, and that of a dead process does not change (GlusterFS 10.3).


_LOST_S = 60.0
"""A new process, and a glusterd that has just come up, report within seconds."""

_LOOKS = 4


def lost_after_s(poll_s: float) -> float:
    """Return how long a run time may stay the same, in seconds, if it is polled every `poll_s`."""
    return max(_LOST_S, _LOOKS * poll_s)


def rebalance_remedy(volume: str) -> str:
    """Return what an admin must do if the process of a fix-layout or a rebalance has died."""
    return f"`gluster volume rebalance {volume} stop` ends it, and the same command begins another one"


def lost_processes(
    samples: Sequence[TaskSample],
    *,
    task_id: str,
    since_s: float,
    now_s: float,
    limit_s: float,
    names: Mapping[str, str],
) -> str:
    """Return a sentence on hosts that are `in progress` without a rebalance process; empty if there is none. Their run
    time has stayed the same for longer than the limit, with no gap between polls longer than that. A longer gap proves
    nothing: the process may have restarted and caught up. Polls up to `since_s` prove nothing either: a part of the
    volume was missing, and the process may have waited for it. `names` maps host ids in samples to host names.
    """
    lost = []
    for host, own in _by_host((one for one in samples if one.at_s > since_s), task_id):
        still_s = now_s
        for one in own:
            same = one.status is TaskStatus.IN_PROGRESS and one.runtime_s == own[0].runtime_s
            if not same or still_s - one.at_s > limit_s:
                break
            still_s = one.at_s
        if now_s - still_s > limit_s:
            still = format_duration(now_s - still_s)
            lost.append(
                f"on {names.get(host, host)} the rebalance process has died: its run time has not changed for {still}"
            )
    return "; ".join(lost)


@dataclass(slots=True)
class StallWatch:
    """Judges the tasks that one call watches. `incomplete_s` is the last time at which the call found a part of the volume
    missing; at first, the time at which the call began. A rebalance process may have been waiting for that part.
    """

    incomplete_s: float

    def note(self, state: VolumeState, now_s: float) -> None:
        """Remember whether a part of the volume is missing now."""
        if parts_missing(state):
            self.incomplete_s = now_s

    def judge(
        self,
        samples: Sequence[TaskSample],
        task_id: str,
        progress: TaskProgress | None,
        *,
        stall_s: float,
        poll_s: float,
        now_s: float,
    ) -> tuple[str, str]:
        """Return why a task counts as stalled, and why its rebalance process counts as lost; empty if it does not."""
        names = {} if progress is None else progress.names
        stalled = stalled_hosts(samples, task_id=task_id, now_s=now_s, limit_s=stall_s, names=names)
        lost = lost_processes(
            samples, task_id=task_id, since_s=self.incomplete_s, now_s=now_s, limit_s=lost_after_s(poll_s), names=names
        )
        return stalled, lost


# The progress of drains and additions.


RATE_WINDOW_S = 30.0 * MINUTE_S


def progress_fields(
    record: BrickOperation[Any, Any], samples: Sequence[TaskSample], *, moving: bool
) -> tuple[dict[str, Any], TaskRate | None, int]:
    """Return the fields of a `BrickStanding` except `left_s`, the rate if files are `moving`, and the number of files
    examined by the last task. A restarted task, and a host after a reboot, counts from zero: the last counters before
    each restart add up.
    """
    last = {(one.task_id, one.host): one for one in samples}
    newest = samples[-1].task_id if samples else None
    counts = last_counts(samples)
    own = [one for (task_id, _), one in last.items() if task_id == newest]
    rate = task_rate(samples, task_id=newest, window_s=RATE_WINDOW_S) if moving and newest is not None else None
    facts = {
        "id": record.id,
        "volume": record.volume,
        "bricks": record.bricks,
        "attempt": record.attempt,
        "state": record.state,
        "since_s": record.since_s,
        "files": record.notes.files,
        "size_bytes": record.notes.size_bytes,
        "moved_files": sum(one.files for one in counts),
        "moved_bytes": sum(one.size_bytes for one in counts),
        "failures": sum(one.failures for one in own),
        "skipped": sum(one.skipped for one in own),
        "files_per_s": None if rate is None else rate.files_per_s,
        "bytes_per_s": None if rate is None else rate.bytes_per_s,
        "looked_at_s": samples[-1].at_s if samples else None,
        "failure": record.failure,
    }
    return facts, rate, sum(one.lookups for one in own)


BrickRecord = TypeVar("BrickRecord", bound=BrickOperation[Any, Any])


def newest_of_bricks(records: Sequence[BrickRecord]) -> tuple[BrickRecord, ...]:
    """Return the newest attempt for each set of bricks, and for additions on either side, oldest first."""
    newest = {(one.volume_id, getattr(one, "side", None), frozenset(one.bricks)): one for one in records}
    return tuple(sorted(newest.values(), key=lambda one: one.id))


def last_polled(at_s: float | None, now_s: float) -> str:
    """Return how long ago a drain or an addition was polled, to append to a sentence; empty if never. After the clock
    was set back, the age is never negative.
    """
    return "" if at_s is None else f", last polled {format_duration(max(now_s - at_s, 0.0))} ago"
