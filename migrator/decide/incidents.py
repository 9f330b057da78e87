"""What became of what went wrong: told by the events that followed. Pure."""

from collections.abc import Mapping, Sequence

from migrator.domain.events import EventKind
from migrator.domain.incidents import EventGroup, Incident

_K = EventKind

ENDED_BY: Mapping[EventKind, tuple[EventKind, ...]] = {
    _K.HOST_LOST: (_K.HOST_FOUND,),
    _K.STORAGE_LOST: (_K.STORAGE_BACK,),
    _K.CUTOVER_FAILED: (_K.CUTOVER_FINISHED,),
    _K.CUTOVER_REVERTING: (_K.CUTOVER_FINISHED,),
    _K.CUTOVER_GIVEN_UP: (_K.CUTOVER_FINISHED,),
    _K.CUTOVER_HALTED: (_K.CUTOVER_FINISHED,),
    _K.DRAIN_FAILED: (_K.DRAIN_FINISHED,),
    _K.DRAIN_HALTED: (_K.DRAIN_FINISHED,),
    _K.DRAIN_DOUBTED: (_K.DRAIN_FINISHED,),
    _K.ADDITION_FAILED: (_K.ADDITION_FINISHED,),
    _K.ADDITION_HALTED: (_K.ADDITION_FINISHED,),
    _K.CHUNK_RETRIED: (_K.PASS_FINISHED,),
    _K.CHUNK_FAILED: (_K.PASS_FINISHED,),
}
"""What ends an incident where it is said of the same subject. A pass is of the same subject where that is its batch."""

ENDED_BY_ANY: Mapping[EventKind, tuple[EventKind, ...]] = {
    _K.RUN_INTERRUPTED: (_K.RUN_FINISHED,),
    _K.POOL_STOPPED: (_K.RUN_FINISHED,),
    _K.BATCH_REFUSED: (_K.RUN_FINISHED,),
    _K.BRICKS_UNFIT: (_K.RUN_FINISHED,),
    _K.SCAN_INTERRUPTED: (_K.SCAN_FINISHED,),
    _K.SOURCE_UNHEALTHY: (_K.SCAN_FINISHED,),
}
"""What ends an incident whatever it is said of."""

_WORDS: Mapping[EventKind, str] = {
    _K.HOST_FOUND: "the host is back",
    _K.STORAGE_BACK: "the storage is back",
    _K.CUTOVER_FINISHED: "a later attempt went through",
    _K.DRAIN_FINISHED: "the drain went through",
    _K.ADDITION_FINISHED: "the addition went through",
    _K.PASS_FINISHED: "the pass went through",
    _K.RUN_FINISHED: "a later run ended in order",
    _K.SCAN_FINISHED: "a later scan ended",
}

ENDING_KINDS = tuple(dict.fromkeys(kind for kinds in (*ENDED_BY.values(), *ENDED_BY_ANY.values()) for kind in kinds))
"""The events that have to be looked up."""


def incidents(groups: Sequence[EventGroup], endings: Sequence[EventGroup]) -> tuple[Incident, ...]:
    """Every group of warnings or errors with what became of it, those first that nothing has ended, then by time."""
    found = [_incident(group, endings) for group in groups]
    return tuple(sorted(found, key=lambda one: (one.resolved_at_s is not None, -one.last_at_s)))


def _incident(group: EventGroup, endings: Sequence[EventGroup]) -> Incident:
    same, any_subject = ENDED_BY.get(group.kind, ()), ENDED_BY_ANY.get(group.kind, ())
    ended = [
        ending
        for ending in endings
        if ending.last_at_s > group.last_at_s
        and (ending.kind in any_subject or (ending.kind in same and _is_about(group.subject, ending.subject)))
    ]
    first = min(ended, key=lambda ending: ending.last_at_s, default=None)
    return Incident(
        kind=group.kind,
        severity=group.severity,
        subject=group.subject,
        count=group.count,
        first_at_s=group.first_at_s,
        last_at_s=group.last_at_s,
        message=group.message,
        resolved_at_s=None if first is None else first.last_at_s,
        resolution="" if first is None else _WORDS[first.kind],
    )


def _is_about(subject: str, ending: str) -> bool:
    """Whether what has ended is what the incident was about, or holds it (`batch 1` and `batch 1: chunk 7`)."""
    return subject == ending or subject.startswith((f"{ending}:", f"{ending},", f"{ending} "))
