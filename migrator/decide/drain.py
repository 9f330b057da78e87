"""What is done next with bricks that are drained, from the record and a look at the world. Pure.

The caller asks, writes the intent, acts, writes the result or the failure, and asks again with a fresh look, also after a
crash, a reboot and a restart of glusterd: nothing but the record is remembered, and Gluster's own status decides what has
happened. Where an act has failed and the answer is the same act again, the caller ends with that failure; whoever runs the
command again tries it again.

- What cannot be seen is never concluded from: a task counts as gone only when every host could tell of it.
- A host that is up and tells no counters is waited for: its glusterd may be about to. For good it is silent only by the
  looks of one process, and then people have to help it.
- A commit needs every counter of every host, no failure, nothing skipped, and an audit that the same process has made, that
  is whole and found nothing. There is no other way to it, and `force` is none.
- What somebody else does by hand is taken as it is: a drain that he stopped is taken back, one that he began again is gone
  on with, bricks that he took out are looked at before anything is said of them.
- Where it is asked for, what is left is brought back through the mount once, while Gluster moves nothing. It ends nothing by
  itself: the same counters and another audit decide afterwards.
- The last subvolume stays. Options are put back wherever a drain has come to rest.
"""

from migrator.decide.drain_back import restore, settling, stop, stopping
from migrator.decide.drain_facts import (
    Bricks,
    another_drain,
    bricks_seen,
    can_recover,
    cannot_tell,
    counter_problems,
    ended_badly,
    hosts_missing,
    moves,
    own_task,
    recover,
    structure_problems,
    why_failed,
)
from migrator.decide.drain_out import audit_left, audit_since, out_of_the_volume
from migrator.decide.drain_silence import silent_hosts, way_out
from migrator.domain.drain import OUT_STATES, UNTOUCHED_STATES, DrainRecord, DrainState, DrainStep
from migrator.domain.drain_seen import Act, AuditSeen, DrainSeen, Finished, Halt, Step
from migrator.domain.units import several
from migrator.domain.volume_tasks import VolumeTask

_S, _D = DrainState, DrainStep
_AGAIN = "then run the same command again"

_AUDIT = Act(step=_D.AUDIT, intent=_S.AUDITING, result=_S.AUDITED)
_AUDIT_SEEN = Act(step=_D.AUDIT, intent=_S.AUDITING, result=_S.AUDITED, seen_done=True)
_COMMIT = Act(step=_D.COMMIT, intent=_S.COMMITTING, result=_S.COMMITTED)
_WATCH = Act(step=_D.WATCH, intent=_S.DRAINING, result=_S.DRAINED)
_COMMIT_SEEN = Act(step=_D.COMMIT, intent=_S.COMMITTING, result=_S.COMMITTED, seen_done=True)


def next_step(record: DrainRecord, seen: DrainSeen, *, hand_over: bool = False) -> Step:
    """What is done next. With `hand_over` bricks that are out are wiped and given away; without it, it ends there.

    A drain that has failed waits: see `begin_again` and `begin_stop`.
    """
    state = record.state
    if state is _S.STOPPED:
        return restore(record, seen) or Finished(
            state=state, words=f"new files may come to {record.shown_bricks} again; what was moved stays where it is"
        )
    if state in OUT_STATES:
        return restore(record, seen) or out_of_the_volume(record, seen, hand_over=hand_over)
    if halt := cannot_tell(record, seen):
        return halt
    bricks = bricks_seen(record, seen)
    if state is _S.SETTLING:
        return settling(record, seen)
    if bricks is Bricks.SOME:
        return Halt(
            words=f"some of {record.shown_bricks} are in the volume and some are not: somebody else has changed it",
            hint=f"look at `gluster volume info`, put the set right by hand, {_AGAIN}",
        )
    if state in UNTOUCHED_STATES:
        if state is _S.PLANNED and bricks is Bricks.IN:
            return Act(step=_D.CHECK, intent=_S.PREFLIGHT, result=_S.PREFLIGHT)
        return _start(record, seen)
    if bricks is Bricks.OUT:
        return _taken_out(record, seen)
    if state is _S.STARTING:
        return _starting(record, seen)
    if state is _S.FAILED:
        return restore(record, seen) or Halt(
            words=f"the drain of {record.shown_bricks} has failed: {record.failure or 'no reason was recorded'}",
            reasons=tuple(problem for problem in seen.preflight or () if problem not in record.failure),
            hint=f"put that right (why a file was not moved: /var/log/glusterfs/{record.volume}-rebalance.log on {_hosts(record)}) "
            "and drain again (`migrator brick drain`; with --recover it brings back itself what Gluster did not move), or take "
            "it back (`migrator brick stop`)",
        )
    if state is _S.STOPPING:
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
    if record.state is not _S.FAILED or cannot_tell(record, seen) or bricks_seen(record, seen) is not Bricks.IN:
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
        return Act(step=_D.STOP, intent=_S.STOPPED, result=_S.STOPPED, seen_done=True, reason=reason)
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
    return state in (_S.STOPPING, _S.SETTLING, _S.STOPPED)


def may_start(record: DrainRecord) -> bool:
    """Whether a start may be the next step, so that the look has to tell what speaks against it (`preflight`)."""
    return record.state in (_S.PREFLIGHT, _S.STARTING, _S.FAILED) or (
        record.state in (_S.AUDITING, _S.AUDITED) and _tries_again(record)
    )


def commit_problems(record: DrainRecord, seen: DrainSeen) -> tuple[str, ...]:
    """All that speaks against a commit now; what is not known speaks against it too."""
    problems = [*counter_problems(record, seen), *hosts_missing(record, seen)]
    task = own_task(record, seen)
    if task is None or task.id != record.notes.task_id or set(task.bricks) != set(record.bricks):
        problems.append("the drain that Gluster shows is not the one that is recorded")
    audit = audit_since(record, seen, _S.AUDITING)
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
            hint=f"put it right, {_AGAIN}",
        )
    task = own_task(record, seen)
    return Act(step=_D.START, intent=_S.STARTING, result=_S.STARTED, task_before=None if task is None else task.id)


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


def _adopt(task: VolumeTask) -> Act:
    """The drain that Gluster shows is gone on with, whoever has begun it."""
    return Act(step=_D.START, intent=_S.STARTING, result=_S.STARTED, seen_done=True, task_id=task.id)


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
            hint=f"bring glusterd and the bricks up on every host, {_AGAIN}",
            look_again=True,
        )
    if moves(seen):
        if seen.lost:
            return _give_up(seen.lost)
        if seen.stalled:
            return _give_up(f"it stands still: {seen.stalled}")
        if record.state in (_S.STARTED, _S.DRAINING):
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
    if record.state in (_S.STARTED, _S.DRAINING):
        return _WATCH
    return Halt(
        words=f"how far the drain of {record.shown_bricks} is, cannot be told",
        reasons=hosts_missing(record, seen),
        hint=f"{way_out(record, hosts)}; {_AGAIN}",
        look_again=True,
    )


def _moved(record: DrainRecord, seen: DrainSeen) -> Step:
    """Gluster says that everything was moved: what is left to do until the commit."""
    if record.state in (_S.STARTED, _S.DRAINING):
        return Act(step=_D.WATCH, intent=_S.DRAINING, result=_S.DRAINED, seen_done=True)
    audit = audit_since(record, seen, _S.AUDITING)
    if record.state is _S.DRAINED or audit is None:
        return _AUDIT
    if not audit.clean and seen.may_recover:
        return recover(record)
    if not audit.whole:
        return _not_whole(record, audit)
    if not audit.clean:
        # Looking again has not helped: only Gluster itself can move what is left.
        return _start(record, seen) if _tries_again(record) else _give_up("; ".join(audit_left(audit)))
    if record.state is _S.AUDITING:
        return _AUDIT_SEEN
    if problems := commit_problems(record, seen):
        return Halt(
            words=f"{record.shown_bricks} may not be committed now", reasons=problems, hint=f"put it right, {_AGAIN}"
        )
    return _COMMIT


def _tries_again(record: DrainRecord) -> bool:
    """Whether it has failed since it was started, and was asked for again."""
    failed_s, started_s = record.times.get(_S.FAILED), record.times.get(_S.STARTED)
    return failed_s is not None and (started_s is None or failed_s >= started_s)


def _taken_out(record: DrainRecord, seen: DrainSeen) -> Step:
    """The bricks are out of the volume. After our own intent to commit that is its end; otherwise somebody else did it, who
    may have left files behind: only a clean audit says that all is well.
    """
    if record.state is _S.COMMITTING:
        return _COMMIT_SEEN
    audited = record.state in (_S.AUDITING, _S.AUDITED)
    audit = audit_since(record, seen, _S.AUDITING) if audited else None
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
    return _AUDIT_SEEN if record.state is _S.AUDITING else _COMMIT_SEEN


def _not_whole(record: DrainRecord, audit: AuditSeen) -> Halt:
    return Halt(
        words=f"the audit of {record.shown_bricks} is not whole",
        reasons=audit_left(audit),
        hint=f"see that every host is reached (`migrator doctor`), {_AGAIN}",
        look_again=True,
    )


def _give_up(reason: str) -> Act:
    return Act(step=_D.GIVE_UP, intent=_S.FAILED, result=_S.FAILED, reason=reason)
