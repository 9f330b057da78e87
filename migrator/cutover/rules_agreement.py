"""Compares a snapshot with the record of a cutover. If they do not agree, nothing may be changed. Pure."""

from collections.abc import Mapping, Sequence

from migrator.core.paths import show
from migrator.cutover import model
from migrator.cutover.model import Phase
from migrator.cutover.rules_directions import Way
from migrator.operations.model import Halt

_AGAIN = "then run the same command again: it goes on from here, or gives the move up"
_CLOSED = frozenset({model.TopSeen.FROZEN})
_ANY = frozenset(model.TopSeen) - {model.TopSeen.UNKNOWN}

# An interrupted freeze or thaw leaves any mixture of both ends. If a frozen top is open, somebody opened it by hand to
# let the user work again: before the switch this aborts the cutover.
_OPEN_OR_CLOSED = frozenset({model.TopSeen.OPEN, model.TopSeen.FROZEN})
_BETWEEN = _OPEN_OR_CLOSED | {model.TopSeen.PARTLY}
_TOP_HERE: Mapping[Phase, frozenset[model.TopSeen]] = {
    Phase.START: frozenset({model.TopSeen.OPEN}),
    Phase.FREEZING: _BETWEEN,
    Phase.REVERTING: _BETWEEN,
    **dict.fromkeys((Phase.SWITCHED, Phase.THAWING, Phase.ARRIVED), _CLOSED),
}
"""In every other phase it is open or closed."""

_LINK_AFTER = frozenset({Phase.SWITCHED, Phase.THAWING, Phase.ARRIVED})


def unexplained(way: Way, phase: Phase, record: model.CutoverRecord, seen: model.Seen) -> Halt | None:
    """Why nothing may be changed; None if this program can have left everything that the snapshot shows."""
    return _link(way, phase, record, seen) or _tops(way, phase, record, seen)


def unexplained_start(way: Way, record: model.CutoverRecord, seen: model.Seen) -> Halt | None:
    """The same check before a rollback begins: the user may have changed their top since."""
    if found := _link(way, Phase.START, record, seen):
        return found
    here = _OPEN_OR_CLOSED if record.state is model.CutoverState.SWITCHED else _ANY
    return _both(way, record, seen, here, _CLOSED)


def _tops(way: Way, phase: Phase, record: model.CutoverRecord, seen: model.Seen) -> Halt | None:
    here, there = _TOP_HERE.get(phase, _OPEN_OR_CLOSED), _CLOSED
    if phase in (Phase.SWITCHED, Phase.THAWING):
        # A user who was switched may have been thawed by hand.
        there = _BETWEEN
    elif phase is Phase.ARRIVED:
        # The top belongs to the user again, who may give it any mode.
        there = _ANY
    elif phase is Phase.SWITCHING and seen.link is way.other_side:
        here, there = _CLOSED, _OPEN_OR_CLOSED
    return _both(way, record, seen, here, there)


def _both(
    way: Way,
    record: model.CutoverRecord,
    seen: model.Seen,
    here: frozenset[model.TopSeen],
    there: frozenset[model.TopSeen],
) -> Halt | None:
    return _top(record, way.side, way.top_here(seen), here, seen.top_differences) or _top(
        record, way.other_side, way.top_there(seen), there, seen.top_differences
    )


def _link(way: Way, phase: Phase, record: model.CutoverRecord, seen: model.Seen) -> Halt | None:
    name = show(record.notes.link) if record.notes.link is not None else f"the path of {record.tree.user}"
    if seen.link is model.LinkSeen.UNKNOWN:
        return Halt(
            words=f"where {name} leads cannot be seen",
            hint=f"put right what keeps it from being looked at, {_AGAIN}",
        )
    if seen.link is model.LinkSeen.UNTOLD:
        return None
    side = way.other_side if phase in _LINK_AFTER else way.side
    if seen.link is side or (phase is Phase.SWITCHING and seen.link is way.other_side):
        return None
    holds = "" if seen.link_holds is None else f" ({show(seen.link_holds)})"
    where = "elsewhere" if seen.link is model.LinkSeen.OTHER else f"to the {seen.link.value}"
    return Halt(
        words=f"{name} leads {where}{holds} although the cutover is {record.state.value}: somebody else has changed it",
        hint=f"find out on which side {record.tree.user} has worked since; let {name} lead to the {side}, {_AGAIN}",
    )


_TOP_WORDS = {
    model.TopSeen.OPEN: "open",
    model.TopSeen.FROZEN: "closed",
    model.TopSeen.PARTLY: "partly closed",
}


def _top(
    record: model.CutoverRecord,
    side: str,
    found: model.TopSeen,
    expected: frozenset[model.TopSeen],
    differences: Sequence[str],
) -> Halt | None:
    if found in expected:
        return None
    name = f"the top directory of {show(record.tree.path)} on the {side}"
    if found is model.TopSeen.UNKNOWN:
        return Halt(
            words=f"{name} cannot be looked at",
            hint=f"see `migrator doctor`, put right what it finds, {_AGAIN}",
        )
    why = "; ".join(differences) if found is model.TopSeen.OTHER else f"it is {_TOP_WORDS[found]}"
    wanted = "closed again (root's, mode 0700)" if model.TopSeen.OPEN not in expected else "as it was before the freeze"
    return Halt(
        words=f"{name} is not as the cutover left it ({record.state.value}): {why}",
        hint=f"find out who changed it, and whether files were changed there meanwhile; make it {wanted}, {_AGAIN}",
    )
