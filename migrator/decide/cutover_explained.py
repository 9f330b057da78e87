"""Whether what is seen of a tree can be what its record left: if not, nothing of it may be touched. Pure."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from migrator.decide.cutover_ways import Phase, Way
from migrator.domain.cutover import CutoverRecord, CutoverState
from migrator.domain.cutover_seen import Halt, LinkSeen, Seen, TopSeen
from migrator.domain.paths import show

_AGAIN = "then run the same command again: it goes on from here, or gives the move up"
_CLOSED = frozenset({TopSeen.FROZEN})
_ANY = frozenset(TopSeen) - {TopSeen.UNKNOWN}

# A freeze or thaw that was cut off leaves anything between both ends. A top that is open although it was frozen has been
# opened by hand, by somebody who wanted the user to work again: before the switch that is taken as giving up.
_TOP_HERE: Mapping[Phase, frozenset[TopSeen]] = {
    Phase.START: frozenset({TopSeen.OPEN}),
    Phase.FREEZING: frozenset({TopSeen.OPEN, TopSeen.PARTLY, TopSeen.FROZEN}),
    Phase.FROZEN: frozenset({TopSeen.OPEN, TopSeen.FROZEN}),
    Phase.COPYING: frozenset({TopSeen.OPEN, TopSeen.FROZEN}),
    Phase.VERIFYING: frozenset({TopSeen.OPEN, TopSeen.FROZEN}),
    Phase.VERIFIED: frozenset({TopSeen.OPEN, TopSeen.FROZEN}),
    Phase.SWITCHING: frozenset({TopSeen.OPEN, TopSeen.FROZEN}),
    Phase.SWITCHED: _CLOSED,
    Phase.THAWING: _CLOSED,
    Phase.ARRIVED: _CLOSED,
    Phase.REVERTING: frozenset({TopSeen.OPEN, TopSeen.PARTLY, TopSeen.FROZEN}),
}

_LINK_AFTER = frozenset({Phase.SWITCHED, Phase.THAWING, Phase.ARRIVED})


def unexplained(way: Way, phase: Phase, record: CutoverRecord, seen: Seen) -> Halt | None:
    """Why nothing may be touched, or None where everything seen can be what this program left."""
    return _link(way, phase, record, seen) or _tops(way, phase, record, seen)


def unexplained_start(way: Way, record: CutoverRecord, seen: Seen) -> Halt | None:
    """The same before a rollback begins: the user may have changed the top of what is his meanwhile."""
    if found := _link(way, Phase.START, record, seen):
        return found
    here = frozenset({TopSeen.FROZEN, TopSeen.OPEN}) if record.state is CutoverState.SWITCHED else _ANY
    return _both(way, record, seen, here, _CLOSED)


def _tops(way: Way, phase: Phase, record: CutoverRecord, seen: Seen) -> Halt | None:
    here, there = _TOP_HERE[phase], _CLOSED
    if phase in (Phase.SWITCHED, Phase.THAWING):
        # One who was switched may have been thawed by hand.
        there = frozenset({TopSeen.FROZEN, TopSeen.PARTLY, TopSeen.OPEN})
    elif phase is Phase.ARRIVED:
        # From now on it is the user's: he may give it any mode.
        there = _ANY
    elif phase is Phase.SWITCHING and seen.link is way.link_after:
        here, there = _CLOSED, frozenset({TopSeen.FROZEN, TopSeen.OPEN})
    return _both(way, record, seen, here, there)


def _both(
    way: Way, record: CutoverRecord, seen: Seen, here: frozenset[TopSeen], there: frozenset[TopSeen]
) -> Halt | None:
    return _top(record, way.side, way.top_here(seen), here, seen.top_differences) or _top(
        record, way.other_side, way.top_there(seen), there, seen.top_differences
    )


def _link(way: Way, phase: Phase, record: CutoverRecord, seen: Seen) -> Halt | None:
    name = show(record.notes.link) if record.notes.link is not None else f"the path of {record.tree.user}"
    if seen.link is LinkSeen.UNKNOWN:
        return Halt(
            words=f"where {name} leads cannot be seen",
            hint=f"put right what keeps it from being looked at, {_AGAIN}",
            look_again=True,
        )
    if seen.link is LinkSeen.UNTOLD:
        return None
    expected = {way.link_after} if phase in _LINK_AFTER else {way.link_before}
    if phase is Phase.SWITCHING:
        expected = {way.link_before, way.link_after}
    if seen.link in expected:
        return None
    holds = "" if seen.link_holds is None else f" ({show(seen.link_holds)})"
    if seen.link is LinkSeen.OTHER:
        found = f"{name} leads neither to the source nor to the target{holds}"
    else:
        found = f"{name} leads to the {seen.link.value}{holds} although the cutover is {record.state.value}"
    side = way.other_side if phase in _LINK_AFTER else way.side
    return Halt(
        words=f"{found}: somebody else has changed it",
        hint=f"find out on which side {record.tree.user} has worked since; let {name} lead to the {side}, {_AGAIN}",
    )


def _top(
    record: CutoverRecord, side: str, found: TopSeen, expected: frozenset[TopSeen], differences: Sequence[str]
) -> Halt | None:
    if found in expected:
        return None
    name = f"the top directory of {show(record.tree.path)} on the {side}"
    match found:
        case TopSeen.UNKNOWN:
            return Halt(
                words=f"{name} cannot be looked at",
                hint=f"see `migrator doctor`, put right what it finds, {_AGAIN}",
                look_again=True,
            )
        case TopSeen.OPEN:
            words = f"{name} is open although the cutover is {record.state.value}"
        case TopSeen.FROZEN:
            words = f"{name} is closed although the cutover is {record.state.value}"
        case TopSeen.PARTLY:
            words = f"owner, mode and ACL of {name} are partly those of a freeze"
        case TopSeen.OTHER:
            why = "; ".join(differences) or "owner, mode or ACL are none that this program has given or found"
            words = f"{name}: {why}"
        case _:
            assert_never(found)
    wanted = "closed again (root's, mode 0700)" if TopSeen.OPEN not in expected else "as it was before the freeze"
    return Halt(
        words=f"{words}: somebody else has changed it",
        hint=f"find out who did, and whether files were changed there meanwhile; make it {wanted}, {_AGAIN}",
    )
