"""What is done next with a tree that is cut over or rolled back, from its record and a look at the world. Pure.

The caller asks, writes the intent, acts, writes the result or the failure, and asks again with a fresh look, also after a
crash: nothing but the record is remembered. Where an act has failed and the answer is the same act again (a thaw, say),
the caller ends with that failure; whoever runs the command again tries it again.

- Before the switch every failure, and every proof that is lacking, thaws the user where he is.
- Between intent and result of the switch the world decides whether it was made.
- After the switch failures are tried again, and never go back by themselves.
- What the record does not explain is not touched.
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

from migrator.decide.cutover_explained import unexplained, unexplained_start
from migrator.decide.cutover_ways import BACK, PLACES, THERE, Phase, Way
from migrator.domain.cutover import ROLLBACK_STATES, CutoverRecord, CutoverState, CutoverStep
from migrator.domain.cutover_seen import (
    Act,
    BackupSeen,
    Finished,
    Halt,
    LinkSeen,
    PassSeen,
    ProofSeen,
    Seen,
    Step,
    TopSeen,
)
from migrator.domain.units import several

_SHOWN = 3


def next_step(record: CutoverRecord, seen: Seen) -> Step:
    """What is done next, of a cutover and of a rollback that has begun."""
    place = PLACES.get(record.state)
    if place is None:
        return _finished(record)
    way, phase = place
    if halt := unexplained(way, phase, record, seen):
        return halt
    match phase:
        case Phase.START | Phase.FREEZING | Phase.FROZEN | Phase.COPYING | Phase.VERIFYING | Phase.VERIFIED:
            if why := _why_revert(way, phase, record, seen):
                return _revert(way, seen, why)
            return _forward(way, phase, record, seen)
        case Phase.SWITCHING:
            return _switching(way, record, seen)
        case Phase.REVERTING:
            return _revert(way, seen, record.failure)
        case Phase.SWITCHED | Phase.THAWING:
            done = way.top_there(seen) is TopSeen.OPEN
            end = way.arrived[0]
            return Act(step=way.thaw, intent=way.thawing, result=end, seen_done=done)
        case Phase.ARRIVED:
            return Act(step=CutoverStep.RETAIN, intent=record.state, result=CutoverState.RETAINED)
        case _:
            assert_never(phase)


def begin_rollback(record: CutoverRecord, seen: Seen) -> Step:
    """What the wish for a rollback begins with. The caller asks this until the record is on a way back (`turned_back`) or
    nothing is left to do, and then `next_step`: only so a rollback that had to be given up does not begin again.

    Before the switch a cutover is given up. A switch or a thaw that has begun is finished first.
    """
    state = record.state
    if state in (CutoverState.PURGING, CutoverState.PURGED):
        return Halt(
            words=f"the source of {record.tree.user} {'is being' if state is CutoverState.PURGING else 'has been'} purged",
            hint="there is nothing to go back to: to move the user back, set up a site whose source is this target",
        )
    if state in BACK.start:
        if halt := unexplained_start(BACK, record, seen):
            return halt
        return Act(step=BACK.freeze, intent=BACK.freezing, result=BACK.frozen)
    place = PLACES.get(state)
    if place is None or turned_back(state) or state is THERE.thawing:
        return next_step(record, seen)
    way, phase = place
    if halt := unexplained(way, phase, record, seen):
        return halt
    if phase is Phase.SWITCHING and seen.link is not way.link_before:
        return _switching(way, record, seen)
    return _revert(way, seen, record.failure or "a rollback was asked for before the switch")


def turned_back(state: CutoverState) -> bool:
    """Whether a user in this state is on the way back to the source, or back there."""
    return state in ROLLBACK_STATES or state in (
        CutoverState.REVERTING,
        CutoverState.REVERTED,
        CutoverState.ROLLED_BACK,
    )


def _finished(record: CutoverRecord) -> Finished:
    words = {
        CutoverState.RETAINED: "works on the target, and the source is kept",
        CutoverState.PURGING: "works on the target, and the source is being purged",
        CutoverState.PURGED: "works on the target, and the source is purged",
        CutoverState.REVERTED: f"works on the source, unharmed: {record.failure or 'no reason was recorded'}",
        CutoverState.ROLLED_BACK: "works on the source again",
    }
    return Finished(state=record.state, words=f"{record.tree.user} {words[record.state]}")


def _revert(way: Way, seen: Seen, reason: str) -> Act:
    done = way.top_here(seen) is TopSeen.OPEN
    return Act(step=way.revert, intent=way.reverting, result=way.reverted, seen_done=done, reason=reason)


def _why_revert(way: Way, phase: Phase, record: CutoverRecord, seen: Seen) -> str:
    """Why the user is thawed where he is; empty where it goes on."""
    if record.failure:
        return record.failure
    if phase in (Phase.START, Phase.FREEZING):
        return ""
    if way.top_here(seen) is TopSeen.OPEN:
        return f"the tree was opened on the {way.side} by somebody else while it had to be frozen"
    problems: list[str] = []
    match phase:
        case Phase.FROZEN:
            problems.extend(_writers(seen))
        case Phase.COPYING if _copied(record, seen) is not None:
            problems.extend(_pass_problems(way, record, seen))
        case Phase.VERIFYING:
            problems.extend(_pass_problems(way, record, seen))
            if _proof(record, seen) is not None:
                problems.extend(_proof_problems(way, record, seen))
        case Phase.VERIFIED:
            problems.extend(switch_problems(way, record, seen))
        case _:
            pass
    return "; ".join(problems)


def _forward(way: Way, phase: Phase, record: CutoverRecord, seen: Seen) -> Act:
    match phase:
        case Phase.START | Phase.FREEZING:
            done = way.top_here(seen) is TopSeen.FROZEN
            return Act(step=way.freeze, intent=way.freezing, result=way.frozen, seen_done=done)
        case Phase.FROZEN | Phase.COPYING:
            if phase is Phase.FROZEN or _copied(record, seen) is None:
                return Act(step=way.copy, intent=way.copying, result=way.copying)
            return Act(step=way.verify, intent=way.verifying, result=way.verified)
        case Phase.VERIFYING:
            done = _proof(record, seen) is not None
            return Act(step=way.verify, intent=way.verifying, result=way.verified, seen_done=done)
        case _:
            return Act(step=way.switch, intent=way.switching, result=way.switched)


def _switching(way: Way, record: CutoverRecord, seen: Seen) -> Step:
    """Between the intent of the switch and its result the world decides."""
    again = Act(step=way.switch, intent=way.switching, result=way.switched)
    if seen.link is way.link_after:
        return Act(step=way.switch, intent=way.switching, result=way.switched, seen_done=True)
    opened = way.top_here(seen) is TopSeen.OPEN
    problems = tuple(switch_problems(way, record, seen))
    if seen.link is LinkSeen.UNTOLD:
        # Forward is the only safe way as long as it is the same switch with the same proof: the hook may be called twice.
        if problems:
            return Halt(
                words=f"whether {record.tree.user} was switched is not known, and it cannot be done now: "
                + "; ".join(problems),
                hint=f"find out where the path leads that the hook switches. The tree is closed on the {way.other_side}, and "
                f"frozen on the {way.side}: put right what is said, then run the same command again",
            )
        return again
    if opened:
        return _revert(way, seen, f"the tree was opened on the {way.side} by somebody else before the switch")
    if why := record.failure or "; ".join(problems):
        return _revert(way, seen, why)
    return again


def switch_problems(way: Way, record: CutoverRecord, seen: Seen) -> Iterator[str]:
    """All that speaks against switching the path now; a fact that is not known speaks against it too."""
    if way.top_here(seen) is not TopSeen.FROZEN:
        yield f"the tree is not seen to be frozen on the {way.side}"
    if way.top_there(seen) is not TopSeen.FROZEN:
        yield f"the tree is not seen to be closed on the {way.other_side}"
    yield from _writers(seen)
    yield from _pass_problems(way, record, seen)
    yield from _proof_problems(way, record, seen)
    if way.forward:
        yield from _backup(seen)


def _writers(seen: Seen) -> Sequence[str]:
    return (
        ("whether somebody still writes to the frozen tree was not looked for",)
        if seen.writing is None
        else seen.writing
    )


def _copied(record: CutoverRecord, seen: Seen) -> PassSeen | None:
    """The pass that counts: it has ended, and is none that was there when the freeze was intended. Its scan is its own."""
    found, before = seen.copied, record.notes.passes_before
    if found is None or found.finished_at_s is None or before is None or found.id <= before:
        return None
    return found


def _pass_problems(way: Way, record: CutoverRecord, seen: Seen) -> Iterator[str]:
    found = _copied(record, seen)
    name = "the final pass" if way.forward else "the pass that carries back"
    if found is None:
        yield f"{name} has not ended, or did not begin in the freeze"
        return
    if not found.whole:
        yield f"{name} is not whole: the {way.side} could not be read everywhere, or was not healthy"
    for count, what in ((found.changed, "changed"), (found.vanished, "vanished")):
        if count:
            yield f"{several(count, 'file')} {what} during {name}"
    if found.failed:
        yield f"{several(found.failed, 'file')} did not arrive by {name}"


def _proof(record: CutoverRecord, seen: Seen) -> ProofSeen | None:
    """The verification that counts: of what the pass brought, and none that had begun when it was intended to verify that."""
    found, copied, before = seen.proof, seen.copied, record.notes.proofs_before
    if found is None or copied is None or copied.finished_at_s is None:
        return None
    if found.catalog != copied.catalog or before is None or found.id <= before:
        return None
    return found


def _proof_problems(way: Way, record: CutoverRecord, seen: Seen) -> Iterator[str]:
    found = _proof(record, seen)
    name = "the final pass" if way.forward else "the pass that carries back"
    if found is None:
        yield f"there is no verification of what {name} left"
        return
    if not found.whole:
        reasons = "; ".join(found.reasons[:3]) or "no reason was recorded"
        yield f"the verification is not whole: {reasons}"
    if found.differences:
        shown = f" ({'; '.join(found.examples[:_SHOWN])})" if found.examples else ""
        yield f"the verification found {several(found.differences, 'difference')}{shown}"
    if not found.by_policy:
        yield "the verification compared the content of fewer files than [verify] sample asks for"
    if way.forward and found.manifest is None:
        yield "the verification left no manifest"


def _backup(seen: Seen) -> Iterator[str]:
    match seen.backup:
        case BackupSeen.NOT_ASKED | BackupSeen.RECORDED:
            return
        case BackupSeen.MISSING:
            yield "no backup of the target is recorded, and the site asks for one before the switch"
        case BackupSeen.UNKNOWN:
            yield "whether a backup of the target is recorded is not known"
        case _:
            assert_never(seen.backup)
