"""The next step of a drain, from its record and a snapshot of the volume. Pure."""

from collections.abc import Iterator
from typing import Any

from migrator.bricks.drain import model
from migrator.bricks.drain.model import DrainSnapshot
from migrator.bricks.drain.model_audit import DrainAudit
from migrator.bricks.volume import (
    Membership,
    halt_until,
    membership,
    only_some,
    parts_missing,
    volume_unknown,
    wrong_volume,
)
from migrator.core.collected import collected
from migrator.core.paths import show
from migrator.core.units import format_duration, several
from migrator.gluster.model import PlaceSeen, TaskKind, TaskStatus, VolumeState, VolumeTask, remove_brick_of
from migrator.gluster.rules import FEW, are_few, still_changed, subvolumes
from migrator.hooks.model import HookState
from migrator.operations.model import Act, Finished, Halt

# Reading a snapshot: where the bricks are, which task belongs to the drain, and which facts are known.


_S, _D = model.DrainState, model.DrainStep
_MOST_CAUSES = 3
_TASK_MATTERS = frozenset(
    {_S.STARTED, _S.DRAINING, _S.DRAINED, _S.AUDITING, _S.AUDITED, _S.COMMITTING, _S.STOPPING, _S.STARTING}
)


def cannot_tell(record: model.DrainRecord, snapshot: DrainSnapshot) -> Halt | None:
    """Return why this snapshot proves nothing; None if it has all required facts."""
    state = snapshot.state
    if state is None:
        return volume_unknown(record)
    if halt := wrong_volume(record, state):
        return halt
    if record.state in _TASK_MATTERS and own_task(record, snapshot) is None and state.peers_down != ():
        gone = "names unknown" if state.peers_down is None else ", ".join(state.peers_down)
        words = f"the state of the drain of {record.shown_bricks} is unknown: hosts are missing ({gone})"
        return halt_until(words, "bring glusterd up on every host", look_again=True)
    return None


def own_task(record: model.DrainRecord, snapshot: DrainSnapshot) -> VolumeTask | None:
    """Return the remove-brick task of any of these bricks, whether or not this program began it."""
    return remove_brick_of(snapshot.tasks, record.bricks)


def another_drain(record: model.DrainRecord, task: VolumeTask) -> Halt | None:
    """Return a halt if the drain that Gluster shows includes other bricks too."""
    if set(task.bricks) == set(record.bricks):
        return None
    words = f"a drain of {', '.join(task.bricks)} together is in progress, and not of {record.shown_bricks} alone"
    return halt_until(words, "finish or stop that drain by hand")


@collected
def counter_problems(record: model.DrainRecord, snapshot: DrainSnapshot) -> Iterator[str]:
    """Return why Gluster's counters do not prove that everything was moved. An unknown counter is a problem."""
    progress = snapshot.progress
    if progress is None:
        yield "Gluster reports no counters of the drain"
        return
    task = own_task(record, snapshot)
    if task is None or progress.task_id != task.id:
        yield "the counters are those of another task"
    missing = len(hosts_of(record, snapshot.state)) - len(progress.counters)
    if missing > 0 or not progress.counters:
        yield f"{several(max(missing, 1), 'host')} with bricks of the drain report no counters"
    for one in progress.counters:
        if one.status is not TaskStatus.COMPLETED:
            yield f"on {one.host} it is {one.status.value}, not completed"
    if progress.failures:
        yield f"{several(progress.failures, 'file')} could not be moved (failures)"
    if progress.skipped:
        yield f"{several(progress.skipped, 'file')} were skipped"


def moves(snapshot: DrainSnapshot) -> bool:
    """Return whether Gluster moves files on any host that reports counters."""
    return snapshot.progress is not None and snapshot.progress.moving


def ended_badly(snapshot: DrainSnapshot) -> bool:
    """Return whether Gluster has ended on every host that reports counters, and failed or could not move everything."""
    progress = snapshot.progress
    if progress is None or not progress.counters or moves(snapshot):
        return False
    failed = any(one.status in (TaskStatus.FAILED, TaskStatus.STOPPED) for one in progress.counters)
    return failed or bool(progress.failures or progress.skipped)


def only_few_failed(snapshot: DrainSnapshot) -> bool:
    """Return whether Gluster completed on every host with few failures, as users cause them who work meanwhile."""
    progress = snapshot.progress
    if progress is None or any(one.status is not TaskStatus.COMPLETED for one in progress.counters):
        return False
    few = are_few(progress.failures, moved_files=progress.files)
    return few and progress.failures > 0 and not progress.skipped


def broke_off(snapshot: DrainSnapshot) -> bool:
    """Return whether Gluster gave up on a host although it could move the files that it reached. It does so if a brick
    cannot be reached for a moment, for instance right after a reboot (`Received CHILD_DOWN. Exiting` in the rebalance
    log, 10.3).
    """
    progress = snapshot.progress
    if progress is None or moves(snapshot) or any(one.status is TaskStatus.STOPPED for one in progress.counters):
        return False
    failed = any(one.status is TaskStatus.FAILED for one in progress.counters)
    return failed and progress.failures <= FEW and not progress.skipped


def why_failed(record: model.DrainRecord, snapshot: DrainSnapshot) -> str:
    """Return why a drain has failed: Gluster's counters, and the possible causes."""
    others = len(snapshot.causes) - _MOST_CAUSES
    more = (f"and {others} more",) if others > 0 else ()
    return "; ".join(dict.fromkeys((*counter_problems(record, snapshot), *snapshot.causes[:_MOST_CAUSES], *more)))


@collected
def hosts_missing(record: model.DrainRecord, snapshot: DrainSnapshot) -> Iterator[str]:
    """Return hosts and bricks of the volume that are not seen to be up. Without them Gluster's report is incomplete."""
    if snapshot.state is None:
        yield "the state of the volume is unknown"
        return
    yield from parts_missing(snapshot.state)
    counters = () if snapshot.progress is None else snapshot.progress.counters
    if len(counters) < len(hosts_of(record, snapshot.state)):
        yield "not every host with bricks of the drain reports its counters"


def hosts_of(record: model.DrainRecord, state: VolumeState | None) -> set[str]:
    """Return the hosts of the bricks of a drain."""
    bricks = () if state is None else state.bricks
    known = {brick.host for brick in bricks if brick.name in record.bricks}
    return known or {name.partition(":/")[0] for name in record.bricks}


@collected
def structure_problems(state: VolumeState, bricks: tuple[str, ...]) -> Iterator[str]:
    """Return why these bricks can never be drained out of a volume of this layout."""
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
        yield "the volume is striped or sharded: a brick does not have whole files"
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
            yield f"a replica set can only be drained as a whole: {', '.join(lacking)} belongs to it too"
    if len(touched) > 1:
        yield f"{several(len(touched), 'subvolume')} at once: drain them one after the other"
    if len(touched) == len(sets):
        yield (
            "it is the last subvolume, and there is nowhere to move its files to: `migrator brick retire` "
            "stops the volume when manifests cover everything in it"
        )


# Hosts that report no counters although the whole volume is up.
#
# The pid file of the rebalance process is in /var/lib/glusterd, where it survives a reboot. If any process has that pid
# when glusterd starts, glusterd takes it for its own. It then starts none, and answers every `remove-brick status` and
# `stop` with `Brick ops failed` for good (GlusterFS 10.3: gf_is_service_running only asks whether the pid is in use;
# #2995, #1469). It moves files again only without that file and after a restart of its glusterd. The volume's own
# commands do not help, nor does a restart alone.


def silent_hosts(record: model.DrainRecord, snapshot: DrainSnapshot) -> tuple[str, ...]:
    """Return hosts with leaving bricks that report no counters of a listed drain, although every host and brick of the
    volume is up. None if something is missing, which must be fixed first. The queried host reports its own counters
    without its name, so it can be listed although it reports them.
    """
    task, progress = own_task(record, snapshot), snapshot.progress
    if snapshot.state is None or task is None or parts_missing(snapshot.state):
        return ()
    hosts = hosts_of(record, snapshot.state)
    reporting = set() if progress is None or progress.task_id != task.id else {one.host for one in progress.counters}
    return () if len(reporting) >= len(hosts) else tuple(sorted(hosts - reporting))


def why_silent(hosts: tuple[str, ...], *, for_s: float | None = None) -> str:
    """Return a sentence on hosts that have been silent for so long."""
    since = "" if for_s is None else f" for {format_duration(for_s)}"
    return f"no counters of the drain are reported by {', '.join(hosts)}{since}, although every host and brick is up"


def way_out(record: model.DrainRecord, hosts: tuple[str, ...]) -> str:
    """Return the command with which an admin repairs silent hosts."""
    return (
        f"if that lasts, glusterd has lost its rebalance process: on {' and '.join(hosts)}, if "
        f"`pgrep -f [r]ebalance/{record.volume}` finds none, run `rm -f /var/lib/glusterd/vols/{record.volume}/rebalance/*.pid "
        "&& systemctl restart glusterd`, and the drain continues (what that does to bricks: docs/bricks.md)"
    )


# Acts.


_INTENT_AND_RESULT = {
    _D.CHECK: (_S.PREFLIGHT, _S.PREFLIGHT),
    _D.START: (_S.STARTING, _S.STARTED),
    _D.WATCH: (_S.DRAINING, _S.DRAINED),
    _D.AUDIT: (_S.AUDITING, _S.AUDITED),
    _D.COMMIT: (_S.COMMITTING, _S.COMMITTED),
    _D.WIPE: (_S.WIPING, _S.WIPED),
    _D.HAND_OVER: (_S.HANDING_OVER, _S.HANDED_OVER),
    _D.GIVE_UP: (_S.FAILED, _S.FAILED),
    _D.STOP: (_S.STOPPING, _S.STOPPING),
    _D.SETTLE: (_S.SETTLING, _S.STOPPED),
}


def _act(step: model.DrainStep, **facts: Any) -> model.DrainAct:  # noqa: ANN401 - the fields of an act
    intent, result = _INTENT_AND_RESULT[step]
    return Act(step=step, intent=intent, result=result, **facts)


def _in_place(step: model.DrainStep, record: model.DrainRecord) -> model.DrainAct:
    """Return a step that does not change the state."""
    return Act(step=step, intent=record.state, result=record.state)


def _adopt(task: VolumeTask) -> model.DrainAct:
    """Continue the drain that Gluster shows, even if another program began it."""
    return _act(_D.START, seen_done=True, task_id=task.id)


def _stop(task: VolumeTask | None, reason: str) -> model.DrainAct:
    """Stop the drain that Gluster shows. If there is none, it was ended outside of this program."""
    return _act(_D.STOP, seen_done=task is None, reason=reason, task_id=None if task is None else task.id)


def _give_up(reason: str) -> model.DrainAct:
    return _act(_D.GIVE_UP, reason=reason)


# Bricks that are out of the volume, and the findings of an audit.


_OUT_WORDS = {
    _S.COMMITTED: "out of the volume, and empty",
    _S.WIPING: "out of the volume, and being wiped",
    _S.WIPED: "out of the volume, and wiped",
    _S.HANDING_OVER: "out of the volume, and being handed over",
    _S.HANDED_OVER: "handed over",
}


def audit_since(record: model.DrainRecord, snapshot: DrainSnapshot, state: model.DrainState) -> DrainAudit | None:
    """Return the audit that began after the record entered a state; None if there is none."""
    audit, since_s = snapshot.audit, record.times.get(state)
    return None if audit is None or since_s is None or audit.started_at_s < since_s else audit


@collected
def audit_left(audit: DrainAudit) -> Iterator[str]:
    """Yield why an audit does not prove that nothing is left; nothing if it does."""
    if not audit.whole:
        yield f"the audit is not complete: {'; '.join(audit.reasons[:3]) or 'no reason was recorded'}"
    shown = f" ({', '.join(show(path) for path in audit.examples[:3])})" if audit.examples else ""
    if audit.left:
        yield f"{several(audit.left, 'file')} left on the bricks{shown}"
    if audit.unsure:
        yield f"{several(audit.unsure, 'file')} on the bricks may be data{shown}"


def _with_commands(audit: DrainAudit) -> str:
    return f" with the commands in {audit.commands_file}" if audit.commands_file else ""


def audit_state(audit: DrainAudit) -> HookState:
    """Return how an audit before a commit ended, for hooks. Leftovers refuse the commit. An incomplete audit without
    findings failed.
    """
    if audit.clean:
        return HookState.DONE
    return HookState.REFUSED if audit.left or audit.unsure else HookState.FAILED


def _out_of_the_volume(record: model.DrainRecord, snapshot: DrainSnapshot, *, hand_over: bool) -> model.Step:
    """Return the next step after the commit."""
    state = record.state
    finished = Finished(state=state, words=f"{record.bricks_are} {_OUT_WORDS[state]}")
    if state is _S.HANDED_OVER:
        return finished
    inside = membership(record, snapshot.state) is not Membership.OUT
    if inside and state is not _S.HANDING_OVER:
        return Halt(
            words=f"{record.bricks_are} in the volume again, added outside of this program",
            hint="a brick of a volume is never wiped; drain it anew to take it out",
        )
    if not hand_over:
        return finished
    if snapshot.state is None:
        return volume_unknown(record)
    if state in (_S.WIPED, _S.HANDING_OVER):
        # A brick that is added back to its own volume has been handed over once it is there.
        return _act(_D.HAND_OVER, seen_done=inside)
    return _wipe(record, snapshot)


def _wipe(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    """A new file system is made only if a fresh audit found nothing, or if a wipe had begun."""
    places = snapshot.places or {}
    found = {name: places.get(name, PlaceSeen.UNKNOWN) for name in record.bricks}
    if set(found.values()) == {PlaceSeen.EMPTY}:
        return _act(_D.WIPE, seen_done=True)
    for name, place in found.items():
        if place is PlaceSeen.UNKNOWN:
            remedy = "check that its host can be reached (`migrator doctor`)"
            return halt_until(f"the content of {name} is unknown", remedy, look_again=True)
        if place is PlaceSeen.OTHER or (place is PlaceSeen.UNMOUNTED and record.state is _S.COMMITTED):
            words = f"no brick of this volume is mounted at {name} (found: {place.value})"
            return halt_until(words, "find out what it is; mount the brick there, or make a new file system by hand")
    if PlaceSeen.BRICK in found.values():
        audit = audit_since(record, snapshot, _S.COMMITTED)
        if audit is None:
            return _in_place(_D.AUDIT, record)
        if not audit.clean:
            return Halt(
                words=f"{record.bricks_are} not wiped: the files there may be the only copies",
                reasons=audit_left(audit),
                hint=f"bring the files back through the mount{_with_commands(audit)}, then run the same command again",
                look_again=not audit.whole,
            )
    return _act(_D.WIPE)


# Stopping a drain, and restoring the options that it changed.


def _stopping(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    """Return the next step between the intent of the stop and its end. Only Gluster's tasks show that end."""
    task = own_task(record, snapshot)
    if task is None:
        return _act(_D.SETTLE)
    if halt := another_drain(record, task):
        return halt
    if task.id not in (record.notes.task_id, record.notes.task_before):
        words = f"another drain of {record.shown_bricks} was begun outside of this program, while this one was stopped"
        return halt_until(words, "stop it by hand (`gluster volume remove-brick ... stop`)")
    return _stop(task, record.failure)


def _settling(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    """Return the next step until the layout of directories is right again."""
    layout = snapshot.layout
    if (
        layout is not None
        and layout.task_id == record.notes.layout_task_id
        and layout.counters
        and all(one.status is TaskStatus.COMPLETED and not one.failures for one in layout.counters)
    ):
        return _act(_D.SETTLE, seen_done=True)
    # A fix-layout cannot run beside any remove-brick.
    if others := tuple(one.text for one in snapshot.tasks if one.unfinished and one.kind is not TaskKind.REBALANCE):
        words = "the layout of directories cannot be repaired yet: another task moves files or waits for a commit"
        return halt_until(words, "wait until that has ended", reasons=others, look_again=True)
    return _act(_D.SETTLE)


def options_to_restore(record: model.DrainRecord, state: VolumeState) -> tuple[str, ...]:
    """Return the options that still have a value that this drain gave them. An option that an admin has changed since
    stays.
    """
    return still_changed(record.notes.options or (), state)


def _restore(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step | None:
    """Restore the options that the drain changed, once it has ended; None if there are none."""
    if not record.notes.options:
        return None
    if snapshot.state is None:
        return volume_unknown(record)
    return _in_place(_D.RESTORE, record) if options_to_restore(record, snapshot.state) else None


# The next step.
#
# The caller asks for a step, writes the intent, acts, writes the result or the failure, and asks again with a fresh
# snapshot. It does the same after a crash, a reboot or a restart of glusterd. Only the record is remembered: Gluster's
# own status decides what has happened. If an act fails and the answer is the same act again, the caller ends with that
# failure, and the same command retries.
#
# - An unreadable fact proves nothing: a task counts as gone only when every host could report it.
# - A host that is up but reports no counters is given time, because its glusterd may still report. It counts as silent
#   for good only after the snapshots of one process have found that for the stall limit. Then an admin has to act.
# - A commit needs every counter of every host, no failure, nothing skipped, and a complete audit without findings by
#   the same process. There is no other way to it; `force` is never used.
# - Manual acts of an admin are accepted. A drain that they stopped is rolled back, and one that they restarted is
#   resumed. Bricks that they removed are audited before anything is reported of them.
# - The last subvolume stays. Options are restored whenever a drain has ended.


def next_step(record: model.DrainRecord, snapshot: DrainSnapshot, *, hand_over: bool = False) -> model.Step:
    """Return the next step. With `hand_over`, bricks that are out are wiped and handed over. Without it, the drain ends
    there.

    A failed drain waits: see `begin_again` and `begin_stop`.
    """
    state = record.state
    if state is _S.STOPPED:
        return _restore(record, snapshot) or Finished(
            state=state,
            words=f"{record.shown_bricks} may get new files again; files that were moved stay where they are",
        )
    if state in model.OUT_STATES:
        return _restore(record, snapshot) or _out_of_the_volume(record, snapshot, hand_over=hand_over)
    if halt := cannot_tell(record, snapshot):
        return halt
    bricks = membership(record, snapshot.state)
    if state is _S.SETTLING:
        return _settling(record, snapshot)
    if bricks is Membership.SOME:
        return only_some(record)
    if state in model.UNTOUCHED_STATES:
        return _act(_D.CHECK) if state is _S.PLANNED and bricks is Membership.IN else _start(record, snapshot)
    if bricks is Membership.OUT:
        return _taken_out(record, snapshot)
    if state is _S.STARTING:
        return _starting(record, snapshot)
    if state is _S.FAILED:
        hosts = ", ".join(sorted(hosts_of(record, snapshot.state)))
        return _restore(record, snapshot) or Halt(
            words=f"the drain of {record.shown_bricks} has failed: {record.failure or 'no reason was recorded'}",
            reasons=tuple(problem for problem in snapshot.preflight or () if problem not in record.failure),
            hint=f"fix the cause (/var/log/glusterfs/{record.volume}-rebalance.log on {hosts} has it for each file) and drain again "
            "(`migrator brick drain`), or stop the drain (`migrator brick stop`)",
        )
    if state is _S.STOPPING:
        return _stopping(record, snapshot)
    return _under_way(record, snapshot)


def begin_again(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    """Return the first step of a call that drains after a failed attempt. The caller asks this once, and then
    `next_step`. In every other state it is the same as `next_step`.

    If Gluster moved everything without a failure, the bricks are audited again first. If files are left, or the task
    has failed, the task is ended and restarted.
    """
    if (
        record.state is not _S.FAILED
        or cannot_tell(record, snapshot)
        or membership(record, snapshot.state) is not Membership.IN
    ):
        return next_step(record, snapshot)
    task = own_task(record, snapshot)
    if task is None:
        return _start(record, snapshot)
    if halt := another_drain(record, task):
        return halt
    # A silent host may move files all the same, or will once its glusterd is repaired.
    silent = bool(silent_hosts(record, snapshot)) and not snapshot.silent
    if task.id != record.notes.task_id or _works(snapshot) or silent:
        return _adopt(task)
    return _start(record, snapshot) if counter_problems(record, snapshot) else _act(_D.AUDIT)


def begin_stop(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    """Return the first step of a call that stops a drain. The caller asks this until the record is in a stop state
    (`DrainRecord.is_reverted`) or nothing is left to do, and then `next_step`.
    """
    if record.state in model.UNTOUCHED_STATES:
        reason = "it was aborted before anything was changed"
        return Act(step=_D.STOP, intent=_S.STOPPED, result=_S.STOPPED, seen_done=True, reason=reason)
    if record.state in model.OUT_STATES:
        return Halt(
            words=f"{record.bricks_are} out of the volume: a commit cannot be undone",
            hint="add the bricks again, with new file systems",
        )
    if record.is_reverted() or cannot_tell(record, snapshot) or membership(record, snapshot.state) is not Membership.IN:
        return next_step(record, snapshot)
    task = own_task(record, snapshot)
    if task is not None and (halt := another_drain(record, task)):
        return halt
    return _stop(task, record.failure or "the stop was requested")


def may_start(record: model.DrainRecord) -> bool:
    """Return whether a start may be the next step, so that the snapshot must include the preflight checks."""
    return record.state in (_S.PREFLIGHT, _S.STARTING, _S.FAILED) or (
        record.state in (_S.AUDITING, _S.AUDITED) and _tries_again(record)
    )


def commit_problems(record: model.DrainRecord, snapshot: DrainSnapshot) -> tuple[str, ...]:
    """Return every reason against a commit now. An unknown fact is one."""
    problems = [*counter_problems(record, snapshot), *hosts_missing(record, snapshot)]
    task = own_task(record, snapshot)
    if task is None or task.id != record.notes.task_id or set(task.bricks) != set(record.bricks):
        problems.append("the drain that Gluster shows is not the recorded one")
    audit = audit_since(record, snapshot, _S.AUDITING)
    problems.extend(("the bricks were not audited since they were drained",) if audit is None else audit_left(audit))
    if snapshot.state is not None:
        problems.extend(structure_problems(snapshot.state, record.bricks))
    return tuple(dict.fromkeys(problems))


def _start(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    problems = () if snapshot.state is None else structure_problems(snapshot.state, record.bricks)
    if problems:
        return Halt(
            words=f"Cannot drain {record.shown_bricks}: this volume does not allow it",
            reasons=problems,
            hint="see `migrator brick list` for the bricks of the volume and their sets",
        )
    if snapshot.preflight is None:
        return Halt(words="the preflight checks were not made", hint="run the same command again", look_again=True)
    if snapshot.preflight:
        words = f"Cannot drain {record.shown_bricks}: {several(len(snapshot.preflight), 'preflight check')} failed"
        return halt_until(words, "fix these problems", reasons=snapshot.preflight)
    task = own_task(record, snapshot)
    return _act(_D.START, task_before=None if task is None else task.id)


def _starting(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    """Between the intent of the start and its result the snapshot decides."""
    task = own_task(record, snapshot)
    # The failed task that was to be ended may be running again.
    if task is not None and (task.id != record.notes.task_before or _works(snapshot)):
        return another_drain(record, task) or _adopt(task)
    step = _start(record, snapshot)
    if isinstance(step, Halt) and not step.look_again:
        # No task began, and none may begin now. Only the options remain to be restored.
        return _give_up("; ".join(step.reasons) or step.words)
    return step


def _works(snapshot: DrainSnapshot) -> bool:
    """Return whether Gluster moves files and is not stalled."""
    return moves(snapshot) and not (snapshot.stalled or snapshot.lost)


def _under_way(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    """Between the start and the commit, with the bricks in the volume."""
    task, progress = own_task(record, snapshot), snapshot.progress
    if task is None:
        return _stop(None, "it was stopped outside of this program, or Gluster has lost it")
    if halt := another_drain(record, task):
        return halt
    if task.id != record.notes.task_id:
        return _adopt(task)
    counted = progress is not None and progress.task_id == task.id
    if counted and ended_badly(snapshot):
        # This applies whatever else is missing: files that could not be moved stay so, and only a restart helps.
        return _give_up(why_failed(record, snapshot))
    watched = record.state in (_S.STARTED, _S.DRAINING)
    missing, silent = hosts_missing(record, snapshot), silent_hosts(record, snapshot)
    if silent and snapshot.silent:
        return _give_up(f"{snapshot.silent}; {way_out(record, silent)}")
    if silent and watched:
        return _act(_D.WATCH)
    if silent or not counted or missing:
        help_words = way_out(record, silent) if silent else "bring glusterd and the bricks up on every host"
        words = f"the progress of the drain of {record.shown_bricks} is unknown"
        return halt_until(words, help_words, reasons=missing, look_again=True)
    if moves(snapshot):
        if snapshot.lost or snapshot.stalled:
            return _give_up(snapshot.lost or f"it is stalled: {snapshot.stalled}")
        # If the task had ended before and moves files again, earlier findings do not count.
        return _act(_D.WATCH) if watched else _adopt(task)
    if counter_problems(record, snapshot):
        return _give_up(why_failed(record, snapshot))
    return _act(_D.WATCH, seen_done=True) if watched else _moved(record, snapshot)


def _moved(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    """Return the next step before the commit. Gluster reports everything moved."""
    audit = audit_since(record, snapshot, _S.AUDITING)
    if record.state is _S.DRAINED or audit is None:
        return _act(_D.AUDIT)
    if not audit.whole:
        return _not_whole(record, audit)
    if not audit.clean:
        # Another audit has not helped: only Gluster itself can move the rest.
        return _start(record, snapshot) if _tries_again(record) else _give_up("; ".join(audit_left(audit)))
    if record.state is _S.AUDITING:
        return _act(_D.AUDIT, seen_done=True)
    if problems := commit_problems(record, snapshot):
        return halt_until(f"Cannot commit {record.shown_bricks}", "fix these problems", reasons=problems)
    return _act(_D.COMMIT)


def _tries_again(record: model.DrainRecord) -> bool:
    """Return whether a restart was requested after a failure since the start."""
    failed_s, started_s = record.times.get(_S.FAILED), record.times.get(_S.STARTED)
    return failed_s is not None and (started_s is None or failed_s >= started_s)


def _taken_out(record: model.DrainRecord, snapshot: DrainSnapshot) -> model.Step:
    """Return the next step when the bricks are out of the volume. That may be a commit of this drain, or an admin removed
    them by hand and may have left files behind, which only a clean audit rules out.
    """
    audited = record.state in (_S.AUDITING, _S.AUDITED)
    audit = audit_since(record, snapshot, _S.AUDITING) if audited else None
    if audit is None:
        return _act(_D.AUDIT)
    if not audit.whole:
        return _not_whole(record, audit)
    if not audit.clean:
        return Halt(
            words=f"{record.shown_bricks} was taken out of the volume outside of this program, and files are left on it",
            reasons=audit_left(audit),
            hint=f"do not wipe it: bring the files back through the mount{_with_commands(audit)}",
        )
    return _act(_D.AUDIT if record.state is _S.AUDITING else _D.COMMIT, seen_done=True)


def _not_whole(record: model.DrainRecord, audit: DrainAudit) -> Halt:
    words, remedy = f"the audit of {record.shown_bricks} is not complete", "check every host with `migrator doctor`"
    return halt_until(words, remedy, reasons=audit_left(audit), look_again=True)
