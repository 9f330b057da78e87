"""How fast a drain goes, when it will have come to its end, and whether it stands still. Pure.

Gluster's own estimate is not used: it is wrong (#1507), and the counters of a host whose process was killed stay `in
progress` for good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.domain.drain import DrainSample
from migrator.domain.units import format_duration
from migrator.domain.volume_tasks import TaskProgress, TaskStatus

_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRate:
    """Of the last `span_s` of a drain: what was moved, and looked at, in a second, over all hosts."""

    span_s: float
    files_per_s: float
    bytes_per_s: float
    lookups_per_s: float = 0.0


def samples_of(progress: TaskProgress, at_s: float) -> tuple[DrainSample, ...]:
    """Gluster's counters as they are kept. `localhost` is whoever was asked: the id of its glusterd is the same for all."""
    return tuple(
        DrainSample(
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


def drain_rate(samples: Sequence[DrainSample], *, task_id: str, window_s: float) -> DrainRate | None:
    """The rate of the last `window_s` that there are samples of; None before there are two looks at the task."""
    times = sorted({sample.at_s for sample in samples if sample.task_id == task_id})
    if len(times) < 2:
        return None
    end_s = times[-1]
    begin_s = min(next(at_s for at_s in times if at_s >= end_s - window_s), times[-2])
    span_s = end_s - begin_s
    files = size_bytes = lookups = 0
    for host in {sample.host for sample in samples if sample.task_id == task_id}:
        first, last = (_at(samples, task_id, host, at_s) for at_s in (begin_s, end_s))
        # A host that does not tell at one of both looks has moved what it had told before.
        files += max(last[0] - first[0], 0)
        size_bytes += max(last[1] - first[1], 0)
        lookups += max(last[2] - first[2], 0)
    return DrainRate(
        span_s=span_s,
        files_per_s=files / span_s,
        bytes_per_s=size_bytes / span_s,
        lookups_per_s=lookups / span_s,
    )


def drain_left_s(rate: DrainRate | None, *, left_files: int | None, left_bytes: int | None) -> float | None:
    """How long it still takes: as long as files or bytes need, whichever is longer. None where nothing supports a figure."""
    if rate is None or left_files is None or left_bytes is None:
        return None
    found: list[float] = []
    for left, per_s in ((left_files, rate.files_per_s), (left_bytes, rate.bytes_per_s)):
        if left <= 0:
            found.append(0.0)
        elif per_s <= 0:
            return None
        else:
            found.append(left / per_s)
    return max(found)


def last_counts(samples: Sequence[DrainSample]) -> tuple[DrainSample, ...]:
    """Of every task and host the last sample, and the last one before each time that its counters began from nothing again:
    after a reboot of the host Gluster goes on with the same task, and counts anew (seen on GlusterFS 10.3). Together they
    are what was moved. The samples are in the order of time.
    """
    newest: dict[tuple[str, str], DrainSample] = {}
    dropped: dict[tuple[str, str], DrainSample] = {}
    ended: list[DrainSample] = []
    for one in samples:
        key = one.task_id, one.host
        before = newest.get(key)
        if before is not None and (one.files, one.size_bytes) < (before.files, before.size_bytes):
            dropped.setdefault(key, before)
        if one.files and (lost := dropped.pop(key, None)) is not None and one.runtime_s < lost.runtime_s:
            # Another process; where the same one runs on, nothing was told for a moment only.
            ended.append(lost)
        newest[key] = one
    return (*ended, *dropped.values(), *newest.values())


def stalled(
    samples: Sequence[DrainSample], *, task_id: str, now_s: float, limit_s: float, names: Mapping[str, str]
) -> str:
    """Why a drain is said to stand still, as a sentence: a host that moves files has told the same counters for longer than
    the limit. Empty where it goes on. The limit has to be longer than the largest file takes, which counts only at its end.
    `names` are those of hosts by what their samples have for them.
    """
    still = []
    for host in sorted({sample.host for sample in samples if sample.task_id == task_id}):
        own = sorted((one for one in samples if one.task_id == task_id and one.host == host), key=lambda one: one.at_s)
        newest = own[-1]
        if newest.status not in _MOVING:
            continue
        counters = _counters(newest)
        since_s = newest.at_s
        for one in reversed(own):
            if _counters(one) != counters:
                break
            since_s = one.at_s
        if now_s - since_s > limit_s:
            still.append(f"{names.get(host, host)} has counted nothing for {format_duration(now_s - since_s)}")
    return "; ".join(still)


def _at(samples: Sequence[DrainSample], task_id: str, host: str, at_s: float) -> tuple[int, int, int]:
    """What a host had told by a time; nothing before its first word."""
    told = [one for one in samples if one.task_id == task_id and one.host == host and one.at_s <= at_s]
    newest = max(told, key=lambda one: one.at_s, default=None)
    return (0, 0, 0) if newest is None else (newest.files, newest.size_bytes, newest.lookups)


def _counters(sample: DrainSample) -> tuple[int, ...]:
    return sample.files, sample.size_bytes, sample.lookups, sample.failures, sample.skipped
