"""Drains, additions and cutovers that go through their states in a ledger."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from migrator.app.ledger import MigrationLedger
from migrator.bricks.add.model import AdditionRecord, AdditionSide
from migrator.bricks.add.model import AdditionState as A
from migrator.bricks.add.model import AdditionStep as ToAdd
from migrator.bricks.drain.model import DrainNotes, DrainRecord
from migrator.bricks.drain.model import DrainState as D
from migrator.bricks.drain.model import DrainStep as ToDrain
from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverNotes, CutoverRecord, act_of
from migrator.cutover.model import CutoverState as C
from migrator.cutover.model import CutoverStep as ToCut
from migrator.gluster.model import ChangedOption
from migrator.operations.model import Act

SET = ("gl1:/b'\n", "gl2:/b\\", "gl3:/ü")
TREE = UserTree(path=b"home/-rf\n\xff\x00'\"%41\\", user="al\udcffice")
THROTTLE = ChangedOption(name="cluster.rebal-throttle", before=None, given=("lazy",))
OPTIONS = DrainNotes(options=(THROTTLE,))
TOPS = CutoverNotes(frozen_top='{"mode": 448}', frozen_target_top='{"mode": 493}')

Move = tuple[Any, Any, Any]
"""A step, the state of its intent, and the state of its result."""
CHECK: Move = (ToDrain.CHECK, D.PREFLIGHT, D.PREFLIGHT)
START: Move = (ToDrain.START, D.STARTING, D.STARTED)
WATCH: Move = (ToDrain.WATCH, D.DRAINING, D.DRAINED)
AUDIT: Move = (ToDrain.AUDIT, D.AUDITING, D.AUDITED)
COMMIT: Move = (ToDrain.COMMIT, D.COMMITTING, D.COMMITTED)
GIVE_UP: Move = (ToDrain.GIVE_UP, D.FAILED, D.FAILED)
STOP: Move = (ToDrain.STOP, D.STOPPING, D.STOPPING)
SETTLE: Move = (ToDrain.SETTLE, D.SETTLING, D.STOPPED)
RESTORE: Move = (ToDrain.RESTORE, D.STOPPED, D.STOPPED)

PREPARE: Move = (ToAdd.PREPARE, A.PREPARING, A.PREPARED)
ADD: Move = (ToAdd.ADD, A.ADDING, A.ADDED)
LAY_OUT: Move = (ToAdd.LAY_OUT, A.LAYOUT, A.LAYOUT)
LAID_OUT: Move = (ToAdd.LAY_OUT, A.LAYOUT, A.LAID_OUT)
BALANCED: Move = (ToAdd.BALANCE, A.BALANCING, A.BALANCED)
FINISH: Move = (ToAdd.FINISH, A.BALANCED, A.SETTLED)
HAND_OVER: Move = (ToAdd.HAND_OVER, A.HANDING, A.SEEN)
SETTLE_ADDED: Move = (ToAdd.FINISH, A.SEEN, A.SETTLED)

FREEZE: Move = (ToCut.FREEZE, C.FREEZING, C.FROZEN)
SWITCH: Move = (ToCut.SWITCH, C.SWITCHING, C.SWITCHED)
THERE: tuple[Move, ...] = (
    FREEZE,
    (ToCut.FINAL_PASS, C.FINAL_PASS, C.FINAL_PASS),
    (ToCut.VERIFY, C.VERIFYING, C.VERIFIED),
    SWITCH,
    (ToCut.THAW, C.THAWING, C.THAWED),
)
RETAIN: Move = (ToCut.RETAIN, C.THAWED, C.RETAINED)
PURGE: Move = (ToCut.PURGE, C.PURGING, C.PURGED)
REVERT: Move = (ToCut.REVERT, C.REVERTING, C.REVERTED)
ROLLBACK_FREEZE: Move = (ToCut.ROLLBACK_FREEZE, C.ROLLBACK_FREEZING, C.ROLLBACK_FROZEN)
BACK: tuple[Move, ...] = (
    ROLLBACK_FREEZE,
    (ToCut.CARRY_BACK, C.CARRYING_BACK, C.CARRYING_BACK),
    (ToCut.ROLLBACK_VERIFY, C.ROLLBACK_VERIFYING, C.ROLLBACK_VERIFIED),
    (ToCut.SWITCH_BACK, C.SWITCHING_BACK, C.SWITCHED_BACK),
    (ToCut.ROLLBACK_THAW, C.ROLLBACK_THAWING, C.ROLLED_BACK),
)
ROLLBACK_REVERT: Move = (ToCut.ROLLBACK_REVERT, C.ROLLBACK_REVERTING, C.THAWED)

_NEEDED: dict[Any, Any] = {ToDrain.START: OPTIONS, ToCut.FREEZE: TOPS, ToCut.ROLLBACK_FREEZE: TOPS}


def act(move: Move, **more: str) -> Any:
    return Act(step=move[0], intent=move[1], result=move[2], **more)  # type: ignore[arg-type]


def do(store: Any, record: Any, *moves: Move, at_s: float = 10.0, reason: str = "", notes: Any = None) -> Any:
    """Carry out steps of 0.5 s, one every 10 s."""
    for number, move in enumerate(moves):
        begins_s = at_s + 10.0 * number
        noted = notes or _NEEDED.get(move[0])
        step = store.intend(record.id, act(move, reason=reason), at_s=begins_s, notes=noted)
        record = store.finish(step, move[2], at_s=begins_s + 0.5)
    return record


def plan_drain(ledger: MigrationLedger, bricks: tuple[str, ...] = SET, *, at_s: float = 1.0) -> DrainRecord:
    record = DrainRecord(id=0, volume="vol1", volume_id="v", bricks=bricks, state=D.PLANNED, times={D.PLANNED: at_s})
    return ledger.drains.plan(record, anew=False)


def plan_addition(
    ledger: MigrationLedger,
    bricks: tuple[str, ...] = SET,
    *,
    side: AdditionSide = AdditionSide.SOURCE,
    volume_id: str = "v",
    instead_of: str | None = None,
    at_s: float = 1.0,
    anew: bool = False,
) -> AdditionRecord:
    record = AdditionRecord(
        id=0,
        side=side,
        volume="vol1",
        volume_id=volume_id,
        bricks=bricks,
        instead_of=instead_of,
        state=A.PLANNED,
        times={A.PLANNED: at_s},
    )
    return ledger.additions.plan(record, anew=anew)


def plan_cutover(
    ledger: MigrationLedger, *, name: str = "p", batch: int = 1, tree: UserTree = TREE, at_s: float = 1.0
) -> CutoverRecord:
    return ledger.cutovers.plan(plan=name, batch=batch, tree=tree, predicted_freeze_s=12.5, at_s=at_s)


MOVED = tuple(move[0] for move in THERE)
FROZEN = MOVED[:1]
REVERTED = (ToCut.FREEZE, ToCut.REVERT)


def cut_over(ledger_file: Path, user: str, steps: Sequence[ToCut] = MOVED) -> None:
    """A new attempt at the tree of a user in the ledger of a real site, through these steps, each done."""
    with MigrationLedger.open(ledger_file) as ledger:
        plan = ledger.plans.active()
        assert plan is not None
        planned = next(one for one in ledger.plans.trees(plan.name) if one.tree.user == user)
        record = plan_cutover(ledger, name=plan.name, batch=planned.batch, tree=planned.tree)
        for step in map(act_of, steps):
            made = ledger.cutovers.intend(record.id, step, at_s=2.0, notes=TOPS)
            ledger.cutovers.finish(made, step.result, at_s=3.0)
