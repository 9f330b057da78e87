"""What is done with bricks that are out of the volume, and what an audit of bricks says. Pure."""

from migrator.decide.drain_facts import Bricks, bricks_seen, recover
from migrator.domain.drain import DrainRecord, DrainState, DrainStep
from migrator.domain.drain_seen import Act, AuditSeen, DrainSeen, Finished, Halt, PlaceSeen, Step
from migrator.domain.hooks import HookState
from migrator.domain.paths import show
from migrator.domain.units import several

_S, _D = DrainState, DrainStep
_AGAIN = "then run the same command again"
_WORDS = {
    _S.COMMITTED: "out of the volume, and empty",
    _S.WIPING: "out of the volume, and being wiped",
    _S.WIPED: "out of the volume, and wiped",
    _S.HANDING_OVER: "out of the volume, and being handed over",
    _S.HANDED_OVER: "handed over",
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
    if state is _S.HANDED_OVER:
        return finished
    inside = seen.state is not None and bricks_seen(record, seen) is not Bricks.OUT
    if inside and state is not _S.HANDING_OVER:
        return Halt(
            words=f"{record.bricks_are} in the volume again: somebody else has added it",
            hint="nothing is wiped that belongs to a volume; drain it anew to have it out",
        )
    if not hand_over:
        return finished
    if seen.state is None:
        return Halt(
            words=f"whether {record.bricks_are} in the volume again is not known",
            hint=f"see that glusterd runs, {_AGAIN}",
            look_again=True,
        )
    if state in (_S.WIPED, _S.HANDING_OVER):
        # Who gives it back to the volume it came from is done when it is there.
        return _hand_over(seen_done=inside)
    return _wipe(record, seen)


def _hand_over(*, seen_done: bool = False) -> Act:
    return Act(step=_D.HAND_OVER, intent=_S.HANDING_OVER, result=_S.HANDED_OVER, seen_done=seen_done)


def _wipe(record: DrainRecord, seen: DrainSeen) -> Step:
    """A new file system is made only where a fresh audit found nothing, or where a wipe had begun."""
    places = seen.places or {}
    found = {name: places.get(name, PlaceSeen.UNKNOWN) for name in record.bricks}
    if set(found.values()) == {PlaceSeen.EMPTY}:
        return Act(step=_D.WIPE, intent=_S.WIPING, result=_S.WIPED, seen_done=True)
    for name, place in found.items():
        if place is PlaceSeen.UNKNOWN:
            return Halt(
                words=f"what lies at {name} cannot be seen",
                hint=f"see that its host is reached (`migrator doctor`), {_AGAIN}",
                look_again=True,
            )
        if place is PlaceSeen.OTHER or (place is PlaceSeen.UNMOUNTED and record.state is _S.COMMITTED):
            what = "holds something that is no brick of this volume" if place is PlaceSeen.OTHER else "is not mounted"
            return Halt(
                words=f"{name} {what}: somebody else has changed it",
                hint=f"find out what it is; mount the brick there, or make a new file system by hand, {_AGAIN}",
            )
    if PlaceSeen.BRICK in found.values():
        audit = audit_since(record, seen, _S.COMMITTED)
        if audit is None:
            return Act(step=_D.AUDIT, intent=record.state, result=record.state)
        if not audit.clean and seen.may_recover:
            return recover(record)
        if not audit.clean:
            return Halt(
                words=f"{record.bricks_are} not wiped: what lies there may be nowhere else",
                reasons=audit_left(audit),
                hint="bring the files back through the mount: the same command with --recover",
                look_again=not audit.whole,
            )
    return Act(step=_D.WIPE, intent=_S.WIPING, result=_S.WIPED)
