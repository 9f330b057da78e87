"""How fast a drain is, whether it is stalled, and whether its audit found anything. Pure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.bricks.drain import model
from migrator.core.units import MINUTE_S, format_duration, several
from migrator.gluster.model import DiskFacts, TaskProgress, TaskStatus
from migrator.report.model import Blocker

# Rate, end and stalls.
#
# Gluster's own estimate is not used: it is wrong (#1507), and the counters of a host whose rebalance process was killed stay
# `in progress` for good.


_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRate:
    """Of the last `span_s` of a drain: what was moved, and looked at, in a second, over all hosts."""

    span_s: float
    files_per_s: float
    bytes_per_s: float
    lookups_per_s: float = 0.0


def samples_of(progress: TaskProgress, at_s: float) -> tuple[model.DrainSample, ...]:
    """Gluster's counters as they are kept. `localhost` is the host that was asked: the id of its glusterd is the same for all."""
    return tuple(
        model.DrainSample(
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


def drain_rate(samples: Sequence[model.DrainSample], *, task_id: str, window_s: float) -> DrainRate | None:
    """The rate of the last `window_s` with samples; None before the task was polled twice."""
    times = sorted({sample.at_s for sample in samples if sample.task_id == task_id})
    if len(times) < 2:
        return None
    end_s = times[-1]
    begin_s = min(next(at_s for at_s in times if at_s >= end_s - window_s), times[-2])
    span_s = end_s - begin_s
    files = size_bytes = lookups = 0
    for _, own in _by_host(samples, task_id):
        # A host that does not tell at one of both looks has moved what it had told before.
        last, first = own[0], next((one for one in own if one.at_s <= begin_s), None)
        files += max(last.files - (first.files if first else 0), 0)
        size_bytes += max(last.size_bytes - (first.size_bytes if first else 0), 0)
        lookups += max(last.lookups - (first.lookups if first else 0), 0)
    return DrainRate(
        span_s=span_s,
        files_per_s=files / span_s,
        bytes_per_s=size_bytes / span_s,
        lookups_per_s=lookups / span_s,
    )


def drain_left_s(rate: DrainRate | None, *, left_files: int | None, left_bytes: int | None) -> float | None:
    """The time left in seconds: the longer of that for files and that for bytes. None if neither can be estimated."""
    if rate is None or left_files is None or left_bytes is None:
        return None
    left = [
        (size, per_s) for size, per_s in ((left_files, rate.files_per_s), (left_bytes, rate.bytes_per_s)) if size > 0
    ]
    return None if any(per_s <= 0 for _, per_s in left) else max((size / per_s for size, per_s in left), default=0.0)


def stalled(
    samples: Sequence[model.DrainSample], *, task_id: str, now_s: float, limit_s: float, names: Mapping[str, str]
) -> str:
    """Why a drain is said to stand still, as a sentence: a host that moves files has told the same counters for longer than
    the limit. Empty where it goes on. The limit has to be longer than the largest file takes, which counts only at its end.
    `names` are those of hosts by what their samples have for them.
    """
    still = []
    for host, own in _by_host(samples, task_id):
        counters, since_s = _counters(own[0]), own[0].at_s
        for one in own:
            if _counters(one) != counters:
                break
            since_s = one.at_s
        if own[0].status in _MOVING and now_s - since_s > limit_s:
            still.append(f"{names.get(host, host)} has counted nothing for {format_duration(now_s - since_s)}")
    return "; ".join(still)


def _by_host(samples: Iterable[model.DrainSample], task_id: str) -> Iterator[tuple[str, Sequence[model.DrainSample]]]:
    """The samples of a task by host, newest first."""
    found: dict[str, list[model.DrainSample]] = {}
    for one in sorted(samples, key=lambda one: one.at_s, reverse=True):
        if one.task_id == task_id:
            found.setdefault(one.host, []).append(one)
    yield from sorted(found.items())


def _counters(sample: model.DrainSample) -> tuple[int, ...]:
    return sample.files, sample.size_bytes, sample.lookups, sample.failures, sample.skipped


# Hosts whose rebalance process has died.
#
# A rebalance process that ends while its glusterd is down or starting, or that is killed, leaves its host `in progress` for good,
# with the last counters it reported, or with none. Only the run time shows it: a live process counts it up every second, whatever
# it moves; that of a dead one stands still (GlusterFS 10.3).


_LOST_S = 60.0
"""A process that has just begun, and a glusterd that has just come up, report within seconds."""

_LOOKS = 4


def lost_after_s(poll_s: float) -> float:
    """How long a run time may stand still, in seconds, if it is polled every `poll_s`."""
    return max(_LOST_S, _LOOKS * poll_s)


def rebalance_way_out(volume: str) -> str:
    """What an admin does if the process of a fix-layout or a rebalance has died."""
    return f"`gluster volume rebalance {volume} stop` ends it, and the same command begins another one"


def lost_movers(
    samples: Sequence[model.DrainSample],
    *,
    task_id: str,
    since_s: float,
    now_s: float,
    limit_s: float,
    names: Mapping[str, str],
) -> str:
    """A sentence on hosts `in progress` that have no rebalance process any more: the run time has stood still for longer than
    the limit, by polls that were never further apart than that. Empty if there is no such host. A longer gap proves nothing: the
    process may have been restarted, and be as far as before. Nor does a poll up to `since_s`, when a part of the volume was
    missing: the process may have waited for it. `names` has the name of each host by the id in its samples.
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
                f"on {names.get(host, host)} no process moves files any more: its run time has stood still for {still}"
            )
    return "; ".join(lost)


# Progress of drains, and what blocks them.


RATE_WINDOW_S = 30.0 * MINUTE_S


def standing(record: model.DrainRecord, samples: Sequence[model.DrainSample]) -> model.DrainStanding:
    """One attempt. A task that was begun anew counts from nothing again: the last counters of every task add up, and those from
    before a reboot of a host.
    """
    last: dict[tuple[str, str], model.DrainSample] = {(one.task_id, one.host): one for one in samples}
    newest = samples[-1].task_id if samples else None
    counted = model.last_counts(samples)
    moved_files = sum(one.files for one in counted)
    moved_bytes = sum(one.size_bytes for one in counted)
    own = [one for (task_id, _), one in last.items() if task_id == newest]
    rate = None if newest is None else drain_rate(samples, task_id=newest, window_s=RATE_WINDOW_S)
    notes = record.notes
    moving = record.state in (model.DrainState.STARTED, model.DrainState.DRAINING)
    left_files = None if notes.files is None else notes.files - moved_files
    left_bytes = None if notes.size_bytes is None else notes.size_bytes - moved_bytes
    # Users go on creating files there: once all counted files are moved and more move, the end is unknown.
    known = left_files is not None and left_bytes is not None and (left_files > 0 or left_bytes > 0)
    left_s = drain_left_s(rate, left_files=left_files, left_bytes=left_bytes) if moving and known else None
    return model.DrainStanding(
        id=record.id,
        volume=record.volume,
        bricks=record.bricks,
        attempt=record.attempt,
        state=record.state,
        since_s=record.since_s,
        started_at_s=record.times.get(model.DrainState.STARTED),
        files=notes.files,
        size_bytes=notes.size_bytes,
        moved_files=moved_files,
        moved_bytes=moved_bytes,
        failures=sum(one.failures for one in own),
        skipped=sum(one.skipped for one in own),
        files_per_s=None if rate is None or not moving else rate.files_per_s,
        bytes_per_s=None if rate is None or not moving else rate.bytes_per_s,
        left_s=left_s,
        looked_at_s=samples[-1].at_s if samples else None,
        failure=record.failure,
    )


def newest_attempts(records: Sequence[model.DrainRecord]) -> tuple[model.DrainRecord, ...]:
    """The newest attempt for each set of bricks, oldest first."""
    newest = {(record.volume_id, frozenset(record.bricks)): record for record in records}
    return tuple(sorted(newest.values(), key=lambda record: record.id))


def drain_blockers(drains: Sequence[model.DrainStanding], *, at_work: bool, now_s: float) -> Iterator[Blocker]:
    """Drains that wait for an admin. `at_work`: a command watches."""
    for one in drains:
        if one.state in model.DRAIN_ENDED_STATES | model.OUT_STATES | model.UNTOUCHED_STATES or at_work:
            continue
        names = " ".join(one.bricks)
        back = one.state in (model.DrainState.STOPPING, model.DrainState.SETTLING)
        if one.state is model.DrainState.FAILED:
            hint = f"solve that, then `migrator brick drain {names}`, or take it back: `migrator brick stop {names}`"
            yield Blocker(subject=f"drain of {names}", on=f"it has failed: {one.failure}", hint=hint)
        else:
            looked = last_looked(one.looked_at_s, now_s)
            yield Blocker(
                subject=f"drain of {names}",
                on=f"it is {one.state.value}, and no command watches it{looked}",
                hint=f"migrator brick {'stop' if back else 'drain'} {names}",
            )


def last_looked(at_s: float | None, now_s: float) -> str:
    """How long ago a drain or an addition was looked at, to go on a sentence; empty where it never was. A clock that was set back
    makes no time of it that is yet to come.
    """
    return "" if at_s is None else f", last looked at {format_duration(max(now_s - at_s, 0.0))} ago"


def wipe_word(site_id: str, volume_id: str, disks: Mapping[str, DiskFacts]) -> str:
    """The word that allows wiping these bricks on these disks, and no others."""
    text = "\0".join((site_id, volume_id, *(f"{name}\0{disks[name].identity}" for name in sorted(disks))))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


# Findings of the walks of drained bricks: whether any data is left.


MOST_EXAMPLES = 20
"""How many paths an audit keeps to show."""


@dataclass(slots=True, kw_only=True)
class BrickAudit:
    """The walk of one brick. `failure` says why it came to no end; otherwise it counted itself `listed` entries that are no
    directories, `unreadable` paths, `vanished` ones, and `unsure` ones, that only the mount can tell about or that are being
    filled. `explained` are names that are left and proven to be in the volume, out of all these. `arrived` are the entries that were received. `left`, `may_be_data` and `problems` are the first of each.
    """

    brick: str
    failure: str = ""
    listed: int = 0
    unreadable: int = 0
    vanished: int = 0
    unsure: int = 0
    explained: int = 0
    explained_unsure: int = 0
    arrived: int = 0
    left: list[bytes] = field(default_factory=list)
    may_be_data: list[bytes] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def audit_of(walks: Sequence[BrickAudit], *, started_at_s: float) -> model.AuditSeen:
    """The audit that these walks are: of every brick of the drain.

    A walk passes over what a brick keeps when it is drained: directories, link-to files (their mode and their attribute
    both say so), and Gluster's own. What it lists is left. A link-to file that has content is about to be data, and one whose
    mode says otherwise may be: both are not sure. Nothing changes on a brick that is drained, so a file that vanished under
    the walk makes it not whole. A drain is of one subvolume, whose bricks hold the same names: a leftover counts once.
    """
    reasons = tuple(_reasons(walks))
    examples = list(dict.fromkeys(path for walk in walks for path in (*walk.left, *walk.may_be_data)))
    return model.AuditSeen(
        started_at_s=started_at_s,
        whole=not reasons,
        left=_most([max(walk.arrived, walk.listed) - walk.explained for walk in walks], [walk.left for walk in walks]),
        unsure=_most([walk.unsure - walk.explained_unsure for walk in walks], [walk.may_be_data for walk in walks]),
        examples=tuple(examples[:MOST_EXAMPLES]),
        reasons=reasons,
        explained=max((walk.explained + walk.explained_unsure for walk in walks), default=0),
    )


def _most(counts: Sequence[int], names: Sequence[Sequence[bytes]]) -> int:
    """How many there are, each name once: at least as many as on one brick, and as the names that are known."""
    return max((*counts, len({name for some in names for name in some})), default=0)


def _reasons(walks: Sequence[BrickAudit]) -> Iterator[str]:
    if not walks:
        yield "no brick was walked"
    for walk in walks:
        if walk.failure:
            yield f"{walk.brick}: {walk.failure}"
            continue
        if walk.unreadable - walk.explained_unsure:
            shown = f": {'; '.join(walk.problems[:3])}" if walk.problems else ""
            yield f"{walk.brick}: {several(walk.unreadable - walk.explained_unsure, 'path')} could not be read{shown}"
        if walk.vanished:
            yield f"{walk.brick}: {several(walk.vanished, 'path')} vanished while it was walked"
        if walk.arrived != walk.listed:
            yield f"{walk.brick}: of {several(walk.listed, 'entry', 'entries')} {walk.arrived:,} arrived"
