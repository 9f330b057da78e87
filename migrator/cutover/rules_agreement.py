"""Compares a snapshot with the record of a cutover. If they do not agree, nothing may be changed. Pure."""

from collections.abc import Mapping, Sequence

from migrator.core.paths import show
from migrator.cutover import model
from migrator.cutover.model import Phase
from migrator.cutover.model_snapshot import LinkState, TopState, TreeSnapshot
from migrator.cutover.rules_directions import Direction
from migrator.operations.model import Halt

_AGAIN = "then run the same command again: it resumes, or aborts the move"
_CLOSED = frozenset({TopState.FROZEN})
_ANY = frozenset(TopState) - {TopState.UNKNOWN}

# An interrupted freeze or thaw leaves any mixture of both ends. If a frozen top is open, somebody opened it by hand to
# let the user work again: before the switch this aborts the cutover.
_OPEN_OR_CLOSED = frozenset({TopState.OPEN, TopState.FROZEN})
_BETWEEN = _OPEN_OR_CLOSED | {TopState.PARTLY}
_TOP_HERE: Mapping[Phase, frozenset[TopState]] = {
    Phase.START: frozenset({TopState.OPEN}),
    Phase.FREEZING: _BETWEEN,
    Phase.REVERTING: _BETWEEN,
    **dict.fromkeys((Phase.SWITCHED, Phase.THAWING, Phase.ARRIVED), _CLOSED),
}
"""In every other phase it is open or closed."""

_LINK_AFTER = frozenset({Phase.SWITCHED, Phase.THAWING, Phase.ARRIVED})


def unexplained(direction: Direction, phase: Phase, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Halt | None:
    """Why nothing may be changed; None if this program can have left everything that the snapshot shows."""
    return _link(direction, phase, record, snapshot) or _tops(direction, phase, record, snapshot)


def unexplained_start(direction: Direction, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Halt | None:
    """The same check before a rollback begins: the user may have changed their top since."""
    if found := _link(direction, Phase.START, record, snapshot):
        return found
    here = _OPEN_OR_CLOSED if record.state is model.CutoverState.SWITCHED else _ANY
    return _both(direction, record, snapshot, here, _CLOSED)


def _tops(direction: Direction, phase: Phase, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Halt | None:
    here, there = _TOP_HERE.get(phase, _OPEN_OR_CLOSED), _CLOSED
    if phase in (Phase.SWITCHED, Phase.THAWING):
        # A user who was switched may have been thawed by hand.
        there = _BETWEEN
    elif phase is Phase.ARRIVED:
        # The top belongs to the user again, who may give it any mode.
        there = _ANY
    elif phase is Phase.SWITCHING and snapshot.link is direction.other_side:
        here, there = _CLOSED, _OPEN_OR_CLOSED
    return _both(direction, record, snapshot, here, there)


def _both(
    direction: Direction,
    record: model.CutoverRecord,
    snapshot: TreeSnapshot,
    here: frozenset[TopState],
    there: frozenset[TopState],
) -> Halt | None:
    return _top(record, direction.side, direction.top_here(snapshot), here, snapshot.top_differences) or _top(
        record, direction.other_side, direction.top_there(snapshot), there, snapshot.top_differences
    )


def _link(direction: Direction, phase: Phase, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Halt | None:
    name = show(record.notes.link) if record.notes.link is not None else f"the path of {record.tree.user}"
    if snapshot.link is LinkState.UNKNOWN:
        return Halt(
            words=f"the target of {name} cannot be read",
            hint=f"fix the error that prevents it, {_AGAIN}",
        )
    if snapshot.link is LinkState.BY_HOOK:
        return None
    side = direction.other_side if phase in _LINK_AFTER else direction.side
    if snapshot.link is side or (phase is Phase.SWITCHING and snapshot.link is direction.other_side):
        return None
    holds = "" if snapshot.link_holds is None else f" ({show(snapshot.link_holds)})"
    where = "elsewhere" if snapshot.link is LinkState.OTHER else f"to the {snapshot.link.value}"
    return Halt(
        words=f"{name} leads {where}{holds} although the cutover is {record.state.value}: another program or person has changed it",
        hint=f"find out on which side {record.tree.user} has worked since; make {name} lead to the {side}, {_AGAIN}",
    )


_TOP_WORDS = {
    TopState.OPEN: "open",
    TopState.FROZEN: "closed",
    TopState.PARTLY: "partly closed",
}


def _top(
    record: model.CutoverRecord,
    side: str,
    found: TopState,
    expected: frozenset[TopState],
    differences: Sequence[str],
) -> Halt | None:
    if found in expected:
        return None
    name = f"the top directory of {show(record.tree.path)} on the {side}"
    if found is TopState.UNKNOWN:
        return Halt(
            words=f"{name} cannot be read",
            hint=f"fix the findings of `migrator doctor`, {_AGAIN}",
        )
    why = "; ".join(differences) if found is TopState.OTHER else f"it is {_TOP_WORDS[found]}"
    wanted = "closed again (root's, mode 0700)" if TopState.OPEN not in expected else "as it was before the freeze"
    return Halt(
        words=f"{name} is not as the cutover left it ({record.state.value}): {why}",
        hint=f"find out who changed it, and check for changed files below it; make it {wanted}, {_AGAIN}",
    )
