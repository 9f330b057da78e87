"""Records of drains and looks at the world, as tests put them together, and the acts that follow."""

from dataclasses import replace
from typing import Any

from migrator.bricks.drain import model as drain
from migrator.gluster.model import Brick, TaskCounters, TaskKind, TaskProgress, TaskStatus, VolumeState, VolumeTask

S, D, T = drain.DrainState, drain.DrainStep, TaskStatus

BRICK = "gl3:/b"

UNDER_WAY = (S.STARTED, S.DRAINING, S.DRAINED, S.AUDITING, S.AUDITED, S.COMMITTING)

CLEAN = drain.AuditSeen(started_at_s=60.0, whole=True, left=0, unsure=0)

THROTTLE = drain.ChangedOption(name="cluster.rebal-throttle", before="normal", given=("lazy", "aggressive"))


def record(
    state: drain.DrainState, failure: str = "", *, times: dict[drain.DrainState, float] | None = None, **notes: Any
) -> drain.DrainRecord:
    return drain.DrainRecord(
        id=1,
        volume="vol1",
        volume_id="v",
        bricks=(BRICK,),
        attempt=1,
        state=state,
        times={S.STARTED: 40.0, S.AUDITING: 50.0, S.COMMITTED: 55.0, state: 50.0, **(times or {})},
        failure=failure,
        notes=drain.DrainNotes(**{"options": (), "task_id": "t1", **notes}),
    )


def counters(**changes: Any) -> TaskCounters:
    done = TaskCounters(
        host="gl3",
        host_id="3",
        files=7,
        size_bytes=70,
        lookups=9,
        failures=0,
        skipped=0,
        status=T.COMPLETED,
        fix_layout=False,
        runtime_s=5.0,
    )
    return replace(done, **changes)


def progress(*found: TaskCounters, task_id: str = "t1") -> TaskProgress:
    return TaskProgress(task_id=task_id, counters=found or (counters(),))


TASK = VolumeTask(kind=TaskKind.REMOVE_BRICK, name="Remove brick", id="t1", status=T.COMPLETED, bricks=(BRICK,))

STATE = VolumeState(
    volume="vol1",
    volume_id="v",
    type="Distribute",
    started=True,
    bricks=tuple(Brick(name=f"gl{n}:/b", host=f"gl{n}", path=b"/b", online=True) for n in (1, 2, 3)),
    options=(),
    tasks=(),
    peers_down=(),
)

WITHOUT = replace(STATE, bricks=STATE.bricks[:2])

MOVING = progress(counters(status=T.IN_PROGRESS))


def seen(**changes: Any) -> drain.DrainSeen:
    """As Gluster leaves it when it has moved everything, audited; nothing speaks against a start."""
    whole = drain.DrainSeen(
        state=STATE,
        tasks=(TASK,),
        progress=progress(),
        preflight=(),
        audit=CLEAN,
        places={BRICK: drain.PlaceSeen.BRICK},
    )
    return replace(whole, **changes)


def out(**changes: Any) -> drain.DrainSeen:
    return seen(**{"state": WITHOUT, "tasks": (), "progress": None, **changes})


def act(step: drain.DrainStep, intent: drain.DrainState, result: drain.DrainState, **more: Any) -> drain.DrainAct:
    return drain.DrainAct(step=step, intent=intent, result=result, **more)


AUDIT = act(D.AUDIT, S.AUDITING, S.AUDITED)

COMMIT = act(D.COMMIT, S.COMMITTING, S.COMMITTED)

START = act(D.START, S.STARTING, S.STARTED)

WATCH = act(D.WATCH, S.DRAINING, S.DRAINED)

SETTLE = act(D.SETTLE, S.SETTLING, S.STOPPED)

ADOPTED = replace(START, seen_done=True, task_id="t2")

OTHER = replace(TASK, id="t2")

WIPE = act(D.WIPE, S.WIPING, S.WIPED)

HAND_OVER = act(D.HAND_OVER, S.HANDING_OVER, S.HANDED_OVER)
