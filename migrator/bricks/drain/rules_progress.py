"""The rate of a drain, stalls, lost rebalance processes, and findings of an audit. Pure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from msgspec import Struct

from migrator.bricks.drain import model
from migrator.bricks.model import BrickOperation
from migrator.core.blocker import Blocker
from migrator.core.units import MINUTE_S, format_duration, several
from migrator.gluster.model import MOVING, DiskFacts, TaskProgress, TaskStatus

# Rate, time left and stalls.
#
# Gluster's own estimate is not used: it is wrong (#1507), and the counters of a host whose rebalance process was killed
# stay `in progress` for good.


class DrainRate(Struct, frozen=True, kw_only=True):
    """The rate over the last `span_s` of a drain: files and bytes moved, and files examined, per second,
    over all hosts.
    """

    span_s: float
    files_per_s: float
    bytes_per_s: float
    lookups_per_s: float = 0.0


def samples_of(progress: TaskProgress, at_s: float) -> tuple[model.DrainSample, ...]:
    """Convert Gluster's counters to samples. `localhost` is the queried host: the id of its glusterd is the same from
    every host.
    """
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
    return DrainRate(
        span_s=span_s,
        files_per_s=files / span_s,
        bytes_per_s=size_bytes / span_s,
        lookups_per_s=lookups / span_s,
    )


def drain_left_s(rate: DrainRate | None, *, left_files: int | None, left_bytes: int | None) -> float | None:
    """Return the time left in seconds: the longer of that for files and that for bytes. None if neither can be
    estimated.
    """
    if rate is None or left_files is None or left_bytes is None:
        return None
    left = [
        (size, per_s) for size, per_s in ((left_files, rate.files_per_s), (left_bytes, rate.bytes_per_s)) if size > 0
    ]
    return None if any(per_s <= 0 for _, per_s in left) else max((size / per_s for size, per_s in left), default=0.0)


def stalled(
    samples: Sequence[model.DrainSample], *, task_id: str, now_s: float, limit_s: float, names: Mapping[str, str]
) -> str:
    """Return why a drain counts as stalled, as a sentence; empty if it does not. It is stalled if a host that moves
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
            still.append(f"{names.get(host, host)} has counted nothing for {format_duration(now_s - since_s)}")
    return "; ".join(still)


def _by_host(samples: Iterable[model.DrainSample], task_id: str) -> Iterator[tuple[str, Sequence[model.DrainSample]]]:
    """Return the samples of a task by host, newest first."""
    found: dict[str, list[model.DrainSample]] = {}
    for one in sorted(samples, key=lambda one: one.at_s, reverse=True):
        if one.task_id == task_id:
            found.setdefault(one.host, []).append(one)
    yield from sorted(found.items())


def _counters(sample: model.DrainSample) -> tuple[int, ...]:
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


def rebalance_way_out(volume: str) -> str:
    """Return what an admin must do if the process of a fix-layout or a rebalance has died."""
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
                f"on {names.get(host, host)} no process moves files any more: its run time has stood still for {still}"
            )
    return "; ".join(lost)


# Progress and blockers of drains.


RATE_WINDOW_S = 30.0 * MINUTE_S


def counted(
    record: BrickOperation[Any, Any], samples: Sequence[model.DrainSample], *, moving: bool
) -> tuple[dict[str, Any], DrainRate | None, int]:
    """Return the fields of a `BrickStanding` except `left_s`, the rate if files are `moving`, and the number of files
    examined by the last task. A restarted task, and a host after a reboot, counts from zero: the last counters before
    each restart add up.
    """
    last = {(one.task_id, one.host): one for one in samples}
    newest = samples[-1].task_id if samples else None
    counts = model.last_counts(samples)
    own = [one for (task_id, _), one in last.items() if task_id == newest]
    rate = drain_rate(samples, task_id=newest, window_s=RATE_WINDOW_S) if moving and newest is not None else None
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


def standing(record: model.DrainRecord, samples: Sequence[model.DrainSample]) -> model.DrainStanding:
    """Return the progress of one attempt."""
    notes, moving = record.notes, record.state in (model.DrainState.STARTED, model.DrainState.DRAINING)
    facts, rate, _ = counted(record, samples, moving=moving)
    left_files = None if notes.files is None else notes.files - facts["moved_files"]
    left_bytes = None if notes.size_bytes is None else notes.size_bytes - facts["moved_bytes"]
    # Users continue to create files there. Once all counted files are moved and more move, the end is unknown.
    known = left_files is not None and left_bytes is not None and (left_files > 0 or left_bytes > 0)
    left_s = drain_left_s(rate, left_files=left_files, left_bytes=left_bytes) if known else None
    return model.DrainStanding(
        **facts,
        started_at_s=record.times.get(model.DrainState.STARTED),
        left_s=left_s,
        times_kept=notes.times_kept,
        times_lost=notes.times_lost,
    )


Bricks = TypeVar("Bricks", bound=BrickOperation[Any, Any])


def newest_of_bricks(records: Sequence[Bricks]) -> tuple[Bricks, ...]:
    """Return the newest attempt for each set of bricks, and for additions on either side, oldest first."""
    newest = {(one.volume_id, getattr(one, "side", None), frozenset(one.bricks)): one for one in records}
    return tuple(sorted(newest.values(), key=lambda one: one.id))


def drain_blockers(drains: Sequence[model.DrainStanding], *, at_work: bool, now_s: float) -> Iterator[Blocker]:
    """Return the drains that wait for an admin. `at_work`: a command watches."""
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
    """Return how long ago a drain or an addition was polled, to append to a sentence; empty if never. After the clock
    was set back, the age is never negative.
    """
    return "" if at_s is None else f", last looked at {format_duration(max(now_s - at_s, 0.0))} ago"


def wipe_word(site_id: str, volume_id: str, disks: Mapping[str, DiskFacts]) -> str:
    """Return the word that allows wiping these bricks on these disks, and no others."""
    text = "\0".join((site_id, volume_id, *(f"{name}\0{disks[name].identity}" for name in sorted(disks))))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


# Findings of the walks of drained bricks: whether any data is left.


MOST_EXAMPLES = 20
"""Number of paths that an audit keeps to show."""

MOST_LEFTOVERS = 10_000
"""Number of findings for which an audit writes commands. More point to a larger fault than single files: too little room,
or a lost host.
"""


@dataclass(slots=True, kw_only=True)
class BrickAudit:
    """The walk of one brick. `failure` says why it did not complete. Otherwise it counted `listed` entries that are not
    directories, `unreadable` paths, `vanished` ones, and `unsure` ones, which only the mount can classify or which are
    being filled. `probes` are files of this program's probes among all these. `arrived` counts the entries received.
    `left`, `may_be_data` and `problems` have the first of each, `leftovers` the first findings.
    """

    brick: str
    failure: str = ""
    listed: int = 0
    unreadable: int = 0
    vanished: int = 0
    unsure: int = 0
    probes: int = 0
    probes_unsure: int = 0
    arrived: int = 0
    left: list[bytes] = field(default_factory=list)
    may_be_data: list[bytes] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    leftovers: list[model.Leftover] = field(default_factory=list)


def audit_of(walks: Sequence[BrickAudit], *, started_at_s: float) -> model.AuditSeen:
    """Combine these walks of all bricks of the drain into an audit.

    A walk skips the entries that a drained brick keeps: directories, link-to files (by both mode and attribute), and
    Gluster's own. Everything that it lists is left. A link-to file with content is about to become data, and one with
    another mode may be data: both are unsure. A drained brick does not change, so a file that vanishes during the walk
    makes the audit incomplete. A drain is of one subvolume, whose bricks hold the same names: a leftover counts once.
    """
    reasons = tuple(_reasons(walks))
    examples = list(dict.fromkeys(path for walk in walks for path in (*walk.left, *walk.may_be_data)))
    return model.AuditSeen(
        started_at_s=started_at_s,
        whole=not reasons,
        left=_most([max(walk.arrived, walk.listed) - walk.probes for walk in walks], [walk.left for walk in walks]),
        unsure=_most([walk.unsure - walk.probes_unsure for walk in walks], [walk.may_be_data for walk in walks]),
        examples=tuple(examples[:MOST_EXAMPLES]),
        reasons=reasons,
        leftovers=tuple(islice((one for walk in walks for one in walk.leftovers), MOST_LEFTOVERS)),
    )


def _most(counts: Sequence[int], names: Sequence[Sequence[bytes]]) -> int:
    """Count each name once: at least as many as on one brick, and as the known names."""
    return max((*counts, len({name for some in names for name in some})), default=0)


def _reasons(walks: Sequence[BrickAudit]) -> Iterator[str]:
    if not walks:
        yield "no brick was walked"
    for walk in walks:
        if walk.failure:
            yield f"{walk.brick}: {walk.failure}"
            continue
        if walk.unreadable - walk.probes_unsure:
            shown = f": {'; '.join(walk.problems[:3])}" if walk.problems else ""
            yield f"{walk.brick}: {several(walk.unreadable - walk.probes_unsure, 'path')} could not be read{shown}"
        if walk.vanished:
            yield f"{walk.brick}: {several(walk.vanished, 'path')} vanished while it was walked"
        if walk.arrived != walk.listed:
            yield f"{walk.brick}: of {several(walk.listed, 'entry', 'entries')} {walk.arrived:,} arrived"
