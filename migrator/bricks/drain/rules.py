"""The next step of a drain, from its record and a snapshot of the volume. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto

from migrator.bricks.drain.model import (
    OUT_STATES,
    UNTOUCHED_STATES,
    AuditSeen,
    DrainAct,
    DrainRecord,
    DrainSample,
    DrainSeen,
    DrainState,
    DrainStep,
    PlaceSeen,
    Step,
)
from migrator.core.paths import show
from migrator.core.units import format_duration, several
from migrator.gluster.model import TaskKind, TaskStatus, VolumeState, VolumeTask, remove_brick_of
from migrator.gluster.rules import FEW, are_few, still_changed, subvolumes
from migrator.hooks.model import HookState
from migrator.operations.model import Finished, Halt

# Reading a snapshot: where the bricks are, which task is ours, what is known and what is not.


_AGAIN = "then run the same command again: it goes on from what it finds"
_S = DrainState
_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)
"""A host is `not started` for a moment after a start; for longer it stands still, which has a limit of its own."""

_MOST_CAUSES = 3
_TASK_MATTERS = frozenset(
    {_S.STARTED, _S.DRAINING, _S.DRAINED, _S.AUDITING, _S.AUDITED, _S.COMMITTING, _S.STOPPING, _S.STARTING}
)


class Bricks(Enum):
    """Where the bricks of a drain are: in the volume, out of it, or only some of them in it."""

    IN = auto()
    OUT = auto()
    SOME = auto()


def cannot_tell(record: DrainRecord, seen: DrainSeen) -> Halt | None:
    """Why nothing may be concluded from this look; None where it says what has to be known."""
    state = seen.state
    if state is None or seen.tasks is None:
        return Halt(
            words=f"the state of volume {record.volume} is not known",
            hint=f"see `gluster volume status`, and that glusterd runs, {_AGAIN}",
            look_again=True,
        )
    if (state.volume, state.volume_id) != (record.volume, record.volume_id):
        return Halt(
            words=f"volume {state.volume} is another one than the drain was begun on (its id is {state.volume_id})",
            hint="look at [source] volume in site.toml, and at which cluster the gluster command asks",
        )
    if not state.started:
        return Halt(words=f"volume {record.volume} is not started", hint=f"start it, {_AGAIN}", look_again=True)
    if record.state in _TASK_MATTERS and own_task(record, seen) is None and state.peers_down != ():
        gone = "which is not known" if state.peers_down is None else ", ".join(state.peers_down)
        return Halt(
            words=f"whether the drain of {record.shown_bricks} goes on is not known: hosts are missing ({gone})",
            hint=f"bring glusterd up on every host, {_AGAIN}",
            look_again=True,
        )
    return None


def bricks_seen(record: DrainRecord, seen: DrainSeen) -> Bricks:
    """Where the bricks are, by the volume's own list. The state has to be known."""
    names = {brick.name for brick in seen.state.bricks} if seen.state is not None else set()
    inside = names.intersection(record.bricks)
    if not inside:
        return Bricks.OUT
    return Bricks.IN if inside == set(record.bricks) else Bricks.SOME


def own_task(record: DrainRecord, seen: DrainSeen) -> VolumeTask | None:
    """The remove-brick of any of these bricks, whoever began it."""
    return remove_brick_of(seen.tasks or (), record.bricks)


def another_drain(record: DrainRecord, task: VolumeTask) -> Halt | None:
    """Why a drain that Gluster shows is none of this record: it is of other bricks too. None where it may be its own."""
    if set(task.bricks) == set(record.bricks):
        return None
    return Halt(
        words=f"somebody drains {', '.join(task.bricks)} together, and not {record.shown_bricks} alone",
        hint="finish or stop that drain by hand, then run the same command again",
    )


def counter_problems(record: DrainRecord, seen: DrainSeen) -> tuple[str, ...]:
    """Why Gluster's counters do not say that everything was moved. What is not told speaks against it."""
    return tuple(_counter_problems(record, seen))


def _counter_problems(record: DrainRecord, seen: DrainSeen) -> Iterator[str]:
    progress = seen.progress
    if progress is None:
        yield "Gluster tells no counters of the drain"
        return
    task = own_task(record, seen)
    if task is None or progress.task_id != task.id:
        yield "the counters are those of another task"
    missing = len(hosts_of(record, seen.state)) - len(progress.counters)
    if missing > 0 or not progress.counters:
        yield f"{several(max(missing, 1), 'host')} with bricks of the drain tell no counters"
    for one in progress.counters:
        if one.status is not TaskStatus.COMPLETED:
            yield f"on {one.host} it is {one.status.value}, not completed"
    if progress.failures:
        yield f"{several(progress.failures, 'file')} could not be moved (failures)"
    if progress.skipped:
        yield f"{several(progress.skipped, 'file')} were skipped"


def moves(seen: DrainSeen) -> bool:
    """Whether Gluster moves files on any host that tells."""
    return seen.progress is not None and any(one.status in _MOVING for one in seen.progress.counters)


def can_recover(seen: DrainSeen) -> bool:
    """Whether what has failed is brought back first: never beside Gluster, which may move the same files."""
    return seen.may_recover and not moves(seen)


def ended_badly(seen: DrainSeen) -> bool:
    """Whether Gluster has ended on every host that tells, and says that it has failed, or could not move everything."""
    progress = seen.progress
    if progress is None or not progress.counters or moves(seen):
        return False
    failed = any(one.status in (TaskStatus.FAILED, TaskStatus.STOPPED) for one in progress.counters)
    return failed or bool(progress.failures or progress.skipped)


def only_few_failed(seen: DrainSeen) -> bool:
    """Whether Gluster came to its end on every host, with a few failures, as users make them who work meanwhile."""
    progress = seen.progress
    if progress is None or any(one.status is not TaskStatus.COMPLETED for one in progress.counters):
        return False
    few = are_few(progress.failures, moved_files=progress.files)
    return few and progress.failures > 0 and not progress.skipped


def broke_off(seen: DrainSeen) -> bool:
    """Whether Gluster has given up on a host although it could move what it came to: as it does where a brick cannot be
    reached for a moment, right after a reboot for instance (`Received CHILD_DOWN. Exiting` in the rebalance log, 10.3).
    """
    progress = seen.progress
    if progress is None or moves(seen) or any(one.status is TaskStatus.STOPPED for one in progress.counters):
        return False
    failed = any(one.status is TaskStatus.FAILED for one in progress.counters)
    return failed and progress.failures <= FEW and not progress.skipped


def why_failed(record: DrainRecord, seen: DrainSeen) -> str:
    """Why a drain has failed: what Gluster counts, and what is seen now that may have been the cause."""
    others = len(seen.causes) - _MOST_CAUSES
    more = (f"and {others} more",) if others > 0 else ()
    return "; ".join(dict.fromkeys((*counter_problems(record, seen), *seen.causes[:_MOST_CAUSES], *more)))


def hosts_missing(record: DrainRecord, seen: DrainSeen) -> tuple[str, ...]:
    """Hosts and bricks of the volume that are not seen to be up: what Gluster says without them is not the whole."""
    return tuple(_hosts_missing(record, seen))


def _hosts_missing(record: DrainRecord, seen: DrainSeen) -> Iterator[str]:
    state = seen.state
    if state is None:
        yield "the state of the volume is not known"
        return
    yield from parts_missing(state)
    counters = () if seen.progress is None else seen.progress.counters
    if len(counters) < len(hosts_of(record, state)):
        yield "not every host with bricks of the drain tells its counters"


def parts_missing(state: VolumeState) -> tuple[str, ...]:
    """Hosts and bricks of a volume that are not seen to be up, as sentences."""
    return tuple(_parts_missing(state))


def _parts_missing(state: VolumeState) -> Iterator[str]:
    if state.peers_down is None:
        yield "which hosts are connected is not known"
    yield from (f"host {host} is not connected" for host in state.peers_down or ())
    for brick in state.bricks:
        if brick.online is not True:
            yield f"brick {brick.name} is {'down' if brick.online is False else 'not known to be up'}"


def hosts_telling(task: VolumeTask, seen: DrainSeen) -> set[str]:
    """Hosts that tell their counters of a task, by glusterd's own words for them."""
    progress = seen.progress
    return set() if progress is None or progress.task_id != task.id else {one.host for one in progress.counters}


def hosts_of(record: DrainRecord, state: VolumeState | None) -> set[str]:
    """The hosts of the bricks of a drain."""
    bricks = () if state is None else state.bricks
    known = {brick.host for brick in bricks if brick.name in record.bricks}
    return known or {name.partition(":/")[0] for name in record.bricks}


def structure_problems(state: VolumeState, bricks: tuple[str, ...]) -> tuple[str, ...]:
    """Why these bricks can never be drained out of a volume that is made as this one is."""
    return tuple(_structure_problems(state, bricks))


def _structure_problems(state: VolumeState, bricks: tuple[str, ...]) -> Iterator[str]:
    missing = [name for name in bricks if all(brick.name != name for brick in state.bricks)]
    if missing or not bricks:
        yield f"volume {state.volume} has no brick {', '.join(missing) or 'of no name'}"
        return
    if state.disperse_count > 1:
        yield (
            "the volume is dispersed: every brick of a set holds a piece of every file, and a remove-brick of one is not "
            "safe; move its users away, and retire the volume with `migrator brick retire`"
        )
    if state.stripe_count > 1 or dict(state.options).get("features.shard") in ("on", "enable", "1", "true", "yes"):
        yield "the volume is striped or sharded: what lies on a brick cannot be told from its files"
    try:
        sets = subvolumes(state)
    except ValueError as error:
        yield f"the brick list is not understood: {error}"
        return
    wanted = set(bricks)
    touched = [members for members in sets if wanted & {brick.name for brick in members}]
    for members in touched:
        lacking = [brick.name for brick in members if brick.name not in wanted]
        if lacking:
            yield f"a replica set goes only whole: {', '.join(lacking)} belongs to it too"
    if len(touched) > 1:
        yield f"{several(len(touched), 'subvolume')} at once: drain them one after the other"
    if len(touched) == len(sets):
        yield (
            "it is the last subvolume, and there is nowhere to move its files to: `migrator brick retire` "
            "stops the volume when manifests cover everything in it"
        )


def others_at_work(seen: DrainSeen) -> tuple[str, ...]:
    """Tasks of the volume that a fix-layout cannot run beside: every remove-brick, ours too."""
    return tuple(
        f"{task.name} ({task.status.value}) of {', '.join(task.bricks)}"
        for task in seen.tasks or ()
        if task.unfinished and task.kind is not TaskKind.REBALANCE
    )


def layout_settled(record: DrainRecord, seen: DrainSeen) -> bool:
    """Whether the fix-layout that followed the stop has come to its end on every host."""
    layout = seen.layout
    if layout is None or layout.task_id != record.notes.layout_task_id or not layout.counters:
        return False
    return all(one.status is TaskStatus.COMPLETED and not one.failures for one in layout.counters)


def recover(record: DrainRecord) -> DrainAct:
    """Bring back what is left on the bricks: the state stays what it is."""
    return DrainAct(step=DrainStep.RECOVER, intent=record.state, result=record.state)


def options_to_restore(record: DrainRecord, state: VolumeState) -> tuple[str, ...]:
    """Options that still have a value that this drain has given them. One that somebody else has changed since is his."""
    return still_changed(record.notes.options or (), state)


# Hosts that report no counters although the whole volume is up.
#
# The pid file of the rebalance process is in /var/lib/glusterd, where it survives a reboot. When glusterd starts and any process
# has that pid, it takes it for its own, starts none, and answers every `remove-brick status` and `stop` with `Brick ops failed`,
# for good (GlusterFS 10.3: gf_is_service_running only asks whether the pid is in use; #2995, #1469). It moves files again only
# without that file and after a restart of its glusterd. The volume's own commands do not help, nor does a restart alone.


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


# Bricks that are out of the volume, and the findings of an audit.


_OUT_S, _D = DrainState, DrainStep
_OUT_AGAIN = "then run the same command again"
_WORDS = {
    _OUT_S.COMMITTED: "out of the volume, and empty",
    _OUT_S.WIPING: "out of the volume, and being wiped",
    _OUT_S.WIPED: "out of the volume, and wiped",
    _OUT_S.HANDING_OVER: "out of the volume, and being handed over",
    _OUT_S.HANDED_OVER: "handed over",
}


def audit_since(record: DrainRecord, seen: DrainSeen, state: DrainState) -> AuditSeen | None:
    """The audit that was begun since the record came to a state; None where there is none."""
    audit, since_s = seen.audit, record.times.get(state)
    return None if audit is None or since_s is None or audit.started_at_s < since_s else audit


def audit_left(audit: AuditSeen) -> tuple[str, ...]:
    """Why an audit does not say that nothing is left; none where it does."""
    problems: list[str] = []
    if not audit.whole:
        why = "; ".join(audit.reasons[:3]) or "no reason was recorded"
        problems.append(f"not everything on the bricks could be looked at: {why}")
    shown = f" ({', '.join(show(path) for path in audit.examples[:3])})" if audit.examples else ""
    if audit.left:
        problems.append(f"{several(audit.left, 'file')} left on the bricks{shown}")
    if audit.unsure:
        problems.append(f"{several(audit.unsure, 'file')} on the bricks may be data{shown}")
    return tuple(problems)


def audit_state(audit: AuditSeen) -> HookState:
    """How an audit before a commit ended, as hooks are told: what is left refuses the commit; where nothing was found, and not
    everything could be looked at, the audit itself has failed.
    """
    if audit.clean:
        return HookState.DONE
    return HookState.REFUSED if audit.left or audit.unsure else HookState.FAILED


def out_of_the_volume(record: DrainRecord, seen: DrainSeen, *, hand_over: bool) -> Step:
    """What is done next after the commit."""
    state = record.state
    finished = Finished(state=state, words=f"{record.bricks_are} {_WORDS[state]}")
    if state is _OUT_S.HANDED_OVER:
        return finished
    inside = seen.state is not None and bricks_seen(record, seen) is not Bricks.OUT
    if inside and state is not _OUT_S.HANDING_OVER:
        return Halt(
            words=f"{record.bricks_are} in the volume again: somebody else has added it",
            hint="nothing is wiped that belongs to a volume; drain it anew to have it out",
        )
    if not hand_over:
        return finished
    if seen.state is None:
        return Halt(
            words=f"whether {record.bricks_are} in the volume again is not known",
            hint=f"see that glusterd runs, {_OUT_AGAIN}",
            look_again=True,
        )
    if state in (_OUT_S.WIPED, _OUT_S.HANDING_OVER):
        # Who gives it back to the volume it came from is done when it is there.
        return _hand_over(seen_done=inside)
    return _wipe(record, seen)


def _hand_over(*, seen_done: bool = False) -> DrainAct:
    return DrainAct(step=_D.HAND_OVER, intent=_OUT_S.HANDING_OVER, result=_OUT_S.HANDED_OVER, seen_done=seen_done)


def _wipe(record: DrainRecord, seen: DrainSeen) -> Step:
    """A new file system is made only where a fresh audit found nothing, or where a wipe had begun."""
    places = seen.places or {}
    found = {name: places.get(name, PlaceSeen.UNKNOWN) for name in record.bricks}
    if set(found.values()) == {PlaceSeen.EMPTY}:
        return DrainAct(step=_D.WIPE, intent=_OUT_S.WIPING, result=_OUT_S.WIPED, seen_done=True)
    for name, place in found.items():
        if place is PlaceSeen.UNKNOWN:
            return Halt(
                words=f"what lies at {name} cannot be seen",
                hint=f"see that its host is reached (`migrator doctor`), {_OUT_AGAIN}",
                look_again=True,
            )
        if place is PlaceSeen.OTHER or (place is PlaceSeen.UNMOUNTED and record.state is _OUT_S.COMMITTED):
            what = "holds something that is no brick of this volume" if place is PlaceSeen.OTHER else "is not mounted"
            return Halt(
                words=f"{name} {what}: somebody else has changed it",
                hint=f"find out what it is; mount the brick there, or make a new file system by hand, {_OUT_AGAIN}",
            )
    if PlaceSeen.BRICK in found.values():
        audit = audit_since(record, seen, _OUT_S.COMMITTED)
        if audit is None:
            return DrainAct(step=_D.AUDIT, intent=record.state, result=record.state)
        if not audit.clean and seen.may_recover:
            return recover(record)
        if not audit.clean:
            return Halt(
                words=f"{record.bricks_are} not wiped: what lies there may be nowhere else",
                reasons=audit_left(audit),
                hint="bring the files back through the mount: the same command with --recover",
                look_again=not audit.whole,
            )
    return DrainAct(step=_D.WIPE, intent=_OUT_S.WIPING, result=_OUT_S.WIPED)


# Stopping a drain, and restoring the options that it changed.


_BACK_S, _D = DrainState, DrainStep
_BACK_AGAIN = "then run the same command again"


def stop(task: VolumeTask | None, reason: str) -> DrainAct:
    """Take back the drain that Gluster shows; where it shows none, somebody else has ended it."""
    return DrainAct(
        step=_D.STOP,
        intent=_BACK_S.STOPPING,
        result=_BACK_S.STOPPING,
        seen_done=task is None,
        reason=reason,
        task_id=None if task is None else task.id,
    )


def stopping(record: DrainRecord, seen: DrainSeen) -> Step:
    """What is done next between the intent of the stop and its end, which is seen by Gluster's tasks alone."""
    task = own_task(record, seen)
    if task is None:
        return _settle()
    if halt := another_drain(record, task):
        return halt
    if task.id not in (record.notes.task_id, record.notes.task_before):
        return Halt(
            words=f"somebody else has begun a drain of {record.shown_bricks} again, while it was taken back",
            hint=f"ask who did; stop it by hand (`gluster volume remove-brick ... stop`), {_BACK_AGAIN}",
        )
    return stop(task, record.failure)


def settling(record: DrainRecord, seen: DrainSeen) -> Step:
    """What is done next until the layout of directories is right again."""
    if layout_settled(record, seen):
        return _settle(seen_done=True)
    if others := others_at_work(seen):
        return Halt(
            words="the layout of directories cannot be put right yet: something else moves files or waits for a commit",
            reasons=others,
            hint=f"when that has ended, {_BACK_AGAIN.removeprefix('then ')}",
            look_again=True,
        )
    return _settle()


def _settle(*, seen_done: bool = False) -> DrainAct:
    return DrainAct(step=_D.SETTLE, intent=_BACK_S.SETTLING, result=_BACK_S.STOPPED, seen_done=seen_done)


def restore(record: DrainRecord, seen: DrainSeen) -> Step | None:
    """Options that the drain has changed are put back where it has come to rest; None where there are none."""
    if not record.notes.options:
        return None
    if seen.state is None:
        return Halt(
            words=f"whether options of volume {record.volume} have to be put back is not known",
            hint=f"see that glusterd runs, {_BACK_AGAIN}",
            look_again=True,
        )
    if not options_to_restore(record, seen.state):
        return None
    return DrainAct(step=_D.RESTORE, intent=record.state, result=record.state)


# Hosts whose rebalance process has died.
#
# A rebalance process that ends while its glusterd is down or starting, or that is killed, leaves its host `in progress` for good,
# with the last counters it reported, or with none. Only the run time shows it: a live process counts it up every second, whatever
# it moves; that of a dead one stands still (GlusterFS 10.3).


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


# The next step.
#
# The caller asks for a step, writes the intent, acts, writes the result or the failure, and asks again with a fresh snapshot;
# after a crash, a reboot or a restart of glusterd too. Only the record is remembered: Gluster's own status decides what has
# happened. When an act failed and the answer is the same act again, the caller ends with that failure; the same command retries.
#
# - Nothing is concluded from what cannot be read: a task counts as gone only when every host could report it.
# - A host that is up and reports no counters is waited for: its glusterd may be about to. It counts as silent for good only
#   after the snapshots of one process have found that for the stall limit; then an admin has to act.
# - A commit needs every counter of every host, no failure, nothing skipped, and an audit by the same process that is complete
#   and found nothing. There is no other way to it; `force` is never used.
# - What somebody does by hand is accepted: a drain that they stopped is rolled back, one that they started again is resumed,
#   bricks that they took out are audited before anything is reported of them.
# - On request, leftovers are brought back through the mount once, while no rebalance process runs. That ends nothing by itself:
#   the same counters and another audit decide afterwards.
# - The last subvolume stays. Options are restored whenever a drain has ended.


_DRAIN_S, _D = DrainState, DrainStep
_DRAIN_AGAIN = "then run the same command again"

_AUDIT = DrainAct(step=_D.AUDIT, intent=_DRAIN_S.AUDITING, result=_DRAIN_S.AUDITED)
_AUDIT_SEEN = DrainAct(step=_D.AUDIT, intent=_DRAIN_S.AUDITING, result=_DRAIN_S.AUDITED, seen_done=True)
_COMMIT = DrainAct(step=_D.COMMIT, intent=_DRAIN_S.COMMITTING, result=_DRAIN_S.COMMITTED)
_WATCH = DrainAct(step=_D.WATCH, intent=_DRAIN_S.DRAINING, result=_DRAIN_S.DRAINED)
_COMMIT_SEEN = DrainAct(step=_D.COMMIT, intent=_DRAIN_S.COMMITTING, result=_DRAIN_S.COMMITTED, seen_done=True)


def next_step(record: DrainRecord, seen: DrainSeen, *, hand_over: bool = False) -> Step:
    """What is done next. With `hand_over` bricks that are out are wiped and given away; without it, it ends there.

    A drain that has failed waits: see `begin_again` and `begin_stop`.
    """
    state = record.state
    if state is _DRAIN_S.STOPPED:
        return restore(record, seen) or Finished(
            state=state, words=f"new files may come to {record.shown_bricks} again; what was moved stays where it is"
        )
    if state in OUT_STATES:
        return restore(record, seen) or out_of_the_volume(record, seen, hand_over=hand_over)
    if halt := cannot_tell(record, seen):
        return halt
    bricks = bricks_seen(record, seen)
    if state is _DRAIN_S.SETTLING:
        return settling(record, seen)
    if bricks is Bricks.SOME:
        return Halt(
            words=f"some of {record.shown_bricks} are in the volume and some are not: somebody else has changed it",
            hint=f"look at `gluster volume info`, put the set right by hand, {_DRAIN_AGAIN}",
        )
    if state in UNTOUCHED_STATES:
        if state is _DRAIN_S.PLANNED and bricks is Bricks.IN:
            return DrainAct(step=_D.CHECK, intent=_DRAIN_S.PREFLIGHT, result=_DRAIN_S.PREFLIGHT)
        return _start(record, seen)
    if bricks is Bricks.OUT:
        return _taken_out(record, seen)
    if state is _DRAIN_S.STARTING:
        return _starting(record, seen)
    if state is _DRAIN_S.FAILED:
        return restore(record, seen) or Halt(
            words=f"the drain of {record.shown_bricks} has failed: {record.failure or 'no reason was recorded'}",
            reasons=tuple(problem for problem in seen.preflight or () if problem not in record.failure),
            hint=f"put that right (why a file was not moved: /var/log/glusterfs/{record.volume}-rebalance.log on {_hosts(record)}) "
            "and drain again (`migrator brick drain`; with --recover it brings back itself what Gluster did not move), or take "
            "it back (`migrator brick stop`)",
        )
    if state is _DRAIN_S.STOPPING:
        return stopping(record, seen)
    return _under_way(record, seen)


def _hosts(record: DrainRecord) -> str:
    return ", ".join(dict.fromkeys(name.partition(":/")[0] for name in record.bricks))


def begin_again(record: DrainRecord, seen: DrainSeen) -> Step:
    """What the wish to drain begins with where an attempt has failed. The caller asks this once, and then `next_step`; in
    every other state it is the same as `next_step`.

    What Gluster has moved without any failure is audited again first; where files are left still, and where it has failed,
    its task is ended and begun anew.
    """
    if record.state is not _DRAIN_S.FAILED or cannot_tell(record, seen) or bricks_seen(record, seen) is not Bricks.IN:
        return next_step(record, seen)
    task = own_task(record, seen)
    if task is None:
        return _start(record, seen)
    if halt := another_drain(record, task):
        return halt
    if task.id != record.notes.task_id or _works(seen):
        return _adopt(task)
    if silent_hosts(record, seen) and not seen.silent:
        # Files may be moved all the same, or will be when glusterd is right again.
        return _adopt(task)
    if can_recover(seen):
        return recover(record)
    return _start(record, seen) if counter_problems(record, seen) else _AUDIT


def begin_stop(record: DrainRecord, seen: DrainSeen) -> Step:
    """What the wish to take a drain back begins with. The caller asks this until the record is on the way back
    (`taken_back`) or nothing is left to do, and then `next_step`.
    """
    if record.state in UNTOUCHED_STATES:
        reason = "it was given up before anything was touched"
        return DrainAct(step=_D.STOP, intent=_DRAIN_S.STOPPED, result=_DRAIN_S.STOPPED, seen_done=True, reason=reason)
    if record.state in OUT_STATES:
        return Halt(
            words=f"{record.bricks_are} out of the volume: that is not taken back",
            hint="to have it back, add it again, with a new file system",
        )
    if taken_back(record.state) or cannot_tell(record, seen) or bricks_seen(record, seen) is not Bricks.IN:
        return next_step(record, seen)
    task = own_task(record, seen)
    if task is not None and (halt := another_drain(record, task)):
        return halt
    return stop(task, record.failure or "it was asked for")


def taken_back(state: DrainState) -> bool:
    """Whether a drain in this state is on the way back, or was taken back."""
    return state in (_DRAIN_S.STOPPING, _DRAIN_S.SETTLING, _DRAIN_S.STOPPED)


def may_start(record: DrainRecord) -> bool:
    """Whether a start may be the next step, so that the look has to tell what speaks against it (`preflight`)."""
    return record.state in (_DRAIN_S.PREFLIGHT, _DRAIN_S.STARTING, _DRAIN_S.FAILED) or (
        record.state in (_DRAIN_S.AUDITING, _DRAIN_S.AUDITED) and _tries_again(record)
    )


def commit_problems(record: DrainRecord, seen: DrainSeen) -> tuple[str, ...]:
    """All that speaks against a commit now; what is not known speaks against it too."""
    problems = [*counter_problems(record, seen), *hosts_missing(record, seen)]
    task = own_task(record, seen)
    if task is None or task.id != record.notes.task_id or set(task.bricks) != set(record.bricks):
        problems.append("the drain that Gluster shows is not the one that is recorded")
    audit = audit_since(record, seen, _DRAIN_S.AUDITING)
    problems.extend(("the bricks were not walked since they were drained",) if audit is None else audit_left(audit))
    if seen.state is not None:
        problems.extend(structure_problems(seen.state, record.bricks))
    return tuple(dict.fromkeys(problems))


def _start(record: DrainRecord, seen: DrainSeen) -> Step:
    problems = () if seen.state is None else structure_problems(seen.state, record.bricks)
    if problems:
        return Halt(
            words=f"{record.shown_bricks} cannot be drained",
            reasons=problems,
            hint="see `migrator brick list` for the bricks of the volume and their sets",
        )
    if seen.preflight is None:
        return Halt(
            words="the guards before a drain were not looked at", hint="run the same command again", look_again=True
        )
    if seen.preflight:
        against = "1 guard speaks" if len(seen.preflight) == 1 else f"{several(len(seen.preflight), 'guard')} speak"
        return Halt(
            words=f"{against} against draining {record.shown_bricks} now",
            reasons=seen.preflight,
            hint=f"put it right, {_DRAIN_AGAIN}",
        )
    task = own_task(record, seen)
    return DrainAct(
        step=_D.START, intent=_DRAIN_S.STARTING, result=_DRAIN_S.STARTED, task_before=None if task is None else task.id
    )


def _starting(record: DrainRecord, seen: DrainSeen) -> Step:
    """Between the intent of the start and its result the world decides."""
    task = own_task(record, seen)
    # The one that was to be ended may be right again by now.
    if task is not None and (task.id != record.notes.task_before or _works(seen)):
        return another_drain(record, task) or _adopt(task)
    step = _start(record, seen)
    if isinstance(step, Halt) and not step.look_again:
        # Nothing was begun, and it may not be begun now: what is left to do is to put the options back.
        return _give_up("; ".join(step.reasons) or step.words)
    return step


def _works(seen: DrainSeen) -> bool:
    """Whether Gluster moves files, and nothing speaks against its going on with that."""
    return moves(seen) and not (seen.stalled or seen.lost)


def _adopt(task: VolumeTask) -> DrainAct:
    """The drain that Gluster shows is gone on with, whoever has begun it."""
    return DrainAct(step=_D.START, intent=_DRAIN_S.STARTING, result=_DRAIN_S.STARTED, seen_done=True, task_id=task.id)


def _under_way(record: DrainRecord, seen: DrainSeen) -> Step:
    """Between the start and the commit, with the bricks in the volume."""
    task = own_task(record, seen)
    if task is None:
        return stop(None, "it was stopped by somebody else, or Gluster has forgotten it")
    if halt := another_drain(record, task):
        return halt
    if task.id != record.notes.task_id:
        return _adopt(task)
    if ended_badly(seen) and seen.progress is not None and seen.progress.task_id == task.id:
        # Whoever is missing, what could not be moved stays so: only a new beginning helps.
        return _give_up(why_failed(record, seen))
    if silent := silent_hosts(record, seen):
        return _silent(record, seen, silent)
    missing = hosts_missing(record, seen)
    if seen.progress is None or seen.progress.task_id != task.id or missing:
        return Halt(
            words=f"how far the drain of {record.shown_bricks} is, cannot be told: a host or a brick is missing",
            reasons=missing,
            hint=f"bring glusterd and the bricks up on every host, {_DRAIN_AGAIN}",
            look_again=True,
        )
    if moves(seen):
        if seen.lost:
            return _give_up(seen.lost)
        if seen.stalled:
            return _give_up(f"it stands still: {seen.stalled}")
        if record.state in (_DRAIN_S.STARTED, _DRAIN_S.DRAINING):
            return _WATCH
        # It had come to its end, and moves files again: what was seen then counts for nothing.
        return _adopt(task)
    if counter_problems(record, seen):
        return _give_up(why_failed(record, seen))
    return _moved(record, seen)


def _silent(record: DrainRecord, seen: DrainSeen, hosts: tuple[str, ...]) -> Step:
    """Everything is up, and somebody tells no counters: that is waited for, as long as files may be moved."""
    if seen.silent:
        return _give_up(f"{seen.silent}; {way_out(record, hosts)}")
    if record.state in (_DRAIN_S.STARTED, _DRAIN_S.DRAINING):
        return _WATCH
    return Halt(
        words=f"how far the drain of {record.shown_bricks} is, cannot be told",
        reasons=hosts_missing(record, seen),
        hint=f"{way_out(record, hosts)}; {_DRAIN_AGAIN}",
        look_again=True,
    )


def _moved(record: DrainRecord, seen: DrainSeen) -> Step:
    """Gluster says that everything was moved: what is left to do until the commit."""
    if record.state in (_DRAIN_S.STARTED, _DRAIN_S.DRAINING):
        return DrainAct(step=_D.WATCH, intent=_DRAIN_S.DRAINING, result=_DRAIN_S.DRAINED, seen_done=True)
    audit = audit_since(record, seen, _DRAIN_S.AUDITING)
    if record.state is _DRAIN_S.DRAINED or audit is None:
        return _AUDIT
    if not audit.clean and seen.may_recover:
        return recover(record)
    if not audit.whole:
        return _not_whole(record, audit)
    if not audit.clean:
        # Looking again has not helped: only Gluster itself can move what is left.
        return _start(record, seen) if _tries_again(record) else _give_up("; ".join(audit_left(audit)))
    if record.state is _DRAIN_S.AUDITING:
        return _AUDIT_SEEN
    if problems := commit_problems(record, seen):
        return Halt(
            words=f"{record.shown_bricks} may not be committed now",
            reasons=problems,
            hint=f"put it right, {_DRAIN_AGAIN}",
        )
    return _COMMIT


def _tries_again(record: DrainRecord) -> bool:
    """Whether it has failed since it was started, and was asked for again."""
    failed_s, started_s = record.times.get(_DRAIN_S.FAILED), record.times.get(_DRAIN_S.STARTED)
    return failed_s is not None and (started_s is None or failed_s >= started_s)


def _taken_out(record: DrainRecord, seen: DrainSeen) -> Step:
    """The bricks are out of the volume. After our own intent to commit that is its end; otherwise somebody else did it, who
    may have left files behind: only a clean audit says that all is well.
    """
    if record.state is _DRAIN_S.COMMITTING:
        return _COMMIT_SEEN
    audited = record.state in (_DRAIN_S.AUDITING, _DRAIN_S.AUDITED)
    audit = audit_since(record, seen, _DRAIN_S.AUDITING) if audited else None
    if audit is None:
        return _AUDIT
    if not audit.clean and seen.may_recover:
        return recover(record)
    if not audit.whole:
        return _not_whole(record, audit)
    if not audit.clean:
        return Halt(
            words=f"somebody else took {record.shown_bricks} out of the volume, and files are left on it",
            reasons=audit_left(audit),
            hint="do not wipe it: bring the files back through the mount (the same command with --recover)",
        )
    return _AUDIT_SEEN if record.state is _DRAIN_S.AUDITING else _COMMIT_SEEN


def _not_whole(record: DrainRecord, audit: AuditSeen) -> Halt:
    return Halt(
        words=f"the audit of {record.shown_bricks} is not whole",
        reasons=audit_left(audit),
        hint=f"see that every host is reached (`migrator doctor`), {_DRAIN_AGAIN}",
        look_again=True,
    )


def _give_up(reason: str) -> DrainAct:
    return DrainAct(step=_D.GIVE_UP, intent=_DRAIN_S.FAILED, result=_DRAIN_S.FAILED, reason=reason)
