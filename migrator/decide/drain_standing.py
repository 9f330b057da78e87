"""How far drains are, and what has to be said of them. Pure."""

import hashlib
from collections.abc import Iterator, Sequence

from migrator.decide.drain_progress import drain_left_s, drain_rate, last_counts
from migrator.domain.brick import VolumeState
from migrator.domain.drain import (
    ENDED_STATES,
    OUT_STATES,
    UNTOUCHED_STATES,
    DrainRecord,
    DrainSample,
    DrainState,
)
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.report import Blocker
from migrator.domain.units import MINUTE_S, format_duration, several

RATE_WINDOW_S = 30.0 * MINUTE_S


def standing(record: DrainRecord, samples: Sequence[DrainSample]) -> DrainStanding:
    """One attempt. A task that was begun anew counts from nothing again: the last counters of every task add up, and those from
    before a reboot of a host.
    """
    last: dict[tuple[str, str], DrainSample] = {(one.task_id, one.host): one for one in samples}
    newest = samples[-1].task_id if samples else None
    counted = last_counts(samples)
    moved_files = sum(one.files for one in counted)
    moved_bytes = sum(one.size_bytes for one in counted)
    own = [one for (task_id, _), one in last.items() if task_id == newest]
    rate = None if newest is None else drain_rate(samples, task_id=newest, window_s=RATE_WINDOW_S)
    notes = record.notes
    moving = record.state in (DrainState.STARTED, DrainState.DRAINING)
    left_files = None if notes.files is None else notes.files - moved_files
    left_bytes = None if notes.size_bytes is None else notes.size_bytes - moved_bytes
    # Users go on creating files there: when all that was counted is moved and it still moves, nobody knows how long.
    known = left_files is not None and left_bytes is not None and (left_files > 0 or left_bytes > 0)
    left_s = drain_left_s(rate, left_files=left_files, left_bytes=left_bytes) if moving and known else None
    return DrainStanding(
        id=record.id,
        volume=record.volume,
        bricks=record.bricks,
        attempt=record.attempt,
        state=record.state,
        since_s=record.since_s,
        started_at_s=record.times.get(DrainState.STARTED),
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
        changed_options=tuple(option.name for option in notes.options or ()),
    )


def newest_attempts(records: Sequence[DrainRecord]) -> tuple[DrainRecord, ...]:
    """Of every set of bricks the newest attempt, oldest first."""
    newest = {(record.volume_id, frozenset(record.bricks)): record for record in records}
    return tuple(sorted(newest.values(), key=lambda record: record.id))


def drain_blockers(drains: Sequence[DrainStanding], *, at_work: bool, now_s: float) -> Iterator[Blocker]:
    """Drains that wait for somebody. `at_work`: a command watches."""
    for one in drains:
        if one.state in ENDED_STATES | OUT_STATES | UNTOUCHED_STATES or at_work:
            continue
        names = " ".join(one.bricks)
        back = one.state in (DrainState.STOPPING, DrainState.SETTLING)
        if one.state is DrainState.FAILED:
            hint = (
                f"put that right, then `migrator brick drain {names}`, or take it back: `migrator brick stop {names}`"
            )
            yield Blocker(subject=f"drain of {names}", on=f"it has failed: {one.failure}", hint=hint)
        else:
            looked = last_looked(one.looked_at_s, now_s)
            yield Blocker(
                subject=f"drain of {names}",
                on=f"it is {one.state.value}, and no command goes on with it{looked}",
                hint=f"migrator brick {'stop' if back else 'drain'} {names}",
            )


def last_looked(at_s: float | None, now_s: float) -> str:
    """How long ago a drain or an addition was looked at, to go on a sentence; empty where it never was. A clock that was set back
    makes no time of it that is yet to come.
    """
    return "" if at_s is None else f", last looked at {format_duration(max(now_s - at_s, 0.0))} ago"


def quorum_problems(state: VolumeState | None) -> tuple[str, ...] | None:
    """Whether the pool keeps its quorum; None where its hosts are not known. Without one glusterd stops its bricks."""
    if state is None or state.peers_down is None:
        return None
    options = dict(state.options)
    if options.get("cluster.server-quorum-type", "none").lower() != "server" or not state.peers_down:
        return ()
    hosts = {brick.host for brick in state.bricks} | set(state.peers_down)
    return (
        f"{several(len(state.peers_down), 'host')} of {len(hosts)} are missing, and the pool has a quorum: bricks may be "
        "stopped",
    )


def wipe_word(site_id: str, volume_id: str, bricks: Sequence[str]) -> str:
    """The word that allows to wipe these bricks: it holds for them alone."""
    text = "\0".join((site_id, volume_id, *sorted(bricks)))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]
